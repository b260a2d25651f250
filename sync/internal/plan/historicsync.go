package plan

import (
	"slices"

	"github.com/graspsync/graspsync/filters"
	"github.com/graspsync/graspsync/sync/internal/lazy"
)

type itemStatus uint8

const (
	todo     itemStatus = iota + 1 // never requested
	again                          // to be requested again in a pass
	inFlight                       // in a batch, open or parked
	confirmed
	statuses
)

type historyState struct {
	repos    *repoSyncIndex
	items    map[Item]itemStatus
	tiers    [tiers]historyTier
	ofStatus [statuses]int // of layers 1 to 3
	changed  bool          // since the last checkpoint, in layers 1 to 3
}

type historyTier struct {
	todo  map[Item]struct{} // todo and again
	queue [][]Item
}

// leastCompared is the minimum number of items of layer 4 in a reconciliation, which costs more
// than a few events.
const leastCompared = filters.MaxValues / 4

// startHistory requests the next items for the first time, or again in a pass.
func (p *Plan) startHistory(r *relayState) bool {
	h, thread := &r.history, false
	t := &h.tiers[mainTier]
	if len(t.todo) == 0 {
		t, thread = &h.tiers[threadTier], true
		if len(t.todo) == 0 || !r.threadsMayRun() {
			return false
		}
	}
	if len(t.queue) == 0 {
		of := map[itemStatus][]Item{}
		for it := range t.todo {
			of[h.items[it]] = append(of[h.items[it]], it)
		}
		t.queue = append(p.repos.groups(of[todo]), p.repos.groups(of[again])...)
	}
	b := &batch{thread: thread}
	b.items = slices.DeleteFunc(t.queue[0], func(it Item) bool { return !has(t.todo, it) })
	if t.queue = t.queue[1:]; len(b.items) == 0 {
		return true
	}
	if h.items[b.items[0]] == again {
		b.Kind = DailyHistory
	}
	for _, it := range b.items {
		h.change(it, inFlight)
	}
	b.Queries = p.queries(b.items, 0)
	for i := range b.Queries {
		b.Queries[i].NoNegentropy = thread && len(b.items) < leastCompared
	}
	p.begin(r, b)
	return true
}

// add adds an item as todo and reports whether it is new.
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

func (h *historyState) change(it Item, to itemStatus) {
	from, t := h.items[it], h.repos.tier(it)
	if t == mainTier {
		h.changed = h.changed || (from == confirmed) != (to == confirmed)
		h.ofStatus[from]--
		h.ofStatus[to]++
	}
	drop(&h.tiers[t].todo, it)
	if h.items[it] = to; to == todo || to == again {
		lazy.Put(&h.tiers[t].todo, it, struct{}{})
	}
	if to == 0 {
		delete(h.items, it)
	}
}

func (h *historyState) redo(items []Item) {
	for _, it := range items {
		if h.items[it] == confirmed {
			h.change(it, again)
		}
	}
}

func (h *historyState) partlyFetched() (items []Item) {
	for it, st := range h.items {
		if st != todo {
			items = append(items, it)
		}
	}
	return items
}
