package plan

import (
	"time"
)

// dialer decides which relays are connected: which one it dials when, and which connection yields.
type dialer struct {
	*core
	queue dialQueue // of relays that wait for their turn to be dialed

	dialing   int                      // attempts under way
	hosts     map[string]struct{}      // to which there is an attempt
	young     youngAttempts            // attempts that were begun a moment ago
	connected map[*relayState]struct{} // connections
	dialAt    time.Time                // the next attempt may begin
	roomAt    time.Time                // when a connection that yields is looked for again
	hungUp    []*relayState            // in this step, to make room
	lastEpoch uint64
}

func newDialer(c *core) *dialer {
	return &dialer{core: c, hosts: make(map[string]struct{}), connected: make(map[*relayState]struct{})}
}

// dialState is the life cycle of one relay: whether it is connected, and when it is dialed.
type dialState struct {
	connecting, connected bool
	epoch                 uint64 // of the last dial; what comes from an earlier one is ignored
	connectedAt           time.Time
	retryAt               time.Time
	waitsSince            time.Time
	aliveAt               time.Time // when it was last known alive, zero before the first connection
	absentSince           time.Time // when it was lost, or first not there; zero: it is not, or we hung up

	young    bool       // dialed a moment ago
	refusals int        // attempts in a row that we refused
	turnOf   *dialOwner // whose turn the attempt was
	counts   *dialOwner // for whom the connection counts; nil for a bootstrap relay
}

// longAbsent reports whether a relay was away for so long that what was confirmed
// counts for nothing. For how long we did without it does not matter: that is known
// to the second, and what came meanwhile is asked for.
func (s *dialState) longAbsent(now time.Time, most time.Duration) bool {
	if s.absentSince.IsZero() {
		return false
	}
	// Where the machine was asleep only the wall clock says so, where that was set back
	// only the other one.
	away := max(now.Sub(s.absentSince), now.Round(0).Sub(s.absentSince.Round(0)))
	return away > most
}

// jumped sets back what depends on a clock that was set back.
func (s *dialState) jumped(back time.Duration) { setBack(back, &s.aliveAt, &s.absentSince) }

// wait puts a relay that is not connected into its line, or wakes it when its time comes.
func (d *dialer) wait(r *relayState, now time.Time) {
	var wake time.Time
	switch {
	case r.dial.connecting || r.turn.waits():
	case now.Before(r.dial.retryAt):
		wake = r.dial.retryAt
	default:
		r.dial.waitsSince = now
		d.queue.add(r)
		d.roomAt = time.Time{} // there may be room for it that there is not for others
	}
	d.timers.set(r, wake)
}

// listed notes that one more owner lists a relay.
func (d *dialer) listed(r *relayState, o *dialOwner) {
	if r.turn.waits() && !r.bootstrap {
		d.queue.join(r, o)
	}
	if has := r.dial.counts; has == nil {
		d.recount(r)
	} else if o.connections+1 < has.connections {
		has.connections--
		o.connections++
		r.dial.counts = o
	}
}

// unlisted notes that an owner does not list a relay any more.
func (d *dialer) unlisted(r *relayState, o *dialOwner) {
	if r.dial.counts == o {
		d.recount(r)
	}
	d.queue.quit(r, o)
}

// recount has a connection count for the owner who has fewest of those who list the relay.
func (d *dialer) recount(r *relayState) {
	if o := r.dial.counts; o != nil {
		o.connections--
		r.dial.counts = nil
	}
	if !r.dial.connected || r.bootstrap {
		return
	}
	if o := r.listed.least(func(o *dialOwner) int { return o.connections }); o != nil {
		o.connections++
		r.dial.counts = o
	}
}

// youngAttempts are those that were begun a moment ago. Relays that are dead take ten
// seconds to fail: if each of them kept one of the few attempts busy for so long,
// whoever comes after three thousand would be dialed an hour later.
type youngAttempts struct {
	all   int
	queue []youngAttempt // the oldest first; some have ended
}

type youngAttempt struct {
	relay *relayState
	epoch uint64
	until time.Time
}

const (
	// patience is after what time an attempt makes room for the next one.
	patience = time.Second
	// silentDials is how many attempts may wait on beside those that are young, as a
	// multiple of Config.MaxDials, and as a part of the connections.
	silentDials      = 8
	silentDialsShare = 3
	// fullDialsShare is the part of the connections that attempts may take while there
	// are too few for all.
	fullDialsShare = 8
	// ownerDials is the maximum number of attempts of one owner, and hostsTried the number of its relays among
	// which one is looked for to whose host there is no attempt.
	ownerDials, hostsTried = 5, 16
)

