package nip34

import (
	"slices"

	"github.com/graspsync/graspsync"
)

// Membership is the rule by which keys become members of a view, the repository of one announcement.
// By default a listed key is a member if its own announcement lists a member.
type Membership struct {
	// OneSided makes each listed key a member, recursively, as on servers before role tags existed.
	OneSided bool
}

// AnnouncementSet contains the newest announcement of each author under one identifier, which
// decide the members of each view. It is immutable and safe for concurrent use.
type AnnouncementSet struct {
	rule  Membership
	nodes map[graspsync.PubKey]*node // all authors and listed keys
}

type node struct {
	key          graspsync.PubKey
	index        int           // number of the key, from 0
	announcement *Announcement // nil if the key has no announcement
	lists        []*node       // in the order of the announcement
	listedBy     []*node       // in the order of their keys
}

// AnnouncementSet returns the set of an identifier. It ignores announcements of other identifiers.
func (rule Membership) AnnouncementSet(identifier string, same []*Announcement) *AnnouncementSet {
	f := &AnnouncementSet{rule: rule, nodes: make(map[graspsync.PubKey]*node, len(same))}
	var authors []*node
	for _, a := range same {
		if a.Ref.Identifier != identifier {
			continue
		}
		switch r := f.node(a.Ref.Owner); {
		case r.announcement == nil:
			authors = append(authors, r)
			r.announcement = a
		case a.Key().Newer(r.announcement.Key()):
			r.announcement = a
		}
	}
	slices.SortFunc(authors, func(a, b *node) int { return a.key.Compare(b.key) })
	for _, r := range authors {
		r.lists = make([]*node, len(r.announcement.Maintainers))
		for i, m := range r.announcement.Maintainers {
			r.lists[i] = f.node(m)
			r.lists[i].listedBy = append(r.lists[i].listedBy, r)
		}
	}
	return f
}

func (f *AnnouncementSet) node(key graspsync.PubKey) *node {
	r := f.nodes[key]
	if r == nil {
		r = &node{key: key, index: len(f.nodes)}
		f.nodes[key] = r
	}
	return r
}

// LeadSearch is the result of the search for the root of a view, without which it has no members.
type LeadSearch string

// Results of the search.
const (
	Found       LeadSearch = "found"
	Unannounced LeadSearch = "somebody on the way has no announcement here"
	NoRole      LeadSearch = "the owner has no role and names no lead"
	Leadless    LeadSearch = "the lead names no lead"
	Ambiguous   LeadSearch = "two leads are named"
	Circular    LeadSearch = "the leads name each other" // or the path is too long
)

// MemberKind is the membership of a key in a view, with the reason.
type MemberKind string

// Kinds of members. The last three are invited: their announcements are requested, but their states
// do not count.
const (
	Root       MemberKind = "root"   // the first member of the view
	Member     MemberKind = "member" // is listed by a member, and lists a member
	Silent     MemberKind = "invited, has no announcement here"
	Unanswered MemberKind = "invited, lists none of them"
	Resigned   MemberKind = "invited, has no role of their own"
)

// Person is a member of a view, or an invited key.
type Person struct {
	Key      graspsync.PubKey `json:"key"`
	Kind     MemberKind       `json:"role"`
	ListedBy graspsync.PubKey `json:"listed_by,omitzero"` // a member that lists the key; zero for the root
	Lists    graspsync.PubKey `json:"lists,omitzero"`     // a member that a Member lists; zero if no answer is needed
}

// Authority contains the members of one view.
type Authority struct {
	View       graspsync.RepoRef
	LeadSearch LeadSearch
	// People contains at most 1 + MaxMaintainers members, and then at most MaxMaintainers invited
	// keys, each as they were found.
	People []Person

	members map[graspsync.PubKey]struct{}
}

// Members returns the members. The map must not be changed.
func (a *Authority) Members() map[graspsync.PubKey]struct{} { return a.members }

// Has reports whether a key is a member.
func (a *Authority) Has(key graspsync.PubKey) bool {
	_, ok := a.members[key]
	return ok
}

// Authority returns the members and invited keys of a view.
func (f *AnnouncementSet) Authority(view graspsync.RepoRef) *Authority {
	a := &Authority{View: view}
	path, end := f.findRoot(view.Owner)
	if a.LeadSearch = end; end == Found {
		f.addMembers(a, path[len(path)-1])
	}
	return a
}

// findRoot follows the lead of each announcement to the root of a view, which names itself, or is the
// owner and names none. path contains the followed keys.
func (f *AnnouncementSet) findRoot(owner graspsync.PubKey) (path []*node, end LeadSearch) {
	for at := owner; ; {
		r := f.nodes[at]
		switch {
		case slices.Contains(path, r) || len(path) > MaxMaintainers:
			return path, Circular
		case r == nil:
			return path, Unannounced
		}
		path = append(path, r)
		switch a := r.announcement; {
		case a == nil:
			return path, Unannounced
		case len(a.Leads) > 1:
			return path, Ambiguous
		case len(a.Leads) == 1 && a.Leads[0] == at:
			return path, Found
		case len(a.Leads) == 1:
			at = a.Leads[0]
		case at != owner:
			return path, Leadless
		case !a.ClaimsRole():
			return path, NoRole
		default:
			return path, Found
		}
	}
}

