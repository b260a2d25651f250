package plan

import (
	"container/list"
	"slices"
	"time"

	"github.com/graspsync/graspsync/internal/backoff"
)

type dialState struct {
	connecting, connected bool
	epoch                 uint64 // of the last dial; inputs of earlier dials are ignored
	connectedAt           time.Time
	retryAt               time.Time
	waitsSince            time.Time
	aliveAt               time.Time
	absentSince           time.Time // when the relay was lost; zero if connected or closed by us

	refusals int // consecutive attempts that a local limit prevented
	turnOf   *dialOwner
	places   map[*dialOwner]*list.Element // in the queues; empty if it does not wait
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

func (p *Plan) awaitDial(r *relayState) {
	var wake time.Time
	switch {
	case r.dial.connecting || len(r.dial.places) > 0:
	case p.now.Before(r.dial.retryAt):
		wake = r.dial.retryAt
	default:
		r.dial.waitsSince = p.now
		p.queue.add(r)
		p.roomAt = time.Time{} // a connection may yield to this relay
	}
	p.wake(r, wake)
}

const (
	// fullDialsShare is the divisor of Config.MaxConnections for attempts while there are more relays
	// than connections.
	fullDialsShare = 8
	// ownerDials is the maximum number of attempts of one owner, hostsTried the number of its
	// relays that are searched for another host.
	ownerDials, hostsTried = 5, 16
)

func (p *Plan) anyWaits() bool { return p.queue.owners.Len() > 0 }

func (p *Plan) nextDial() (at time.Time) {
	earlier := func(t time.Time) {
		if !t.IsZero() && (at.IsZero() || t.Before(at)) {
			at = t
		}
	}
	if p.mayDial() && !p.roomAt.IsZero() {
		earlier(backoff.Later(p.roomAt, p.dialAt))
	}
	if p.anyWaits() && p.dialAt.After(p.now) {
		earlier(p.dialAt)
	}
	return at
}

func (p *Plan) dial() {
	for p.mayDial() && !p.now.Before(p.dialAt) {
		r, o := p.nextTurn()
		if r == nil {
			return
		}
		p.queue.served(r, o)
		o.dialing++
		p.attempts = append(p.attempts, r)
		r.dial.connecting, r.dial.turnOf = true, o
		if !r.dial.absentSince.IsZero() { // the relay was not absent during the wait for a turn
			r.dial.absentSince = r.dial.absentSince.Add(p.now.Sub(r.dial.waitsSince))
		}
		p.lastEpoch++
		r.dial.epoch = p.lastEpoch
		p.dialAt = p.now.Add(p.cfg.DialEvery) // spares proxies and resolvers
		p.emit(Dial{Relay: r.url, Epoch: r.dial.epoch})
	}
}

func (p *Plan) mayDial() bool { return len(p.attempts) < p.cfg.MaxDials }

func (p *Plan) full() bool { return len(p.attempts)+len(p.connected) >= p.cfg.MaxConnections }

func (p *Plan) nextTurn() (*relayState, *dialOwner) {
	full := p.full()
	if full && len(p.attempts) >= max(1, p.cfg.MaxConnections/fullDialsShare) {
		p.roomAt = time.Time{} // a running attempt will end
		return nil, nil
	}
	if !full || !p.anyWaits() {
		p.roomAt = time.Time{}
	} else if p.now.Before(p.roomAt) {
		return nil, nil
	}
	var room yieldChoice
	if full && p.anyWaits() {
		room = p.yields()
		p.roomAt = p.now.Add(lookForRoom)
	}
	for e := p.queue.owners.Front(); e != nil && (!full || room.oldest != nil); e = e.Next() {
		o := e.Value.(*dialOwner)
		gone := room.to(o)
		if full && gone == nil {
			continue
		}
		if r := p.dialable(o); r != nil {
			if full {
				p.hangUp(gone)
				p.roomAt = time.Time{}
			}
			return r, o
		}
	}
	return nil, nil
}

// dialable returns the next waiting relay of an owner, on a host without an attempt, or nil.
func (p *Plan) dialable(o *dialOwner) *relayState {
	if o.dialing >= ownerDials && o != &p.queue.operator {
		return nil
	}
	for range min(o.waiting.Len(), hostsTried) {
		e := o.waiting.Front()
		r := e.Value.(*relayState)
		if !slices.ContainsFunc(p.attempts, func(a *relayState) bool { return a.host == r.host }) {
			return r
		}
		o.waiting.MoveToBack(e)
	}
	return nil
}

func (p *Plan) dialed(r *relayState) {
	p.attemptEnded(r)
	p.connected[r] = struct{}{}
	r.dial.connected, r.dial.refusals, r.dial.connectedAt = true, 0, p.now
}

func (in DialFailed) apply(p *Plan) {
	r := p.current(in.Relay, in.Epoch)
	if r == nil || !r.dial.connecting {
		return
	}
	p.attemptEnded(r)
	r.dial.retryAt = in.RetryAt
	if in.NotDialed {
		r.dial.refusals++
		r.dial.retryAt = backoff.Later(in.RetryAt, p.now.Add(min(p.retryAfter(r.dial.refusals), p.withJitter(yieldAfter))))
		return
	}
	r.dial.refusals = 0
	if r.dial.absentSince.IsZero() {
		r.dial.absentSince = p.now
	}
}

func (p *Plan) attemptEnded(r *relayState) {
	r.dial.connecting = false
	r.dial.turnOf.dialing--
	p.attempts = slices.DeleteFunc(p.attempts, func(a *relayState) bool { return a == r })
}

func (p *Plan) connectionEnded(r *relayState) {
	delete(p.connected, r)
	r.dial.connected = false
}

const (
	// yieldAfter is the minimum time of an idle connection before it yields to a waiting relay.
	yieldAfter = 10 * time.Minute
	// yieldIncomplete is the same if its relay never becomes complete.
	yieldIncomplete = time.Hour
	lookForRoom     = time.Minute
)

func (p *Plan) mayYield(r *relayState) bool {
	held := p.now.Sub(r.dial.connectedAt)
	return held >= yieldIncomplete || held >= yieldAfter && r.phase() >= Live
}

// yieldChoice contains the connections that may be closed, of the owners with the most connections.
// A connection counts for the same owner as the record of its relay.
type yieldChoice struct {
	connections map[*dialOwner]int
	most        int                        // number of connections of each of these owners
	own         map[*dialOwner]*relayState // their oldest connections
	oldest      *relayState
}

func (p *Plan) yields() (y yieldChoice) {
	y.connections, y.own = make(map[*dialOwner]int), make(map[*dialOwner]*relayState)
	for r := range p.connected {
		if o := r.listed.record; o != nil && !r.bootstrap {
			y.connections[o]++
			y.most = max(y.most, y.connections[o])
		}
	}
	for r := range p.connected {
		o := r.listed.record
		if o == nil || r.bootstrap || y.connections[o] < y.most || !p.mayYield(r) {
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
func (p *Plan) hangUp(gone *relayState) {
	p.emit(Hangup{Relay: gone.url, Epoch: gone.dial.epoch})
	p.connectionEnded(gone)
	gone.dial.absentSince = time.Time{}
	gone.dial.retryAt = p.now.Add(p.withJitter(yieldAfter))
	p.wake(gone, gone.dial.retryAt)
	p.hungUp = append(p.hungUp, gone)
}

// dialQueue contains the relays that wait for a dial, each in the queue of each owner that lists
// it. Owners take turns, and bootstrap relays come first.
type dialQueue struct {
	operator dialOwner
	owners   list.List
}

func (q *dialQueue) add(r *relayState) {
	r.dial.places = make(map[*dialOwner]*list.Element)
	if r.bootstrap {
		q.join(r, &q.operator)
		return
	}
	for _, o := range sortedBy(r.listed.owners, func(a, b *dialOwner) int { return a.key.Compare(b.key) }) {
		q.join(r, o)
	}
}

func (q *dialQueue) join(r *relayState, o *dialOwner) {
	r.dial.places[o] = o.waiting.PushBack(r)
	switch {
	case o.turn != nil:
	case o == &q.operator:
		o.turn = q.owners.PushFront(o)
	default:
		o.turn = q.owners.PushBack(o)
	}
}

func (q *dialQueue) quit(r *relayState, o *dialOwner) {
	place := r.dial.places[o]
	if place == nil {
		return
	}
	delete(r.dial.places, o)
	if o.waiting.Remove(place); o.waiting.Len() == 0 {
		q.owners.Remove(o.turn)
		o.turn = nil
	}
}

func (q *dialQueue) leave(r *relayState) {
	for o := range r.dial.places {
		q.quit(r, o)
	}
}

func (q *dialQueue) served(r *relayState, o *dialOwner) {
	q.leave(r)
	if o.turn != nil && o != &q.operator {
		q.owners.MoveToBack(o.turn)
	}
}
