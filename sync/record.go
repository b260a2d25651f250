package sync

import (
	"slices"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/filters"
	"github.com/graspsync/graspsync/sync/internal/lazy"
)

const (
	// distrust is after how many short events that were refused, more than those of use pay for,
	// the next one is expected to be as well. An honest author has some: of something that
	// is superseded, or came before what it refers to.
	distrust = 8
	// recordAuthors is how many authors are remembered of whom most was of use, and as many
	// of whom it was not; recordCategories, of how many categories what unknown authors sent. Each
	// relay has its own, and all of it is some kilobytes.
	recordAuthors    = 128
	recordCategories = 256
)

// category is what events of unknown authors have in common, as far as it is known: they are
// of one kind, and about repositories of one owner.
type category struct {
	kind  int              // otherKinds for all that belong to no repository by themselves
	about graspsync.PubKey // zero: not known, or there are too many
}

const otherKinds = -1

func categoryOf(kind int, about graspsync.PubKey) category {
	if !slices.Contains(filters.Kinds(), kind) {
		kind = otherKinds
	}
	return category{kind, about}
}

// record is what became of the live events of ours that a relay has sent. It tells which
// next one will most likely be refused: that of an author whose last ones were, or of one
// who is unknown if that became of the last ones of its category by such, since a key costs
// nothing. So neither one author who has used up a quota nor one with a key for each event
// stands in the way of others, and who floods the repositories of one owner not in that of
// those who write to another's. The zero value is ready. It is not safe for concurrent use.
type record struct {
	good, bad  tallies
	categories map[category]int // how many were refused that nothing has paid for
}

// trusts reports whether an event is not expected to be refused.
func (r *record) trusts(author graspsync.PubKey, of category) bool {
	if r.distrusts(author) {
		return false
	}
	return r.good.count(author) > 0 || r.categories[r.category(of)] < distrust
}

// distrusts reports whether an author is known for what is refused.
func (r *record) distrusts(author graspsync.PubKey) bool { return r.bad.count(author) >= distrust }

// judged notes what became of an event of some weight, which is what it has cost. One of use
// gives back what it has cost twice: it pays for one more of its weight, so that whoever
// alternates has gained nothing, by short ones of use and long ones that are refused either.
func (r *record) judged(author graspsync.PubKey, of category, useful bool, weight int) {
	bad, good, left := r.bad.count(author), r.good.count(author), weight
	switch {
	case useful && bad > 0:
		r.bad.set(author, max(0, bad-weight))
	case useful:
		r.good.set(author, min(distrust, good+weight))
	case good >= weight:
		r.good.set(author, good-weight)
		return
	default:
		if good > 0 {
			r.good.set(author, 0)
			left -= good
		}
		r.bad.set(author, worse(bad, left))
		if bad >= distrust {
			return // its author is known for that
		}
	}
	of = r.category(of)
	n := r.categories[of]
	if useful {
		n -= weight
	} else {
		n = worse(n, left)
	}
	if n > 0 {
		lazy.Put(&r.categories, of, n)
	} else {
		delete(r.categories, of)
	}
}

// worse returns a count with the weight of one more that was refused. What is distrusted
// already becomes little worse by that, and finds trust again.
func worse(n, weight int) int {
	if n >= distrust {
		return max(n, min(n+weight, 2*distrust))
	}
	return n + weight
}

// category returns under what a category is remembered: there are more than should be.
func (r *record) category(of category) category {
	if _, known := r.categories[of]; !known && len(r.categories) >= recordCategories {
		of.about = graspsync.PubKey{}
	}
	return of
}

// tallies has a count for each of the authors who were noted last: at least for half as
// many as there is room for.
type tallies struct{ young, old map[graspsync.PubKey]int }

func (t *tallies) count(author graspsync.PubKey) int {
	if n, ok := t.young[author]; ok {
		return n
	}
	return t.old[author]
}

func (t *tallies) set(author graspsync.PubKey, n int) {
	if _, ok := t.young[author]; !ok && len(t.young) >= recordAuthors/2 {
		t.old, t.young = t.young, nil
	}
	lazy.Put(&t.young, author, n)
}
