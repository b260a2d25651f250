package nip34

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/graspsync/graspsync"
)

// Membership is the rule by which keys become members of a view. Members may sign states. By the
// zero value, a listed key is a member if its own announcement lists a member. A view is the
// repository of one announcement.
type Membership struct {
	// OneSided makes each listed key a member, recursively, without an announcement of its own.
	// This was the rule of servers before role tags existed.
	OneSided bool
}

// AnnouncementSet contains the newest announcement of each author under one identifier. Together
// they decide who is a member of each author's repository. [Membership.Family] makes it. An
// AnnouncementSet is immutable and safe for concurrent use.
type AnnouncementSet struct {
	rule Membership
	by   map[graspsync.PubKey]*Announcement
	all  []relation // all authors and listed keys, in order of their keys

	listed int // number of listed keys
}

// relation is one key of an AnnouncementSet. Keys refer to each other by their indexes in all,
// which makes repeated walks over large sets cheap.
type relation struct {
	key      graspsync.PubKey
	own      *Announcement // nil if the key has no announcement
	lists    []int32       // in the order of the announcement
	listedBy []int32       // in ascending order
}

// mention is an occurrence of a key: as the author of an announcement, or in its list.
type mention struct {
	key uint64 // first 8 bytes of the key
	in  int32  // index of the announcement
	at  int32  // index in its list, or -1 for the author
}

// Family returns the AnnouncementSet of an identifier. It ignores announcements in same with
// another identifier, and uses the newest announcement of each author.
func (rule Membership) Family(identifier string, same []*Announcement) *AnnouncementSet {
	f := &AnnouncementSet{rule: rule, by: make(map[graspsync.PubKey]*Announcement, len(same))}
	for _, a := range same {
		if a.Ref.Identifier != identifier {
			continue
		}
		if b := f.by[a.Ref.Owner]; b == nil || a.Key().Newer(b.Key()) {
			f.by[a.Ref.Owner] = a
		}
	}
	f.arrange(slices.Collect(maps.Values(f.by)))
	return f
}

// arrange fills all. It sorts all occurrences of keys instead of filling a map, because sorting
// needs less memory.
func (f *AnnouncementSet) arrange(own []*Announcement) {
	listings := 0
	for _, a := range own {
		listings += len(a.Maintainers)
	}
	mentions := make([]mention, 0, len(own)+listings)
	for i, a := range own {
		in := int32(i) //nolint:gosec // memory holds no more
		mentions = append(mentions, mention{binary.BigEndian.Uint64(a.Ref.Owner[:]), in, -1})
		for at, m := range a.Maintainers {
			mentions = append(mentions, mention{binary.BigEndian.Uint64(m[:]), in, int32(at)}) //nolint:gosec // there are at most MaxMaintainers
		}
	}
	of := func(m mention) *graspsync.PubKey {
		if m.at < 0 {
			return &own[m.in].Ref.Owner
		}
		return &own[m.in].Maintainers[m.at]
	}
	slices.SortFunc(mentions, func(a, b mention) int {
		if a.key != b.key {
			return cmp.Compare(a.key, b.key)
		}
		return of(a).Compare(*of(b))
	})
	people := 0
	isNext := func(i int) bool {
		return i == 0 || mentions[i].key != mentions[i-1].key || *of(mentions[i]) != *of(mentions[i-1])
	}
	for i := range mentions {
		if isNext(i) {
			people++
		}
	}
	f.all = make([]relation, 0, people)
	// Each key gets a slice of these two arrays, which have one entry per listing.
	lists, listedBy := make([]int32, listings), make([]int32, listings)
	from := make([]int32, len(own)+1)
	for i, a := range own {
		from[i+1] = from[i] + int32(len(a.Maintainers)) //nolint:gosec // as above
	}
	times := 0
	for i, m := range mentions {
		if isNext(i) {
			f.all = append(f.all, relation{key: *of(m), listedBy: listedBy[times:times]})
		}
		place := len(f.all) - 1
		who := &f.all[place]
		if m.at < 0 {
			who.own, who.lists = own[m.in], lists[from[m.in]:from[m.in+1]]
			continue
		}
		lists[from[m.in]+m.at] = int32(place) //nolint:gosec // as above
		times++
	}
	for i := range f.all {
		for _, m := range f.all[i].lists {
			who := &f.all[m]
			if len(who.listedBy) == 0 {
				f.listed++
			}
			who.listedBy = append(who.listedBy, int32(i)) //nolint:gosec // as above
		}
	}
}

