package sync

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"runtime/debug"
	"sync"
	"time"

	"github.com/graspsync/graspsync/sync/internal/allowance"
	"github.com/graspsync/graspsync/sync/internal/session"
	"github.com/graspsync/graspsync/sync/wire"
)

// errUnproductive ends the connection of a relay that has used up its allowance.
var errUnproductive = errors.New("relay sends nothing that is of use")

// contain runs f. A panic is a bug of ours or of the Transport's, but whatever a
// relay did to provoke it must cost no more than this connection: it becomes an
// error.
func (c *conn) contain(f func()) (err error) {
	defer func() {
		if p := recover(); p != nil {
			c.m.counters.panicked("connection")
			c.m.cfg.Logger.Error("panic in relay connection", keyRelay, c.url.String(),
				keyErr, fmt.Sprint(p), keyStack, string(debug.Stack()))
			err = fmt.Errorf("internal error: %v", p)
		}
	}()
	f()
	return nil
}

const keyStack = "stack"

// stop ends the connection from another goroutine than its own.
func (c *conn) stop(err error) {
	c.mailbox.put(func(*session.Session, time.Time) []session.Action {
		c.end(err)
		return nil
	})
}

// charge takes a message that led to nothing out of the relay's allowance.
func (c *conn) charge(msg wire.Message, actions []session.Action) {
	cost := int64(0)
	switch msg.Type {
	case wire.TypeEvent:
		if !delivers(actions) || c.repeats.seen(msg.Sub, msg.Event.ID) {
			cost = int64(msg.Size)
		}
	case wire.TypeEOSE, wire.TypeClosed, wire.TypeNegMsg, wire.TypeNegErr:
		if len(actions) == 0 {
			cost = int64(msg.Size)
		}
	default: // words, and answers to what was never sent
		cost = int64(msg.Size)
	}
	if d, ok := c.conn.(DropCounter); ok {
		n := d.DroppedBytes()
		cost += int64(n - c.dropped)
		c.dropped = n
	}
	if cost > 0 {
		c.spend(cost)
	}
}

func delivers(actions []session.Action) bool {
	for _, a := range actions {
		if _, ok := a.(session.Deliver); ok {
			return true
		}
	}
	return false
}

// spend takes n bytes out of the relay's allowance, and ends the connection if that
// is more than there is. It may be called by any goroutine.
func (c *conn) spend(n int64) {
	if c.stats.spend(time.Now(), n) {
		return
	}
	c.mailbox.put(func(*session.Session, time.Time) []session.Action {
		if c.ended == nil {
			c.m.counters.drop("unproductive", 1)
			c.end(errUnproductive)
		}
		return nil
	})
}

func (s *relayStats) spend(now time.Time, n int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.allowance.Spend(now, n)
}

func (s *relayStats) earn(n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.allowance.Earn(n)
}

// work is the allowance of a relay for events that were asked for, until they turn out
// to be of use. It is waited for: what a relay holds that is not for us slows down the
// reading of that relay, and costs it nothing else. It bounds as well what of one relay
// is in the pipeline. It may be used by any goroutine.
type work struct {
	most  int64
	freed chan struct{} // one slot: some came back

	mu     sync.Mutex
	bucket allowance.Bucket // guarded by mu
}

func newWork(most int64) *work {
	return &work{most: most, freed: make(chan struct{}, 1), bucket: allowance.NewWork(most)}
}

// take takes what an event of that size costs, when that is there, and returns it. The
// error is that of ctx.
func (w *work) take(ctx context.Context, size int64) (cost int64, err error) {
	cost = allowance.Work(w.most, size)
	for {
		w.mu.Lock()
		wait := w.bucket.Take(time.Now(), cost)
		w.mu.Unlock()
		if wait == 0 {
			return cost, nil
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-w.freed:
			timer.Stop()
		case <-ctx.Done():
			timer.Stop()
			return 0, context.Cause(ctx)
		}
	}
}

// give gives back what was of use.
func (w *work) give(n int64) {
	w.mu.Lock()
	w.bucket.Earn(n)
	w.mu.Unlock()
	select {
	case w.freed <- struct{}{}:
	default:
	}
}

// repeats remembers what came on which subscription, so that a relay which sends
// the same event over and over is noticed. It forgets, in favour of what came later,
// and takes 64 KiB. The zero value is ready.
type repeats struct {
	seed  maphash.Seed
	slots []uint64
}

// seen notes an event, and reports whether it is known to have come before.
func (r *repeats) seen(sub, id string) bool {
	const slots = 8 << 10
	if r.slots == nil {
		r.seed, r.slots = maphash.MakeSeed(), make([]uint64, slots)
	}
	var h maphash.Hash
	h.SetSeed(r.seed)
	_, _ = h.WriteString(sub) // never fails
	_ = h.WriteByte(0)
	_, _ = h.WriteString(id)
	sum := h.Sum64()
	slot := &r.slots[sum%slots]
	if *slot == sum {
		return true
	}
	*slot = sum
	return false
}
