package plan

import (
	"maps"
	"slices"
	"time"

	"github.com/graspsync/graspsync/filters"
)

type historicSync struct {
	*core
	repos   *repoSyncIndex
	pending *pendingSyncIndex
}

// itemStatus is the status of a wanted item on one relay.
type itemStatus uint8

const (
	todo itemStatus = iota + 1
	inFlight
	confirmed
	statuses
)

type historyState struct {
	repos    *repoSyncIndex
	items    map[Item]itemStatus
	tiers    [tiers]historyTier
	ofStatus [statuses]int           // of layers 1 to 3
	resume   map[Item]*batchProgress // progress of todo items
	changed  bool                    // since the last checkpoint, in layers 1 to 3
}

type historyTier struct {
	todo  map[Item]struct{}
	queue []itemGroup
}

// leastCompared is the minimum number of items of layer 4 in a reconciliation, which costs more
// than a few events.
const leastCompared = filters.MaxValues / 4

// due reports whether items are todo. Layer 4 has one batch at a time.
func (h *historicSync) due(r *relayState, _ time.Time) bool {
	return len(r.history.tiers[mainTier].todo) > 0 ||
		len(r.history.tiers[threadTier].todo) > 0 && !r.pending.runs(func(b *batch) bool { return b.of == h && b.thread })
}

func (h *historicSync) start(r *relayState, now time.Time) {
	t := &r.history.tiers[mainTier]
	thread := len(t.todo) == 0
	if thread {
		t = &r.history.tiers[threadTier]
	}
	if len(t.queue) == 0 {
		t.queue = h.repos.groups(slices.Collect(maps.Keys(t.todo)), r.history.resume)
	}
	g := t.queue[0]
	if t.queue = t.queue[1:]; len(t.queue) == 0 {
		t.queue = nil
	}
	items := slices.DeleteFunc(g.items, func(it Item) bool {
		return !has(t.todo, it) || r.history.resume[it] != g.resume
	})
	if len(items) == 0 {
		return
	}
	kind := History
	if g.resume != nil && g.resume.daily {
		kind = DailyHistory
	}
	qs := h.pending.queries(r, h.repos.itemFilters(items), 0, g.resume)
	for _, it := range items {
		r.history.set(it, inFlight)
	}
	if len(qs) == 0 {
		h.confirm(r, items)
		return
	}
	for i := range qs {
		qs[i].NoNegentropy = thread && len(items) < leastCompared
	}
	h.pending.start(r, &batch{of: h, kind: kind, items: items, thread: thread}, qs, now)
}

func (h *historicSync) done(r *relayState, b *batch) { h.confirm(r, b.items) }

func (h *historicSync) failed(r *relayState, b *batch, in Done) {
	byOld := make(map[*batchProgress]*batchProgress)
	for _, it := range b.items {
		old := r.history.resume[it]
		merged, ok := byOld[old]
		if !ok {
			merged = merge(old, b.queries, in.Cursors, b.kind == DailyHistory)
			byOld[old] = merged
		}
		if merged == nil {
			delete(r.history.resume, it)
		} else {
			r.history.resume[it] = merged
		}
		r.history.set(it, todo)
	}
}

func (h *historicSync) confirm(r *relayState, items []Item) {
	for _, it := range items {
		if r.history.items[it] == inFlight {
			r.history.set(it, confirmed)
		}
	}
}

func (h *historyState) add(it Item) bool {
	if h.items[it] != 0 {
		return false
	}
	h.change(it, todo)
	return true
}

func (h *historyState) remove(it Item) itemStatus {
	st := h.items[it]
	if st != 0 {
		h.change(it, 0)
	}
	return st
}

func (h *historyState) set(it Item, to itemStatus) {
	if h.items[it] != 0 {
		h.change(it, to)
	}
}

func (h *historyState) change(it Item, to itemStatus) {
	from, t := h.items[it], h.repos.tier(it)
	if from == to {
		return
	}
	if t == mainTier {
		h.changed = h.changed || from == confirmed || to == confirmed
		h.ofStatus[from]--
		h.ofStatus[to]++
	}
	drop(&h.tiers[t].todo, it)
	if h.items[it] = to; to == todo {
		put(&h.tiers[t].todo, it)
	}
	if to == 0 || to == confirmed {
		delete(h.resume, it)
	}
	if to == 0 {
		delete(h.items, it)
	}
}

func (h *historyState) requeue() {
	for t := range h.tiers {
		h.tiers[t].queue = nil
	}
}

func (h *historyState) forget() {
	clear(h.resume)
	h.requeue()
	for it := range h.items {
		h.set(it, todo)
	}
}

// redo makes confirmed items todo from the start.
func (h *historyState) redo(items []Item) {
	h.requeue()
	mark := &batchProgress{daily: true} // items with one mark are requested together
	for _, it := range items {
		if h.items[it] == confirmed {
			h.resume[it] = mark
			h.set(it, todo)
		}
	}
}

func (h *historyState) partlyFetched() (items []Item) {
	for it, st := range h.items {
		if st == confirmed || st == inFlight || h.resume[it] != nil {
			items = append(items, it)
		}
	}
	return items
}
