package plan

import (
	"container/list"
	"slices"
	"time"

	"github.com/graspsync/graspsync/internal/backoff"
)

type dialer struct {
	*core
	queue dialQueue

	attempts  []*relayState // in progress, oldest first
	connected map[*relayState]struct{}
	dialAt    time.Time // earliest start of the next attempt
	roomAt    time.Time
	hungUp    []*relayState // closed in this step to make room
	lastEpoch uint64
}

func newDialer(c *core) *dialer {
	return &dialer{core: c, connected: make(map[*relayState]struct{})}
}

type dialState struct {
	connecting, connected bool
	epoch                 uint64 // of the last dial; inputs of earlier ones are ignored
	dialedAt, connectedAt time.Time
	retryAt               time.Time
	waitsSince            time.Time
	aliveAt               time.Time
	absentSince           time.Time // when the relay was lost; zero: it is connected, or we closed the connection

	refusals int // consecutive attempts that a local limit prevented
	turnOf   *dialOwner
}

// longAbsent reports whether a relay was away for so long that its confirmed state is void.
func (s *dialState) longAbsent(now time.Time, most time.Duration) bool {
	if s.absentSince.IsZero() {
		return false
	}
	// After a suspension only the wall clock is right. After a correction of the wall clock only
	// the monotonic clock is right.
	away := max(now.Sub(s.absentSince), now.Round(0).Sub(s.absentSince.Round(0)))
	return away > most
}

func (d *dialer) wait(r *relayState, now time.Time) {
	var wake time.Time
	switch {
	case r.dial.connecting || r.turn.waits():
	case now.Before(r.dial.retryAt):
		wake = r.dial.retryAt
	default:
		r.dial.waitsSince = now
		d.queue.add(r)
		d.roomAt = time.Time{} // a connection may be closed for this relay even if not for others
	}
	d.timers.set(r, wake)
}

const (
	// patience is the age at which an attempt frees its slot, because a dead relay fails only after
	// ten seconds.
	patience = time.Second
	// Divisors and multiples of Config.MaxDials and Config.MaxConnections for older attempts.
	silentDials      = 8
	silentDialsShare = 3
	// the same while there are more relays than connections
	fullDialsShare = 8
	// ownerDials is the maximum number of attempts of one owner, hostsTried the number of its
	// relays that are searched for another host.
	ownerDials, hostsTried = 5, 16
)

func (d *dialer) silentMost() int {
	return min(silentDials*d.cfg.MaxDials, d.cfg.MaxConnections/silentDialsShare)
}

func (d *dialer) young() (n int) {
	for _, r := range slices.Backward(d.attempts) {
		if d.now.Sub(r.dial.dialedAt) >= patience {
			break
		}
		n++
	}
	return n
}

func (d *dialer) anyWaits() bool { return d.queue.owners.Len() > 0 }

func (d *dialer) nextWake() (at time.Time) {
	earlier := func(t time.Time) {
		if !t.IsZero() && (at.IsZero() || t.Before(at)) {
			at = t
		}
	}
	if d.mayDial() && !d.roomAt.IsZero() {
		earlier(backoff.Later(d.roomAt, d.dialAt))
	}
	if n := d.young(); d.anyWaits() && n > 0 && len(d.attempts) < d.cfg.MaxDials+d.silentMost() {
		earlier(d.attempts[len(d.attempts)-n].dial.dialedAt.Add(patience))
	}
	if d.anyWaits() && d.dialAt.After(d.now) {
		earlier(d.dialAt)
	}
	return at
}

