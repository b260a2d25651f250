package purgatory

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/internal/refplan"
)

// orphanHold is the minimum time for which the ref of a pull request without event stays.
const orphanHold = 20 * time.Minute

// repoTable holds one record per repository with known state. Records are in memory. All methods may be called concurrently.
type repoTable struct {
	mu sync.Mutex
	// guarded by mu
	records map[string]map[graspsync.RepoRef]*repoState // by identifier; empty records are deleted
	touches uint64                                      // number of the last touch
}

type repoState struct {
	need      refplan.Need                    // as of the last release; empty if nothing is missing
	hopeless  bool                            // no server has the missing objects
	touched   uint64                          // number of the touch that asks for a release; 0: none
	served    chan struct{}                   // closed when no touch is left or a release has failed; nil: nobody waits
	releasing bool                            // a release is under way
	pushed    map[nip34.RefName]struct{}      // branches and tags moved by pushes while a state was held
	unfit     map[graspsync.EventID]struct{}  // states that git refused
	orphans   map[graspsync.EventID]time.Time // refs of pull requests without event, with the time of discovery
	pulls     *prUsage                        // nil: not measured
	pushes    int                             // number of pushes and fetches since the last maintenance
	fault     time.Time                       // last failure of our store, git or disk, until a release succeeds
}

func (s *repoState) isEmpty() bool {
	return len(s.need.IDs) == 0 && s.touched == 0 && s.served == nil && !s.releasing && len(s.pushed) == 0 &&
		len(s.unfit) == 0 && len(s.orphans) == 0 && s.pulls == nil && s.pushes == 0 && s.fault.IsZero()
}

func newRepoTable() *repoTable {
	return &repoTable{records: make(map[string]map[graspsync.RepoRef]*repoState)}
}

// change calls f with the record of a repository, creating it if necessary.
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

// touch makes the next survey of the identifier release a repository.
func (t *repoTable) touch(ref graspsync.RepoRef) { t.change(ref, t.touchLocked) }

func (t *repoTable) touchLocked(s *repoState) {
	t.touches++
	s.touched = t.touches
}

// untouch removes a touch, unless a later one followed.
func (s *repoState) untouch(number uint64) {
	if s.touched == number {
		s.touched = 0
		s.wake()
	}
}

// wake ends the wait of callers of WaitServed.
func (s *repoState) wake() {
	if s.served != nil {
		close(s.served)
		s.served = nil
	}
}

// needsNothing records that nothing is missing, and reports whether objects were missing before.
func (s *repoState) needsNothing() (did bool) {
	did = len(s.need.IDs) > 0
	s.need, s.hopeless = refplan.Need{}, false
	return did
}

// beginRelease records the start of a release, and returns the last touch.
func (t *repoTable) beginRelease(ref graspsync.RepoRef) (number uint64) {
	t.change(ref, func(s *repoState) { s.releasing, number = true, s.touched })
	return number
}

// endRelease records the end of a release. If it took too long, the wait of callers goes on, because
// the release is repeated soon.
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

// await implements [Purgatory.WaitServed].
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

// pushedRefs returns the branches and tags that pushes moved while a state was held.
func (t *repoTable) pushedRefs(ref graspsync.RepoRef) (refs map[nip34.RefName]struct{}) {
	t.change(ref, func(s *repoState) { refs = maps.Clone(s.pushed) })
	return refs
}

// note records the result of a release. A failed release is repeated. Pushed refs are forgotten if
// no held state keeps their values. The repository is locked.
func (t *repoTable) note(g *refplan.Group, r *repository, n refplan.Need, number uint64) (f releaseResult) {
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
		f.gained = r.gained || slices.ContainsFunc(s.need.IDs, r.Has)
		if len(n.IDs) == 0 {
			f.whole = s.needsNothing()
		} else {
			f.need, s.need = n, n
		}
		s.unfit = r.Unfit
	})
	return f
}

// noteGone records that a repository has no announcement, and reports whether objects were missing.
func (t *repoTable) noteGone(ref graspsync.RepoRef, number uint64) (did bool) {
	t.change(ref, func(s *repoState) {
		s.untouch(number)
		did = s.needsNothing()
	})
	return did
}

// forget deletes the records about the removed folder of a repository.
func (t *repoTable) forget(ref graspsync.RepoRef) {
	t.change(ref, func(s *repoState) { s.unfit, s.orphans, s.pulls, s.pushes = nil, nil, nil, 0 })
}

// forgetUnfit lets states that git refused be tried again.
func (t *repoTable) forgetUnfit(ref graspsync.RepoRef) {
	t.change(ref, func(s *repoState) { s.unfit = nil })
}

// setHopeless records that no server has the missing objects.
func (t *repoTable) setHopeless(ref graspsync.RepoRef, is bool) {
	t.change(ref, func(s *repoState) { s.hopeless = is && len(s.need.IDs) > 0 })
}

func (t *repoTable) lacked(ref graspsync.RepoRef) (n refplan.Need) {
	t.change(ref, func(s *repoState) { n = s.need })
	return n
}

// addLacking adds the repositories that lack objects or wait for a release. The value reports
// whether a server may have the objects.
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

