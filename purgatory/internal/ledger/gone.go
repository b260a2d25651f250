package ledger

import (
	"time"

	"github.com/graspsync/graspsync/internal/bounded"
)

// gone remembers ids of what does not wait any more, until a time and up to a bound.
type gone[ID comparable] struct{ until bounded.Table[ID, time.Time] }

func newGone[ID comparable](most int) gone[ID] { return gone[ID]{bounded.New[ID, time.Time](most)} }

func (g *gone[ID]) has(id ID, now time.Time) bool {
	until, ok := g.until.Get(id)
	return ok && now.Before(until)
}

// add remembers an id, for which the oldest may have to go, as does what is over. It
// returns what is forgotten.
func (g *gone[ID]) add(id ID, now, until time.Time) (forgotten []ID) {
	if old, dropped := g.until.Set(id, until); dropped {
		forgotten = append(forgotten, old)
	}
	for old, until, ok := g.until.Oldest(); ok && !now.Before(until); old, until, ok = g.until.Oldest() {
		g.until.Remove(old)
		forgotten = append(forgotten, old)
	}
	return forgotten
}

// forget has an id taken for one that has not waited.
func (g *gone[ID]) forget(id ID) bool { return g.until.Remove(id) }
