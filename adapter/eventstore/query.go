package eventstoreadapter

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/fiatjaf/eventstore"
	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync/adapter/internal/asker"
	"github.com/graspsync/graspsync/internal/traits"
	"github.com/graspsync/graspsync/limit"
)

// drainIdle is how long a query that was left is still drained after its last
// event, in case the backend never closes the channel.
const drainIdle = 30 * time.Second

// guard makes single calls to a backend safe: panics become errors, channels are
// drained, calls are serialised where that is needed.
type guard struct {
	backend eventstore.Store
	traits  traits.Traits
	turn    chan struct{} // holds one token; nil without serialisation
	places  *limit.Slots  // pages that are read for clients
	answers *limit.Slots  // bytes of answers that clients have not read to their end
	uses    *uses

	trouble atomic.Pointer[trouble] // the last writes failed so; nil: the last one did not
}

// trouble is the last of several writes that failed in a row.
type trouble struct {
	at    time.Time
	err   error
	times int
}

// troubleLeast is how many writes in a row must fail: one event may be of a kind that a backend
// can't save, and whoever sent it must not be able to call the whole of it broken.
const troubleLeast = 3

// troublePeriod is how long a write that failed speaks for the next ones. Nobody may write since it
// failed: whoever keeps clients away for its sake must let them in again to find out.
const troublePeriod = time.Minute

// wrote notes what a write came to. That somebody gave up waiting for it says nothing.
func (g *guard) wrote(ctx context.Context, err error) {
	switch {
	case err == nil:
		g.trouble.Store(nil)
	case ctx.Err() == nil && errors.Is(err, ErrBackend):
		now := &trouble{time.Now(), err, 1}
		if before := g.trouble.Load(); before != nil {
			now.times += before.times
		}
		g.trouble.Store(now) // one that fails at the same time may not be counted
	}
}

// writable returns why the last writes failed, if that is not long ago.
func (g *guard) writable() error {
	if t := g.trouble.Load(); t != nil && t.times >= troubleLeast && time.Since(t.at) < troublePeriod {
		return t.err
	}
	return nil
}

const (
	// fewestPlaces is how many pages are read concurrently on a small machine.
	fewestPlaces = 4
	// maxAnswer is how large an answer is at most, in bytes, unless it has but one event. maxAnswers is the
	// total of those that were not read to their end, and answersPart the part of a client.
	maxAnswer, answersPart, maxAnswers = 8 << 20, 32 << 20, 128 << 20
	smallAnswer                        = 64 << 10
)

func newGuard(backend eventstore.Store, t traits.Traits, lock *os.File) *guard {
	g := &guard{
		backend: backend, traits: t, uses: newUses(lock),
		places:  limit.NewSlots(int64(max(fewestPlaces, runtime.GOMAXPROCS(0))), 1),
		answers: limit.NewSlots(maxAnswers, answersPart),
	}
	if t.Memory {
		g.turn = make(chan struct{}, 1)
	}
	return g
}

// reading is the key of a context whose reads answer a client.
type reading struct{}

// forClient returns a context whose reads take a place. A query keeps its place until the backend is through with it: that
// does not end with the client that asked.
func forClient(ctx context.Context) context.Context { return context.WithValue(ctx, reading{}, true) }

// place waits for a place if a call is for a client.
func (g *guard) place(ctx context.Context) (leave func(), err error) {
	if ctx.Value(reading{}) == nil {
		return func() {}, nil
	}
	slot, err := g.places.Acquire(ctx, asker.Of(ctx), 1)
	if err != nil {
		return nil, err
	}
	return slot.Release, nil
}

// enter waits for this call's turn. It returns what ends it.
func (g *guard) enter(ctx context.Context) (leave func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	done, err := g.place(ctx)
	if err != nil {
		return nil, err
	}
	if err := g.uses.begin(); err != nil {
		done()
		return nil, err
	}
	over := func() { g.uses.end(); done() }
	if g.turn == nil {
		return over, nil
	}
	select {
	case g.turn <- struct{}{}:
		return func() { <-g.turn; over() }, nil
	case <-ctx.Done():
		over()
		return nil, ctx.Err()
	}
}

