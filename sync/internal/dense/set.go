package dense

import "iter"

// Map maps small numbers to the values 1, 2 and 3 and takes a few bytes per number. The zero value
// is empty. Strangers must not choose the numbers, because chosen numbers can make it slow.
type Map[K ~uint32, V ~uint8] struct {
	words []uint32 // open addressing: number and value, 0 if free
	size  int
}

const valueBits = 2 // numbers have 30 bits

// Len returns the number of entries.
func (m *Map[K, V]) Len() int { return m.size }

// Get returns the value of a number, 0 if absent.
func (m *Map[K, V]) Get(k K) V {
	if m.size == 0 {
		return 0
	}
	return V(m.words[m.find(uint32(k))] & (1<<valueBits - 1))
}

// Set sets the value of a number. Value 0 removes the number. Numbers must not be added or removed
// during an iteration.
func (m *Map[K, V]) Set(k K, v V) {
	word := uint32(k)<<valueBits | uint32(v)
	switch {
	case v == 0:
		m.remove(uint32(k))
		return
	case m.size > 0:
		if at := m.find(uint32(k)); m.words[at] != 0 {
			m.words[at] = word
			return
		}
	}
	if m.size++; m.size*5 > len(m.words)*4 {
		m.resize(max(8, len(m.words)*3/2))
	}
	m.words[m.find(uint32(k))] = word
}

// Clear removes all numbers.
func (m *Map[K, V]) Clear() { *m = Map[K, V]{} }

// All yields all numbers and values in no order.
func (m *Map[K, V]) All() iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		for _, w := range m.words {
			if w != 0 && !yield(K(w>>valueBits), V(w&(1<<valueBits-1))) {
				return
			}
		}
	}
}

// Keys yields all numbers in no order.
func (m *Map[K, V]) Keys() iter.Seq[K] {
	return func(yield func(K) bool) {
		for k := range m.All() {
			if !yield(k) {
				return
			}
		}
	}
}

// home returns the preferred index of a number. The order depends on the size of the map. Otherwise
// entries copied from one map to another would crowd at its beginning.
func (m *Map[K, V]) home(k uint32) int {
	h := (k ^ uint32(len(m.words))*0xC2B2AE35) * 0x9E3779B1 //nolint:gosec // it may wrap around
	h ^= h >> 15
	h *= 0x85EBCA77
	return int(uint64(h) * uint64(len(m.words)) >> 32) //nolint:gosec // less than their number
}

// find returns the index of a number, or of the free word for it. A free word must exist.
func (m *Map[K, V]) find(k uint32) int {
	at := m.home(k)
	for m.words[at] != 0 && m.words[at]>>valueBits != k {
		if at++; at == len(m.words) {
			at = 0
		}
	}
	return at
}

func (m *Map[K, V]) resize(n int) {
	old := m.words
	m.words = make([]uint32, n)
	for _, w := range old {
		if w != 0 {
			m.words[m.find(w>>valueBits)] = w
		}
	}
}

func (m *Map[K, V]) remove(k uint32) {
	if m.size == 0 {
		return
	}
	free := m.find(k)
	if m.words[free] == 0 {
		return
	}
	m.size--
	if m.size == 0 {
		m.words = nil
		return
	}
	// Later entries move up unless their home lies behind the free word.
	n := len(m.words)
	for at := (free + 1) % n; m.words[at] != 0; at = (at + 1) % n {
		home := m.home(m.words[at] >> valueBits)
		if (at-home+n)%n >= (at-free+n)%n {
			m.words[free] = m.words[at]
			free = at
		}
	}
	m.words[free] = 0
	if m.size*5 < n && n > 16 {
		m.resize(n / 2)
	}
}

// Set is a set of small numbers. The zero value is empty.
type Set[K ~uint32] struct{ of Map[K, uint8] }

// Len returns the number of elements.
func (s *Set[K]) Len() int { return s.of.Len() }

// Has reports whether k is in the set.
func (s *Set[K]) Has(k K) bool { return s.of.Get(k) != 0 }

// Add adds a number. It must not be called during an iteration.
func (s *Set[K]) Add(k K) { s.of.Set(k, 1) }

// Remove removes a number. It must not be called during an iteration.
func (s *Set[K]) Remove(k K) { s.of.Set(k, 0) }

// Clear removes all numbers.
func (s *Set[K]) Clear() { s.of.Clear() }

// All yields all numbers in no order.
func (s *Set[K]) All() iter.Seq[K] { return s.of.Keys() }