func (d *dialer) dial(now time.Time) {
	for d.mayDial() && !now.Before(d.dialAt) {
		r, o := d.nextTurn(now)
		if r == nil {
			return
		}
		d.queue.served(r, o)
		o.dialing++
		d.attempts = append(d.attempts, r)
		r.dial.connecting, r.dial.turnOf, r.dial.dialedAt = true, o, now
		if !r.dial.absentSince.IsZero() { // the wait for a turn is no absence of the relay
			r.dial.absentSince = r.dial.absentSince.Add(now.Sub(r.dial.waitsSince))
		}
		d.lastEpoch++
		r.dial.epoch = d.lastEpoch
		d.dialAt = now.Add(d.cfg.DialEvery) // spares proxies and resolvers
		d.emit(Dial{Relay: r.url, Epoch: r.dial.epoch})
	}
}

func (d *dialer) mayDial() bool {
	return d.young() < d.cfg.MaxDials && len(d.attempts) < d.cfg.MaxDials+d.silentMost()
}

func (d *dialer) full() bool { return len(d.attempts)+len(d.connected) >= d.cfg.MaxConnections }

func (d *dialer) nextTurn(now time.Time) (*relayState, *dialOwner) {
	full := d.full()
	if full && len(d.attempts) >= max(1, d.cfg.MaxConnections/fullDialsShare) {
		d.roomAt = time.Time{} // one of the running attempts will end
		return nil, nil
	}
	if !full || !d.anyWaits() {
		d.roomAt = time.Time{}
	} else if now.Before(d.roomAt) {
		return nil, nil
	}
	var room yieldChoice
	if full && d.anyWaits() {
		room = d.yields(now)
		d.roomAt = now.Add(lookForRoom)
	}
	for e := d.queue.owners.Front(); e != nil && (!full || room.oldest != nil); e = e.Next() {
		o := e.Value.(*dialOwner)
		gone := room.to(o)
		if full && gone == nil {
			continue
		}
		if r := d.dialable(o); r != nil {
			if full {
				d.hangUp(gone, now)
				d.roomAt = time.Time{}
			}
			return r, o
		}
	}
	return nil, nil
}

// dialable returns the next waiting relay of an owner whose host has no attempt, or nil.
func (d *dialer) dialable(o *dialOwner) *relayState {
	if o.dialing >= ownerDials && o != &d.queue.operator {
		return nil
	}
	for range min(o.waiting.Len(), hostsTried) {
		e := o.waiting.Front()
		r := e.Value.(*relayState)
		if !slices.ContainsFunc(d.attempts, func(a *relayState) bool { return a.host == r.host }) {
			return r
		}
		o.waiting.MoveToBack(e)
	}
	return nil
}

func (d *dialer) made(r *relayState, now time.Time) {
	d.ended(r)
	d.connected[r] = struct{}{}
	r.dial.connected, r.dial.refusals, r.dial.connectedAt = true, 0, now
}

func (d *dialer) failed(r *relayState, in DialFailed, now time.Time) {
	d.ended(r)
	r.dial.retryAt = in.RetryAt
	if in.NotDialed {
		r.dial.refusals++
		r.dial.retryAt = backoff.Later(in.RetryAt, now.Add(min(d.retryAfter(r.dial.refusals), d.longer(yieldAfter))))
		return
	}
	r.dial.refusals = 0
	if r.dial.absentSince.IsZero() {
		r.dial.absentSince = now
	}
}

func (d *dialer) ended(r *relayState) {
	r.dial.connecting = false
	r.dial.turnOf.dialing--
	d.attempts = slices.DeleteFunc(d.attempts, func(a *relayState) bool { return a == r })
}

func (d *dialer) lost(r *relayState) {
	delete(d.connected, r)
	r.dial.connected = false
}

func (d *dialer) forget(r *relayState) {
	if r.dial.connecting || r.dial.connected {
		d.emit(Hangup{Relay: r.url, Epoch: r.dial.epoch})
	}
	switch {
	case r.dial.connecting:
		d.ended(r)
	case r.dial.connected:
		d.lost(r)
	}
	d.queue.leave(r)
	d.timers.set(r, time.Time{})
}

func (d *dialer) takeHungUp() []*relayState {
	out := d.hungUp
	d.hungUp = nil
	return out
}