// call runs one call that is done when it returns.
func (g *guard) call(ctx context.Context, what string, f func() error) (err error) {
	leave, err := g.enter(ctx)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	defer leave()
	if err := protect(f); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// protect turns a panic into an error.
func protect(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: panic: %v", ErrBackend, p)
		}
	}()
	return f()
}

// closed is what backends over badger have: queries of a closed one never end.
type closed interface{ IsClosed() bool }

// maxRecounts is how often an empty answer and a count of more are compared.
const maxRecounts = 3

// query returns the whole answer to one filter. With exempt the query is marked as a reconciliation. An empty answer is
// confirmed by a count, because backends that fail while reading close the channel as if that was all.
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

// count returns the number of events that the backend counts for a query, or 0 if it can't count.
func (g *guard) count(ctx context.Context, f nostr.Filter) (n int64, err error) {
	counter, ok := g.backend.(eventstore.Counter)
	if !ok || g.traits.Uncounted {
		return 0, nil
	}
	if f.Limit = 0; g.traits.Memory && f.Since != nil {
		f.Since = ptr(*f.Since + 1) // it is inclusive in counts
	}
	err = g.call(ctx, "counting events", func() error {
		if n, err = counter.CountEvents(context.WithoutCancel(ctx), f); err != nil {
			return fmt.Errorf("%w: %w", ErrBackend, err)
		}
		return nil
	})
	return n, err
}

// once is query without the count.
func (g *guard) once(ctx context.Context, f nostr.Filter, exempt bool) (events []*nostr.Event, err error) {
	leave, err := g.enter(ctx)
	if err != nil {
		return nil, fmt.Errorf("querying the backend: %w", err)
	}
	ch, err := g.open(ctx, f, exempt)
	if err != nil {
		leave()
		return nil, fmt.Errorf("querying the backend: %w", err)
	}
	for {
		select {
		case event, ok := <-ch:
			if !ok {
				leave()
				return events, nil
			}
			if event != nil {
				events = append(events, event)
			}
		case <-ctx.Done():
			go drain(ch, leave)
			return nil, fmt.Errorf("querying the backend: %w", ctx.Err())
		}
	}
}

func ptr[T any](v T) *T { return &v }

// open starts a query. Backends do not close the channel when their context
// ends, so they get one that does not.
func (g *guard) open(ctx context.Context, f nostr.Filter, exempt bool) (ch chan *nostr.Event, err error) {
	if c, ok := g.backend.(closed); ok {
		var isClosed bool
		if err := protect(func() error { isClosed = c.IsClosed(); return nil }); err != nil {
			return nil, err
		}
		if isClosed {
			return nil, fmt.Errorf("%w: it is closed", ErrBackend)
		}
	}
	ctx = context.WithoutCancel(ctx)
	if exempt {
		ctx = eventstore.SetNegentropy(ctx)
	}
	err = protect(func() error {
		ch, err = g.backend.QueryEvents(ctx, f)
		return err
	})
	switch {
	case errors.Is(err, ErrBackend):
		return nil, err
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrBackend, err)
	case ch == nil:
		return nil, fmt.Errorf("%w: no channel", ErrBackend)
	}
	return ch, nil
}

// drain reads what is left, so that the backend's goroutine ends and lets go of its
// read transaction.
func drain(ch <-chan *nostr.Event, leave func()) {
	defer leave()
	idle := time.NewTimer(drainIdle)
	defer idle.Stop()
	for {
		select {
		case _, ok := <-ch:
			if !ok {
				return
			}
			idle.Reset(drainIdle)
		case <-idle.C:
			return
		}
	}
}
