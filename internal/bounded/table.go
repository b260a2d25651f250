// Package bounded has what forgets: strangers decide how many keys there are, and we how
// many are remembered.
package bounded

import (
	"container/list"
	"iter"
)

// Table is a map with a bound. What was set longest ago goes first. Make one with [New]. It
// is not safe for concurrent use.
type Table[K comparable, V any] struct {
	most    int
	items   map[K]*list.Element // of item
	order   *list.List          // what was set last at the back
	dropped uint64
}

type item[K comparable, V any] struct {
	key   K
	value V
}

// New returns an empty table for so many keys.
func New[K comparable, V any](most int) Table[K, V] {
	return Table[K, V]{most: most, items: make(map[K]*list.Element), order: list.New()}
}

func of[K comparable, V any](e *list.Element) item[K, V] {
	return e.Value.(item[K, V]) //nolint:forcetypeassert // what Set puts there
}

// Get returns the value of a key; false if there is none.
func (t *Table[K, V]) Get(k K) (v V, ok bool) {
	if e, ok := t.items[k]; ok {
		return of[K, V](e).value, true
	}
	return v, false
}

// Set gives a key a value, and says which key had to go for it.
func (t *Table[K, V]) Set(k K, v V) (gone K, dropped bool) {
	if e, ok := t.items[k]; ok {
		e.Value = item[K, V]{k, v}
		t.order.MoveToBack(e)
		return gone, false
	}
	t.items[k] = t.order.PushBack(item[K, V]{k, v})
	if len(t.items) <= t.most {
		return gone, false
	}
	gone = of[K, V](t.order.Front()).key
	t.Remove(gone)
	t.dropped++
	return gone, true
}

// Remove forgets a key, and reports whether it was there.
func (t *Table[K, V]) Remove(k K) bool {
	e, ok := t.items[k]
	if ok {
		t.order.Remove(e)
		delete(t.items, k)
	}
	return ok
}

// Oldest returns the key that was set longest ago; false if there is none.
func (t *Table[K, V]) Oldest() (k K, v V, ok bool) {
	e := t.order.Front()
	if e == nil {
		return k, v, false
	}
	i := of[K, V](e)
	return i.key, i.value, true
}

// All yields all keys with their values, the one that was set longest ago first. The table
// must not be changed meanwhile.
func (t *Table[K, V]) All() iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		for e := t.order.Front(); e != nil; e = e.Next() {
			if i := of[K, V](e); !yield(i.key, i.value) {
				return
			}
		}
	}
}

// Len is how many keys there are.
func (t *Table[K, V]) Len() int { return len(t.items) }

// Dropped is how many keys had to go for others.
func (t *Table[K, V]) Dropped() uint64 { return t.dropped }
