package purgatory

import (
	"errors"
	"maps"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/purgatory/internal/ledger"
)

const (
	// unsavedAlone is how often something may fail to be stored while other events are, before what waits with it
	// expires as all else does: it is not the store that fails. A day has so many tries.
	unsavedAlone = 288
	// unsavedFor is how long a failure counts that was not repeated: by then it was tried again, if anybody still
	// wanted it.
	unsavedFor = 2 * retryMost
)

// unsaved knows where the last look, or the last survey, found something complete that could not be stored. Both are
// tried again until they succeed, so that nothing stays here for longer than that takes.
type unsaved struct {
	released    func() uint64 // events so far
	repos       map[graspsync.RepoRef]trouble
	identifiers map[string]trouble
}

// trouble is what could not be stored, time and again.
type trouble struct {
	until    time.Time // it counts
	released uint64    // events by the last failure
	alone    int       // failures while others were released
}

func newUnsaved(released func() uint64) *unsaved {
	return &unsaved{released: released, repos: make(map[graspsync.RepoRef]trouble), identifiers: make(map[string]trouble)}
}

func (u *unsaved) looked(now time.Time, ref graspsync.RepoRef, err error) {
	noteUnsaved(u.repos, now, u.released(), ref, err)
}

func (u *unsaved) surveyed(now time.Time, identifier string, err error) {
	noteUnsaved(u.identifiers, now, u.released(), identifier, err)
}

func noteUnsaved[K comparable](in map[K]trouble, now time.Time, released uint64, of K, err error) {
	if !errors.Is(err, errUnsaved) {
		delete(in, of)
		return
	}
	t, again := in[of]
	if again && released > t.released {
		t.alone++
	}
	t.until, t.released = now.Add(unsavedFor), released
	in[of] = t
}

// lapse forgets what is not tried any more.
func (u *unsaved) lapse(now time.Time) {
	maps.DeleteFunc(u.repos, func(_ graspsync.RepoRef, t trouble) bool { return now.After(t.until) })
	maps.DeleteFunc(u.identifiers, func(_ string, t trouble) bool { return now.After(t.until) })
}

// of reports whether an entry may be complete, and would be served if the store did not fail. A look that fails has
// come to none of those behind, and a survey to no repository of that identifier.
func (u *unsaved) of(e ledger.Entry) bool {
	if e.Class == ledger.Placeholder {
		return false
	}
	for _, ref := range e.Repos {
		if t, is := u.repos[ref]; is && t.alone < unsavedAlone {
			return true
		}
		if t, is := u.identifiers[ref.Identifier]; is && t.alone < unsavedAlone {
			return true
		}
	}
	return false
}
