package ledger

import (
	"container/list"
	"time"

	"github.com/graspsync/graspsync/filters"
)

// gone remembers ids of what expired, for a bounded time and up to a bound.
type gone struct {
	most  int
	order *list.List // of goneID, the oldest first
	byID  map[filters.EventID]*list.Element
}

type goneID struct {
	id    filters.EventID
	until time.Time
}

func newGone(most int) gone {
	return gone{most: most, order: list.New(), byID: make(map[filters.EventID]*list.Element)}
}

func (g *gone) has(id filters.EventID, now time.Time) bool {
	e, ok := g.byID[id]
	return ok && now.Before(e.Value.(goneID).until)
}

// add remembers an id, for which the oldest may have to go, as does what is over. It
// returns what is forgotten.
func (g *gone) add(id filters.EventID, now, until time.Time) (forgotten []filters.EventID) {
	if e, ok := g.byID[id]; ok {
		g.order.Remove(e)
	}
	g.byID[id] = g.order.PushBack(goneID{id, until})
	for first := g.order.Front(); first != nil; first = g.order.Front() {
		old := first.Value.(goneID)
		if g.order.Len() <= g.most && now.Before(old.until) {
			break
		}
		delete(g.byID, old.id)
		g.order.Remove(first)
		forgotten = append(forgotten, old.id)
	}
	return forgotten
}

// forget has an id taken for one that has not waited.
func (g *gone) forget(id filters.EventID) bool {
	e, ok := g.byID[id]
	if ok {
		g.order.Remove(e)
		delete(g.byID, id)
	}
	return ok
}

// RememberExpired is for an id that was read from a disk. It returns what is forgotten
// for it, or itself if its time is over.
func (l *Ledger) RememberExpired(now time.Time, id filters.EventID, until time.Time) (forgotten []filters.EventID) {
	if latest := now.Add(l.cfg.Remember); until.After(latest) {
		until = latest
	}
	if !now.Before(until) {
		return []filters.EventID{id}
	}
	return l.gone.add(id, now, steady(now, until))
}

// Again forgets that an id waited in vain, since it waits anew. It reports whether it did.
func (l *Ledger) Again(id filters.EventID) bool { return l.gone.forget(id) }

// HasExpired reports whether an id waited in vain.
func (l *Ledger) HasExpired(id filters.EventID, now time.Time) bool { return l.gone.has(id, now) }
