package purgatory

import (
	"sync"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/purgatory/internal/upkeep"
)

// schedule says which repository is put in order next.
type schedule struct {
	report *report       // set by newSchedule, read-only
	wake   chan struct{} // one slot: something is due

	mu    sync.Mutex
	queue *upkeep.Queue // guarded by mu
}

func newSchedule(report *report) *schedule {
	return &schedule{report: report, wake: make(chan struct{}, 1), queue: upkeep.New(maxUpkeep)}
}

// next takes the repository whose turn it is.
func (s *schedule) next() (ref graspsync.RepoRef, found bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.queue.Next()
}

// spent notes how long a turn of an owner's took.
func (s *schedule) spent(owner graspsync.PubKey, took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queue.Spent(owner, took)
}

// forgive forgets how long the turns of owners took, and returns how many repositories are due.
func (s *schedule) forgive() (due int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queue.Forgive()
	return s.queue.Len()
}

// due is how many repositories wait for their turn.
func (s *schedule) due() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.queue.Len()
}

func (s *schedule) add(ref graspsync.RepoRef) {
	s.mu.Lock()
	added := s.queue.Add(ref)
	s.mu.Unlock()
	if !added {
		s.report.drop("maintenance")
	}
}

// brought notes that data has come to a repository.
func (s *schedule) brought(ref graspsync.RepoRef) {
	s.mu.Lock()
	due := s.queue.Pushed(ref, upkeepPushes)
	s.mu.Unlock()
	if due {
		s.rouse()
	}
}

func (s *schedule) rouse() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}
