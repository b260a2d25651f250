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
	rule Membership
	all  map[graspsync.PubKey]*relation // all authors and listed keys
}

type relation struct {
	key      graspsync.PubKey
	at       int           // number of the key, from 0
	own      *Announcement // nil if the key has no announcement
	lists    []*relation   // in the order of the announcement
	listedBy []*relation   // in the order of their keys
}

// Family returns the AnnouncementSet of an identifier. It ignores other announcements.
func (rule Membership) Family(identifier string, same []*Announcement) *AnnouncementSet {
	f := &AnnouncementSet{rule: rule, all: make(map[graspsync.PubKey]*relation, len(same))}
	var authors []*relation
	for _, a := range same {
		if a.Ref.Identifier != identifier {
			continue
		}
		switch r := f.relation(a.Ref.Owner); {
		case r.own == nil:
			authors = append(authors, r)
			r.own = a
		case a.Key().Newer(r.own.Key()):
			r.own = a
		}
	}
	slices.SortFunc(authors, func(a, b *relation) int { return a.key.Compare(b.key) })
	for _, r := range authors {
		r.lists = make([]*relation, len(r.own.Maintainers))
		for i, m := range r.own.Maintainers {
			r.lists[i] = f.relation(m)
			r.lists[i].listedBy = append(r.lists[i].listedBy, r)
		}
	}
	return f
}

func (f *AnnouncementSet) relation(key graspsync.PubKey) *relation {
	r := f.all[key]
	if r == nil {
		r = &relation{key: key, at: len(f.all)}
		f.all[key] = r
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
	Circular    LeadSearch = "the leads name each other" // or the way is too long
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
	View graspsync.RepoRef
	Walk LeadSearch
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
	way, end := f.walk(view.Owner)
	if a.Walk = end; end == Found {
		f.confirm(a, way[len(way)-1])
	}
	return a
}

// walk searches the root of a view along the one lead that each announcement names. Only the owner
// need not name one, and a key may name itself. way contains the followed keys.
func (f *AnnouncementSet) walk(owner graspsync.PubKey) (way []*relation, end LeadSearch) {
	for at := owner; ; {
		r := f.all[at]
		switch {
		case slices.Contains(way, r) || len(way) > MaxMaintainers:
			return way, Circular
		case r == nil:
			return way, Unannounced
		}
		way = append(way, r)
		switch a := r.own; {
		case a == nil:
			return way, Unannounced
		case len(a.Leads) > 1:
			return way, Ambiguous
		case len(a.Leads) == 1 && a.Leads[0] == at:
			return way, Found
		case len(a.Leads) == 1:
			at = a.Leads[0]
		case at != owner:
			return way, Leadless
		case !a.ClaimsRole():
			return way, NoRole
		default:
			return way, Found
		}
	}
}

// confirm adds the members and invited keys of a view to a. A new member may fulfill either condition
// of membership for other keys.
func (f *AnnouncementSet) confirm(a *Authority, root *relation) {
	a.members = map[graspsync.PubKey]struct{}{root.key: {}}
	a.People = []Person{{Key: root.key, Kind: Root}}
	listedBy := make(map[*relation]*relation) // a member that lists the key
	var listed []*relation                    // keys of listedBy
	queue := []*relation{root}
	join := func(r, lists *relation) {
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
			if listedBy[r] != nil && r.own.ClaimsRole() {
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

func (f *AnnouncementSet) kindOf(a *Authority, r *relation) (kind MemberKind, lists *relation) {
	switch {
	case r.own != nil && !r.own.ClaimsRole():
		return Resigned, nil
	case f.rule.OneSided:
		return Member, nil
	case r.own == nil:
		return Silent, nil
	}
	for _, m := range r.lists {
		if a.Has(m.key) {
			return Member, m
		}
	}
	return Unanswered, nil
}

// rootsAtOnce is the number of views that are searched together: one per bit of a word.
const rootsAtOnce = 64

// Speakers returns the members of the views of the owners, also members beyond [MaxMaintainers].
func (f *AnnouncementSet) Speakers(owners []graspsync.PubKey) map[graspsync.PubKey]struct{} {
	say := make(map[graspsync.PubKey]struct{})
	voices := make([]marks, len(f.all))
	var roots []*relation
	for i, owner := range owners {
		if way, end := f.walk(owner); end == Found {
			// A root that is a member of an earlier view adds no members.
			root := way[len(way)-1]
			if _, has := say[root.key]; !has && !slices.Contains(roots, root) {
				roots = append(roots, root)
			}
		}
		if len(roots) == rootsAtOnce || i == len(owners)-1 {
			f.confirmAll(roots, voices, say)
			clear(voices)
			roots = roots[:0]
		}
	}
	return say
}

// marks of a key have one bit per view: the key is a member, a member lists it, it lists a member.
type marks struct{ member, listed, lists, news uint64 }

func (f *AnnouncementSet) confirmAll(roots []*relation, voices []marks, say map[graspsync.PubKey]struct{}) {
	var queue []*relation
	join := func(r *relation, in uint64) {
		v := &voices[r.at]
		if v.news == 0 {
			queue = append(queue, r)
		}
		say[r.key] = struct{}{}
		v.member |= in
		v.news |= in
	}
	for i, root := range roots {
		join(root, 1<<i)
	}
	consider := func(r *relation) {
		v := &voices[r.at]
		in := v.listed &^ v.member
		if !f.rule.OneSided {
			in &= v.lists
		}
		if in != 0 && (r.own == nil || r.own.ClaimsRole()) {
			join(r, in)
		}
	}
	for ; len(queue) > 0; queue = queue[1:] {
		by := queue[0]
		news := voices[by.at].news
		voices[by.at].news = 0
		for _, r := range by.lists {
			voices[r.at].listed |= news
			consider(r)
		}
		for _, r := range by.listedBy {
			voices[r.at].lists |= news
			consider(r)
		}
	}
}

// Announcement returns the newest announcement of a key, or nil.
func (f *AnnouncementSet) Announcement(who graspsync.PubKey) *Announcement {
	if r := f.all[who]; r != nil {
		return r.own
	}
	return nil
}

// Knows reports whether a key has an announcement in the set or is listed in one.
func (f *AnnouncementSet) Knows(who graspsync.PubKey) bool { return f.all[who] != nil }

// Owners returns the authors of the announcements.
func Owners(all []*Announcement) []graspsync.PubKey {
	out := make([]graspsync.PubKey, len(all))
	for i, a := range all {
		out[i] = a.Ref.Owner
	}
	return out
}
