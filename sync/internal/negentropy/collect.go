package negentropy

import (
	"cmp"
	"fmt"
	"slices"
)

// idList collects the ids that a peer claims. It may claim one twice, but an
// honest peer hardly does, so doubles stay in until the list is asked for, or has
// twice the length that is allowed.
type idList struct {
	ids    [][idSize]byte
	limit  int
	unique int // ids[:unique] has no doubles
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

// check counts each id once, if that makes a difference.
func (l *idList) check() error {
	if len(l.ids) > l.limit {
		l.compact()
	}
	if len(l.ids) > l.limit {
		return fmt.Errorf("%w: more than %d that we don't have", ErrTooMany, l.limit)
	}
	return nil
}

// compact removes doubles and keeps the order.
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

// span is the items [lo, hi) of a set. Half the size of two ints: a hostile message
// can ask for one span with every seven bytes.
type span struct{ lo, hi uint32 }

// spanList collects items of a set. They are kept as spans since one short message
// can say that the peer has none of a million.
type spanList struct {
	spans []span
	limit int // compact when there are as many
}

// add notes the item of that index.
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

// compact sorts the spans and joins those that touch. A set of n items has at most
// (n+1)/2 spans then, so a limit of n+2 keeps the cost of an add constant.
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

// len is the number of items once compacted.
func (l *spanList) len() (n int) {
	for _, sp := range l.spans {
		n += int(sp.hi - sp.lo)
	}
	return n
}

// push appends and doubles when full. What append does above a few hundred
// elements allocates less at a time but, all growing taken together, up to five
// times the final size.
func push[T any](s []T, v T) []T {
	if len(s) == cap(s) {
		grown := make([]T, len(s), max(2*len(s), 8))
		copy(grown, s)
		s = grown
	}
	return append(s, v)
}