// lacking returns the repositories with an identifier that lack objects and for which is returns true.
func (t *repoTable) lacking(identifier string, is func(ref graspsync.RepoRef, n refplan.Need) bool) (refs []graspsync.RepoRef) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for ref, s := range t.records[identifier] {
		if len(s.need.IDs) > 0 && is(ref, s.need) {
			refs = append(refs, ref)
		}
	}
	return refs
}

// beginSurvey returns the input of a survey of an identifier. isStale reports whether a need is for
// events that are not all held any more.
func (t *repoTable) beginSurvey(identifier string, isStale func(refplan.Need) bool) *refplan.Survey {
	v := &refplan.Survey{
		Touched: make(map[graspsync.RepoRef]uint64), Releasing: make(map[graspsync.RepoRef]struct{}),
		Lacking: make(map[graspsync.RepoRef]bool), Stale: make(map[graspsync.RepoRef]bool),
	}
	needs := make(map[graspsync.RepoRef]refplan.Need)
	t.mu.Lock()
	for ref, s := range t.records[identifier] {
		if s.touched != 0 {
			v.Touched[ref] = s.touched
		}
		if s.releasing {
			v.Releasing[ref] = struct{}{}
		}
		if len(s.need.IDs) > 0 {
			v.Lacking[ref], needs[ref] = true, s.need
		}
	}
	t.mu.Unlock()
	for ref, n := range needs { // without mu, because isStale takes another lock
		v.Stale[ref] = isStale(n)
	}
	return v
}

// endSurvey records the repositories that need no release and those that lack nothing. Pushed refs
// are forgotten if no state is held.
func (t *repoTable) endSurvey(identifier string, found refplan.AffectedRepos, statesWait bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for ref, number := range found.Untouched {
		t.changeLocked(ref, func(s *repoState) { s.untouch(number) })
	}
	for _, ref := range found.Complete {
		t.changeLocked(ref, func(s *repoState) { s.needsNothing() })
	}
	if statesWait {
		return
	}
	for ref := range t.records[identifier] {
		t.changeLocked(ref, func(s *repoState) { s.pushed = nil })
	}
}

// surveyFailed ends the wait of callers of WaitServed for an identifier.
func (t *repoTable) surveyFailed(identifier string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for ref := range t.records[identifier] {
		t.changeLocked(ref, func(s *repoState) { s.wake() })
	}
}

// recallUnfit copies the states that git refused to r.
func (t *repoTable) recallUnfit(g *refplan.Group, r *refplan.Repository) {
	r.Unfit = make(map[graspsync.EventID]struct{})
	t.change(r.Ref, func(s *repoState) {
		for _, st := range g.Concerning(r) {
			if _, refused := s.unfit[st.ID]; refused {
				r.Unfit[st.ID] = struct{}{}
			}
		}
	})
}

// noteOrphans records refs of pull requests without event. It returns those that were first found
// at least orphanHold ago.
func (t *repoTable) noteOrphans(ref graspsync.RepoRef, ids []graspsync.EventID, now time.Time) (old []graspsync.EventID) {
	t.change(ref, func(s *repoState) {
		found := make(map[graspsync.EventID]time.Time, len(ids))
		for _, id := range ids {
			at, again := s.orphans[id]
			if !again {
				at = now
			}
			found[id] = at
			if now.Sub(at) >= orphanHold {
				old = append(old, id)
			}
		}
		s.orphans = found
	})
	return old
}

// usage returns the usage of pull requests in a repository.
func (t *repoTable) usage(ref graspsync.RepoRef) (u prUsage) {
	t.change(ref, func(s *repoState) {
		if s.pulls != nil {
			u = *s.pulls
		}
	})
	return u
}

func (t *repoTable) changeUsage(ref graspsync.RepoRef, how func(*prUsage)) {
	t.change(ref, func(s *repoState) {
		if s.pulls == nil {
			s.pulls = new(prUsage)
		}
		how(s.pulls)
	})
}

// usages returns the known usages of all repositories.
func (t *repoTable) usages() map[graspsync.RepoRef]prUsage {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := make(map[graspsync.RepoRef]prUsage)
	for _, of := range t.records {
		for ref, s := range of {
			if s.pulls != nil {
				out[ref] = *s.pulls
			}
		}
	}
	return out
}

// failed records a failure of our store, git or disk.
func (t *repoTable) failed(ref graspsync.RepoRef) {
	t.change(ref, func(s *repoState) { s.fault = time.Now() })
}

// hasFailed reports whether our store, git or disk has failed since a time.
func (t *repoTable) hasFailed(ref graspsync.RepoRef, since time.Time) (failed bool) {
	t.change(ref, func(s *repoState) { failed = s.fault.After(since) })
	return failed
}

// addPush counts a push or a fetch, and returns their number since the last maintenance.
func (t *repoTable) addPush(ref graspsync.RepoRef) (n int) {
	t.change(ref, func(s *repoState) {
		s.pushes++
		n = s.pushes
	})
	return n
}

func (t *repoTable) resetPushes(ref graspsync.RepoRef) {
	t.change(ref, func(s *repoState) { s.pushes = 0 })
}
