package ledger

import (
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/heap"
)

// level is one by which places are shared among whoever can be told apart. When none are left,
// one of somebody's gives way who has many, which is looked for level by level. Keys are free, so
// that what many of them write counts for the relay that brought it, which is not, and what
// of that is for one owner's repositories apart: a flood of pull requests there keeps out
// nothing else. Who has few of all that gives way in the order in which all came, and not
// before Stay of [Config].
type level uint8

const (
	byAuthor level = iota
	byTarget       // pull requests, by the owner of what they are for and the relay
	byRelay        // those who submit themselves count as one
	byAll
	levels
)

// manyOf is the part of all places, one of so many, above which somebody has many at a level.
var manyOf = [levels]int64{byAuthor: 250, byTarget: 64, byRelay: 64}

// few places are not many, however few there are.
const few = 4

// directWeight is how many relays those who submit themselves count as: theirs are half of
// all places before they have many.
const directWeight = 32

// maxDisplaced is how many may give way to one event, which may be larger than most;
// maxDependents how many go with an announcement that does, and maxTried how many are passed
// over that must not. Without them one event might cost as much as thousands.
const (
	maxDisplaced  = 16
	maxDependents = 100
	maxTried      = 64
)

// sum is how many events there are, and how large they are.
type sum struct {
	n     int
	bytes int64
}

func (s sum) plus(o sum) sum  { return sum{s.n + o.n, s.bytes + o.bytes} }
func (s sum) minus(o sum) sum { return sum{s.n - o.n, s.bytes - o.bytes} }

// within reports whether it is not above bounds.
func (s sum) within(o sum) bool { return s.n <= o.n && s.bytes <= o.bytes }

func (e *Entry) sum() sum { return sum{1, e.Size} }

// owner is who has a share at a level.
type owner struct {
	key   graspsync.PubKey
	relay string
}

// owner returns who has an entry at a level; false if nobody has it there.
func (e *Entry) owner(at level) (o owner, has bool) {
	switch at {
	case byAuthor:
		return owner{key: e.owes()}, true
	case byTarget:
		o = owner{key: e.For, relay: e.From}
		if e.For == (graspsync.PubKey{}) {
			o.key = e.Repos[0].Owner
		}
		return o, e.Class == PullRequest
	case byRelay:
		return owner{relay: e.From}, true
	}
	return owner{}, true
}

// share is what somebody has at a level.
type share struct {
	of     owner
	cost   int64
	weight int64 // what it costs is divided by that
	places *heap.Heap[*place]
	at     int // among the shares of its level
}

// burden is what it counts for beside others of its level.
func (s *share) burden() int64 { return s.cost / s.weight }

// place is that of an entry.
type place struct {
	entry *Entry
	since time.Time // when it came, or when something came of it
	in    [levels]*share
	at    [levels]int
}

// before is the order in which those of one share give way: first what has waited in
// vain already, then what has waited longest.
func (p *place) before(o *place) bool {
	switch {
	case p.entry.Soft != o.entry.Soft:
		return p.entry.Soft
	case !p.since.Equal(o.since):
		return p.since.Before(o.since)
	case p.entry.Class != o.entry.Class: // a state is of no use without its announcement, which it renews
		return p.entry.Class < o.entry.Class
	}
	return p.entry.ID.Compare(o.entry.ID) < 0
}

// pool is who has which of the places that one sort of entries shares.
type pool struct {
	sum      sum
	reserved sum // for what is about to be Put
	of       [levels]map[owner]*share
	largest  [levels]*heap.Heap[*share]
}

func newPool() *pool {
	p := &pool{}
	for at := range levels {
		p.of[at] = make(map[owner]*share)
		p.largest[at] = heap.New(
			func(a, b *share) bool { return a.burden() > b.burden() },
			func(s *share, i int) { s.at = i })
	}
	return p
}

// reserve takes places for what is about to wait.
func (p *pool) reserve(s sum) { p.reserved = p.reserved.plus(s) }

// all is what waits in it, and is about to.
func (p *pool) all() sum { return p.sum.plus(p.reserved) }

