package gitserve

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

// visits are the requests of one kind that are here. Nobody who is slow keeps another one
// away: when there is no room, or none for what they send, who has been slowest has to
// leave, those first who have more than their share.
type visits struct {
	room      *places
	perClient int
	settle    time.Duration // how long a rate is not judged
	fast      float64       // who moves as many bytes a second is let finish
	bytes     int64         // what all of them may keep of what they send

	mu sync.Mutex
	// guarded by mu
	here map[*visit]struct{}
	kept int64
	of   map[share]int64 // what is kept of whose
	shed uint64          // how many had to leave
	last time.Time       // when the last one had to
}

// visit is a request while it is here.
type visit struct {
	of    *visits
	who   party
	end   context.CancelCauseFunc
	leave func() // gives its place back, and what of it is kept; may be called again

	mu sync.Mutex
	// guarded by mu
	limit   func(time.Time) error // of the wait for its client; nil: it does not wait for it
	began   time.Time             // of that wait
	moved   int64                 // lately
	waited  time.Duration         // for that
	kept    int64
	stalled bool  // git waits for its client
	queued  bool  // it waits for its turn
	left    error // why it has to leave
}

// The rate of a visit is judged after settleShare of RateWindow, and about that
// much of it is looked at: what a client did before does not help it.
const settleShare = 10

// fastShare times MinRate is the rate at which a visit is let finish whoever
// waits: 64 KiB/s, if the least one is the default.
const fastShare = 64

func newVisits(cfg Config, bytes int64) *visits {
	return &visits{
		room:      newPlaces(cfg.fixed.MaxReaders, cfg.fixed.MaxReaders/2, cfg.fixed.MaxPerClient),
		perClient: cfg.fixed.MaxPerClient, settle: cfg.fixed.RateWindow / settleShare, fast: float64(cfg.fixed.MinRate) * fastShare,
		bytes: bytes, here: make(map[*visit]struct{}), of: make(map[share]int64),
	}
}