const (
	// yieldAfter is the minimum time of an idle connection before it yields to a waiting relay.
	yieldAfter = 10 * time.Minute
	// yieldIncomplete is the same if its relay never becomes complete.
	yieldIncomplete = time.Hour
	lookForRoom     = time.Minute
)

func mayYield(r *relayState, now time.Time) bool {
	held := now.Sub(r.dial.connectedAt)
	return held >= yieldIncomplete || held >= yieldAfter && r.phase() >= Live
}

// yieldChoice contains the connections that may be closed, of the owners with the most connections.
// A connection counts for the same owner as the record of its relay.
type yieldChoice struct {
	connections map[*dialOwner]int
	most        int                        // number of connections of such an owner
	own         map[*dialOwner]*relayState // the oldest of each of these owners
	oldest      *relayState
}

func (d *dialer) yields(now time.Time) (y yieldChoice) {
	y.connections, y.own = make(map[*dialOwner]int), make(map[*dialOwner]*relayState)
	for r := range d.connected {
		if o := r.listed.record; o != nil && !r.bootstrap {
			y.connections[o]++
			y.most = max(y.most, y.connections[o])
		}
	}
	for r := range d.connected {
		o := r.listed.record
		if o == nil || r.bootstrap || y.connections[o] < y.most || !mayYield(r, now) {
			continue
		}
		if old := y.own[o]; old == nil || r.dial.epoch < old.dial.epoch {
			y.own[o] = r
		}
		if y.oldest == nil || r.dial.epoch < y.oldest.dial.epoch {
			y.oldest = r
		}
	}
	return y
}

// to returns the connection to close for a relay of an owner, or nil.
func (y yieldChoice) to(o *dialOwner) *relayState {
	if y.connections[o] < y.most {
		return y.oldest
	}
	return y.own[o]
}

// hangUp closes a connection to make room and queues its relay again.
func (d *dialer) hangUp(gone *relayState, now time.Time) {
	d.emit(Hangup{Relay: gone.url, Epoch: gone.dial.epoch})
	d.lost(gone)
	gone.dial.absentSince = time.Time{}
	gone.dial.retryAt = now.Add(d.longer(yieldAfter))
	d.timers.set(gone, gone.dial.retryAt)
	d.hungUp = append(d.hungUp, gone)
}

// dialQueue contains the relays that wait for a dial, each in the queue of each owner that lists
// it. Owners take turns, and bootstrap relays come first.
type dialQueue struct {
	operator dialOwner
	owners   list.List
}

type dialTurn struct {
	places map[*dialOwner]*list.Element
}

func (s *dialTurn) waits() bool { return len(s.places) > 0 }

func (l *dialQueue) add(r *relayState) {
	r.turn.places = make(map[*dialOwner]*list.Element)
	if r.bootstrap {
		l.join(r, &l.operator)
		return
	}
	for _, o := range sortedBy(r.listed.owners, func(a, b *dialOwner) int { return a.key.Compare(b.key) }) {
		l.join(r, o)
	}
}

func (l *dialQueue) join(r *relayState, o *dialOwner) {
	r.turn.places[o] = o.waiting.PushBack(r)
	switch {
	case o.turn != nil:
	case o == &l.operator:
		o.turn = l.owners.PushFront(o)
	default:
		o.turn = l.owners.PushBack(o)
	}
}

func (l *dialQueue) quit(r *relayState, o *dialOwner) {
	place := r.turn.places[o]
	if place == nil {
		return
	}
	delete(r.turn.places, o)
	if o.waiting.Remove(place); o.waiting.Len() == 0 {
		l.owners.Remove(o.turn)
		o.turn = nil
	}
}

func (l *dialQueue) leave(r *relayState) {
	for o := range r.turn.places {
		l.quit(r, o)
	}
}

func (l *dialQueue) served(r *relayState, o *dialOwner) {
	l.leave(r)
	if o.turn != nil && o != &l.operator {
		l.owners.MoveToBack(o.turn)
	}
}