// place returns the index of a key in all. The bool is false if the key is unknown.
func (f *AnnouncementSet) place(who graspsync.PubKey) (int32, bool) {
	i, known := slices.BinarySearchFunc(f.all, who, func(r relation, key graspsync.PubKey) int { return r.key.Compare(key) })
	return int32(i), known //nolint:gosec // as above
}

// LeadSearch is the result of the search for the root of a view. A view without a root has no
// members, so no state can move its refs.
type LeadSearch uint8

// Results of the search.
const (
	Found       LeadSearch = iota + 1
	Unannounced            // a key on the way has no stored announcement
	NoSay                  // the owner ended the own role and names no lead
	Leadless               // a key that is named as lead names no lead
	Ambiguous              // a key on the way names two leads
	Circular               // leads name each other, or the way is too long
)

var leadSearches = []string{
	"", "found", "somebody on the way has no announcement here", "the owner has no role and names no lead",
	"the lead names no lead", "two leads are named", "the leads name each other",
}

func (w LeadSearch) String() string { return leadSearches[w] }

// MarshalText encodes the result of String.
func (w LeadSearch) MarshalText() ([]byte, error) { return []byte(w.String()), nil }

// UnmarshalText reads the output of MarshalText. Another text is an error.
func (w *LeadSearch) UnmarshalText(text []byte) error {
	i := slices.Index(leadSearches, string(text))
	if i < 0 {
		return fmt.Errorf("%q is not the result of a search for a lead", text)
	}
	*w = LeadSearch(i)
	return nil
}

// MemberKind is the membership of a key in a view, with the reason.
type MemberKind uint8

// Kinds of members. Invited keys are listed keys that are not members. Their announcements are
// requested, but their states do not count.
const (
	Root       MemberKind = iota + 1 // the first member of the view
	Member                           // is listed by a member, and lists a member
	Silent                           // is listed, and has no stored announcement
	Unanswered                       // is listed, and lists no member
	Resigned                         // is listed, and ended the own role
)

var memberKinds = []string{
	"", "root", "member", "invited, has no announcement here", "invited, lists none of them", "invited, has no role of their own",
}

func (s MemberKind) String() string { return memberKinds[s] }

// MarshalText encodes the result of String.
func (s MemberKind) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads the output of MarshalText. Another text is an error.
func (s *MemberKind) UnmarshalText(text []byte) error {
	i := slices.Index(memberKinds, string(text))
	if i < 0 {
		return fmt.Errorf("%q is not a kind of member", text)
	}
	*s = MemberKind(i)
	return nil
}

// Person is a member of a view, or an invited key.
type Person struct {
	Key      graspsync.PubKey `json:"key"`
	Say      MemberKind       `json:"role"`
	ListedBy graspsync.PubKey `json:"listed_by,omitzero"` // a member that lists the key; zero for the root
	Lists    graspsync.PubKey `json:"lists,omitzero"`     // a member that a Member lists; zero if no answer is needed
}

