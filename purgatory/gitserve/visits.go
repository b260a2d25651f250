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
	shed uint64    // how many had to leave
	last time.Time // when the last one had to
}

// visit is a request while it is here.
type visit struct {
	of  *visits
	who party
	end context.CancelCauseFunc

	mu sync.Mutex
	// guarded by mu
	limit   func(time.Time) error // of the wait for its client; nil: it does not wait for it
	began   time.Time             // of that wait
	moved   int64                 // lately
	waited  time.Duration         // for that
	kept    int64
	stalled bool  // git waits for its client
	left    error // why it has to leave
}

// The rate of a visit is judged after settleShare of [Config.RateWindow], and about that
// much of it is looked at: what a client did before does not help it.
const settleShare = 10

// fastShare times [Config.MinRate] is the rate at which a visit is let finish whoever
// waits: 256 KiB/s, if the least one is the default.
const fastShare = 256

func newVisits(cfg Config, bytes int64) *visits {
	return &visits{
		room:      newPlaces(cfg.MaxReaders, cfg.MaxReaders/2, cfg.MaxPerClient),
		perClient: cfg.MaxPerClient, settle: cfg.RateWindow / settleShare, fast: float64(cfg.MinRate) * fastShare,
		bytes: bytes, here: make(map[*visit]struct{}),
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
	l.mu.Lock()
	l.here[v] = struct{}{}
	l.mu.Unlock()
	return ctx, v, func() {
		cancel(nil)
		l.mu.Lock()
		delete(l.here, v)
		l.kept -= v.kept
		l.mu.Unlock()
		leave()
	}, nil
}

// admit has as many leave as somebody waits for, and others with him.
func (l *visits) admit(who party) {
	o, waiting := l.room.inTheWay(who)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.drop(waiting, func(v *visit, _ sight) bool { return o.of(v.who) })
}

// press has somebody leave who keeps a place because git waits for his client, for one who
// waits for it. Who has as many places as that one is only asked to once in a while: else
// those who are slow would take turns, and git began anew for each.
func (l *visits) press(p *places, who party) {
	o, _ := p.inTheWay(who)
	l.mu.Lock()
	defer l.mu.Unlock()
	due := time.Since(l.last) >= l.settle
	l.drop(1, func(v *visit, s sight) bool { return s.stalled && o.of(v.who) && (due || p.fewer(who, v.who)) })
}

// drop has the slowest of some visits leave, until so many are about to. It is called
// with mu held.
func (l *visits) drop(most int, which func(*visit, sight) bool) (dropped bool) {
	now := time.Now()
	type seen struct {
		*visit
		sight
	}
	var slow []seen
	for v := range l.here {
		s := v.look(now)
		switch {
		case s.left:
			most--
		case s.waits && s.rate < l.fast && which(v, s):
			s.over = v.who.client != "" && l.room.held(share{byClient, v.who.client}) > l.perClient
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

// keep notes bytes that a visit sends and we keep. If there is no room for them, others
// that have more than their part and are slow leave, or else the visit itself.
func (v *visit) keep(n int64) error {
	if v == nil {
		return nil
	}
	l := v.of
	l.mu.Lock()
	defer l.mu.Unlock()
	l.kept += n
	v.mu.Lock()
	v.kept += n
	v.mu.Unlock()
	if l.kept <= l.bytes {
		return nil
	}
	part := l.kept / int64(len(l.here))
	if !l.drop(1, func(other *visit, s sight) bool { return s.kept >= part && other != v }) {
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
}

// compare orders those who have to leave first before others.
func (s sight) compare(other sight) int {
	if s.over != other.over {
		if s.over {
			return -1
		}
		return 1
	}
	return cmp.Compare(s.rate, other.rate)
}

func (v *visit) look(now time.Time) sight {
	v.mu.Lock()
	defer v.mu.Unlock()
	s := sight{left: v.left != nil, kept: v.kept, stalled: v.stalled}
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

// count is how many are here, what is kept of what they send, in bytes, and how many had
// to leave.
func (l *visits) count() (here, kept int64, shed uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return int64(len(l.here)), l.kept, l.shed
}
