package nip34

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/graspsync/graspsync/filters"
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
	rule    Membership
	by      map[filters.PubKey]*Announcement
	listing map[filters.PubKey][]filters.PubKey // who lists somebody, in order of their keys
}

// Family returns the family of an identifier. Of same, announcements with another
// identifier are passed over, and of one author's the newest counts.
func (rule Membership) Family(identifier string, same []*Announcement) *Family {
	f := &Family{
		rule:    rule,
		by:      make(map[filters.PubKey]*Announcement, len(same)),
		listing: make(map[filters.PubKey][]filters.PubKey),
	}
	for _, a := range same {
		if a.Ref.Identifier != identifier {
			continue
		}
		if b := f.by[a.Ref.Owner]; b == nil || Newer(a.Version(), b.Version()) {
			f.by[a.Ref.Owner] = a
		}
	}
	for _, by := range slices.SortedFunc(maps.Keys(f.by), filters.PubKey.Compare) {
		for _, m := range f.by[by].Maintainers {
			f.listing[m] = append(f.listing[m], by)
		}
	}
	return f
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
	Key      filters.PubKey
	Say      Say
	ListedBy filters.PubKey // who has a say and lists them; zero for the root
	Lists    filters.PubKey // whom of those that have a say a Member lists; zero if no answer is needed
}

// Authority is who has a say about the refs of one view, the repository of one announcement.
type Authority struct {
	View filters.RepoRef
	// Way are the authors whose announcements were followed, from the owner to the root, or
	// to where the walk ended.
	Way  []filters.PubKey
	Walk Walk
	// People are those with a say and those who are invited, in the order in which they were
	// come across. Those with a say are at most 1 + MaxMaintainers, and as many have no
	// announcement and are invited.
	People []Person

	members map[filters.PubKey]struct{}
}

// Members returns who has a say. It must not be changed.
func (a *Authority) Members() map[filters.PubKey]struct{} { return a.members }

// Has reports whether somebody has a say.
func (a *Authority) Has(key filters.PubKey) bool {
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
		if p.ListedBy != (filters.PubKey{}) {
			fmt.Fprintf(&out, ", listed by %s", p.ListedBy)
		}
		if p.Lists != (filters.PubKey{}) {
			fmt.Fprintf(&out, ", lists %s", p.Lists)
		}
		out.WriteByte('\n')
	}
	return out.String()
}

// Authority returns who has a say in the view of this owner.
func (f *Family) Authority(view filters.RepoRef) *Authority {
	a := &Authority{View: view}
	a.Way, a.Walk = f.walk(view.Owner)
	if a.Walk == Found {
		f.confirm(a, a.Way[len(a.Way)-1])
	}
	return a
}

