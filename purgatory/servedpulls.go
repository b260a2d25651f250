package purgatory

import (
	"maps"
	"sync"

	"github.com/graspsync/graspsync"
)

// servedPulls are pull requests that wait on though they are stored: some of their
// repositories do not have their refs.
type servedPulls struct {
	mu sync.Mutex
	in map[graspsync.EventID]map[graspsync.RepoRef]struct{} // guarded by mu; where their refs are
}

func newServedPulls() *servedPulls {
	return &servedPulls{in: make(map[graspsync.EventID]map[graspsync.RepoRef]struct{})}
}

// note notes that a pull request is stored, and whether a repository has its ref. It
// returns all repositories that have it.
func (s *servedPulls) note(id graspsync.EventID, ref graspsync.RepoRef, has bool) map[graspsync.RepoRef]struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.in[id] == nil {
		s.in[id] = make(map[graspsync.RepoRef]struct{})
	}
	if has {
		s.in[id][ref] = struct{}{}
	}
	return maps.Clone(s.in[id])
}

// has reports whether a pull request waits on though it is stored.
func (s *servedPulls) has(id graspsync.EventID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.in[id] != nil
}

// forget is for those that do not wait any more.
func (s *servedPulls) forget(id graspsync.EventID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.in, id)
}