// Authority contains the members of one view, which is the repository of one announcement.
type Authority struct {
	View graspsync.RepoRef
	// Way contains the authors whose announcements were followed, from the owner to the root or to
	// the end of the search.
	Way  []graspsync.PubKey
	Walk LeadSearch
	// People contains members and invited keys in the order in which they were found. It contains
	// at most 1 + MaxMaintainers members, MaxMaintainers invited keys without an announcement, and
	// MaxMaintainers with one.
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

// String lists the members and invited keys with reasons, one per line.
func (a *Authority) String() string {
	var out strings.Builder
	if a.Walk != Found {
		fmt.Fprintf(&out, "no members: %s\n", a.Walk)
	}
	for _, p := range a.People {
		fmt.Fprintf(&out, "%s: %s", p.Key, p.Say)
		if p.ListedBy != (graspsync.PubKey{}) {
			fmt.Fprintf(&out, ", listed by %s", p.ListedBy)
		}
		if p.Lists != (graspsync.PubKey{}) {
			fmt.Fprintf(&out, ", lists %s", p.Lists)
		}
		out.WriteByte('\n')
	}
	return out.String()
}

// Authority returns the members and invited keys of a view.
func (f *AnnouncementSet) Authority(view graspsync.RepoRef) *Authority {
	a := &Authority{View: view}
	a.Way, a.Walk = f.walk(view.Owner)
	if a.Walk == Found {
		f.confirm(a, a.Way[len(a.Way)-1], f.newTally())
	}
	return a
}

// walk searches the root of a view. It follows the one lead that each announcement names. The owner
// need not name a lead. A key that is named as lead must name one, which may be itself.
func (f *AnnouncementSet) walk(owner graspsync.PubKey) (way []graspsync.PubKey, end LeadSearch) {
	seen := make(map[graspsync.PubKey]struct{}, 1)
	for at := owner; ; {
		a := f.by[at]
		if _, again := seen[at]; again || len(way) > MaxMaintainers {
			return way, Circular
		}
		if seen[at] = struct{}{}; a == nil {
			return way, Unannounced
		}
		way = append(way, at)
		switch {
		case len(a.Leads) > 1:
			return way, Ambiguous
		case len(a.Leads) == 1 && a.Leads[0] == at:
			return way, Found
		case len(a.Leads) == 1:
			at = a.Leads[0]
		case at != owner:
			return way, Leadless
		case !a.HasSay():
			return way, NoSay
		default:
			return way, Found
		}
	}
}

// confirm adds the members and invited keys of a view to a. A key is a member if a member lists it
// and it lists a member. Each new member is checked against both conditions, because either may
// become true first.
func (f *AnnouncementSet) confirm(a *Authority, root graspsync.PubKey, t *tally) {
	defer t.clear()
	at, _ := f.place(root)
	listedBy, invited, has := t.listedBy, t.invited, t.has
	a.members = map[graspsync.PubKey]struct{}{root: {}}
	a.People = []Person{{Key: root, Say: Root}}
	has[at] = true
	t.touched = append(t.touched, at)
	silent, others := 0, 0
	queue := []int32{at}
	full := func() bool { return len(a.members) > MaxMaintainers }
	join := func(who int32, p Person) {
		if i := invited[who]; i > 0 {
			a.People[i-1] = p
		} else {
			a.People = append(a.People, p)
		}
		has[who] = true
		a.members[p.Key] = struct{}{}
		queue = append(queue, who)
	}
	for ; len(queue) > 0; queue = queue[1:] {
		at := queue[0]
		by := &f.all[at]
		for _, m := range by.lists {
			if listedBy[m] > 0 || has[m] {
				continue
			}
			p := Person{Key: f.all[m].key, ListedBy: by.key}
			p.Say, p.Lists = f.say(has, m)
			some := &others
			switch t.touched = append(t.touched, m); p.Say {
			case Member:
				if !full() {
					listedBy[m] = at + 1
					join(m, p)
				}
				continue
			case Silent:
				some = &silent
			default:
			}
			listedBy[m] = at + 1
			if *some < MaxMaintainers {
				*some++
				a.People = append(a.People, p)
				invited[m] = int32(len(a.People)) //nolint:gosec // it is bounded
			}
		}
		for _, m := range by.listedBy {
			if listedBy[m] == 0 || has[m] || full() || !f.all[m].own.HasSay() {
				continue
			}
			join(m, Person{Key: f.all[m].key, Say: Member, ListedBy: f.all[listedBy[m]-1].key, Lists: by.key})
		}
	}
}

// tally contains marks of keys while the people of a view are found. It is reused for other views.
// Clearing costs time only for keys with marks.
type tally struct {
	listedBy []int32 // index of a member that lists the key, plus 1; or 0
	invited  []int32 // index in People plus 1, or 0
	has      []bool
	touched  []int32 // keys that may have marks
}

func (f *AnnouncementSet) newTally() *tally {
	return &tally{listedBy: make([]int32, len(f.all)), invited: make([]int32, len(f.all)), has: make([]bool, len(f.all))}
}

func (t *tally) clear() {
	for _, m := range t.touched {
		t.listedBy[m], t.invited[m], t.has[m] = 0, 0, false
	}
	t.touched = t.touched[:0]
}

// say returns the kind of membership of a key that a member lists, and the member that it lists.
func (f *AnnouncementSet) say(has []bool, who int32) (MemberKind, graspsync.PubKey) {
	own := f.all[who].own
	switch {
	case own != nil && !own.HasSay():
		return Resigned, graspsync.PubKey{}
	case f.rule.OneSided:
		return Member, graspsync.PubKey{}
	case own == nil:
		return Silent, graspsync.PubKey{}
	}
	for _, m := range f.all[who].lists {
		if has[m] {
			return Member, f.all[m].key
		}
	}
	return Unanswered, graspsync.PubKey{}
}

// Speakers returns the members of the views of the owners. It includes members that
// [Authority.People] omits because a view has more than [MaxMaintainers].
func (f *AnnouncementSet) Speakers(owners []graspsync.PubKey) map[graspsync.PubKey]struct{} {
	say, _ := f.speakers(owners)
	return say
}

// rootsAtOnce is the number of views that are searched together: one per bit of a word.
const rootsAtOnce = 64

// speakers also returns the number of listings that were followed. It skips a view whose root is a
// member of an earlier view, because both have the same members.
func (f *AnnouncementSet) speakers(owners []graspsync.PubKey) (say map[graspsync.PubKey]struct{}, steps int) {
	say = make(map[graspsync.PubKey]struct{})
	var roots []int32
	begun := make(map[int32]struct{})
	for _, owner := range owners {
		way, end := f.walk(owner)
		if end != Found {
			continue
		}
		root, _ := f.place(way[len(way)-1])
		if _, again := begun[root]; !again {
			begun[root] = struct{}{}
			roots = append(roots, root)
		}
	}
	for len(roots) > 0 {
		var some []int32
		for ; len(roots) > 0 && len(some) < rootsAtOnce; roots = roots[1:] {
			if _, has := say[f.all[roots[0]].key]; !has {
				some = append(some, roots[0])
			}
		}
		steps += f.confirmAll(some, say)
	}
	return say, steps
}

// voice contains marks of a key, one bit per view: the key is a member, a member lists it, it lists
// a member.
type voice struct{ says, listed, lists, news uint64 }

// confirmAll adds the members of the views with these roots to say.
func (f *AnnouncementSet) confirmAll(roots []int32, say map[graspsync.PubKey]struct{}) (steps int) {
	voices := make([]voice, len(f.all))
	var queue []int32
	speaks := func(who int32, in uint64) {
		v := &voices[who]
		if v.news == 0 {
			queue = append(queue, who)
		}
		if v.says == 0 {
			say[f.all[who].key] = struct{}{}
		}
		v.says |= in
		v.news |= in
	}
	may := func(who int32) bool {
		own := f.all[who].own
		return own == nil && f.rule.OneSided || own != nil && own.HasSay()
	}
	for i, root := range roots {
		speaks(root, 1<<i)
	}
	look := func(who int32) {
		steps++
		v := &voices[who]
		in := v.listed &^ v.says
		if !f.rule.OneSided {
			in &= v.lists
		}
		if in != 0 && may(who) {
			speaks(who, in)
		}
	}
	for ; len(queue) > 0; queue = queue[1:] {
		by := queue[0]
		news := voices[by].news
		voices[by].news = 0
		for _, m := range f.all[by].lists {
			voices[m].listed |= news
			look(m)
		}
		for _, m := range f.all[by].listedBy {
			voices[m].lists |= news
			look(m)
		}
	}
	return steps
}

// Announcement returns the newest announcement of a key, or nil.
func (f *AnnouncementSet) Announcement(who graspsync.PubKey) *Announcement { return f.by[who] }

// Knows reports whether a key has an announcement in the set or is listed in one. An unknown key
// cannot become a member by announcements of known keys.
func (f *AnnouncementSet) Knows(who graspsync.PubKey) bool {
	_, known := f.place(who)
	return known
}

// Owners returns the authors of the announcements.
func Owners(all []*Announcement) []graspsync.PubKey {
	out := make([]graspsync.PubKey, len(all))
	for i, a := range all {
		out[i] = a.Ref.Owner
	}
	return out
}

// MaxGenerations is the maximum number of listings between an owner and a wanted announcement. A
// server whose announcements are stored elsewhere reads them once per step.
const MaxGenerations = 16

// Bounds limits the announcements that are wanted for the announcements of some owners. For each
// owner at most Each are wanted, of the keys that its announcement lists recursively, and at most
// All for all owners together. Each owner first gets Sure of them, and the rest is shared in turns.
type Bounds struct{ Each, Sure, All int }

// ServedBounds are the bounds for owners whose repositories are served.
func ServedBounds() Bounds { return Bounds{Each: MaxMaintainers, Sure: 4, All: 4 * MaxMaintainers} }

// WaitingBounds are the bounds for owners whose repositories wait for git data. They are low,
// because anyone can be such an owner.
func WaitingBounds() Bounds { return Bounds{Each: 32, Sure: 1, All: MaxMaintainers} }

// Wanted returns the keys whose announcements are useful for the announcements of the owners, each
// with one such owner. They are the keys that the owners list, recursively, the nearest first.
// Listings of non-members count too, because they may lead to the root of a view, and membership is
// known only after the announcements are stored. If full is true, some keys are left out. Then the
// keys between an owner and the root of its view, and the members, precede all others.
func (f *AnnouncementSet) Wanted(owners []graspsync.PubKey, most Bounds) (wanted map[graspsync.PubKey]graspsync.PubKey, full bool) {
	owners = slices.Compact(slices.SortedFunc(slices.Values(owners), graspsync.PubKey.Compare))
	r := f.newReach(most.Each)
	wanted, full = f.share(owners, most, func(owner graspsync.PubKey) ([]int32, bool) { return r.of(owner, nil) })
	if !full || !f.passesOver(owners, wanted) {
		return wanted, full
	}
	heads := f.heads()
	return f.share(owners, most, func(owner graspsync.PubKey) ([]int32, bool) { return r.of(owner, heads(owner)) })
}

// passesOver reports whether wanted omits a key that is between one of the owners and the root of
// its view, or a member of that view.
func (f *AnnouncementSet) passesOver(owners []graspsync.PubKey, wanted map[graspsync.PubKey]graspsync.PubKey) bool {
	in := func(who graspsync.PubKey) bool {
		_, is := wanted[who]
		if !is {
			_, is = slices.BinarySearchFunc(owners, who, graspsync.PubKey.Compare)
		}
		return is
	}
	for _, owner := range owners {
		for _, who := range f.leading(owner) {
			if !in(f.all[who].key) {
				return true
			}
		}
	}
	for who := range f.Speakers(owners) {
		if !in(who) {
			return true
		}
	}
	return false
}

// leading returns the known keys between an owner and the root of its view, and the keys that the
// last of them names as leads.
func (f *AnnouncementSet) leading(owner graspsync.PubKey) (lead []int32) {
	way, end := f.walk(owner)
	for i, who := range way {
		if i > 0 {
			at, _ := f.place(who)
			lead = append(lead, at)
		}
	}
	if end == Unannounced && len(way) > 0 {
		if next, listed := f.place(f.by[way[len(way)-1]].Leads[0]); listed {
			lead = append(lead, next)
		}
	}
	return lead
}

// share distributes the wanted keys over the owners in turns.
func (f *AnnouncementSet) share(owners []graspsync.PubKey, most Bounds, reach func(owner graspsync.PubKey) (lists []int32, cut bool)) (wanted map[graspsync.PubKey]graspsync.PubKey, full bool) {
	wanted = make(map[graspsync.PubKey]graspsync.PubKey)
	is := make([]bool, len(f.all))
	type turn struct {
		owner graspsync.PubKey
		rest  []int32
	}
	turns := make([]turn, len(owners))
	for i, owner := range owners {
		lists, cut := reach(owner)
		turns[i] = turn{owner, lists}
		full = full || cut
	}
	for round := 0; len(turns) > 0; round++ {
		still := turns[:0]
		for _, t := range turns {
			for len(t.rest) > 0 && is[t.rest[0]] {
				t.rest = t.rest[1:]
			}
			switch {
			case len(t.rest) == 0:
				continue
			case round >= most.Sure && len(wanted) >= most.All:
				return wanted, true
			}
			is[t.rest[0]] = true
			wanted[f.all[t.rest[0]].key] = t.owner
			t.rest = t.rest[1:]
			still = append(still, t)
		}
		turns = still
	}
	return wanted, full
}

// heads returns a function that returns the first keys for an owner: the keys between the owner and
// the root of its view, and the members. Views with the same root share them.
func (f *AnnouncementSet) heads() func(owner graspsync.PubKey) []int32 {
	members, t := make(map[graspsync.PubKey][]int32), f.newTally()
	return func(owner graspsync.PubKey) []int32 {
		way, end := f.walk(owner)
		if end != Found {
			return f.leading(owner)
		}
		root := way[len(way)-1]
		of, known := members[root]
		if !known {
			var a Authority
			f.confirm(&a, root, t)
			for _, p := range a.People {
				if a.Has(p.Key) {
					at, _ := f.place(p.Key)
					of = append(of, at)
				}
			}
			members[root] = of
		}
		return slices.Concat(f.leading(owner), of)
	}
}

// Wanters returns, for each wanted key, the owners for which its announcement is useful, in order
// of their keys. For each owner at most each keys are wanted. See [AnnouncementSet.Wanted].
func (f *AnnouncementSet) Wanters(owners []graspsync.PubKey, each int) map[graspsync.PubKey][]graspsync.PubKey {
	out := make(map[graspsync.PubKey][]graspsync.PubKey)
	r, heads := f.newReach(each), f.heads()
	for _, owner := range slices.Compact(slices.SortedFunc(slices.Values(owners), graspsync.PubKey.Compare)) {
		lists, cut := r.of(owner, nil)
		if cut {
			lists, _ = r.of(owner, heads(owner))
		}
		for _, m := range lists {
			out[f.all[m].key] = append(out[f.all[m].key], owner)
		}
	}
	return out
}

// reach finds the keys that owners list, recursively. It reuses its buffers.
type reach struct {
	f             *AnnouncementSet
	most          int
	taken, queued []int32 // number of the owner for which the key was last seen
	owners        int32   // number of owners so far
	queue         []int32
}

func (f *AnnouncementSet) newReach(most int) *reach {
	return &reach{f: f, most: most, taken: make([]int32, len(f.all)), queued: make([]int32, len(f.all))}
}

// of returns at most r.most keys that an owner lists, first the keys of head, then the nearest. cut
// means that there are more.
func (r *reach) of(owner graspsync.PubKey, head []int32) (lists []int32, cut bool) {
	at, known := r.f.place(owner)
	if !known {
		return nil, false
	}
	r.owners++
	r.taken[at], r.queued[at] = r.owners, r.owners
	take := func(m int32) bool {
		switch {
		case r.taken[m] == r.owners:
		case len(lists) == r.most:
			cut = true
		default:
			r.taken[m] = r.owners
			lists = append(lists, m)
		}
		return !cut
	}
	for _, m := range head {
		if !take(m) {
			return lists, true
		}
	}
	r.queue = append(r.queue[:0], at)
	others := r.f.listed // maximum number of results
	if len(r.f.all[at].listedBy) > 0 {
		others--
	}
	generation, last := 1, len(r.queue) // last is the index of the first key of the next step
	for i := 0; i < len(r.queue) && len(lists) < others; i++ {
		if i == last {
			generation, last = generation+1, len(r.queue)
		}
		if generation > MaxGenerations {
			break
		}
		for _, m := range r.f.all[r.queue[i]].lists {
			if !take(m) {
				return lists, true
			}
			if r.queued[m] != r.owners {
				r.queued[m] = r.owners
				r.queue = append(r.queue, m)
			}
		}
	}
	return lists, false
}