// add gives an entry its place.
func (p *pool) add(x *place, cost int64) {
	p.sum = p.sum.plus(x.entry.sum())
	for at := range levels {
		of, has := x.entry.owner(at)
		if !has {
			continue
		}
		s := p.of[at][of]
		if s == nil {
			s = newShare(at, of)
			p.of[at][of] = s
			p.largest[at].Push(s)
		}
		s.cost += cost
		p.largest[at].Fix(s.at)
		x.in[at] = s
		s.places.Push(x)
	}
}

func newShare(at level, of owner) *share {
	s := &share{of: of, weight: 1, places: heap.New((*place).before, func(x *place, i int) { x.at[at] = i })}
	if at == byRelay && of.relay == "" {
		s.weight = directWeight
	}
	return s
}

// remove takes it back.
func (p *pool) remove(x *place, cost int64) {
	p.sum = p.sum.minus(x.entry.sum())
	for at, s := range x.in {
		if s == nil {
			continue
		}
		x.in[at] = nil
		s.places.Remove(x.at[at])
		s.cost -= cost
		p.largest[at].Fix(s.at)
		if s.places.Len() == 0 {
			p.largest[at].Remove(s.at)
			delete(p.of[at], s.of)
		}
	}
}

// fix puts a place where it belongs after it has changed.
func (p *pool) fix(x *place) {
	for at, s := range x.in {
		if s != nil {
			s.places.Fix(x.at[at])
		}
	}
}

// places are who has which of all places but those of placeholders: strangers, and those who
// have a say in what is served.
type places struct {
	cfg                Config
	of                 map[graspsync.EventID]*place
	strangers, trusted *pool
}

func newPlaces(cfg Config) places {
	return places{cfg: cfg, of: make(map[graspsync.EventID]*place), strangers: newPool(), trusted: newPool()}
}

// claim is an entry for which there must be a place.
type claim struct {
	*Entry
	replaces *Entry // makes place for it; nil: nothing does
	kept     Kept
}

// cost is what an entry takes up of what there is: a place weighs as much as the bytes that
// there are for each.
func (p *places) cost(e *Entry) int64 { return e.Size + p.cfg.Bytes/int64(max(1, p.cfg.Entries)) }

// many is what somebody has to have more of, at a level, to have many.
func (p *places) many(at level) int64 {
	if at == byAll {
		return 0
	}
	return max(p.cfg.Bytes/manyOf[at], few*p.cfg.Bytes/int64(max(1, p.cfg.Entries)))
}

// pool is where an entry has its place.
func (p *places) pool(e *Entry) *pool {
	if e.Trusted {
		return p.trusted
	}
	return p.strangers
}

// fits reports whether there is room for an entry beside what there is. The trusted may have
// all that nobody else needs, strangers never what is kept for these.
func (p *places) fits(c claim) bool {
	strangers, trusted := p.strangers.all(), p.trusted.all()
	switch old := c.replaces; {
	case old == nil: // else that makes place for it
	case old.Trusted:
		trusted = trusted.minus(old.sum())
	default:
		strangers = strangers.minus(old.sum())
	}
	all := sum{p.cfg.Entries, p.cfg.Bytes}
	if !c.Trusted && !strangers.plus(c.sum()).within(all.minus(sum{p.cfg.Kept, p.cfg.KeptBytes})) {
		return false
	}
	return strangers.plus(trusted).plus(c.sum()).within(all)
}

// Kept says what must not give way.
type Kept struct {
	// Always is asked of everything, InUse of those who have few only, and not of what was
	// borrowed: something is coming for what it is true of, which is as if it had come just
	// now. Anybody can have something come, of which one push is enough for all that waits for
	// a repository.
	Always, InUse func(Entry) bool
}

// makeRoom takes out what gives way for a claim, of which author says that its author has too
// many; nothing if that has no more claim than what waits.
func (p *places) makeRoom(now time.Time, c claim, author bool) (out []*place) {
	if author {
		x := p.expiredOf(c)
		if x == nil {
			return nil
		}
		out = append(out, x)
		p.leave(x)
	}
	for !p.fits(c) {
		x := p.yields(now, c)
		if x == nil || len(out) == maxDisplaced {
			for _, x := range out { // it would not be enough
				p.enter(x)
			}
			return nil
		}
		out = append(out, x)
		p.leave(x)
	}
	return out
}

