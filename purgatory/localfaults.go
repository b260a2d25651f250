package purgatory

import (
	"errors"
	"maps"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/purgatory/internal/refplan"
)

const (
	// troubleAlone is the number of failures of one repository, while other jobs succeed, after
	// which its events expire as usual. The cause is then not the store, git or the disk. 288
	// attempts take about a day.
	troubleAlone = 288
	// troubleFor is the time for which a failure counts. If the job was still wanted, it was
	// retried by then.
	troubleFor = 2 * retryMost
)

// localFaults holds the last failures of our own store, git and disk. Events that may be complete
// do not expire while such a failure counts. Each failed job is retried until it succeeds.
type localFaults struct {
	saved   func() uint64 // number of released events
	worked  uint64        // number of successful releases, surveys and fetches
	hunts   time.Duration // the longest wait between two attempts
	looks   map[graspsync.RepoRef]localFault
	surveys map[string]localFault
	fetches map[graspsync.RepoRef]localFault
}

// localFault is a job that failed at its last attempt.
type localFault struct {
	until   time.Time // the failure counts until then
	storing bool      // the store has failed
	others  uint64    // value of saved or worked at the last failure
	alone   int       // number of failures while other jobs succeeded
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

// fetched records a local failure of a fetch. The next attempt repeats the fetch.
func (t *localFaults) fetched(now time.Time, ref graspsync.RepoRef, err error) {
	note(t, t.fetches, now.Add(troubleFor+t.hunts), ref, err)
}

func note[K comparable](t *localFaults, in map[K]localFault, until time.Time, of K, err error) {
	if err == nil || errors.Is(err, errLong) { // a timeout is the fault of the repository
		t.worked++
		delete(in, of)
		return
	}
	x, again := in[of]
	storing, others := errors.Is(err, errUnsaved), t.worked
	if storing { // releases that store nothing do not need the store
		others = t.saved()
	}
	if again && x.storing == storing && others > x.others {
		x.alone++
	}
	x.until, x.storing, x.others = until, storing, others
	in[of] = x
}

// lapse removes failures of jobs that are no longer retried.
func (t *localFaults) lapse(now time.Time) {
	lapse(t.looks, now)
	lapse(t.surveys, now)
	lapse(t.fetches, now)
}

func lapse[K comparable](of map[K]localFault, now time.Time) {
	maps.DeleteFunc(of, func(_ K, x localFault) bool { return now.After(x.until) })
}

// keep reports whether an event may be complete and is only held back by local failures.
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
