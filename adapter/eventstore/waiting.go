package eventstoreadapter

import (
	"context"
	"sync"

	"github.com/nbd-wtf/go-nostr"
)

const (
	// maxAnswer is how large an answer is at most, in bytes, unless it has but one event.
	maxAnswer = 8 << 20
	// leastAnswer is how large it may always be.
	leastAnswer = 1 << 20
	// smallAnswer is how large one is that is not counted.
	smallAnswer = 64 << 10
	// maxWaiting is how much all answers take that were not read to their end, but that each has leastAnswer.
	maxWaiting = 128 << 20
	// waitingPart: an answer has no more than such a part of what the others leave.
	waitingPart = 4
)

// waiting are the answers that clients have not read to their end.
type waiting struct {
	mu sync.Mutex
	// guarded by mu
	bytes int
}

// room is how large the next answer may be.
func (w *waiting) room() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return min(maxAnswer, max(leastAnswer, (maxWaiting-w.bytes)/waitingPart))
}

func (w *waiting) add(bytes int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.bytes += bytes
}

// answer has events read one after the other, until ctx ends.
func (w *waiting) answer(ctx context.Context, events []*nostr.Event) chan *nostr.Event {
	bytes := 0
	for _, e := range events {
		bytes += bytesOf(e)
	}
	if bytes <= smallAnswer || len(events) == 1 { // who asks for one may not come back for the end
		ch := make(chan *nostr.Event, len(events))
		for _, e := range events {
			ch <- e
		}
		close(ch)
		return ch
	}
	ch := make(chan *nostr.Event)
	w.add(bytes)
	go func() {
		defer close(ch)
		defer w.add(-bytes)
		for _, e := range events {
			select {
			case ch <- e:
			case <-ctx.Done():
				return
			}
		}
	}()
	return ch
}
