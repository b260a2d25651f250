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

// Membership says what it takes to have a say. The zero value is what servers agree on: a
// listing counts if it is answered.
type Membership struct {
	// OneSided has a listing count without an answer: whoever is listed by somebody with a
	// say has one, wanted or not, recursively. Servers did so before there were role tags.
	OneSided bool
}

// Family is the announcements of one identifier, the newest of each author: what decides
// who has a say about the refs of each of them. It is made by [Membership.Family], does not
// change, and is safe for concurrent use.
type Family struct {
	rule Membership
	by   map[graspsync.PubKey]*Announcement
	all  []relation // all who have an announcement or are listed in one, in order of their keys

	listed int // how many are listed
}

// relation is somebody of a family. Others are named by their places there: a crowd that lists
// itself is gone through many times.
type relation struct {
	key      graspsync.PubKey
	own      *Announcement // nil: there is none
	lists    []int32       // in the order of their announcement
	listedBy []int32       // in order
}

// mention is that an announcement is somebody's, or lists them.
type mention struct {
	key uint64 // its first bytes
	in  int32  // of the announcements
	at  int32  // in their list; -1: it is theirs
}

// Family returns the family of an identifier. Of same, announcements with another
// identifier are passed over, and of one author's the newest counts.
func (rule Membership) Family(identifier string, same []*Announcement) *Family {
	f := &Family{rule: rule, by: make(map[graspsync.PubKey]*Announcement, len(same))}
	for _, a := range same {
		if a.Ref.Identifier != identifier {
			continue
		}
		if b := f.by[a.Ref.Owner]; b == nil || a.Stamp().Newer(b.Stamp()) {
			f.by[a.Ref.Owner] = a
		}
	}
	f.arrange(slices.Collect(maps.Values(f.by)))
	return f
}

