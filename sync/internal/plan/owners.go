package plan

import (
	"cmp"
	"container/heap"
	"maps"
	"slices"
	"time"

	"github.com/graspsync/graspsync"
)

// owner is the author of repositories. What the relays that strangers name have to
// share, which is turns to be dialed, connections and places in the table of relays,
// is shared by owner: a name is free, and so is a list of a thousand of them. A key is
// free as well, so that owners do not count alike: what takes time here is worth more.
//
// Each owner has a weight that grows with the time for which a repository of it has
// been served here, which takes git data and can't be had sooner; it is divided among
// the relays that the owner lists. What a relay gets in this way is its claim.
//
// So somebody with N keys has N times what one key has, and nothing more by listing
// more relays. As long as these keys are new here they delay the first dial of a relay
// of another new key by the time that N dials take, and share with it what is not
// taken by relays of greater claims: at least a quarter of the connections. To take a
// connection from a relay of owners who have been here for longer takes some eight keys
// for each step of [ages] that they lack, half as many if what they list brings something
// now and then, and a repository that is served for each of them. At A addresses, once
// these were found, their relays count as a few for each address; see [dialer.ranked].
// Whoever keeps as many repositories here as others, for as long, counts as they do.
//
// Relays that an owner does not name, but those whom the owner lists, go to another account of
// the owner: all of them together have an eighth of what the owner's have at most, none has more
// than one of these, and their turns are as much dearer. Whoever is listed takes nothing in this
// way from what the owner names, and little from anybody else.
type owner struct {
	key     graspsync.PubKey
	repos   map[*repo]struct{} // that list a relay
	relays  [sides]map[*relay]struct{}
	served  int                  // of its repositories, those that are not just held
	since   time.Time            // when there was the first of them
	weight  uint64               // by its age
	growsAt time.Time            // when that grows
	index   int                  // in the heap of owners whose weight grows, -1: in none
	turns   [sides][lines]uint64 // place in each line up to which it has had its turns
}

// claimState is who lists a relay, and what that is worth.
type claimState struct {
	listedBy int             // repositories that list it, whatever their level
	accounts map[account]int // whose they are, and how many of each
	servedBy int             // owners of whom something is served
	since    time.Time       // when there was something of the first of them
	weight   uint64          // its part of what its owners weigh
	lot      uint64          // drawn, for what else is equal
	index    int             // its place in the table, -1: it is in none

	examples []graspsync.RepoRef // a few repositories that list it
}

// side is who names a relay of a repository.
type side int

const (
	byOwner  side = iota
	byOthers      // only those whom the owner lists
	sides         // how many there are
)

// othersShift makes what others name an eighth of what the owner does: as much as the step
// between two ages.
const othersShift = 3

// account is what a relay goes to.
type account struct {
	*owner
	side side
}

// ages are what owners weigh who have had a repository served for so long.
var ages = [...]struct {
	after  time.Duration
	weight uint64
}{
	{0, 1 << 3}, {time.Hour, 1 << 6}, {24 * time.Hour, 1 << 9}, {7 * 24 * time.Hour, 1 << 12}, {30 * 24 * time.Hour, 1 << 15},
}

// weightHeld is that of owners who have announced something and proven nothing.
const weightHeld = 1

// whole is what an owner of weight 1 has to divide.
const whole = 1 << 20

// mostShown is for how many owners a relay has its turn charged to them. One of more is
// that of everybody, and its turn costs none of them anything to speak of.
const mostShown = 64

// owners are those of all repositories that list a relay.
type owners struct {
	of      map[graspsync.PubKey]*owner
	tenures map[graspsync.PubKey]tenure
	growing growHeap
	table   tableHeap
}

func newOwners() *owners {
	return &owners{of: make(map[graspsync.PubKey]*owner), tenures: make(map[graspsync.PubKey]tenure)}
}

// tenure is for how long an owner has had a repository served.
type tenure struct {
	since  time.Time // by the wall clock
	goneAt time.Time // when there was none any more; zero: there is
}

// mostGone is for how long an owner may have no repository served until it starts anew.
const mostGone = 24 * time.Hour

// share is what a relay of an account has of the owner's weight.
func (a account) share() uint64 {
	if len(a.relays[a.side]) == 0 {
		return 0
	}
	return a.shareWith(0)
}

// shareWith is what each would have if there were so many more.
func (a account) shareWith(more int) uint64 {
	n := len(a.relays[byOwner]) + more
	if a.side == byOwner {
		return a.weight * whole / uint64(n) //nolint:gosec // it is bounded
	}
	return a.weight * (whole >> othersShift) / uint64(n+len(a.relays[byOthers])) //nolint:gosec // it is bounded
}

