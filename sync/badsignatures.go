package sync

import (
	"hash/maphash"
	"slices"
	"sync"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/limit"
)

const maxBad = 512

// badSignatures contains the events of a relay that had a wrong signature, over all its
// connections. At most maxBad are kept. An honest relay may have stored such an event long ago, so
// each event counts as hostile once and is not checked or fetched again. The zero value is ready.
// It is safe for concurrent use.
type badSignatures struct {
	mu   sync.Mutex
	sigs *limit.Table[graspsync.EventID, string] // the last signature of each event, guarded by mu; may be nil
}

// add records a copy and reports whether it is the first bad copy of the event.
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

// has reports whether this copy has a wrong signature.
func (b *badSignatures) has(k copyKey) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.sigs == nil {
		return false
	}
	sig, known := b.sigs.Get(k.id)
	return known && sig == k.sig
}

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

// repeatFilter detects a relay that sends the same event repeatedly on a subscription. It is a
// lossy hash table of 64 KiB in which later events replace earlier ones. The zero value is ready.
type repeatFilter struct {
	seed  maphash.Seed
	slots []uint64
}

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
