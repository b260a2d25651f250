package plan

import (
	"container/heap"
	"math"
	"slices"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/filters"
)

// A repository with more root events than are followed has the newest of them
// tracked: they are items like any other. The rest is known by id only, and at each
// pass a relay is asked about another slice of it.

// restPerRoot bounds the rest: so many times the number of those tracked.
const restPerRoot = 10

// rootTime cuts a created_at to what is kept of it.
func rootTime(t nostr.Timestamp) uint32 { return uint32(min(max(t, 0), math.MaxUint32)) }

// compareRoots orders root events from old to new.
func compareRoots(at, otherAt uint32, id, other graspsync.EventID) int {
	switch {
	case at < otherAt:
		return -1
	case at > otherAt:
		return 1
	}
	return id.Compare(other)
}

// addRoot makes a root event one of a repository's: tracked, or one of the rest.
func (t *targets) addRoot(c RootChange, r *repo) {
	at := rootTime(c.CreatedAt)
	if it, ok := t.want.roots[c.ID]; ok && t.want.belongs(it, r) {
		return
	}
	if _, ok := r.rest[c.ID]; ok {
		return
	}
	if len(r.roots) < t.cfg.MaxRoots {
		t.track(c.ID, at, r)
		return
	}
	h := t.oldestOf(r)
	oldest := t.want.infos[h.items[0]]
	if compareRoots(oldest.at, at, oldest.root, c.ID) > 0 {
		t.rest(c.ID, at, r)
		return
	}
	it := heap.Pop(h).(Item)
	r.oldest = h.items
	t.displace(it, r)
	t.rest(oldest.root, oldest.at, r)
	t.track(c.ID, at, r)
}

// track makes a root event an item of the relays of its repository.
func (t *targets) track(id graspsync.EventID, at uint32, r *repo) {
	it := t.want.addRoot(id, at, r)
	if r.oldest != nil {
		h := &rootHeap{want: t.want, items: r.oldest}
		heap.Push(h, it)
		r.oldest = h.items
	}
	if r.level != LevelFull {
		return
	}
	for _, rel := range r.relays {
		rel.add(it, itemRoot)
		t.markDirty(rel)
	}
}

// displace stops the tracking of a root event for a repository.
func (t *targets) displace(it Item, r *repo) {
	gone := t.want.untrack(it, r)
	for _, rel := range r.relays {
		if gone || !t.want.isTarget(it, rel) {
			rel.remove(it, itemRoot)
			t.markDirty(rel)
		}
	}
	if gone {
		t.want.release(it)
	}
}

// rest takes note of a root event that is not tracked.
func (t *targets) rest(id graspsync.EventID, at uint32, r *repo) {
	if len(r.rest) >= restPerRoot*t.cfg.MaxRoots {
		t.emit(Dropped{Reason: "roots", Count: 1})
		return
	}
	if r.rest == nil {
		r.rest = make(map[graspsync.EventID]uint32)
		t.want.resting[r] = struct{}{}
	}
	r.rest[id] = at
}

// dropRest forgets a root event of the rest of any repository.
func (t *targets) dropRest(id graspsync.EventID) {
	var repos []*repo
	for r := range t.want.resting {
		if _, ok := r.rest[id]; ok {
			repos = append(repos, r)
		}
	}
	slices.SortFunc(repos, func(a, b *repo) int { return a.ref.Compare(b.ref) })
	for _, r := range repos {
		t.unrest(id, r)
		t.want.drop(r)
	}
}

func (t *targets) unrest(id graspsync.EventID, r *repo) {
	if delete(r.rest, id); len(r.rest) == 0 {
		r.rest = nil
		delete(t.want.resting, r)
	}
}

// refill tracks the newest of the rest where there is room again.
func (t *targets) refill(r *repo) {
	for len(r.roots) < t.cfg.MaxRoots && len(r.rest) > 0 {
		var newest graspsync.EventID
		var newestAt uint32
		for id, at := range r.rest {
			if compareRoots(newestAt, at, newest, id) < 0 {
				newest, newestAt = id, at
			}
		}
		t.unrest(newest, r)
		t.track(newest, newestAt, r)
	}
}

// oldestOf returns the heap of a repository's tracked root events.
func (t *targets) oldestOf(r *repo) *rootHeap {
	h := &rootHeap{want: t.want, items: r.oldest}
	if h.items == nil {
		h.items = make([]Item, 0, len(r.roots))
		for it := range r.roots {
			h.items = append(h.items, it)
		}
		heap.Init(h)
		r.oldest = h.items
	}
	return h
}

// rootHeap orders root events from old to new.
type rootHeap struct {
	want  *want
	items []Item
}

func (h *rootHeap) Len() int { return len(h.items) }
func (h *rootHeap) Less(i, j int) bool {
	a, b := &h.want.infos[h.items[i]], &h.want.infos[h.items[j]]
	return compareRoots(a.at, b.at, a.root, b.root) < 0
}
func (h *rootHeap) Swap(i, j int) { h.items[i], h.items[j] = h.items[j], h.items[i] }
func (h *rootHeap) Push(x any)    { h.items = append(h.items, x.(Item)) }
func (h *rootHeap) Pop() any {
	last := len(h.items) - 1
	it := h.items[last]
	h.items = h.items[:last]
	return it
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

// maxSweepTries is how often a chunk is asked about before it has to wait for its
// next turn.
const maxSweepTries = 3

// rotation asks about the root events that are not tracked, a slice at each pass.
type rotation struct {
	*common
	want    *want
	batches *batches
}

// sweepNext queues the next n root events of the rotation.
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

// RootsInRotation returns how many root events are not followed but asked about in
// turn.
func (p *Plan) RootsInRotation() (n int) {
	for r := range p.want.resting {
		n += len(r.rest)
	}
	return n
}