// addMembers adds the members and invited keys of a view to a. A new member may fulfill either
// condition of membership for other keys.
func (f *AnnouncementSet) addMembers(a *Authority, root *node) {
	a.members = map[graspsync.PubKey]struct{}{root.key: {}}
	a.People = []Person{{Key: root.key, Kind: Root}}
	listedBy := make(map[*node]*node) // a member that lists the key
	var listed []*node                // keys of listedBy
	queue := []*node{root}
	join := func(r, lists *node) {
		if a.Has(r.key) || len(a.members) > MaxMaintainers {
			return
		}
		p := Person{Key: r.key, Kind: Member, ListedBy: listedBy[r].key}
		if lists != nil {
			p.Lists = lists.key
		}
		a.People = append(a.People, p)
		a.members[r.key] = struct{}{}
		queue = append(queue, r)
	}
	for ; len(queue) > 0; queue = queue[1:] {
		by := queue[0]
		for _, r := range by.lists {
			if listedBy[r] != nil || a.Has(r.key) {
				continue
			}
			listedBy[r], listed = by, append(listed, r)
			if kind, lists := f.kindOf(a, r); kind == Member {
				join(r, lists)
			}
		}
		for _, r := range by.listedBy {
			if listedBy[r] != nil && r.announcement.ClaimsRole() {
				join(r, by)
			}
		}
	}
	members := len(a.People)
	for _, r := range listed {
		if kind, _ := f.kindOf(a, r); kind != Member && len(a.People) < members+MaxMaintainers {
			a.People = append(a.People, Person{Key: r.key, Kind: kind, ListedBy: listedBy[r].key})
		}
	}
}

func (f *AnnouncementSet) kindOf(a *Authority, r *node) (kind MemberKind, lists *node) {
	switch {
	case r.announcement != nil && !r.announcement.ClaimsRole():
		return Resigned, nil
	case f.rule.OneSided:
		return Member, nil
	case r.announcement == nil:
		return Silent, nil
	}
	for _, m := range r.lists {
		if a.Has(m.key) {
			return Member, m
		}
	}
	return Unanswered, nil
}

// viewsPerPass is the number of views that are searched together, one per bit of a word.
const viewsPerPass = 64

// AllMembers returns the members of the views of the owners, also members beyond [MaxMaintainers].
func (f *AnnouncementSet) AllMembers(owners []graspsync.PubKey) map[graspsync.PubKey]struct{} {
	members := make(map[graspsync.PubKey]struct{})
	bits := make([]viewBits, len(f.nodes))
	var roots []*node
	for i, owner := range owners {
		if path, end := f.findRoot(owner); end == Found {
			// A root that is a member of an earlier view adds no members.
			root := path[len(path)-1]
			if _, has := members[root.key]; !has && !slices.Contains(roots, root) {
				roots = append(roots, root)
			}
		}
		if len(roots) == viewsPerPass || i == len(owners)-1 {
			f.addMembersOfViews(roots, bits, members)
			clear(bits)
			roots = roots[:0]
		}
	}
	return members
}

// viewBits of a key have one bit per view: the key is a member, a member lists it, it lists a
// member, and it became a member since the search last visited it.
type viewBits struct{ member, listed, lists, added uint64 }

func (f *AnnouncementSet) addMembersOfViews(roots []*node, bits []viewBits, members map[graspsync.PubKey]struct{}) {
	var queue []*node
	join := func(r *node, in uint64) {
		v := &bits[r.index]
		if v.added == 0 {
			queue = append(queue, r)
		}
		members[r.key] = struct{}{}
		v.member |= in
		v.added |= in
	}
	for i, root := range roots {
		join(root, 1<<i)
	}
	consider := func(r *node) {
		v := &bits[r.index]
		in := v.listed &^ v.member
		if !f.rule.OneSided {
			in &= v.lists
		}
		if in != 0 && (r.announcement == nil || r.announcement.ClaimsRole()) {
			join(r, in)
		}
	}
	for ; len(queue) > 0; queue = queue[1:] {
		by := queue[0]
		added := bits[by.index].added
		bits[by.index].added = 0
		for _, r := range by.lists {
			bits[r.index].listed |= added
			consider(r)
		}
		for _, r := range by.listedBy {
			bits[r.index].lists |= added
			consider(r)
		}
	}
}

// Announcement returns the newest announcement of a key, or nil.
func (f *AnnouncementSet) Announcement(who graspsync.PubKey) *Announcement {
	if r := f.nodes[who]; r != nil {
		return r.announcement
	}
	return nil
}

// Knows reports whether a key has an announcement in the set or is listed in one.
func (f *AnnouncementSet) Knows(who graspsync.PubKey) bool { return f.nodes[who] != nil }

// Owners returns the authors of the announcements.
func Owners(all []*Announcement) []graspsync.PubKey {
	out := make([]graspsync.PubKey, len(all))
	for i, a := range all {
		out[i] = a.Ref.Owner
	}
	return out
}