// arrange gives everybody their place. Sorting does that: no table has to grow with a crowd.
func (f *Family) arrange(own []*Announcement) {
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
	// Each listing has a place in both of these, which are cut into what belongs to each.
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

// place returns where somebody is in all.
func (f *Family) place(who graspsync.PubKey) (int32, bool) {
	i, known := slices.BinarySearchFunc(f.all, who, func(r relation, key graspsync.PubKey) int { return r.key.Compare(key) })
	return int32(i), known //nolint:gosec // as above
}

// Walk is how the search for the one a view begins with has ended. Nobody has a say in a
// view without one: nothing moves there until its people agree.
type Walk uint8

// The ends of a walk.
const (
	Found       Walk = iota + 1
	Unannounced      // somebody on the way has no announcement here
	NoSay            // the owner gave up the own role and names no lead
	Leadless         // somebody who is named as lead names none
	Ambiguous        // somebody on the way names two leads
	Circular         // leads name each other, or the way is too long
)

func (w Walk) String() string {
	return [...]string{
		"", "found", "somebody on the way has no announcement here", "the owner has no role and names no lead",
		"the lead names no lead", "two leads are named", "the leads name each other",
	}[w]
}

// Say is whether somebody has a say in a view, and why.
type Say uint8

// Who is listed and has no say is invited: their announcements are wanted, their states are not.
const (
	Root       Say = iota + 1 // the view begins with them
	Member                    // listed by somebody who has a say, and lists one who has
	Silent                    // listed, and has no announcement here
	Unanswered                // listed, and lists nobody who has a say
	Resigned                  // listed, and says of themselves that they are no maintainer
)

func (s Say) String() string {
	return [...]string{
		"", "root", "member", "invited, has no announcement here", "invited, lists none of them", "invited, has no role of their own",
	}[s]
}

// Person is somebody who has a say in a view, or is invited to.
type Person struct {
	Key      graspsync.PubKey
	Say      Say
	ListedBy graspsync.PubKey // who has a say and lists them; zero for the root
	Lists    graspsync.PubKey // whom of those that have a say a Member lists; zero if no answer is needed
}

// Authority is who has a say about the refs of one view, the repository of one announcement.
type Authority struct {
	View graspsync.RepoRef
	// Way are the authors whose announcements were followed, from the owner to the root, or
	// to where the walk ended.
	Way  []graspsync.PubKey
	Walk Walk
	// People are those with a say and those who are invited, in the order in which they were
	// come across. Those with a say are at most 1 + MaxMaintainers, and of those who are invited
	// there are as many without an announcement, and as many with one.
	People []Person

	members map[graspsync.PubKey]struct{}
}

// Members returns who has a say. It must not be changed.
func (a *Authority) Members() map[graspsync.PubKey]struct{} { return a.members }

// Has reports whether somebody has a say.
func (a *Authority) Has(key graspsync.PubKey) bool {
	_, ok := a.members[key]
	return ok
}

// String says who has a say and why, a line for each.
func (a *Authority) String() string {
	var out strings.Builder
	if a.Walk != Found {
		fmt.Fprintf(&out, "nobody has a say: %s\n", a.Walk)
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

// Authority returns who has a say in the view of this owner.
func (f *Family) Authority(view graspsync.RepoRef) *Authority {
	a := &Authority{View: view}
	a.Way, a.Walk = f.walk(view.Owner)
	if a.Walk == Found {
		f.confirm(a, a.Way[len(a.Way)-1], f.newTally())
	}
	return a
}

// walk looks for whom a view begins with: it follows the one lead whom each announcement
// names. Only somebody who is named as lead must name a lead again, be it themselves: the
// owner may name none.
func (f *Family) walk(owner graspsync.PubKey) (way []graspsync.PubKey, end Walk) {
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

// confirm adds the people of a view that begins with root. Whoever is listed by somebody
// who has a say, and lists somebody who has one, has one: what that takes may become known
// from either side, so that both are looked at with each new member.
func (f *Family) confirm(a *Authority, root graspsync.PubKey, t *tally) {
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

// tally is what is noted of each of a family while the people of a view are found. It is used
// again for other views: who is not come across costs nothing.
type tally struct {
	listedBy []int32 // one more than who was come across that does; 0: nobody
	invited  []int32 // one more than the index into People; 0: they are not there
	has      []bool
	touched  []int32 // of whom something is noted, and maybe others
}

func (f *Family) newTally() *tally {
	return &tally{listedBy: make([]int32, len(f.all)), invited: make([]int32, len(f.all)), has: make([]bool, len(f.all))}
}

func (t *tally) clear() {
	for _, m := range t.touched {
		t.listedBy[m], t.invited[m], t.has[m] = 0, 0, false
	}
	t.touched = t.touched[:0]
}

// say is what becomes of somebody who is listed by one who has a say.
func (f *Family) say(has []bool, who int32) (Say, graspsync.PubKey) {
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

// Maintains reports whether somebody has a say in the view of at least one of the owners, as
// [Family.Speakers] says.
func (f *Family) Maintains(author graspsync.PubKey, owners []graspsync.PubKey) bool {
	if !f.Knows(author) {
		return false
	}
	_, has := f.Speakers(owners)[author]
	return has
}

// Speakers returns who has a say in the view of at least one of the owners. Who is left out of
// a view since more than [MaxMaintainers] have a say there is among them.
func (f *Family) Speakers(owners []graspsync.PubKey) map[graspsync.PubKey]struct{} {
	say, _ := f.speakers(owners)
	return say
}

// rootsAtOnce is how many views are walked together: as many as a word has bits.
const rootsAtOnce = 64

// speakers also returns how many listings were followed. Of views that begin with somebody
// who has a say in one that was walked, nothing new is to be learned.
func (f *Family) speakers(owners []graspsync.PubKey) (say map[graspsync.PubKey]struct{}, steps int) {
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

// voice is what is known of somebody in some views, a bit for each: where they have a say,
// are listed by somebody who has, and list somebody who has.
type voice struct{ says, listed, lists, news uint64 }

// confirmAll adds to say who has one in some views, by their roots.
func (f *Family) confirmAll(roots []int32, say map[graspsync.PubKey]struct{}) (steps int) {
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

// Announcement returns the newest announcement of somebody; nil if there is none.
func (f *Family) Announcement(who graspsync.PubKey) *Announcement { return f.by[who] }

// Knows reports whether somebody has an announcement in the family, or is listed in one: who
// has not has no say, and nothing that becomes of the others gives them one.
func (f *Family) Knows(who graspsync.PubKey) bool {
	_, known := f.place(who)
	return known
}

// Lists reports whether somebody is listed in an announcement of the family.
func (f *Family) Lists(who graspsync.PubKey) bool {
	i, known := f.place(who)
	return known && len(f.all[i].listedBy) > 0
}

// Owners returns whose announcements these are.
func Owners(all []*Announcement) []graspsync.PubKey {
	out := make([]graspsync.PubKey, len(all))
	for i, a := range all {
		out[i] = a.Ref.Owner
	}
	return out
}

// MaxGenerations is through how many others somebody is listed at most whose announcement is taken
// in: whoever keeps announcements elsewhere has to read as many times.
const MaxGenerations = 16

// Bounds is whose announcements are taken in for those of some owners: of each owner at most
// Each of whom they list, recursively, and of all together at most All, of which each owner
// has their share: Sure of them whatever the others list, before anybody has more.
type Bounds struct{ Each, Sure, All int }

// ServedBounds are those of owners whose repositories are served.
func ServedBounds() Bounds { return Bounds{Each: MaxMaintainers, Sure: 4, All: 4 * MaxMaintainers} }

// WaitingBounds are those of owners whose repositories wait for git data: they may be anybody.
func WaitingBounds() Bounds { return Bounds{Each: 32, Sure: 1, All: MaxMaintainers} }

// Wanted returns whose announcements are of use to those of these owners, and for which of
// them: whom they list, recursively, the nearest first. Whether they have a say shows only when
// their announcements are here. What somebody lists who has no say is followed as well: the
// way to the lead of a view may go through it. full says that some are left out: those who
// lead to where a view begins, and who have a say there, come before all others then.
func (f *Family) Wanted(owners []graspsync.PubKey, most Bounds) (wanted map[graspsync.PubKey]graspsync.PubKey, full bool) {
	owners = slices.Compact(slices.SortedFunc(slices.Values(owners), graspsync.PubKey.Compare))
	r := f.newReach(most.Each)
	wanted, full = f.share(owners, most, func(owner graspsync.PubKey) ([]int32, bool) { return r.of(owner, nil) })
	if !full || !f.passesOver(owners, wanted) {
		return wanted, full
	}
	heads := f.heads()
	return f.share(owners, most, func(owner graspsync.PubKey) ([]int32, bool) { return r.of(owner, heads(owner)) })
}

// passesOver reports whether somebody is left out who leads to where a view begins, or has a say
// in one, of these owners.
func (f *Family) passesOver(owners []graspsync.PubKey, wanted map[graspsync.PubKey]graspsync.PubKey) bool {
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

// leading returns those on the way from an owner to where the view begins, as far as it goes,
// and whom the last of them names who is not here.
func (f *Family) leading(owner graspsync.PubKey) (lead []int32) {
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

// share gives each of some owners places for those whom they list, in turns.
func (f *Family) share(owners []graspsync.PubKey, most Bounds, reach func(owner graspsync.PubKey) (lists []int32, cut bool)) (wanted map[graspsync.PubKey]graspsync.PubKey, full bool) {
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

// heads returns who comes first of those whom an owner lists: those on the way to where the
// view begins, and those with a say there. Views that begin with the same one have the same.
func (f *Family) heads() func(owner graspsync.PubKey) []int32 {
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

// Wanters returns for whom of some owners the announcements of others are of use: all of them,
// in order of their keys, each of whom wants at most so many, as [Family.Wanted] says.
func (f *Family) Wanters(owners []graspsync.PubKey, each int) map[graspsync.PubKey][]graspsync.PubKey {
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

// reach goes through those whom owners list, recursively. What it has is used again for each.
type reach struct {
	f             *Family
	most          int
	taken, queued []int32 // for which of the owners
	owners        int32   // it was asked for
	queue         []int32
}

func (f *Family) newReach(most int) *reach {
	return &reach{f: f, most: most, taken: make([]int32, len(f.all)), queued: make([]int32, len(f.all))}
}

// of returns so many of those whom an owner lists: first those of head, then the nearest.
// cut says that there are more.
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
	others := r.f.listed // of whom there are no more than these
	if len(r.f.all[at].listedBy) > 0 {
		others--
	}
	generation, last := 1, len(r.queue) // where those begin who are as far off as nobody before
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
