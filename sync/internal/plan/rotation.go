package plan

import (
	"slices"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/filters"
)

// rotation requests some untracked root events in each pass.
type rotation struct {
	*core
	repos   *repoSyncIndex
	pending *pendingSyncIndex
}

type rotationState struct {
	repo    graspsync.RepoRef // the last requested root event: its repository and id
	id      graspsync.EventID
	chunks  []rootChunk // to request in this pass
	retryAt time.Time
}

type rootChunk struct {
	ids   []graspsync.EventID
	tries int
}

type rootAt struct {
	repo graspsync.RepoRef
	id   graspsync.EventID
}

func (a rootAt) compare(b rootAt) int {
	if c := a.repo.Compare(b.repo); c != 0 {
		return c
	}
	return a.id.Compare(b.id)
}

// maxChunkTries is the maximum number of attempts per chunk and pass.
const maxChunkTries = 3

// queue queues the next n root events of the rotation.
func (ro *rotation) queue(r *relayState, n int) {
	if len(ro.repos.overfull) == 0 || len(r.rotation.chunks) > 0 {
		return
	}
	var repos []*repo
	for repo := range ro.repos.overfull {
		if repo.follows(r) {
			repos = append(repos, repo)
		}
	}
	slices.SortFunc(repos, func(a, b *repo) int { return a.ref.Compare(b.ref) })
	// From the position to the end, then from the start.
	var before, after []rootAt
	for _, repo := range repos {
		for _, id := range sortedBy(repo.untracked, graspsync.EventID.Compare) {
			at := rootAt{repo.ref, id}
			if at.compare(rootAt{r.rotation.repo, r.rotation.id}) <= 0 {
				before = append(before, at)
			} else {
				after = append(after, at)
			}
		}
	}
	turn := append(after, before...)
	turn = turn[:min(n, len(turn))]
	for chunk := range slices.Chunk(turn, filters.MaxValues) {
		c := rootChunk{ids: make([]graspsync.EventID, len(chunk))}
		for i, at := range chunk {
			c.ids[i] = at.id
			r.rotation.repo, r.rotation.id = at.repo, at.id
		}
		r.rotation.chunks = append(r.rotation.chunks, c)
	}
}

func (ro *rotation) due(r *relayState, now time.Time) bool {
	return len(r.rotation.chunks) > 0 && !now.Before(r.rotation.retryAt)
}

func (ro *rotation) start(r *relayState, now time.Time) {
	c := r.rotation.chunks[0]
	r.rotation.chunks = r.rotation.chunks[1:]
	r.rotation.retryAt = time.Time{}
	qs, roles := ro.pending.queries(r, filters.Roots(c.ids), 0, nil)
	if len(qs) > 0 {
		ro.pending.start(r, &batch{of: ro, kind: History, roles: roles, chunk: &c}, qs, now)
	}
}

func (ro *rotation) done(*relayState, *batch, bool) {}

// failed queues a chunk again, up to maxChunkTries.
func (ro *rotation) failed(r *relayState, b *batch, in Done, until time.Time) {
	if in.Unsaved {
		b.chunk.tries--
	}
	if b.chunk.tries++; b.chunk.tries < maxChunkTries {
		r.rotation.chunks = append(r.rotation.chunks, *b.chunk)
		r.rotation.retryAt = until
	}
}

func (ro *rotation) lost(r *relayState, b *batch, _ []Cursor) {
	r.rotation.chunks = append(r.rotation.chunks, *b.chunk)
}
