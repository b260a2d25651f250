package sync

import (
	"hash/maphash"
	"slices"
	"sync"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/limit"
)

// maxBad is how many events with a wrong signature are remembered of a relay.
const maxBad = 512

// badCopies remembers which events of a relay have a wrong signature, over its
// connections. A relay that once took some in unseen has them for good: each is proof of
// hostility once, is not checked again and not fetched again. The zero value is ready,
// and may be used by any goroutine.
type badSignatures struct {
	mu   sync.Mutex
	sigs *limit.Table[graspsync.EventID, string] // the last one of each event, guarded by mu; nil: none
}

// add remembers a copy, and reports whether it is the first one of its event.
func (b *badSignatures) add(k copyKey) (first bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.sigs == nil {
		b.sigs = limit.NewTable[graspsync.EventID, string](maxBad, 0)
	}
	_, known := b.sigs.Get(k.id)
	b.sigs.Put(k.id, limit.Stranger{}, 0, k.sig)
	return !known
}

// has reports whether this copy is known to be bad.
func (b *badSignatures) has(k copyKey) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.sigs == nil {
		return false
	}
	sig, known := b.sigs.Get(k.id)
	return known && sig == k.sig
}

// without returns the ids that the relay is not known to have bad copies of.
func (b *badSignatures) without(ids []graspsync.EventID) []graspsync.EventID {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.sigs == nil {
		return ids
	}
	return slices.DeleteFunc(ids, func(id graspsync.EventID) bool {
		_, bad := b.sigs.Get(id)
		return bad
	})
}

// repeats remembers what came on which subscription, so that a relay which sends
// the same event over and over is noticed. It forgets, in favour of what came later,
// and takes 64 KiB. The zero value is ready.
type repeatFilter struct {
	seed  maphash.Seed
	slots []uint64
}

// seen notes an event, and reports whether it is known to have come before.
func (r *repeatFilter) seen(sub string, id graspsync.EventID) bool {
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