// walk looks for whom a view begins with: it follows the one lead whom each announcement
// names. Only somebody who is named as lead must name a lead again, be it themselves: the
// owner may name none.
func (f *Family) walk(owner filters.PubKey) (way []filters.PubKey, end Walk) {
	seen := make(map[filters.PubKey]struct{}, 1)
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
func (f *Family) confirm(a *Authority, root filters.PubKey) {
	invited := make(map[filters.PubKey]int) // index into People
	a.members = map[filters.PubKey]struct{}{root: {}}
	a.People = []Person{{Key: root, Say: Root}}
	silent := 0
	queue := []filters.PubKey{root}
	full := func() bool { return len(a.members) > MaxMaintainers }
	for ; len(queue) > 0; queue = queue[1:] {
		by := queue[0]
		if f.by[by] == nil {
			continue
		}
		for _, m := range f.by[by].Maintainers {
			if _, again := invited[m]; again || a.Has(m) {
				continue
			}
			p := Person{Key: m, ListedBy: by}
			p.Say, p.Lists = f.say(a, m)
			if p.Say == Silent {
				if silent == MaxMaintainers {
					continue
				}
				silent++
			}
			if p.Say == Member {
				if full() {
					continue
				}
				a.members[m] = struct{}{}
				queue = append(queue, m)
			}
			invited[m] = len(a.People)
			a.People = append(a.People, p)
		}
		for _, m := range f.listing[by] {
			i, was := invited[m]
			if !was || a.People[i].Say != Unanswered || full() {
				continue
			}
			a.People[i].Say, a.People[i].Lists = Member, by
			a.members[m] = struct{}{}
			queue = append(queue, m)
		}
	}
}

// say is what becomes of somebody who is listed by one who has a say.
func (f *Family) say(a *Authority, who filters.PubKey) (Say, filters.PubKey) {
	own := f.by[who]
	switch {
	case own != nil && !own.HasSay():
		return Resigned, filters.PubKey{}
	case f.rule.OneSided:
		return Member, filters.PubKey{}
	case own == nil:
		return Silent, filters.PubKey{}
	}
	for _, m := range own.Maintainers {
		if a.Has(m) {
			return Member, m
		}
	}
	return Unanswered, filters.PubKey{}
}

// Maintains reports whether somebody has a say in the view of at least one of the owners, as
// [Family.Speakers] says.
func (f *Family) Maintains(author filters.PubKey, owners []filters.PubKey) bool {
	if !f.Knows(author) {
		return false
	}
	_, has := f.Speakers(owners)[author]
	return has
}

// Speakers returns who has a say in the view of at least one of the owners. Who is left out of
// a view since more than [MaxMaintainers] have a say there is among them.
func (f *Family) Speakers(owners []filters.PubKey) map[filters.PubKey]struct{} {
	say, _ := f.speakers(owners)
	return say
}

// rootsAtOnce is how many views are walked together: as many as a word has bits.
const rootsAtOnce = 64

// speakers also returns how many listings were followed. Of views that begin with somebody
// who has a say in one that was walked, nothing new is to be learned.
func (f *Family) speakers(owners []filters.PubKey) (say map[filters.PubKey]struct{}, steps int) {
	say = make(map[filters.PubKey]struct{})
	var roots []filters.PubKey
	begun := make(map[filters.PubKey]struct{})
	for _, owner := range owners {
		way, end := f.walk(owner)
		if end != Found {
			continue
		}
		root := way[len(way)-1]
		if _, again := begun[root]; !again {
			begun[root] = struct{}{}
			roots = append(roots, root)
		}
	}
	for len(roots) > 0 {
		var some []filters.PubKey
		for ; len(roots) > 0 && len(some) < rootsAtOnce; roots = roots[1:] {
			if _, has := say[roots[0]]; !has {
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
func (f *Family) confirmAll(roots []filters.PubKey, say map[filters.PubKey]struct{}) (steps int) {
	voices := make(map[filters.PubKey]*voice)
	of := func(who filters.PubKey) *voice {
		v := voices[who]
		if v == nil {
			v = new(voice)
			voices[who] = v
		}
		return v
	}
	var queue []filters.PubKey
	speaks := func(who filters.PubKey, v *voice, in uint64) {
		if v.news == 0 {
			queue = append(queue, who)
		}
		v.says |= in
		v.news |= in
		say[who] = struct{}{}
	}
	may := func(who filters.PubKey) bool {
		own := f.by[who]
		return own == nil && f.rule.OneSided || own != nil && own.HasSay()
	}
	for i, root := range roots {
		speaks(root, of(root), 1<<i)
	}
	for ; len(queue) > 0; queue = queue[1:] {
		by := queue[0]
		news := of(by).news
		of(by).news = 0
		look := func(who filters.PubKey, v *voice) {
			steps++
			in := v.listed &^ v.says
			if !f.rule.OneSided {
				in &= v.lists
			}
			if in != 0 && may(who) {
				speaks(who, v, in)
			}
		}
		if a := f.by[by]; a != nil {
			for _, m := range a.Maintainers {
				v := of(m)
				v.listed |= news
				look(m, v)
			}
		}
		for _, m := range f.listing[by] {
			v := of(m)
			v.lists |= news
			look(m, v)
		}
	}
	return steps
}

// Announcement returns the newest announcement of somebody; nil if there is none.
func (f *Family) Announcement(who filters.PubKey) *Announcement { return f.by[who] }

// Knows reports whether somebody has an announcement in the family, or is listed in one: who
// has not has no say, and nothing that becomes of the others gives them one.
func (f *Family) Knows(who filters.PubKey) bool { return f.by[who] != nil || f.Lists(who) }

// Lists reports whether somebody is listed in an announcement of the family.
func (f *Family) Lists(who filters.PubKey) bool { return len(f.listing[who]) > 0 }

// Owners returns whose announcements these are.
func Owners(all []*Announcement) []filters.PubKey {
	out := make([]filters.PubKey, len(all))
	for i, a := range all {
		out[i] = a.Ref.Owner
	}
	return out
}

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
// way to the lead of a view may go through it. full says that some are left out.
func (f *Family) Wanted(owners []filters.PubKey, most Bounds) (wanted map[filters.PubKey]filters.PubKey, full bool) {
	wanted = make(map[filters.PubKey]filters.PubKey)
	owners = slices.Compact(slices.SortedFunc(slices.Values(owners), filters.PubKey.Compare))
	lists := make([]*reach, len(owners))
	for i, owner := range owners {
		lists[i] = f.reach(owner, most.Each)
	}
	for round := 0; len(lists) > 0; round++ { // a place for each in turn
		rest := lists[:0]
		for _, l := range lists {
			m, found := l.next(wanted)
			switch {
			case !found:
				full = full || l.cut
				continue
			case round >= most.Sure && len(wanted) >= most.All:
				return wanted, true
			}
			wanted[m] = l.owner
			rest = append(rest, l)
		}
		lists = rest
	}
	return wanted, full
}

// Wanters returns for whom of some owners the announcements of others are of use: all of them,
// in order of their keys, each of whom wants at most so many.
func (f *Family) Wanters(owners []filters.PubKey, each int) map[filters.PubKey][]filters.PubKey {
	out := make(map[filters.PubKey][]filters.PubKey)
	for _, owner := range slices.Compact(slices.SortedFunc(slices.Values(owners), filters.PubKey.Compare)) {
		l := f.reach(owner, each)
		for m, found := l.next(nil); found; m, found = l.next(nil) {
			out[m] = append(out[m], owner)
		}
	}
	return out
}

// reach goes through those whom an owner lists, recursively, the nearest first.
type reach struct {
	f     *Family
	owner filters.PubKey
	most  int
	seen  map[filters.PubKey]struct{}
	queue []filters.PubKey
	at    int  // in the list of the first of the queue
	cut   bool // there are more than most
}

func (f *Family) reach(owner filters.PubKey, most int) *reach {
	return &reach{
		f: f, owner: owner, most: most,
		seen: map[filters.PubKey]struct{}{owner: {}}, queue: []filters.PubKey{owner},
	}
}

// next returns the next who is not in wanted; false if there is none, or most were seen.
func (r *reach) next(wanted map[filters.PubKey]filters.PubKey) (filters.PubKey, bool) {
	for len(r.queue) > 0 {
		a := r.f.by[r.queue[0]]
		if a == nil || r.at == len(a.Maintainers) {
			r.queue, r.at = r.queue[1:], 0
			continue
		}
		m := a.Maintainers[r.at]
		r.at++
		if _, again := r.seen[m]; again {
			continue
		}
		if len(r.seen) > r.most {
			r.cut = true
			return filters.PubKey{}, false
		}
		r.seen[m] = struct{}{}
		r.queue = append(r.queue, m)
		if _, already := wanted[m]; !already {
			return m, true
		}
	}
	return filters.PubKey{}, false
}
