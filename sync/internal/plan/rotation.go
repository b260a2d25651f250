package plan

import (
	"slices"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/filters"
)

// rotation asks about the root events that are not tracked, a slice at each pass.
type rotation struct {
	*common
	want    *want
	batches *batches
}

// rotationState is where a relay is in the rotation over the rest.
type rotationState struct {
	repo    graspsync.RepoRef // the last one asked about was id of repo
	id      graspsync.EventID
	chunks  []sweepChunk // to be asked about in this pass
	retryAt time.Time
}

type sweepChunk struct {
	ids   []graspsync.EventID
	tries int
}

type sweepAt struct {
	repo graspsync.RepoRef
	id   graspsync.EventID
}

func (a sweepAt) compare(b sweepAt) int {
	if c := a.repo.Compare(b.repo); c != 0 {
		return c
	}
	return a.id.Compare(b.id)
}

// maxSweepTries is how often a chunk is asked about before it has to wait for its
// next turn.
const maxSweepTries = 3

// queue queues the next n root events of the rotation.
func (ro *rotation) queue(r *relay, n int) {
	if len(ro.want.resting) == 0 || len(r.rotation.chunks) > 0 {
		return
	}
	var repos []*repo
	for repo := range ro.want.resting {
		if repo.follows(r) {
			repos = append(repos, repo)
		}
	}
	slices.SortFunc(repos, func(a, b *repo) int { return a.ref.Compare(b.ref) })
	// From the last one to the end, then from the start.
	var before, after []sweepAt
	for _, repo := range repos {
		for _, id := range sortedBy(repo.rest, graspsync.EventID.Compare) {
			at := sweepAt{repo.ref, id}
			if at.compare(sweepAt{r.rotation.repo, r.rotation.id}) <= 0 {
				before = append(before, at)
			} else {
				after = append(after, at)
			}
		}
	}
	turn := append(after, before...)
	turn = turn[:min(n, len(turn))]
	for chunk := range slices.Chunk(turn, filters.MaxValues) {
		c := sweepChunk{ids: make([]graspsync.EventID, len(chunk))}
		for i, at := range chunk {
			c.ids[i] = at.id
			r.rotation.repo, r.rotation.id = at.repo, at.id
		}
		r.rotation.chunks = append(r.rotation.chunks, c)
	}
}

func (ro *rotation) due(r *relay, now time.Time) bool {
	return len(r.rotation.chunks) > 0 && !now.Before(r.rotation.retryAt)
}

func (ro *rotation) start(r *relay, now time.Time) {
	c := r.rotation.chunks[0]
	r.rotation.chunks = r.rotation.chunks[1:]
	r.rotation.retryAt = time.Time{}
	qs, roles := ro.batches.queries(r, filters.Roots(c.ids), 0, nil)
	if len(qs) > 0 {
		ro.batches.start(r, &batch{of: ro, kind: History, roles: roles, sweep: &c}, qs, now)
	}
}

func (ro *rotation) done(*relay, *batch, bool) {}

// failed has a chunk asked about again, a few times.
func (ro *rotation) failed(r *relay, b *batch, in Done, until time.Time) {
	if in.Unsaved {
		b.sweep.tries--
	}
	if b.sweep.tries++; b.sweep.tries < maxSweepTries {
		r.rotation.chunks = append(r.rotation.chunks, *b.sweep)
		r.rotation.retryAt = until
	}
}

// lost has a chunk asked about again.
func (ro *rotation) lost(r *relay, b *batch, _ []Cursor) {
	r.rotation.chunks = append(r.rotation.chunks, *b.sweep)
}
