package limit

import (
	"container/heap"
	"container/list"
	"iter"
)

// Table is a map that is bounded by number and bytes. Each entry has one owner. Free room is usable by
// all owners. When the table is full, the oldest entry of the owner that has most is evicted; a group has
// most if it has more than [GroupParts] times as much as each single owner. If every owner has one entry
// of the same size, the new entry is refused, because a new owner costs nothing. The share of an owner is its share of
// the number or of the bytes, whichever is larger. A Table is not safe for concurrent use.
type Table[K comparable, V any] struct {
	maxEntries int
	maxBytes   int64
	evicted    uint64

	bytes   int64
	entries map[K]*entry[K, V]
	age     list.List // of *entry[K, V], the oldest first
	owners  map[ownerKey]*owner
	largest ownerHeap
}

type entry[K comparable, V any] struct {
	key    K
	value  V
	bytes  int64
	age    *list.Element
	owners []membership // the owner, and its group if it has one
}

// membership is the place of an entry among those of one owner.
type membership struct {
	owner *owner
	place *list.Element
}

// owner is what one stranger or one group has in a table.
type owner struct {
	key     ownerKey
	entries list.List // of *entry[K, V], the oldest first
	bytes   int64
	parts   float64 // parts that it may have for each part of others
	share   float64
	index   int // in the heap
}

// Entry is an entry that left a table.
type Entry[K comparable, V any] struct {
	Key   K
	Value V
}

// NewTable returns a table of at most maxEntries entries and maxBytes bytes. Zero bytes mean no bound of
// bytes.
func NewTable[K comparable, V any](maxEntries int, maxBytes int64) *Table[K, V] {
	return &Table[K, V]{
		maxEntries: maxEntries, maxBytes: maxBytes,
		entries: make(map[K]*entry[K, V]), owners: make(map[ownerKey]*owner),
	}
}

// Put stores an entry as the newest one of its owner, in place of an entry of the same key. It returns
// the entries that were evicted to make room, and whether the new entry was stored. An entry that is
// refused leaves the table without an entry of its key.
func (t *Table[K, V]) Put(key K, who Stranger, bytes int64, value V) (evicted []Entry[K, V], ok bool) {
	return t.PutKeeping(key, who, bytes, value, func(K) bool { return false })
}

// PutKeeping is Put for a table with entries that must stay because they are in use. An entry for which keep
// reports true becomes the newest one of its owner instead of being evicted. If the oldest maxKept entries
// of the owner that has most must stay, the new entry is refused.
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
		t.weigh(o)
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

// Displace is Put for entries that stay for as long as strangers like, such as connections. If the new entry is refused because
// every owner has as much, the oldest entry yields that is at least as large.
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

// maxKept is the number of entries that are passed over because they are in use.
const maxKept = 1024

// victim returns the entry that makes room: the oldest one of who has most. Of several who have most, the
// one that brings the new entry comes first.
func (t *Table[K, V]) victim(added *entry[K, V], keep func(K) bool) *entry[K, V] {
	most := t.largest[0]
	for _, m := range added.owners {
		if m.owner.share >= most.share {
			most = m.owner
		}
	}
	for range min(most.entries.Len(), maxKept) {
		e := most.entries.Front().Value.(*entry[K, V])
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

// Touch makes an entry the newest one of its owner. It reports whether there is such an entry.
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

// Delete removes an entry. It reports whether there was one.
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
		t.weigh(m.owner)
	}
}

// weigh computes the share of an owner anew, and its place in the heap.
func (t *Table[K, V]) weigh(o *owner) {
	o.share = float64(o.entries.Len()) / float64(t.maxEntries)
	if t.maxBytes > 0 {
		o.share = max(o.share, float64(o.bytes)/float64(t.maxBytes))
	}
	o.share /= o.parts
	heap.Fix(&t.largest, o.index)
}

// All yields the entries, the oldest first. The table must not change meanwhile.
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

// Evicted returns the total number of entries that were evicted or refused for want of room.
func (t *Table[K, V]) Evicted() uint64 { return t.evicted }

// ownerHeap is a heap of owners, the one with the largest share first.
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
