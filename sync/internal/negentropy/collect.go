package negentropy

import (
	"cmp"
	"fmt"
	"slices"
)

// idList collects the ids that a peer claims. Duplicates are removed rarely, because an honest peer
// sends few.
type idList struct {
	ids    [][idSize]byte
	limit  int
	unique int // ids[:unique] has no duplicates
}

func (l *idList) add(id [idSize]byte) error {
	if len(l.ids)/2 >= l.limit {
		if err := l.check(); err != nil {
			return err
		}
	}
	l.ids = push(l.ids, id)
	return nil
}

func (l *idList) check() error {
	if len(l.ids) > l.limit {
		l.compact()
	}
	if len(l.ids) > l.limit {
		return fmt.Errorf("%w: more than %d ids that the set lacks", ErrTooMany, l.limit)
	}
	return nil
}

func (l *idList) compact() {
	if l.unique == len(l.ids) {
		return
	}
	seen := make(map[[idSize]byte]struct{}, len(l.ids))
	l.ids = slices.DeleteFunc(l.ids, func(id [idSize]byte) bool {
		n := len(seen)
		seen[id] = struct{}{}
		return len(seen) == n
	})
	l.unique = len(l.ids)
}

// span is the items [lo, hi) of a set, in 32 bits, because a hostile message can request one span
// with every seven bytes.
type span struct{ lo, hi uint32 }

// spanList collects items as spans, because one short message can report that the peer has none of
// a million.
type spanList struct {
	spans []span
	limit int // length at which the list is compacted
}

func (l *spanList) add(index int) {
	i := uint32(index)
	if n := len(l.spans); n > 0 && l.spans[n-1].hi == i {
		l.spans[n-1].hi++
		return
	}
	if len(l.spans) >= l.limit {
		l.compact()
	}
	l.spans = push(l.spans, span{i, i + 1})
}

// compact joins adjacent spans. A set of n items then has at most (n+1)/2, so with a limit of n+2
// the cost of an add is constant.
func (l *spanList) compact() {
	slices.SortFunc(l.spans, func(a, b span) int { return cmp.Compare(a.lo, b.lo) })
	joined := l.spans[:0]
	for _, sp := range l.spans {
		if n := len(joined); n > 0 && sp.lo <= joined[n-1].hi {
			joined[n-1].hi = max(joined[n-1].hi, sp.hi)
		} else {
			joined = append(joined, sp)
		}
	}
	l.spans = joined
}

func (l *spanList) len() (n int) {
	for _, sp := range l.spans {
		n += int(sp.hi - sp.lo)
	}
	return n
}

// push doubles the capacity of a full slice. append allocates in smaller steps and in total up to
// five times the final size.
func push[T any](s []T, v T) []T {
	if len(s) == cap(s) {
		grown := make([]T, len(s), max(2*len(s), 8))
		copy(grown, s)
		s = grown
	}
	return append(s, v)
}
