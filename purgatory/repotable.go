package purgatory

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/internal/refplan"
)

// repoTable holds what is known in memory about repositories. All methods may be called
// concurrently.
type repoTable struct {
	mu sync.Mutex
	// guarded by mu
	records map[string]map[graspsync.RepoRef]*repoState // by identifier; empty records are deleted
	touches uint64
}

type repoState struct {
	need      refplan.Need // as of the last release; empty if nothing is missing
	hopeless  bool
	touched   uint64        // number of the touch that asks for a release; 0: none
	served    chan struct{} // closed when no touch is left or a release has failed; nil: nobody waits
	releasing bool
	pushed    map[nip34.RefName]struct{} // branches and tags moved by pushes while a state was held
	pulls     prUsage                    // zero: not measured
	pushes    int                        // number of pushes and fetches since the last maintenance
	fault     time.Time                  // last failure of our store, git or disk, until a release succeeds
}

func (s *repoState) isEmpty() bool {
	return len(s.need.IDs) == 0 && s.touched == 0 && s.served == nil && !s.releasing && len(s.pushed) == 0 &&
		s.pulls == prUsage{} && s.pushes == 0 && s.fault.IsZero()
}

func newRepoTable() *repoTable {
	return &repoTable{records: make(map[string]map[graspsync.RepoRef]*repoState)}
}

func (t *repoTable) change(ref graspsync.RepoRef, f func(*repoState)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.changeLocked(ref, f)
}

func (t *repoTable) changeLocked(ref graspsync.RepoRef, f func(*repoState)) {
	of := t.records[ref.Identifier]
	s := of[ref]
	if s == nil {
		s = new(repoState)
	}
	f(s)
	switch {
	case !s.isEmpty() && of == nil:
		t.records[ref.Identifier] = map[graspsync.RepoRef]*repoState{ref: s}
	case !s.isEmpty():
		of[ref] = s
	default:
		if delete(of, ref); len(of) == 0 {
			delete(t.records, ref.Identifier)
		}
	}
}

// touch records that a repository is to be released. [inbox.release] asks for the release.
func (t *repoTable) touch(ref graspsync.RepoRef) { t.change(ref, t.touchLocked) }

func (t *repoTable) touchLocked(s *repoState) {
	t.touches++
	s.touched = t.touches
}

func (s *repoState) untouch(number uint64) {
	if s.touched == number {
		s.touched = 0
		s.wake()
	}
}

func (s *repoState) wake() {
	if s.served != nil {
		close(s.served)
		s.served = nil
	}
}

// needsNothing reports whether objects were missing before.
func (s *repoState) needsNothing() (did bool) {
	did = len(s.need.IDs) > 0
	s.need, s.hopeless = refplan.Need{}, false
	return did
}

// beginRelease returns the last touch.
func (t *repoTable) beginRelease(ref graspsync.RepoRef) (number uint64) {
	t.change(ref, func(s *repoState) { s.releasing, number = true, s.touched })
	return number
}

// endRelease ends the wait of callers after a failure, unless the release is repeated soon.
func (t *repoTable) endRelease(ref graspsync.RepoRef, err error) {
	t.change(ref, func(s *repoState) {
		if s.releasing = false; err == nil && time.Since(s.fault) > time.Hour { // a fetch may still fail
			s.fault = time.Time{}
		}
		if err != nil && !tookLong(err) {
			s.wake()
		}
	})
}

func (t *repoTable) await(ctx context.Context, ref graspsync.RepoRef) error {
	var served chan struct{}
	t.change(ref, func(s *repoState) {
		if s.touched != 0 && s.served == nil {
			s.served = make(chan struct{})
		}
		served = s.served
	})
	if served == nil {
		return nil
	}
	select {
	case <-served:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("waiting for a look at a repository: %w", context.Cause(ctx))
	}
}

func (t *repoTable) addPushed(ref graspsync.RepoRef, refs []nip34.RefName) {
	t.change(ref, func(s *repoState) {
		if s.pushed == nil {
			s.pushed = make(map[nip34.RefName]struct{})
		}
		for _, name := range refs {
			if refplan.IsState(name) {
				s.pushed[name] = struct{}{}
			}
		}
	})
}

// get returns a copy.
func (t *repoTable) get(ref graspsync.RepoRef) (out repoState) {
	t.change(ref, func(s *repoState) {
		out = *s
		out.pushed = maps.Clone(s.pushed)
	})
	return out
}

// note records the result of a release. Pushed refs are forgotten if no held state keeps their
// values.
func (t *repoTable) note(g *refplan.Group, r *repository, n refplan.Need, number uint64) (f jobEnd) {
	t.change(r.Ref, func(s *repoState) {
		if r.failed != nil {
			t.touchLocked(s)
			return
		}
		for name := range r.Pushed {
			if !g.Ahead(r.Repository, name) {
				delete(s.pushed, name)
			}
		}
		s.untouch(number)
		f.gained = r.gained
		if len(n.IDs) == 0 {
			f.whole = s.needsNothing()
		} else {
			f.need, s.need = n, n
		}
	})
	return f
}

// gone records that a repository has no announcement or was removed, and reports whether objects were
// missing.
func (t *repoTable) gone(ref graspsync.RepoRef, number uint64) (did bool) {
	t.change(ref, func(s *repoState) {
		s.untouch(number)
		did = s.needsNothing()
		s.pulls, s.pushed, s.pushes = prUsage{}, nil, 0
	})
	return did
}

func (t *repoTable) setHopeless(ref graspsync.RepoRef, is bool) {
	t.change(ref, func(s *repoState) { s.hopeless = is && len(s.need.IDs) > 0 })
}

// addLacking adds the repositories that lack objects or wait for a release, as [Purgatory.Lacking]
// does.
func (t *repoTable) addLacking(to map[graspsync.RepoRef]bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, of := range t.records {
		for ref, s := range of {
			switch {
			case len(s.need.IDs) > 0:
				to[ref] = !s.hopeless
			case s.touched != 0:
				to[ref] = true
			}
		}
	}
}

func (t *repoTable) matching(identifier string, is func(ref graspsync.RepoRef, s *repoState) bool) (refs []graspsync.RepoRef) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for ref, s := range t.records[identifier] {
		if is(ref, s) {
			refs = append(refs, ref)
		}
	}
	return refs
}

// lackingUnder returns the repositories with an identifier that lack objects, or may lack some
// because they are being released.
func (t *repoTable) lackingUnder(identifier string) map[graspsync.RepoRef]struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := make(map[graspsync.RepoRef]struct{})
	for ref, s := range t.records[identifier] {
		if s.releasing || len(s.need.IDs) > 0 {
			out[ref] = struct{}{}
		}
	}
	return out
}

// touched returns the repositories that wait for a release.
func (t *repoTable) touched() (refs []graspsync.RepoRef) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, of := range t.records {
		for ref, s := range of {
			if s.touched != 0 {
				refs = append(refs, ref)
			}
		}
	}
	return refs
}

func (t *repoTable) usages() map[graspsync.RepoRef]prUsage {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := make(map[graspsync.RepoRef]prUsage)
	for _, of := range t.records {
		for ref, s := range of {
			if s.pulls != (prUsage{}) {
				out[ref] = s.pulls
			}
		}
	}
	return out
}

// failed records a failure of our store, git or disk.
func (t *repoTable) failed(ref graspsync.RepoRef) {
	t.change(ref, func(s *repoState) { s.fault = time.Now() })
}
