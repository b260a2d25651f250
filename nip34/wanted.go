package nip34

import (
	"slices"

	"github.com/graspsync/graspsync"
)

// MaxGenerations is the maximum number of listings between an owner and a wanted announcement.
const MaxGenerations = 16

// WantedBounds limits the wanted announcements per owner, and for all owners. Each owner first gets
// Guaranteed announcements. Owners share the rest in turns.
type WantedBounds struct{ PerOwner, Guaranteed, Total int }

// ServedBounds are the bounds for owners whose repositories are served.
func ServedBounds() WantedBounds {
	return WantedBounds{PerOwner: MaxMaintainers, Guaranteed: 4, Total: 4 * MaxMaintainers}
}

// HeldBounds are the bounds for owners whose announcements are held until git data arrives. Anyone
// can be such an owner.
func HeldBounds() WantedBounds {
	return WantedBounds{PerOwner: 32, Guaranteed: 1, Total: MaxMaintainers}
}

// Wanted returns the keys that the owners list, recursively, each with one such owner. The keys
// between an owner and the root of its view, and the members, come first, then the nearest. Keys
// listed by non-members count too, because membership is known only after the announcements are
// stored. full means that some keys are left out.
func (f *AnnouncementSet) Wanted(owners []graspsync.PubKey, most WantedBounds) (wanted map[graspsync.PubKey]graspsync.PubKey, full bool) {
	type turn struct {
		owner graspsync.PubKey
		rest  []*node
	}
	var turns []turn
	r := f.newListSearch(most.PerOwner)
	for _, owner := range slices.Compact(slices.SortedFunc(slices.Values(owners), graspsync.PubKey.Compare)) {
		lists, _, cut := r.keys(owner)
		turns = append(turns, turn{owner, lists})
		full = full || cut
	}
	wanted = make(map[graspsync.PubKey]graspsync.PubKey)
	for round := 0; len(turns) > 0; round++ {
		still := turns[:0]
		for _, t := range turns {
			t.rest = t.rest[prefixLen(t.rest, func(r *node) bool { _, is := wanted[r.key]; return is }):]
			switch {
			case len(t.rest) == 0:
				continue
			case round >= most.Guaranteed && len(wanted) >= most.Total:
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

func prefixLen[T any](list []T, is func(T) bool) int {
	for i, v := range list {
		if !is(v) {
			return i
		}
	}
	return len(list)
}

// listSearch finds the keys that owners list, recursively.
type listSearch struct {
	set     *AnnouncementSet
	maxKeys int
	members map[*node][]*node // by the root of a view, which many owners may share
	// taken and queued contain the number of the owner for which a key was last seen.
	taken, queued []int
	owner         int // number of the current owner, from 1
}

func (f *AnnouncementSet) newListSearch(most int) *listSearch {
	return &listSearch{
		set: f, maxKeys: most, members: make(map[*node][]*node),
		taken: make([]int, len(f.nodes)), queued: make([]int, len(f.nodes)),
	}
}

// keys returns at most maxKeys keys that an owner lists, recursively. The first leading ones are on
// the path to the root or members. cut means that there are more.
func (r *listSearch) keys(owner graspsync.PubKey) (lists []*node, leading int, cut bool) {
	at := r.set.nodes[owner]
	if at == nil {
		return nil, 0, false
	}
	r.owner++
	r.taken[at.index], r.queued[at.index] = r.owner, r.owner
	take := func(m *node) bool {
		if r.taken[m.index] == r.owner {
			return true
		}
		if len(lists) == r.maxKeys {
			return false
		}
		r.taken[m.index] = r.owner
		lists = append(lists, m)
		return true
	}
	for _, m := range r.pathAndMembers(owner) {
		if !take(m) {
			return lists, len(lists), true
		}
	}
	leading = len(lists)
	level := []*node{at}
	for generation := 0; len(level) > 0 && generation < MaxGenerations; generation++ {
		var next []*node
		for _, by := range level {
			for _, m := range by.lists {
				if !take(m) {
					return lists, leading, true
				}
				if r.queued[m.index] != r.owner {
					r.queued[m.index] = r.owner
					next = append(next, m)
				}
			}
		}
		level = next
	}
	return lists, leading, false
}

func (r *listSearch) pathAndMembers(owner graspsync.PubKey) []*node {
	path, end := r.set.findRoot(owner)
	if end != Found {
		return path
	}
	root := path[len(path)-1]
	members, known := r.members[root]
	if !known {
		var a Authority
		r.set.addMembers(&a, root)
		for _, p := range a.People[:len(a.members)] {
			members = append(members, r.set.nodes[p.Key])
		}
		r.members[root] = members
	}
	return slices.Concat(path, members)
}
