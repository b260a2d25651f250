package ledger

import (
	"time"

	"github.com/graspsync/graspsync"
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

// RememberExpired is for an id that was read from a disk. It returns what is forgotten
// for it, or itself if its time is over.
func (l *Ledger) RememberExpired(now time.Time, id graspsync.EventID, until time.Time) (forgotten []graspsync.EventID) {
	if latest := now.Add(l.cfg.Remember); until.After(latest) {
		until = latest
	}
	if !now.Before(until) {
		return []graspsync.EventID{id}
	}
	return l.gone.add(id, now, steady(now, until))
}

// Again forgets that an id waited in vain, since it waits anew. It reports whether it did.
func (l *Ledger) Again(id graspsync.EventID) bool { return l.gone.forget(id) }

// HasExpired reports whether an id waited in vain.
func (l *Ledger) HasExpired(id graspsync.EventID, now time.Time) bool { return l.gone.has(id, now) }

// Leave remembers the version of an announcement that makes its repository not ours, and that
// waits no longer: older ones do not come back. It returns for whose repositories that is
// forgotten for it, or this one if its time is over.
func (l *Ledger) Leave(now time.Time, ref graspsync.RepoRef, v graspsync.Stamp, until time.Time) (forgotten []graspsync.RepoRef) {
	if latest := now.Add(l.cfg.Remember); until.After(latest) {
		until = latest
	}
	if !now.Before(until) {
		return []graspsync.RepoRef{ref}
	}
	if old, again := l.leftBy[ref]; !again || v.Newer(old) {
		l.leftBy[ref] = v
	}
	forgotten = l.left.add(ref, now, steady(now, until))
	for _, old := range forgotten {
		delete(l.leftBy, old)
	}
	return forgotten
}

// HasLeft reports whether an announcement is older than one by which its repository is not ours.
func (l *Ledger) HasLeft(now time.Time, e Entry) bool {
	return e.announces() && l.left.has(e.Repos[0], now) && l.leftBy[e.Repos[0]].Newer(e.Version)
}