// silentMost is how many attempts may wait on.
func (d *dialer) silentMost() int {
	return min(silentDials*d.cfg.MaxDials, d.cfg.MaxConnections/silentDialsShare)
}

// mature stops counting attempts as young that were begun long enough ago.
func (d *dialer) mature(now time.Time) {
	q := d.young.queue
	for len(q) > 0 {
		a := q[0]
		if current := a.relay.dial.young && a.relay.dial.epoch == a.epoch; current && a.until.After(now) {
			break
		} else if current {
			d.notYoung(a.relay)
		}
		q[0] = youngAttempt{}
		q = q[1:]
	}
	d.young.queue = q
}

func (d *dialer) notYoung(r *relayState) {
	if r.dial.young {
		r.dial.young = false
		d.young.all--
	}
}

// patienceEnds returns when the next attempt makes room for those who wait; zero: for
// nobody.
func (d *dialer) patienceEnds() time.Time {
	if len(d.young.queue) == 0 || d.dialing >= d.cfg.MaxDials+d.silentMost() {
		return time.Time{}
	}
	if d.anyWaits() {
		return d.young.queue[0].until
	}
	return time.Time{}
}

// anyWaits reports whether a relay waits for its turn to be dialed.
func (d *dialer) anyWaits() bool { return d.queue.owners.Len() > 0 }

// nextWake returns when the next attempt may begin for which somebody waits; zero: nothing is
// waited for.
func (d *dialer) nextWake() (at time.Time) {
	earlier := func(t time.Time) {
		if !t.IsZero() && (at.IsZero() || t.Before(at)) {
			at = t
		}
	}
	if d.mayDial() && !d.roomAt.IsZero() {
		look := d.roomAt
		if d.dialAt.After(look) {
			look = d.dialAt
		}
		earlier(look)
	}
	earlier(d.patienceEnds())
	if d.anyWaits() && d.dialAt.After(d.now) {
		earlier(d.dialAt)
	}
	return at
}

// dial starts as many of the waiting attempts as may run.
func (d *dialer) dial(now time.Time) {
	d.mature(now)
	for d.mayDial() && !now.Before(d.dialAt) {
		r, o := d.nextTurn(now)
		if r == nil {
			return
		}
		d.queue.served(r, o)
		o.dialing++
		d.dialing++
		d.hosts[r.host] = struct{}{}
		r.dial.connecting, r.dial.turnOf = true, o
		d.young.all++
		if !r.dial.absentSince.IsZero() { // that it had to wait for its turn was our doing
			r.dial.absentSince = r.dial.absentSince.Add(now.Sub(r.dial.waitsSince))
		}
		d.lastEpoch++
		r.dial.epoch, r.dial.young = d.lastEpoch, true
		d.young.queue = append(d.young.queue, youngAttempt{r, r.dial.epoch, now.Add(patience)})
		d.dialAt = now.Add(d.cfg.DialEvery) // one proxy, or one resolver, may be behind all
		d.emit(Dial{Relay: r.url, Epoch: r.dial.epoch})
	}
}

// mayDial reports whether one more attempt may run.
func (d *dialer) mayDial() bool {
	return d.young.all < d.cfg.MaxDials && d.dialing < d.cfg.MaxDials+d.silentMost()
}

// full reports whether a connection must end before another one can be made.
func (d *dialer) full() bool { return d.dialing+len(d.connected) >= d.cfg.MaxConnections }

