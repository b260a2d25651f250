package ledger

import (
	"time"

	"github.com/graspsync/graspsync/limit"
)

// gone remembers the ids of entries that no longer wait, each until a time.
type gone[ID comparable] struct{ until *limit.Table[ID, time.Time] }

func newGone[ID comparable](most int) gone[ID] {
	return gone[ID]{limit.NewTable[ID, time.Time](most, 0)}
}

func (g *gone[ID]) has(id ID, now time.Time) bool {
	until, ok := g.until.Get(id)
	return ok && now.Before(until)
}

// add remembers an id. It returns the ids that were evicted for it and those whose time is over.
func (g *gone[ID]) add(id ID, now, until time.Time) (forgotten []ID) {
	evicted, _ := g.until.Put(id, limit.Stranger{}, 0, until)
	for _, e := range evicted {
		forgotten = append(forgotten, e.Key)
	}
	over := len(forgotten)
	for id, until := range g.until.All() {
		if now.Before(until) {
			break
		}
		forgotten = append(forgotten, id)
	}
	for _, id := range forgotten[over:] {
		g.until.Delete(id)
	}
	return forgotten
}

// forget removes an id, and reports whether it was remembered.
func (g *gone[ID]) forget(id ID) bool { return g.until.Delete(id) }
