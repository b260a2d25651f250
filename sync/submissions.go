package sync

import (
	"context"
	"sync"

	"github.com/graspsync/graspsync"
)

// maxSubmissions is how many events may wait to be taken in, of which the embedder has said that our
// relay has stored them. They are seldom more than a few.
const maxSubmissions = 256

// submissions is what the embedder says that our relay has stored, until it is taken in, which is soon, and
// in order. Whoever says it waits for nobody who goes through much that is known, unless so much is
// said at once that there is no room: nothing is left out.
type submissions struct {
	take func(graspsync.Event) // takes in one of them
	wake chan struct{}         // one slot: there is something

	mu     sync.Mutex        // held for a moment
	events []graspsync.Event // guarded by mu

	turn  sync.Mutex        // held by who takes them in; taken before mu
	taken []graspsync.Event // guarded by turn: room for the next ones, empty
}

func newSubmissions(take func(graspsync.Event)) *submissions {
	return &submissions{take: take, wake: make(chan struct{}, 1)}
}

// run takes in what is said until ctx ends.
func (s *submissions) run(ctx context.Context) {
	for {
		select {
		case <-s.wake:
			s.takeIn()
		case <-ctx.Done():
			return
		}
	}
}

// stored says that an event was stored.
func (s *submissions) stored(ev graspsync.Event) {
	for !s.add(ev) {
		s.takeIn()
	}
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *submissions) add(ev graspsync.Event) (fits bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.events) >= maxSubmissions {
		return false
	}
	s.events = append(s.events, ev)
	return true
}

// takeIn takes in all that was said before.
func (s *submissions) takeIn() {
	s.turn.Lock()
	defer s.turn.Unlock()
	s.mu.Lock()
	events := s.events
	s.events = s.taken
	s.mu.Unlock()
	for i, ev := range events {
		events[i] = graspsync.Event{} // it may be large
		s.take(ev)
	}
	s.taken = events[:0]
}
