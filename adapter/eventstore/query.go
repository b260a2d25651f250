package eventstoreadapter

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/fiatjaf/eventstore"
	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync/limit"
)

// drainIdle is how long a query that was left is still drained after its last
// event, in case the backend never closes the channel.
const drainIdle = 30 * time.Second

// maxRecounts is how often an empty answer and a count of more are compared.
const maxRecounts = 3

// guard makes single calls to a backend safe: panics become errors, channels are
// drained, calls are serialised where that is needed.
type guard struct {
	backend eventstore.Store
	profile profile
	turn    chan struct{} // holds one token; nil without serialisation
	places  *limit.Slots  // of what is read for clients
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

func newGuard(backend eventstore.Store, p profile, lock *os.File) *guard {
	g := &guard{backend: backend, profile: p, places: newPlaces(), uses: newUses(lock)}
	if p.memory {
		g.turn = make(chan struct{}, 1)
	}
	return g
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

// query returns the whole answer to one filter, as each has it.
func (g *guard) query(ctx context.Context, f nostr.Filter, exempt bool) (events []*nostr.Event, err error) {
	err = g.each(ctx, f, exempt, func(e *nostr.Event) { events = append(events, e) })
	return events, err
}

// each has take told each event of the whole answer to one filter. With exempt the query is marked
// as a reconciliation. An empty answer is confirmed by a count if the backend can
// count: backends that fail while reading close the channel as if that was all.
func (g *guard) each(ctx context.Context, f nostr.Filter, exempt bool, take func(*nostr.Event)) error {
	for range maxRecounts {
		given, err := g.once(ctx, f, exempt, take)
		if err != nil || given > 0 || !g.counts() {
			return err
		}
		n, err := g.count(ctx, f)
		if err != nil || n == 0 {
			return err
		}
	}
	return fmt.Errorf("querying the backend: %w: no answer where it counts some", ErrBackend)
}

// counts reports whether the backend can count.
func (g *guard) counts() bool {
	_, ok := g.backend.(eventstore.Counter)
	return ok && !g.profile.uncounted
}

// count returns the number of events that the same query would give without a
// limit. Since is inclusive here, whatever it is in queries.
func (g *guard) count(ctx context.Context, f nostr.Filter) (n int, err error) {
	if g.profile.memory && f.Since != nil {
		f.Since = ptr(*f.Since + 1)
	}
	f.Limit = 0
	err = g.call(ctx, "counting events", func() error {
		counter, ok := g.backend.(eventstore.Counter)
		if !ok {
			return fmt.Errorf("%w: it can't count", ErrBackend)
		}
		n64, err := counter.CountEvents(context.WithoutCancel(ctx), f)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrBackend, err)
		}
		n = int(n64)
		return nil
	})
	return n, err
}

func ptr[T any](v T) *T { return &v }

// once is each without the count.
func (g *guard) once(ctx context.Context, f nostr.Filter, exempt bool, take func(*nostr.Event)) (given int, err error) {
	leave, err := g.enter(ctx)
	if err != nil {
		return 0, fmt.Errorf("querying the backend: %w", err)
	}
	ch, err := g.open(ctx, f, exempt)
	if err != nil {
		leave()
		return 0, fmt.Errorf("querying the backend: %w", err)
	}
	for {
		select {
		case event, ok := <-ch:
			if !ok {
				leave()
				return given, nil
			}
			if event != nil {
				given++
				take(event)
			}
		case <-ctx.Done():
			go drain(ch, leave)
			return given, fmt.Errorf("querying the backend: %w", ctx.Err())
		}
	}
}

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