// cost is what a relay that so many accounts list takes of the turns of each.
func (a account) cost(accounts uint64) uint64 {
	if a.side == byOwner {
		return turn / accounts / a.weight
	}
	return turn << othersShift / accounts / a.weight
}

func (o *owner) accounts() [sides]account { return [...]account{{o, byOwner}, {o, byOthers}} }

// shares are those of both accounts.
func (o *owner) shares() (out [sides]uint64) {
	for i, a := range o.accounts() {
		out[i] = a.share()
	}
	return out
}

// listed are the relays of both accounts. One may be in both.
func (o *owner) listed() map[*relay]struct{} {
	all := maps.Clone(o.relays[byOwner])
	maps.Copy(all, o.relays[byOthers])
	return all
}

// owner returns the owner of this key, making it known.
func (s *owners) owner(key graspsync.PubKey) *owner {
	o := s.of[key]
	if o == nil {
		o = &owner{
			key: key, weight: weightHeld, index: -1, repos: make(map[*repo]struct{}),
			relays: [...]map[*relay]struct{}{make(map[*relay]struct{}), make(map[*relay]struct{})},
		}
		s.of[key] = o
	}
	return o
}

// reshare gives the relays of an owner what they have now, instead of what they had.
func (s *owners) reshare(o *owner, before [sides]uint64) {
	for i, a := range o.accounts() {
		more := a.share() - before[i] // or less: it wraps around
		if more == 0 {
			continue
		}
		for r := range o.relays[i] {
			r.claim.weight += more
			s.table.fix(r)
		}
	}
}

// list notes that a repository lists a relay, which goes to that account of its owner.
func (s *owners) list(r *repo, rel *relay, to side) {
	a := account{s.owner(r.ref.Owner), to}
	a.repos[r] = struct{}{}
	if rel.claim.accounts[a]++; rel.claim.accounts[a] > 1 {
		return
	}
	before := a.shares()
	a.relays[to][rel] = struct{}{}
	rel.claim.weight += before[to]
	s.table.fix(rel)
	s.reshare(a.owner, before)
	if a.served > 0 {
		s.servedBy(rel, a)
	}
	if rel.turn.line != nil {
		rel.turn.line.advance(rel, a)
	}
}

// unlist notes that a repository does not list a relay any more.
func (s *owners) unlist(r *repo, rel *relay, from side) {
	a := account{s.of[r.ref.Owner], from}
	if rel.claim.accounts[a]--; rel.claim.accounts[a] > 0 {
		return
	}
	delete(rel.claim.accounts, a)
	before := a.shares()
	delete(a.relays[from], rel)
	rel.claim.weight -= before[from]
	s.table.fix(rel)
	s.reshare(a.owner, before)
	if a.served > 0 {
		s.notServedBy(rel, a)
	}
}

// servedBy notes that a relay is listed by one more owner of whom something is served.
func (s *owners) servedBy(rel *relay, o account) {
	if rel.claim.servedBy++; rel.claim.servedBy == 1 || o.since.Before(rel.claim.since) {
		rel.claim.since = o.since
	}
}

// notServedBy undoes that.
func (s *owners) notServedBy(rel *relay, gone account) {
	if rel.claim.servedBy--; rel.claim.servedBy == 0 || !gone.since.Equal(rel.claim.since) {
		return
	}
	first := true
	for o := range rel.claim.accounts {
		if o != gone && o.served > 0 && (first || o.since.Before(rel.claim.since)) {
			rel.claim.since, first = o.since, false
		}
	}
}

// serve notes whether one more repository of an owner is served, or one less. It
// reports whether it is the first.
func (s *owners) serve(o *owner, more bool, now time.Time) bool {
	if !more {
		if o.served--; o.served > 0 {
			return false
		}
		for _, a := range o.accounts() {
			for rel := range a.relays[a.side] {
				s.notServedBy(rel, a)
			}
		}
		t := s.tenures[o.key]
		t.goneAt = now.Round(0)
		s.tenures[o.key] = t
		s.age(o, now)
		return false
	}
	if o.served++; o.served > 1 {
		return false
	}
	t, known := s.tenures[o.key]
	if !known || !t.goneAt.IsZero() && now.Sub(t.goneAt) > mostGone || t.since.After(now) {
		t.since = now.Round(0)
	}
	t.goneAt = time.Time{}
	s.tenures[o.key] = t
	o.since = t.since
	for _, a := range o.accounts() {
		for rel := range a.relays[a.side] {
			s.servedBy(rel, a)
		}
	}
	s.age(o, now)
	return true
}

