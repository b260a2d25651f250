package sync

import "github.com/graspsync/graspsync/filters"

const (
	// distrust is after how many events that were refused, more than those of use pay for,
	// the next one is expected to be as well. An honest author has some: of something that
	// is superseded, or came before what it refers to.
	distrust = 8
	// recordAuthors is how many authors are remembered of whom most was of use, and as many
	// of whom it was not; recordKinds, of how many kinds what unknown authors sent. Each
	// relay has its own, and all of it is some kilobytes.
	recordAuthors = 128
	recordKinds   = 64
)

// record is what became of the live events of ours that a relay has sent. It tells which
// next one will most likely be refused: that of an author whose last ones were, or of one
// who is unknown if that became of the last ones of its kind by such, since a key costs
// nothing. So neither one author who has used up a quota nor one with a key for each event
// stands in the way of others. The zero value is ready. It is not safe for concurrent use.
type record struct {
	good, bad tallies
	kinds     map[int]int // how many were refused that nothing has paid for
}

// trusts reports whether an event is not expected to be refused. What is essential is trusted,
// whoever else sends its kind.
func (r *record) trusts(author filters.PubKey, kind int, essential bool) bool {
	if r.bad.count(author) >= distrust {
		return false
	}
	return essential || r.good.count(author) > 0 || r.kinds[r.kind(kind)] < distrust
}

// judged notes what became of an event. One of use pays for two, as it does for what they
// cost: whoever alternates has gained nothing.
func (r *record) judged(author filters.PubKey, kind int, useful bool) {
	bad, good := r.bad.count(author), r.good.count(author)
	switch {
	case useful && bad > 0:
		r.bad.set(author, max(0, bad-2))
	case useful:
		r.good.set(author, min(distrust, good+2))
	case good > 0:
		r.good.set(author, good-1)
		return
	default:
		r.bad.set(author, min(2*distrust, bad+1))
		if bad >= distrust {
			return // its author is known for that
		}
	}
	k := r.kind(kind)
	n := r.kinds[k] + 1
	if useful {
		n -= 3
	}
	if n = min(n, 2*distrust); n > 0 {
		put(&r.kinds, k, n)
	} else {
		delete(r.kinds, k)
	}
}

// kind returns under what a kind is remembered: there are more than should be.
func (r *record) kind(k int) int {
	const others = -1
	if _, known := r.kinds[k]; !known && len(r.kinds) >= recordKinds {
		return others
	}
	return k
}

// tallies has a count for each of the authors who were noted last: at least for half as
// many as there is room for.
type tallies struct{ young, old map[filters.PubKey]int }

func (t *tallies) count(author filters.PubKey) int {
	if n, ok := t.young[author]; ok {
		return n
	}
	return t.old[author]
}

func (t *tallies) set(author filters.PubKey, n int) {
	if _, ok := t.young[author]; !ok && len(t.young) >= recordAuthors/2 {
		t.old, t.young = t.young, nil
	}
	put(&t.young, author, n)
}
