package nip34

import (
	"slices"

	"github.com/graspsync/graspsync"
)

// MaxGenerations is the maximum number of listings between an owner and a wanted announcement.
const MaxGenerations = 16

// Bounds limits the wanted announcements per owner, and for all owners. Each owner first gets Sure
// of them, and the rest is shared in turns.
type Bounds struct{ Each, Sure, All int }

// ServedBounds are the bounds for owners whose repositories are served.
func ServedBounds() Bounds { return Bounds{Each: MaxMaintainers, Sure: 4, All: 4 * MaxMaintainers} }

// WaitingBounds are the bounds for owners whose repositories wait for git data. Anyone can be such
// an owner.
func WaitingBounds() Bounds { return Bounds{Each: 32, Sure: 1, All: MaxMaintainers} }

// Wanted returns the keys that the owners list, recursively, each with one such owner. The keys
// between an owner and the root of its view, and the members, come first, then the nearest. Keys
// listed by non-members count too, because membership is known only after the announcements are
// stored. full means that some keys are left out.
func (f *AnnouncementSet) Wanted(owners []graspsync.PubKey, most Bounds) (wanted map[graspsync.PubKey]graspsync.PubKey, full bool) {
	type turn struct {
		owner graspsync.PubKey
		rest  []*relation
	}
	var turns []turn
	r := f.newReach(most.Each)
	for _, owner := range slices.Compact(slices.SortedFunc(slices.Values(owners), graspsync.PubKey.Compare)) {
		lists, _, cut := r.of(owner)
		turns = append(turns, turn{owner, lists})
		full = full || cut
	}
	wanted = make(map[graspsync.PubKey]graspsync.PubKey)
	for round := 0; len(turns) > 0; round++ {
		still := turns[:0]
		for _, t := range turns {
			t.rest = t.rest[skip(t.rest, func(r *relation) bool { _, is := wanted[r.key]; return is }):]
			switch {
			case len(t.rest) == 0:
				continue
			case round >= most.Sure && len(wanted) >= most.All:
				return wanted, true
			}
			wanted[t.rest[0].key] = t.owner
			t.rest = t.rest[1:]
			still = append(still, t)
		}
		turns = still
	}
	return wanted, full
}

func skip[T any](list []T, is func(T) bool) int {
	for i, v := range list {
		if !is(v) {
			return i
		}
	}
	return len(list)
}

type reach struct {
	f       *AnnouncementSet
	most    int
	members map[*relation][]*relation // by the root of a view, which many owners may share
	// taken and queued contain the number of the owner for which a key was last seen.
	taken, queued []int
	owners        int
}

func (f *AnnouncementSet) newReach(most int) *reach {
	return &reach{
		f: f, most: most, members: make(map[*relation][]*relation),
		taken: make([]int, len(f.all)), queued: make([]int, len(f.all)),
	}
}

// of returns at most r.most keys that an owner lists, the leading ones first. cut means that there
// are more.
func (r *reach) of(owner graspsync.PubKey) (lists []*relation, leading int, cut bool) {
	at := r.f.all[owner]
	if at == nil {
		return nil, 0, false
	}
	r.owners++
	r.taken[at.at], r.queued[at.at] = r.owners, r.owners
	take := func(m *relation) bool {
		if r.taken[m.at] == r.owners {
			return true
		}
		if len(lists) == r.most {
			return false
		}
		r.taken[m.at] = r.owners
		lists = append(lists, m)
		return true
	}
	for _, m := range r.leading(owner) {
		if !take(m) {
			return lists, len(lists), true
		}
	}
	leading = len(lists)
	level := []*relation{at}
	for generation := 0; len(level) > 0 && generation < MaxGenerations; generation++ {
		var next []*relation
		for _, by := range level {
			for _, m := range by.lists {
				if !take(m) {
					return lists, leading, true
				}
				if r.queued[m.at] != r.owners {
					r.queued[m.at] = r.owners
					next = append(next, m)
				}
			}
		}
		level = next
	}
	return lists, leading, false
}

func (r *reach) leading(owner graspsync.PubKey) []*relation {
	way, end := r.f.walk(owner)
	if end != Found {
		return way
	}
	root := way[len(way)-1]
	members, known := r.members[root]
	if !known {
		var a Authority
		r.f.confirm(&a, root)
		for _, p := range a.People[:len(a.members)] {
			members = append(members, r.f.all[p.Key])
		}
		r.members[root] = members
	}
	return slices.Concat(way, members)
}
