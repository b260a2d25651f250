package eventstoreadapter

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fiatjaf/eventstore"
	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync/adapter/internal/asker"
	"github.com/graspsync/graspsync/internal/backendcaps"
	"github.com/graspsync/graspsync/limit"
)

// guard calls a backend, and turns its panics into errors.
type guard struct {
	backend eventstore.Store
	traits  backendcaps.Caps
	turn    *limit.Slots // one place for all calls; nil without serialization
	places  *limit.Slots // pages that are read for clients
	answers *limit.Slots // bytes of answers that clients have not read
	lock    *os.File     // or nil
	calls   sync.WaitGroup

	mu     sync.Mutex
	closed bool // guarded by mu

	trouble atomic.Pointer[trouble] // nil: the last write succeeded
}

type trouble struct {
	at    time.Time
	err   error
	times int
}

// troubleLeast is in successive failures, because one may be due to an event of a stranger.
const troubleLeast = 3

const troublePeriod = time.Minute

func (g *guard) wrote(ctx context.Context, err error) {
	switch {
	case err == nil:
		g.trouble.Store(nil)
	case ctx.Err() == nil && errors.Is(err, ErrBackend):
		now := &trouble{time.Now(), err, 1}
		if before := g.trouble.Load(); before != nil {
			now.times += before.times
		}
		g.trouble.Store(now) // a concurrent failure may get lost
	}
}

func (g *guard) writable() error {
	if t := g.trouble.Load(); t != nil && t.times >= troubleLeast && time.Since(t.at) < troublePeriod {
		return t.err
	}
	return nil
}

const (
	fewestPlaces = 4
	// Bytes of one answer, of the unread answers of one client, and of all unread answers.
	maxAnswer, answersPart, maxAnswers = 8 << 20, 32 << 20, 128 << 20
	smallAnswer                        = 64 << 10
	// A client that reads less than slowBytes in slowAfter is disconnected while others wait.
	slowAfter, slowBytes = 2 * time.Second, 128 << 10
)

func newGuard(backend eventstore.Store, t backendcaps.Caps, lock *os.File) *guard {
	g := &guard{
		backend: backend, traits: t, lock: lock,
		places:  limit.NewSlots(int64(max(fewestPlaces, runtime.GOMAXPROCS(0))), 1),
		answers: limit.NewSlots(maxAnswers, answersPart),
	}
	if t.Memory {
		g.turn = limit.NewSlots(1, 1)
	}
	return g
}

type reading struct{}

// forClient returns a context whose queries take a place.
func forClient(ctx context.Context) context.Context { return context.WithValue(ctx, reading{}, true) }

func (g *guard) close() error {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	idle := make(chan struct{})
	go func() {
		g.calls.Wait()
		close(idle)
	}()
	select {
	case <-idle:
		if g.lock != nil {
			_ = g.lock.Close() // a second call fails, which is ignored
		}
		return nil
	case <-time.After(closeWait):
		return fmt.Errorf("%w: it still answers after %v", ErrBackend, closeWait)
	}
}

func (g *guard) call(ctx context.Context, what string, f func() error) (err error) {
	var slots []*limit.Slot
	defer func() {
		for _, slot := range slots {
			slot.Release()
		}
		if err != nil {
			err = fmt.Errorf("%s: %w", what, err)
		}
	}()
	for _, of := range []*limit.Slots{g.places, g.turn} {
		if of == nil || of == g.places && ctx.Value(reading{}) == nil {
			continue
		}
		slot, err := of.Acquire(ctx, asker.Of(ctx), 1)
		if err != nil {
			return err
		}
		slots = append(slots, slot)
	}
	if !g.begin() {
		return ErrClosed
	}
	defer g.calls.Done()
	if err := ctx.Err(); err != nil {
		return err
	}
	return protect(f)
}

func (g *guard) begin() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.closed {
		g.calls.Add(1)
	}
	return !g.closed
}

func protect(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: panic: %v", ErrBackend, p)
		}
	}()
	return f()
}

const maxRecounts = 3

// query returns the whole answer. A count confirms an empty one, because backends also close the channel
// when reading fails. exempt lifts the limit of the backend.
func (g *guard) query(ctx context.Context, f nostr.Filter, exempt bool) (events []*nostr.Event, err error) {
	for range maxRecounts {
		events, err := g.once(ctx, f, exempt)
		if err != nil || len(events) > 0 {
			return events, err
		}
		if n, err := g.count(ctx, f); err != nil || n == 0 {
			return nil, err
		}
	}
	return nil, fmt.Errorf("querying the backend: %w: no answer where it counts some", ErrBackend)
}

func (g *guard) count(ctx context.Context, f nostr.Filter) (n int64, err error) {
	counter, ok := g.backend.(eventstore.Counter)
	if !ok || g.traits.Uncounted {
		return 0, nil
	}
	if f.Limit = 0; g.traits.Memory && f.Since != nil {
		f.Since = ptr(*f.Since + 1) // slicestore counts events at Since, but does not return them
	}
	err = g.call(ctx, "counting events", func() error {
		if n, err = counter.CountEvents(context.WithoutCancel(ctx), f); err != nil {
			return fmt.Errorf("%w: %w", ErrBackend, err)
		}
		return nil
	})
	return n, err
}

// once queries without the end of ctx, because backends do not close the channel of a canceled query.
func (g *guard) once(ctx context.Context, f nostr.Filter, exempt bool) (events []*nostr.Event, err error) {
	whole := context.WithoutCancel(ctx)
	if exempt {
		whole = eventstore.SetNegentropy(whole)
	}
	err = g.call(ctx, "querying the backend", func() error {
		ch, err := g.backend.QueryEvents(whole, f)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrBackend, err)
		}
		if ch == nil {
			return fmt.Errorf("%w: no channel", ErrBackend)
		}
		for e := range ch {
			if e != nil {
				events = append(events, e)
			}
		}
		return ctx.Err()
	})
	return events, err
}

func ptr[T any](v T) *T { return &v }
