package limit

import (
	"container/heap"
	"container/list"
	"iter"
)

// Table is a map with a maximum number of entries and bytes. Each entry has one owner. When the
// table is full, the oldest entry of the largest owner is evicted. A group counts if it has more
// than [GroupParts] times the share of the largest single owner. If every owner has one entry of
// the same size, the new entry is refused, because new owners are free. A share is the fraction of
// the entries or of the bytes, whichever is larger. A Table is not safe for concurrent use.
type Table[K comparable, V any] struct {
	maxEntries int
	maxBytes   int64
	evicted    uint64

	bytes   int64
	entries map[K]*entry[K, V]
	age     list.List // of *entry[K, V], oldest first
	owners  map[ownerKey]*owner
	largest ownerHeap
}

type entry[K comparable, V any] struct {
	key    K
	value  V
	bytes  int64
	age    *list.Element
	owners []membership // the owner and its group, if any
}

type membership struct {
	owner *owner
	place *list.Element
}

type owner struct {
	key     ownerKey
	entries list.List // of *entry[K, V], oldest first
	bytes   int64
	parts   float64 // divides the share
	share   float64
	index   int // in the heap
}

// Entry is an evicted entry.
type Entry[K comparable, V any] struct {
	Key   K
	Value V
}

// NewTable returns a table of at most maxEntries entries and, unless 0, maxBytes bytes.
func NewTable[K comparable, V any](maxEntries int, maxBytes int64) *Table[K, V] {
	return &Table[K, V]{
		maxEntries: maxEntries, maxBytes: maxBytes,
		entries: make(map[K]*entry[K, V]), owners: make(map[ownerKey]*owner),
	}
}

// Put stores an entry as the newest of its owner, and replaces an entry with the same key. It
// returns the evicted entries. ok is false if the entry is refused; the key then has no entry.
func (t *Table[K, V]) Put(key K, who Stranger, bytes int64, value V) (evicted []Entry[K, V], ok bool) {
	return t.PutKeeping(key, who, bytes, value, func(K) bool { return false })
}

// PutKeeping is Put with entries that must stay because they are in use. If keep returns true, the
// entry becomes the newest of its owner. If the oldest maxKept entries of the largest owner must
// stay, the new entry is refused.
func (t *Table[K, V]) PutKeeping(key K, who Stranger, bytes int64, value V, keep func(K) bool) (evicted []Entry[K, V], ok bool) {
	t.Delete(key)
	if t.maxEntries <= 0 || t.maxBytes > 0 && bytes > t.maxBytes {
		t.evicted++
		return nil, false
	}
	e := &entry[K, V]{key: key, value: value, bytes: bytes}
	t.entries[key] = e
	t.bytes += bytes
	e.age = t.age.PushBack(e)
	if who == (Stranger{}) {
		who.ID = "unknown" // all callers of unknown origin are one owner
	}
	for k, parts := range who.keys() {
		o := t.owners[k]
		if o == nil {
			o = &owner{key: k, parts: float64(parts)}
			t.owners[k] = o
			heap.Push(&t.largest, o)
		}
		o.bytes += bytes
		e.owners = append(e.owners, membership{o, o.entries.PushBack(e)})
		t.updateShare(o)
	}
	for len(t.entries) > t.maxEntries || t.maxBytes > 0 && t.bytes > t.maxBytes {
		gone := t.victim(e, keep)
		t.remove(gone)
		t.evicted++
		if gone == e {
			return evicted, false
		}
		evicted = append(evicted, Entry[K, V]{gone.key, gone.value})
	}
	return evicted, true
}

// Displace is Put for entries whose lifetime strangers control, such as connections. It evicts the
// oldest entry that is at least as large instead of refusing the new one.
func (t *Table[K, V]) Displace(key K, who Stranger, bytes int64, value V) (evicted []Entry[K, V], ok bool) {
	if evicted, ok = t.Put(key, who, bytes, value); ok {
		return evicted, true
	}
	for p := t.age.Front(); p != nil; p = p.Next() {
		if e := p.Value.(*entry[K, V]); e.bytes >= bytes {
			t.remove(e)
			more, ok := t.Put(key, who, bytes, value)
			return append(append(evicted, Entry[K, V]{e.key, e.value}), more...), ok
		}
	}
	return evicted, false
}

// maxKept is the maximum number of entries in use that an eviction skips.
const maxKept = 1024

// victim returns the oldest entry of the largest owner. Among equal owners the owner of the new
// entry comes first.
func (t *Table[K, V]) victim(added *entry[K, V], keep func(K) bool) *entry[K, V] {
	largest := t.largest[0]
	for _, m := range added.owners {
		if m.owner.share >= largest.share {
			largest = m.owner
		}
	}
	for range min(largest.entries.Len(), maxKept) {
		e := largest.entries.Front().Value.(*entry[K, V])
		if e == added || !keep(e.key) {
			return e
		}
		t.Touch(e.key)
	}
	return added
}

// Get returns the value of a key.
func (t *Table[K, V]) Get(key K) (value V, ok bool) {
	if e := t.entries[key]; e != nil {
		return e.value, true
	}
	return value, false
}

// Touch makes an entry the newest of its owner.
func (t *Table[K, V]) Touch(key K) bool {
	e := t.entries[key]
	if e == nil {
		return false
	}
	t.age.MoveToBack(e.age)
	for _, m := range e.owners {
		m.owner.entries.MoveToBack(m.place)
	}
	return true
}

// Delete removes an entry. It returns false if there is none.
func (t *Table[K, V]) Delete(key K) bool {
	e := t.entries[key]
	if e != nil {
		t.remove(e)
	}
	return e != nil
}

func (t *Table[K, V]) remove(e *entry[K, V]) {
	delete(t.entries, e.key)
	t.bytes -= e.bytes
	t.age.Remove(e.age)
	for _, m := range e.owners {
		m.owner.bytes -= e.bytes
		m.owner.entries.Remove(m.place)
		if m.owner.entries.Len() == 0 {
			heap.Remove(&t.largest, m.owner.index)
			delete(t.owners, m.owner.key)
			continue
		}
		t.updateShare(m.owner)
	}
}

func (t *Table[K, V]) updateShare(o *owner) {
	o.share = float64(o.entries.Len()) / float64(t.maxEntries)
	if t.maxBytes > 0 {
		o.share = max(o.share, float64(o.bytes)/float64(t.maxBytes))
	}
	o.share /= o.parts
	heap.Fix(&t.largest, o.index)
}

// All yields all entries, oldest first. The table must not change meanwhile.
func (t *Table[K, V]) All() iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		for p := t.age.Front(); p != nil; p = p.Next() {
			if e := p.Value.(*entry[K, V]); !yield(e.key, e.value) {
				return
			}
		}
	}
}

// Len returns the number of entries.
func (t *Table[K, V]) Len() int { return len(t.entries) }

// Bytes returns the bytes of all entries.
func (t *Table[K, V]) Bytes() int64 { return t.bytes }

// Evicted returns the total number of evicted and refused entries.
func (t *Table[K, V]) Evicted() uint64 { return t.evicted }

type ownerHeap []*owner

func (h ownerHeap) Len() int           { return len(h) }
func (h ownerHeap) Less(i, j int) bool { return h[i].share > h[j].share }
func (h ownerHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *ownerHeap) Push(x any) {
	o := x.(*owner)
	o.index = len(*h)
	*h = append(*h, o)
}

func (h *ownerHeap) Pop() any {
	last := len(*h) - 1
	o := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return o
}
