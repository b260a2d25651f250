package purgatory

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/internal/refplan"
)

// repoTable holds the data in memory about repositories.
type repoTable struct {
	mu sync.Mutex
	// guarded by mu
	records map[string]map[graspsync.RepoRef]*repoState // by identifier; empty records are deleted
}

type repoState struct {
	need      refplan.Need // as of the last release; empty if nothing is missing
	releasing bool
	pushed    map[nip34.RefName]struct{} // branches and tags moved by pushes while a state was held
	pulls     prUsage                    // zero: not measured
	pushes    int                        // number of pushes and fetches since the last maintenance
	fault     time.Time                  // last failure of our store, git or disk, until a release succeeds
}

func (s *repoState) isEmpty() bool {
	return len(s.need.IDs) == 0 && !s.releasing && len(s.pushed) == 0 &&
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

// clearNeed reports whether objects were missing before.
func (s *repoState) clearNeed() (did bool) {
	did = len(s.need.IDs) > 0
	s.need = refplan.Need{}
	return did
}

func (t *repoTable) beginRelease(ref graspsync.RepoRef) {
	t.change(ref, func(s *repoState) { s.releasing = true })
}

func (t *repoTable) endRelease(ref graspsync.RepoRef, err error) {
	t.change(ref, func(s *repoState) {
		if s.releasing = false; err == nil && time.Since(s.fault) > time.Hour { // a fetch may still fail
			s.fault = time.Time{}
		}
	})
}

func (t *repoTable) isReleasing(e refplan.Entry) bool {
	return slices.ContainsFunc(identifiersOf(e), func(identifier string) bool {
		return len(t.matching(identifier, func(_ graspsync.RepoRef, s *repoState) bool { return s.releasing })) > 0
	})
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

// setNeed records what a repository lacks after a release, and reports whether it lacks nothing any
// more. Pushed refs are forgotten if no held state keeps their values.
func (t *repoTable) setNeed(g *refplan.Group, r *repository, n refplan.Need) (completed bool) {
	t.change(r.Ref, func(s *repoState) {
		for name := range r.Pushed {
			if !g.PushedAhead(r.Repository, name) {
				delete(s.pushed, name)
			}
		}
		if len(n.IDs) == 0 {
			completed = s.clearNeed()
		} else {
			s.need = n
		}
	})
	return completed
}

// gone records that a repository has no announcement or was removed, and reports whether objects were
// missing.
func (t *repoTable) gone(ref graspsync.RepoRef) (did bool) {
	t.change(ref, func(s *repoState) {
		did = s.clearNeed()
		s.pulls, s.pushed, s.pushes = prUsage{}, nil, 0
	})
	return did
}

func (t *repoTable) lacking() (refs []graspsync.RepoRef) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, of := range t.records {
		for ref, s := range of {
			if len(s.need.IDs) > 0 {
				refs = append(refs, ref)
			}
		}
	}
	return refs
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

// recordFault records a failure of our store, git or disk.
func (t *repoTable) recordFault(ref graspsync.RepoRef) {
	t.change(ref, func(s *repoState) { s.fault = time.Now() })
}
