package sync

import (
	"hash/maphash"
	"slices"
	"sync"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/sync/internal/lazy"
)

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
func (r *repeats) seen(sub string, id graspsync.EventID) bool {
	const slots = 8 << 10
	if r.slots == nil {
		r.seed, r.slots = maphash.MakeSeed(), make([]uint64, slots)
	}
	var h maphash.Hash
	h.SetSeed(r.seed)
	_, _ = h.WriteString(sub) // never fails
	_ = h.WriteByte(0)
	_, _ = h.Write(id[:])
	sum := h.Sum64()
	slot := &r.slots[sum%slots]
	if *slot == sum {
		return true
	}
	*slot = sum
	return false
}
