package sync

import (
	"errors"
	"fmt"
	"hash/maphash"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/sync/internal/lazy"
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

// maxBad is how many events with a wrong signature are remembered of a relay.
const maxBad = 512

// badCopies remembers which events of a relay have a wrong signature, over its
// connections. A relay that once took some in unseen has them for good: each is proof of
// hostility once, is not checked again and not fetched again. The zero value is ready,
// and may be used by any goroutine.
type badCopies struct {
	mu   sync.Mutex
	sigs map[graspsync.EventID]string // the last one, guarded by mu
	ring []graspsync.EventID          // oldest first from next, guarded by mu
	next int                          // guarded by mu
}

// add remembers a copy, and reports whether it is the first one of its event.
func (b *badCopies) add(k copyKey) (first bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, known := b.sigs[k.id]; known {
		b.sigs[k.id] = k.sig
		return false
	}
	if len(b.ring) < maxBad {
		b.ring = append(b.ring, k.id)
	} else {
		delete(b.sigs, b.ring[b.next])
		b.ring[b.next] = k.id
		b.next = (b.next + 1) % maxBad
	}
	lazy.Put(&b.sigs, k.id, k.sig)
	return true
}

// has reports whether this copy is known to be bad.
func (b *badCopies) has(k copyKey) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	sig, known := b.sigs[k.id]
	return known && sig == k.sig
}

// without returns the ids that the relay is not known to have bad copies of.
func (b *badCopies) without(ids []graspsync.EventID) []graspsync.EventID {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.DeleteFunc(ids, func(id graspsync.EventID) bool {
		_, bad := b.sigs[id]
		return bad
	})
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