// arrive makes a request a visit until depart is called. The context ends when it has to
// leave.
func (l *visits) arrive(ctx context.Context, who party, most time.Duration) (_ context.Context, _ *visit, depart func(), err error) {
	leave, err := l.room.enter(ctx, who, most, func() { l.admit(who) })
	if err != nil {
		return nil, nil, nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	v := &visit{of: l, who: who, end: cancel}
	v.leave = sync.OnceFunc(func() {
		l.mu.Lock()
		delete(l.here, v)
		l.add(v, -v.kept)
		l.mu.Unlock()
		leave()
	})
	l.mu.Lock()
	l.here[v] = struct{}{}
	l.mu.Unlock()
	return ctx, v, func() {
		cancel(nil)
		v.leave()
	}, nil
}

// admit has as many leave as somebody waits for, and others with him.
func (l *visits) admit(who party) {
	o, waiting := l.room.inTheWay(who)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.drop(o, waiting, func(v *visit, s sight) bool { return !s.queued || l.crowds(v.who, who) })
}

// press has somebody leave who keeps a place because git waits for his client, for one who
// waits for it. Who has as many places as that one is only asked to once in a while: else
// those who are slow would take turns, and git began anew for each.
func (l *visits) press(p *places, who party) {
	o, _ := p.inTheWay(who)
	l.mu.Lock()
	defer l.mu.Unlock()
	due := time.Since(l.last) >= l.settle
	l.drop(o, 1, func(v *visit, s sight) bool { return s.stalled && (due || p.fewer(who, v.who)) })
}

// crowds reports whether one who waits for his turn leaves for somebody who comes: if his
// owner, or of no smaller one his repository, still has more then.
func (l *visits) crowds(one, other party) bool {
	more := func(by sharing) int {
		return l.room.held(one.shares()[by]) - l.room.held(other.shares()[by])
	}
	return more(byOwner) > 1 || more(byOwner) >= 0 && more(byRepo) > 1
}

// crowdShare of the room is what the visits of one owner may have of it, when they wait for
// their turn, before they leave sooner than who is slow.
const crowdShare = 8

// drop has the slowest of some visits that are in the way leave, until so many are about
// to. After them go those that wait for their turn, of the owner who has most of them
// first. It is called with mu held.
func (l *visits) drop(o obstacle, most int, which func(*visit, sight) bool) (dropped bool) {
	now := time.Now()
	type seen struct {
		*visit
		sight
	}
	var slow []seen
	for v := range l.here {
		s := v.look(now)
		switch {
		case !o.of(v.who):
		case s.left:
			most--
		case (s.queued || s.waits && s.rate < l.fast) && which(v, s):
			s.over = v.who.client != "" && l.room.held(share{byClient, v.who.client}) > l.perClient
			if s.queued {
				s.crowd = l.room.held(share{byOwner, v.who.owner})
				s.over = s.over || s.crowd > l.room.most/crowdShare
			}
			slow = append(slow, seen{v, s})
		}
	}
	slices.SortFunc(slow, func(a, b seen) int { return a.compare(b.sight) })
	for _, s := range slow[:max(0, min(len(slow), most))] {
		l.shed++
		l.last = now
		s.dismiss(fmt.Errorf("%w: too slow for that", errBusy))
	}
	return most <= 0 || len(slow) > 0
}

// add counts what is kept of a visit. It is called with mu held.
func (l *visits) add(v *visit, n int64) {
	l.kept += n
	for _, s := range v.who.shares() {
		if l.of[s] += n; l.of[s] == 0 {
			delete(l.of, s)
		}
	}
}

// obstacle says who is in the way of what somebody sends: nobody keeps more than three
// quarters of all, and one client half. It is called with mu held.
func (l *visits) obstacle(who party) (o obstacle) {
	for _, s := range who.shares() {
		switch {
		case s.name == "":
		case s.by == byClient:
			o.self = o.self || l.of[s] > l.bytes/2
		case l.of[s] > l.bytes-l.bytes/4:
			o.shares = append(o.shares, s)
		}
	}
	o.full = l.kept > l.bytes
	return o
}

// keep notes bytes that a visit sends and we keep. If there is no room for them, others
// that have more than their part and are slow leave, or wait for their turn and are of an
// owner who has more; or else the visit itself.
func (v *visit) keep(n int64) error {
	if v == nil {
		return nil
	}
	l := v.of
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, here := l.here[v]; !here {
		return nil
	}
	l.add(v, n)
	v.mu.Lock()
	v.kept += n
	v.mu.Unlock()
	o := l.obstacle(v.who)
	if !o.self && !o.full && len(o.shares) == 0 {
		return nil
	}
	part, owner := l.kept/int64(len(l.here)), share{byOwner, v.who.owner}
	if o.self || !l.drop(o, 1, func(other *visit, s sight) bool {
		return s.kept >= part && other != v && (!s.queued || l.of[share{byOwner, other.who.owner}] > l.of[owner])
	}) {
		return fmt.Errorf("%w: they have sent too much", errBusy)
	}
	return nil
}

// sight is what a visit looks like at a moment.
type sight struct {
	waits   bool // for its client, and long enough to judge it
	left    bool // it was told to leave
	over    bool // its client has more than its share
	rate    float64
	kept    int64
	stalled bool
	queued  bool
	crowd   int // how many its owner has, if it is queued
}

// compare orders those who have to leave first before others.
func (s sight) compare(other sight) int {
	if s.over != other.over {
		if s.over {
			return -1
		}
		return 1
	}
	if s.queued != other.queued {
		if other.queued {
			return -1
		}
		return 1
	}
	return cmp.Or(cmp.Compare(s.rate, other.rate), cmp.Compare(other.crowd, s.crowd))
}

func (v *visit) look(now time.Time) sight {
	v.mu.Lock()
	defer v.mu.Unlock()
	s := sight{left: v.left != nil, kept: v.kept, stalled: v.stalled, queued: v.queued}
	if v.limit == nil {
		return s
	}
	this := now.Sub(v.began)
	waited := v.waited + this
	s.waits = waited >= v.of.settle
	if this < v.of.settle { // else nothing came for as long: what the system took at once is no rate
		s.rate = float64(v.moved) / waited.Seconds()
	}
	return s
}

// dismiss ends a visit, also the wait for its client.
func (v *visit) dismiss(why error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.left = why
	if v.limit != nil {
		_ = v.limit(time.Now()) // who can't set one can't end it
	}
	v.end(why)
}

// arm begins a wait for the client, until a moment.
func (v *visit) arm(limit func(time.Time) error, now, until time.Time) error {
	if v == nil {
		return limit(until)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.left != nil {
		return v.left
	}
	v.limit, v.began = limit, now
	return limit(until)
}

// disarm ends a wait that has brought so many bytes.
func (v *visit) disarm(n int, took time.Duration) error {
	if v == nil {
		return nil
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.limit = nil
	v.moved += int64(n)
	if v.waited += took; v.waited > 2*v.of.settle {
		v.moved, v.waited = v.moved/2, v.waited/2
	}
	return v.left
}

// stall notes whether git waits for the client.
func (v *visit) stall(now bool) {
	if v == nil {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.stalled = now
}

// queue notes that a visit waits for its turn, and can leave.
func (v *visit) queue() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.queued = true
}

// served ends that, and says why it has to leave, if it has.
func (v *visit) served() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.queued = false
	return v.left
}

// count is how many are here, what is kept of what they send, in bytes, and how many had
// to leave.
func (l *visits) count() (here, kept int64, shed uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return int64(len(l.here)), l.kept, l.shed
}