// expiredOf is what has waited in vain of the author of an entry: it keeps nothing new out.
func (p *places) expiredOf(c claim) *place {
	s := p.strangers.of[byAuthor][owner{key: c.Author}]
	if s == nil || c.Class == Relative || c.Class == State { // these count apart
		return nil
	}
	if x, ok := s.places.First(); ok && x.entry.Soft && !c.keeps(x.entry) {
		return x
	}
	return nil
}

// yields returns the one that gives way next, nil if there is none.
func (p *places) yields(now time.Time, c claim) *place {
	from := p.pool(c.Entry)
	if !c.Trusted && p.strangers.all().plus(c.sum()).within(sum{p.cfg.Entries - p.cfg.Kept, p.cfg.Bytes - p.cfg.KeptBytes}) {
		// The trusted have borrowed the places of strangers: whoever has many of them gives back,
		// and of more than half of all the oldest do. Who is served may list very many keys.
		if x := p.yieldsAt(now, byAuthor, p.trusted, c); x != nil {
			return x
		}
		if !p.trusted.all().within(sum{p.cfg.Entries / 2, p.cfg.Bytes / 2}) {
			if x := p.yieldsAt(now, byAll, p.trusted, c); x != nil {
				return x
			}
		}
	}
	for at := range levels {
		if from == p.trusted && (at == byTarget || at == byRelay) {
			continue
		}
		if x := p.yieldsAt(now, at, from, c); x != nil || p.has(c.Entry, at, from) > p.many(at) {
			return x
		}
	}
	return nil
}

// has is what the owner of an entry would have of a pool at a level, with that; 0 if nobody
// has it there.
func (p *places) has(e *Entry, at level, in *pool) int64 {
	of, has := e.owner(at)
	if !has || in != p.pool(e) {
		return 0
	}
	s := in.of[at][of]
	if s == nil {
		s = newShare(at, of)
	}
	return (s.cost + p.cost(e)) / s.weight
}

// yieldsAt is yields at one level. Whoever has most of those who have many gives way; to
// those who have as many themselves gives way their own, if it has stayed for long enough.
func (p *places) yieldsAt(now time.Time, at level, in *pool, c claim) *place {
	s, ok := in.largest[at].First()
	if !ok || s.burden() <= p.many(at) {
		return nil
	}
	would := p.has(c.Entry, at, in)
	equals := at == byAll || would > p.many(at) && s.burden() < would+p.cost(c.Entry)/s.weight
	if of, _ := c.owner(at); equals && in.of[at][of] != nil {
		s = in.of[at][of]
	}
	for range maxTried {
		x, _ := s.places.First()
		switch {
		case equals && !x.entry.Soft && now.Sub(x.since) < p.cfg.Stay:
			return nil
		case x.since.Before(now) && (c.keeps(x.entry) || at >= byRelay && in == p.pool(c.Entry) && x.inUse(c.kept)):
			x.since = now
			in.fix(x)
		case c.keeps(x.entry):
			return nil // so does all that has not come just now
		default:
			return x
		}
	}
	return nil
}

// inUse reports whether something is coming for an entry of somebody who has few.
func (p *place) inUse(kept Kept) bool {
	return p.in[byAuthor].places.Len() <= few && kept.InUse(*p.entry)
}

// keeps reports whether an entry can't give way to it: it makes place for itself by that, or
// needs it.
func (c claim) keeps(x *Entry) bool {
	if c.replaces != nil && c.replaces.ID == x.ID {
		return true
	}
	if x.Class == Announcement {
		for _, ref := range c.Repos {
			if ref == x.Repos[0] || c.Class == Relative && ref.Identifier == x.Repos[0].Identifier && c.For == x.Author {
				return true
			}
		}
	}
	return c.kept.Always(*x)
}

// enter gives an entry its place.
func (p *places) enter(x *place) { p.pool(x.entry).add(x, p.cost(x.entry)) }

// leave takes it back, unless that was done.
func (p *places) leave(x *place) {
	if x.in[byAll] != nil {
		p.pool(x.entry).remove(x, p.cost(x.entry))
	}
}