// nextTurn returns the relay whose turn it is and for which there is room, and the owner whose turn that is; nil
// if there is no such relay.
func (d *dialer) nextTurn(now time.Time) (*relayState, *dialOwner) {
	full := d.full()
	if full && d.dialing >= max(1, d.cfg.MaxConnections/fullDialsShare) {
		d.roomAt = time.Time{} // one of these will end
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
		d.roomAt = d.nextRoom(now)
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

// dialable returns the next waiting relay of an owner to whose host there is no attempt; nil if there is none or
// the owner has its part of the attempts.
func (d *dialer) dialable(o *dialOwner) *relayState {
	if o.dialing >= ownerDials && o != &d.queue.operator {
		return nil
	}
	for range min(o.waiting.Len(), hostsTried) {
		e := o.waiting.Front()
		r := e.Value.(*relayState)
		if _, busy := d.hosts[r.host]; !busy {
			return r
		}
		o.waiting.MoveToBack(e)
	}
	return nil
}

// made notes that an attempt has succeeded.
func (d *dialer) made(r *relayState, now time.Time) {
	d.ended(r)
	d.connected[r] = struct{}{}
	r.dial.connected, r.dial.refusals, r.dial.connectedAt = true, 0, now
	d.recount(r)
}

// failed notes that an attempt has not.
func (d *dialer) failed(r *relayState, in DialFailed, now time.Time) {
	d.ended(r)
	r.dial.retryAt = in.RetryAt
	if in.NotDialed {
		r.dial.refusals++
		if at := now.Add(min(d.retryAfter(r.dial.refusals), d.longer(yieldAfter))); at.After(r.dial.retryAt) {
			r.dial.retryAt = at
		}
		return
	}
	r.dial.refusals = 0
	if r.dial.absentSince.IsZero() {
		r.dial.absentSince = now
	}
}

// ended notes that an attempt is over.
func (d *dialer) ended(r *relayState) {
	d.notYoung(r)
	r.dial.connecting = false
	d.dialing--
	r.dial.turnOf.dialing--
	delete(d.hosts, r.host)
}

// lost notes that a connection has ended.
func (d *dialer) lost(r *relayState) {
	delete(d.connected, r)
	r.dial.connected = false
	d.recount(r)
}

// forget notes that nothing is wanted of a relay any more.
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

// takeHungUp returns the relays that were hung up in this step, to make room.
func (d *dialer) takeHungUp() []*relayState {
	out := d.hungUp
	d.hungUp = nil
	return out
}

const (
	// yieldAfter is for how long a relay that is complete keeps its connection while others wait for one.
	yieldAfter = 10 * time.Minute
	// yieldIncomplete is the same for a relay that is never complete.
	yieldIncomplete = time.Hour
	// lookForRoom is after what time a connection that yields is looked for again at the latest.
	lookForRoom = time.Minute
)

// mayYield reports whether a connection may end for another one.
func mayYield(r *relayState, now time.Time) bool {
	held := now.Sub(r.dial.connectedAt)
	return r.dial.counts != nil && (held >= yieldIncomplete || held >= yieldAfter && r.phase() >= Live)
}

// yields are the connections that may end for another one. These are connections of the owners who have most.
type yieldChoice struct {
	most   int                        // number of connections of such an owner
	own    map[*dialOwner]*relayState // the oldest connection that may yield of each of these owners
	oldest *relayState                // the oldest one of all; nil if there is none
}

func (d *dialer) yields(now time.Time) (y yieldChoice) {
	y.own = make(map[*dialOwner]*relayState)
	for r := range d.connected {
		if o := r.dial.counts; o != nil {
			y.most = max(y.most, o.connections)
		}
	}
	for r := range d.connected {
		o := r.dial.counts
		if !mayYield(r, now) || o.connections < y.most {
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

// to returns the connection that ends for a relay of an owner; nil if there is none. If no other owner has more than
// this one, its relays take turns among themselves.
func (y yieldChoice) to(o *dialOwner) *relayState {
	if o.connections < y.most {
		return y.oldest
	}
	return y.own[o]
}

// hangUp ends a connection to make room. The relay is dialed again when its turn comes.
func (d *dialer) hangUp(gone *relayState, now time.Time) {
	d.emit(Hangup{Relay: gone.url, Epoch: gone.dial.epoch})
	d.lost(gone)
	gone.dial.absentSince = time.Time{}
	gone.dial.retryAt = now.Add(d.longer(yieldAfter))
	d.timers.set(gone, gone.dial.retryAt)
	d.hungUp = append(d.hungUp, gone)
}

// nextRoom returns when a connection may yield that may not now. Of those that may when they are complete it is
// noticed by doneWith.
func (d *dialer) nextRoom(now time.Time) time.Time {
	at := now.Add(lookForRoom)
	for r := range d.connected {
		if end := r.dial.connectedAt.Add(yieldAfter); r.dial.counts != nil && end.After(now) && end.Before(at) {
			at = end
		}
	}
	return at
}

// doneWith notes that the connection of a relay may yield now.
func (d *dialer) doneWith(r *relayState, now time.Time) {
	if !d.roomAt.IsZero() && mayYield(r, now) {
		d.roomAt = time.Time{}
	}
}