// age sets the weight of an owner to that of its age.
func (s *owners) age(o *owner, now time.Time) {
	if o.index >= 0 {
		heap.Remove(&s.growing, o.index)
	}
	weight := uint64(weightHeld)
	o.growsAt = time.Time{}
	if o.served > 0 {
		for _, a := range ages {
			if at := o.since.Add(a.after); at.After(now) {
				o.growsAt = at
				break
			}
			weight = a.weight
		}
	}
	if before := o.shares(); weight != o.weight {
		o.weight, o.turns = weight, [sides][lines]uint64{} // what it took before was dearer
		s.reshare(o, before)
	}
	if !o.growsAt.IsZero() {
		heap.Push(&s.growing, o)
	}
}

// grow ages the owners whose time has come.
func (s *owners) grow(now time.Time) {
	for len(s.growing) > 0 && !s.growing[0].growsAt.After(now) {
		s.age(s.growing[0], now)
	}
}

// drop forgets an owner of whom nothing is left.
func (s *owners) drop(o *owner) {
	if len(o.repos)+len(o.relays[byOwner])+len(o.relays[byOthers]) == 0 {
		delete(s.of, o.key)
	}
}

// dropGone forgets since when those owners were here who have been gone for long.
func (s *owners) dropGone(now time.Time) {
	maps.DeleteFunc(s.tenures, func(_ graspsync.PubKey, t tenure) bool {
		return !t.goneAt.IsZero() && now.Sub(t.goneAt) > mostGone
	})
}

// jumped moves all times by as much as the clock was set, so that no owner gets older or
// younger by it: not even those that came of age before the jump was known.
func (s *owners) jumped(by time.Duration, now time.Time) {
	for key, t := range s.tenures {
		t.since = t.since.Add(by)
		if !t.goneAt.IsZero() {
			t.goneAt = t.goneAt.Add(by)
		}
		s.tenures[key] = t
	}
	for _, key := range slices.SortedFunc(maps.Keys(s.of), graspsync.PubKey.Compare) {
		o := s.of[key]
		o.since = o.since.Add(by)
		s.age(o, now)
	}
}

// restore takes in since when owners have been here.
func (s *owners) restore(tenures []Tenure, now time.Time) {
	for _, k := range tenures {
		if !k.Since.After(now) {
			s.tenures[k.Owner] = tenure{since: k.Since.Round(0), goneAt: now.Round(0)}
		}
	}
}

// listTenures returns the tenures of all owners, those who have been here for longest first.
func (s *owners) listTenures() []Tenure {
	out := make([]Tenure, 0, len(s.tenures))
	for key, t := range s.tenures {
		out = append(out, Tenure{key, t.since})
	}
	slices.SortFunc(out, func(a, b Tenure) int { return cmp.Or(a.Since.Compare(b.Since), a.Owner.Compare(b.Owner)) })
	return out
}

// Tenure is since when a repository of an owner has been served here. It is worth
// keeping over a restart, or strangers who came yesterday would be equal after it to
// who has been here for a year.
type Tenure struct {
	Owner graspsync.PubKey
	Since time.Time
}

// growHeap has the owner first whose weight grows next.
type growHeap []*owner

func (h growHeap) Len() int { return len(h) }

func (h growHeap) Less(i, j int) bool {
	return cmp.Or(h[i].growsAt.Compare(h[j].growsAt), h[i].key.Compare(h[j].key)) < 0
}

func (h growHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

// Push and Pop implement [heap.Interface].
func (h *growHeap) Push(x any) {
	o := x.(*owner)
	o.index = len(*h)
	*h = append(*h, o)
}

func (h *growHeap) Pop() any {
	old := *h
	o := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	o.index = -1
	return o
}

// tableHeap has the relay first that is worth least; of those that are worth the same,
// whom the lot has hit.
type tableHeap []*relay

// fix puts a relay where its worth puts it.
func (h *tableHeap) fix(r *relay) {
	if r.claim.index >= 0 {
		heap.Fix(h, r.claim.index)
	}
}

func (h tableHeap) Len() int { return len(h) }

func (h tableHeap) Less(i, j int) bool {
	a, b := h[i], h[j]
	if a.bootstrap != b.bootstrap {
		return b.bootstrap
	}
	return cmp.Or(cmp.Compare(a.worth(), b.worth()), cmp.Compare(a.claim.lot, b.claim.lot)) < 0
}

func (h tableHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].claim.index, h[j].claim.index = i, j
}

// Push and Pop implement [heap.Interface].
func (h *tableHeap) Push(x any) {
	r := x.(*relay)
	r.claim.index = len(*h)
	*h = append(*h, r)
}

func (h *tableHeap) Pop() any {
	old := *h
	r := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	r.claim.index = -1
	return r
}
