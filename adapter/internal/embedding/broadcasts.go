package embedding

import (
	"context"
	"log/slog"
	"sync/atomic"
)

// Broadcasts are the synced events that wait for being sent to subscribers, in the type that the relay has for them.
// It is made by [NewBroadcasts], and safe for concurrent use.
type Broadcasts[E any] struct {
	queue   chan E
	log     *slog.Logger
	dropped atomic.Uint64
}

// NewBroadcasts has so many wait at most; more are dropped.
func NewBroadcasts[E any](most int, log *slog.Logger) *Broadcasts[E] {
	return &Broadcasts[E]{queue: make(chan E, most), log: log}
}

// Add has an event sent.
func (b *Broadcasts[E]) Add(e E) {
	select {
	case b.queue <- e:
	default:
		b.dropped.Add(1)
	}
}

// Dropped is how many were dropped, because clients did not read fast enough.
func (b *Broadcasts[E]) Dropped() uint64 { return b.dropped.Load() }

// Waiting is how many wait.
func (b *Broadcasts[E]) Waiting() int { return len(b.queue) }

// Run sends until ctx ends, or longer, while send does not return.
func (b *Broadcasts[E]) Run(ctx context.Context, send func(E)) {
	for {
		select {
		case e := <-b.queue:
			if err := Protect(func() { send(e) }); err != nil {
				b.log.Error("broadcast failed", "err", err)
			}
		case <-ctx.Done():
			return
		}
	}
}
