// Package shares keeps what strangers fill together so that whoever fills most of it
// loses first: a bounded memory in which the oldest goes is emptied of everybody's by
// one who writes enough. It is pure.
package shares

import "container/heap"

// Owner is who something is kept for: a small number that the caller gives out.
type Owner = uint16

// Shares orders members by age, those of each owner apart. The zero Shares is empty.
// It is not safe for concurrent use.
type Shares[T any] struct {
	owners map[Owner]*share[T]
	heap   byWeight[T]
	seq    uint64
	spared Owner
	spare  int64
}

// Member is one thing that is kept. The zero Member is in no Shares.
type Member[T any] struct {
	Item       T
	share      *share[T]
	prev, next *Member[T] // of the same owner, older and younger
	seq        uint64     // of its addition
	weight     int64
}

// share is what is kept for one owner.
type share[T any] struct {
	owner         Owner
	oldest, young *Member[T]
	weight        int64
	counted       int64 // weight, but for what is spared
	place         int   // in the heap
}

// Spare has an owner's first so much weight not count: it is ours.
func (s *Shares[T]) Spare(owner Owner, weight int64) { s.spared, s.spare = owner, weight }

// Add keeps m, which is in no Shares, as the youngest of an owner.
func (s *Shares[T]) Add(m *Member[T], owner Owner, weight int64) {
	sh := s.owners[owner]
	if sh == nil {
		sh = &share[T]{owner: owner}
		if s.owners == nil {
			s.owners = make(map[Owner]*share[T])
		}
		s.owners[owner] = sh
	}
	s.seq++
	m.share, m.seq, m.weight = sh, s.seq, weight
	m.prev, m.next = sh.young, nil
	if sh.young == nil {
		sh.oldest = m
		heap.Push(&s.heap, sh)
	} else {
		sh.young.next = m
	}
	sh.young = m
	s.weigh(sh, weight)
}

// Weigh has m count as much as weight from now on. One that is not kept counts nothing.
func (s *Shares[T]) Weigh(m *Member[T], weight int64) {
	if m.share != nil {
		s.weigh(m.share, weight-m.weight)
		m.weight = weight
	}
}

// Remove keeps m no more. It reports whether that was the last of its owner.
func (s *Shares[T]) Remove(m *Member[T]) (last bool) {
	sh := m.share
	if sh == nil {
		return false
	}
	if m.prev == nil {
		sh.oldest = m.next
	} else {
		m.prev.next = m.next
	}
	if m.next == nil {
		sh.young = m.prev
	} else {
		m.next.prev = m.prev
	}
	m.share, m.prev, m.next = nil, nil, nil
	if sh.oldest == nil {
		heap.Remove(&s.heap, sh.place)
		delete(s.owners, sh.owner)
		return true
	}
	s.weigh(sh, -m.weight)
	return false
}

func (s *Shares[T]) weigh(sh *share[T], more int64) {
	sh.weight += more
	sh.counted = sh.weight
	if sh.owner == s.spared {
		sh.counted -= s.spare
	}
	heap.Fix(&s.heap, sh.place)
}

// Weight is how much is kept for an owner.
func (s *Shares[T]) Weight(owner Owner) int64 {
	if sh := s.owners[owner]; sh != nil {
		return sh.weight
	}
	return 0
}

// Owners is of how many owners something is kept.
func (s *Shares[T]) Owners() int { return len(s.owners) }

// Next returns what should go first: the oldest of the owner of whom most is kept;
// among equals, the oldest of all. It is nil if nothing is kept.
func (s *Shares[T]) Next() *Member[T] {
	if len(s.heap) == 0 {
		return nil
	}
	return s.heap[0].oldest
}

// byWeight is a heap, the heaviest first.
type byWeight[T any] []*share[T]

func (h byWeight[T]) Len() int { return len(h) }

func (h byWeight[T]) Less(i, j int) bool {
	if h[i].counted != h[j].counted {
		return h[i].counted > h[j].counted
	}
	return h[i].oldest.seq < h[j].oldest.seq
}

func (h byWeight[T]) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i, j
}

// Push implements [heap.Interface].
func (h *byWeight[T]) Push(x any) {
	sh, _ := x.(*share[T])
	sh.place = len(*h)
	*h = append(*h, sh)
}

// Pop implements [heap.Interface].
func (h *byWeight[T]) Pop() any {
	last := len(*h) - 1
	sh := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return sh
}
