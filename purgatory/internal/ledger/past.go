package ledger

import (
	"time"

	"github.com/graspsync/graspsync"
)

// past is what is remembered of what waits no longer.
type past struct {
	most   time.Duration // that it is remembered
	gone   gone[graspsync.EventID]
	left   gone[graspsync.RepoRef] // by their owners
	leftBy map[graspsync.RepoRef]graspsync.Stamp
}

func newPast(n int, most time.Duration) past {
	return past{
		most: most, gone: newGone[graspsync.EventID](n), left: newGone[graspsync.RepoRef](n), leftBy: make(map[graspsync.RepoRef]graspsync.Stamp),
	}
}

// RememberExpired notes that an id waited in vain; a time that was read from a disk may be too
// far off. It returns what is forgotten for it, or itself if its time is over.
func (p *past) RememberExpired(now time.Time, id graspsync.EventID, until time.Time) (forgotten []graspsync.EventID) {
	if latest := now.Add(p.most); until.After(latest) {
		until = latest
	}
	if !now.Before(until) {
		return []graspsync.EventID{id}
	}
	return p.gone.add(id, now, steady(now, until))
}

// Again forgets that an id waited in vain, since it waits anew. It reports whether it did.
func (p *past) Again(id graspsync.EventID) bool { return p.gone.forget(id) }

// HasExpired reports whether an id waited in vain.
func (p *past) HasExpired(id graspsync.EventID, now time.Time) bool { return p.gone.has(id, now) }

// CountExpired returns how many ids have waited in vain.
func (p *past) CountExpired(now time.Time) (n int) {
	for _, until := range p.gone.until.All() {
		if now.Before(until) {
			n++
		}
	}
	return n
}

// Leave remembers the version of an announcement that makes its repository not ours, and that
// waits no longer: older ones do not come back. It returns for whose repositories that is
// forgotten for it, or this one if its time is over.
func (p *past) Leave(now time.Time, ref graspsync.RepoRef, v graspsync.Stamp, until time.Time) (forgotten []graspsync.RepoRef) {
	if latest := now.Add(p.most); until.After(latest) {
		until = latest
	}
	if !now.Before(until) {
		return []graspsync.RepoRef{ref}
	}
	if old, again := p.leftBy[ref]; !again || v.Newer(old) {
		p.leftBy[ref] = v
	}
	forgotten = p.left.add(ref, now, steady(now, until))
	for _, old := range forgotten {
		delete(p.leftBy, old)
	}
	return forgotten
}

// HasLeft reports whether an announcement is older than one by which its repository is not ours.
func (p *past) HasLeft(now time.Time, e Entry) bool {
	return e.announces() && p.left.has(e.Repos[0], now) && p.leftBy[e.Repos[0]].Newer(e.Version)
}
