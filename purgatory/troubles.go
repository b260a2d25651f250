package purgatory

import (
	"errors"
	"maps"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/purgatory/internal/refplan"
)

const (
	// troubleAlone is how often something may fail for one repository while it works for others, before what waits
	// with it expires as all else does: it is not our store, git or disk that fails. A day has so many tries.
	troubleAlone = 288
	// troubleFor is how long a failure counts that was not repeated: by then it was tried again, if anybody still
	// wanted it.
	troubleFor = 2 * retryMost
)

// localFaults knows where something of ours failed when it was tried last: the store, git, the disk. What waits there
// may be complete, and does not expire meanwhile. All of it is tried again until it works, so that nothing stays here
// for longer than that takes.
type localFaults struct {
	saved   func() uint64 // released events so far
	worked  uint64        // looks, surveys and fetches so far
	hunts   time.Duration // the longest wait between two of them
	looks   map[graspsync.RepoRef]localFault
	surveys map[string]localFault
	fetches map[graspsync.RepoRef]localFault
}

// localFault is what failed, time and again.
type localFault struct {
	until   time.Time // it counts
	storing bool      // it was the store that failed
	others  uint64    // what had worked by the last failure
	alone   int       // failures while others worked
}

func newLocalFaults(saved func() uint64, hunts time.Duration) *localFaults {
	return &localFaults{
		saved: saved, hunts: hunts, looks: make(map[graspsync.RepoRef]localFault),
		surveys: make(map[string]localFault), fetches: make(map[graspsync.RepoRef]localFault),
	}
}

func (t *localFaults) released(now time.Time, ref graspsync.RepoRef, err error) {
	note(t, t.looks, now.Add(troubleFor), ref, err)
}

func (t *localFaults) surveyed(now time.Time, identifier string, err error) {
	note(t, t.surveys, now.Add(troubleFor), identifier, err)
}

// fetched is told what failed here when a server was asked for a repository. That is tried again by the next hunt.
func (t *localFaults) fetched(now time.Time, ref graspsync.RepoRef, err error) {
	note(t, t.fetches, now.Add(troubleFor+t.hunts), ref, err)
}

func note[K comparable](t *localFaults, in map[K]localFault, until time.Time, of K, err error) {
	if err == nil || errors.Is(err, errLong) { // to be long is the repository's own
		t.worked++
		delete(in, of)
		return
	}
	x, again := in[of]
	storing, others := errors.Is(err, errUnsaved), t.worked
	if storing { // to look at others takes no store
		others = t.saved()
	}
	if again && x.storing == storing && others > x.others {
		x.alone++
	}
	x.until, x.storing, x.others = until, storing, others
	in[of] = x
}

// lapse forgets what is not tried any more.
func (t *localFaults) lapse(now time.Time) {
	lapse(t.looks, now)
	lapse(t.surveys, now)
	lapse(t.fetches, now)
}

func lapse[K comparable](of map[K]localFault, now time.Time) {
	maps.DeleteFunc(of, func(_ K, x localFault) bool { return now.After(x.until) })
}

// keep reports whether an entry may be complete, and would be served if nothing of ours failed. A look that fails has
// come to none of those behind, and a survey to no repository of that identifier.
func (t *localFaults) keep(e refplan.Entry) bool {
	for _, ref := range e.Repos {
		if counts(t.looks, ref) || counts(t.surveys, ref.Identifier) || counts(t.fetches, ref) {
			return true
		}
	}
	return false
}

func counts[K comparable](of map[K]localFault, k K) bool {
	x, is := of[k]
	return is && x.alone < troubleAlone
}
