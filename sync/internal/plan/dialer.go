package plan

import (
	"cmp"
	"math/bits"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"
)

// dialer decides which relays are connected: whom it dials when, and who gives way to whom.
type dialer struct {
	*common
	owners *owners

	dialing         int                 // attempts under way
	dialingUnproven int                 // attempts under way to relays that never answered
	young           youngAttempts       // attempts that were begun a moment ago
	connected       map[*relay]struct{} // connections
	unproven        int                 // attempts and connections of relays that never answered
	lines           [lines]line         // of relays that wait for their turn to be dialed
	dialAt          time.Time           // the next attempt may begin
	roomAt          time.Time           // when room for those that wait is looked for again
	hungUp          []*relay            // in this step, to make room
	lastEpoch       uint64
}

func newDialer(c *common, o *owners, lots *rand.Rand) *dialer {
	d := &dialer{common: c, owners: o, connected: make(map[*relay]struct{})}
	for i := range d.lines {
		d.lines[i].number, d.lines[i].lots = i, lots
	}
	return d
}

// dialState is the life cycle of one relay: whether it is connected, and when it is dialed.
type dialState struct {
	connecting, connected bool
	epoch                 uint64 // of the last dial; what comes from an earlier one is ignored
	connectedAt           time.Time
	retryAt               time.Time
	waitsSince            time.Time
	aliveAt               time.Time    // when it was last known alive, zero before the first connection
	absentSince           time.Time    // when it was lost, or first not there; zero: it is not, or we hung up
	usefulAt              time.Time    // when it last brought what nobody else had
	address               netip.Prefix // at which it was found last, with what is counted together with it

	answered bool // it has answered as a relay, in this run or before
	good     bool // it is known to work: dialed before others
	unproven bool // an attempt or connection, and it never answered
	young    bool // dialed a moment ago
	failed   bool // the last attempt did
	refusals int  // attempts in a row that we refused
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
func (d *dialer) wait(r *relay, now time.Time) {
	var wake time.Time
	switch {
	case r.dial.connecting || r.turn.line != nil:
	case now.Before(r.dial.retryAt):
		wake = r.dial.retryAt
	default:
		r.dial.waitsSince = now
		n := d.lineOf(r)
		d.lines[n].add(r)
		if n != lineHeld {
			d.roomAt = time.Time{} // there may be room for it that there is not for others
		}
	}
	d.timers.set(r, wake)
}

// lineOf returns the line in which a relay waits for its turn.
func (d *dialer) lineOf(r *relay) int {
	switch {
	case r.bootstrap:
		return lineFirst
	case r.claim.servedBy == 0:
		return lineHeld
	case d.useful(r):
		return lineFirst
	case r.dial.good:
		return lineGood
	case r.dial.failed:
		return lineFailed
	}
	return lineNew
}

// proven reports whether a relay is known to be one.
func (d *dialer) proven(r *relay) bool { return r.dial.good || r.bootstrap || d.useful(r) }

// usefulFor is for how long it counts that a relay brought what nobody else had. Anybody
// can have a relay bring something once.
const usefulFor = 3 * 24 * time.Hour

func (d *dialer) useful(r *relay) bool {
	return !r.dial.usefulAt.IsZero() && d.now.Sub(r.dial.usefulAt) < usefulFor
}

// setGood notes whether a relay is known to work.
func (d *dialer) setGood(r *relay, good bool) {
	if r.dial.good = good; good {
		d.setAnswered(r)
	}
}

// setAnswered notes that a relay has answered as one.
func (d *dialer) setAnswered(r *relay) {
	if !r.dial.answered {
		r.dial.answered = true
		d.owners.table.fix(r)
	}
}

// wasUseful notes that a relay brought what nobody else had.
func (d *dialer) wasUseful(r *relay, now time.Time) {
	if !r.dial.connecting {
		d.leaveUnproven(r)
		d.setAnswered(r)
		r.dial.usefulAt = now
	}
}

// youngAttempts are those that were begun a moment ago. Relays that are dead take ten
// seconds to fail: if each of them kept one of the few attempts busy for so long,
// whoever comes after three thousand would be dialed an hour later.
type youngAttempts struct {
	all, unproven int
	queue         []youngAttempt // the oldest first; some have ended
}

type youngAttempt struct {
	relay *relay
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

func (d *dialer) notYoung(r *relay) {
	if r.dial.young {
		r.dial.young = false
		d.young.all--
		if r.dial.unproven {
			d.young.unproven--
		}
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
func (d *dialer) anyWaits() bool {
	for i := range d.lines {
		if d.lines[i].first() != nil {
			return true
		}
	}
	return false
}

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

// fourFifths leaves a part of what there is to relays that are proven.
func fourFifths(n int) int { return n - n/5 }

// dial starts as many of the waiting attempts as may run. Only a part of the attempts
// and of the connections is for relays that have yet to prove that they are some, so
// that others never wait for relays that are dead or say nothing.
func (d *dialer) dial(now time.Time) {
	d.mature(now)
	for d.mayDial() && !now.Before(d.dialAt) {
		r := d.nextTurn(now)
		if r == nil {
			return
		}
		r.turn.served()
		r.dial.connecting = true
		d.dialing++
		d.young.all++
		if !d.proven(r) {
			r.dial.unproven = true
			d.unproven++
			d.dialingUnproven++
			d.young.unproven++
		}
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

// rounds is which line has its turn: none of them starves another, whoever fills it.
var rounds = [...]int{lineFirst, lineGood, lineFirst, lineNew, lineFirst, lineFailed, lineNew, lineHeld}

// turnsOf are the lines in the order in which they are looked at: first the one whose
// turn it is, then the others, those of known relays first.
func (d *dialer) turnsOf() [lines]int {
	order := [lines]int{lineFirst, lineGood, lineNew, lineFailed, lineHeld}
	turn := rounds[d.lastEpoch%uint64(len(rounds))]
	at := slices.Index(order[:], turn)
	copy(order[1:], order[:at])
	order[0] = turn
	return order
}

// nextTurn returns whose turn it is and for whom there is room; nil if there is
// nobody.
func (d *dialer) nextTurn(now time.Time) *relay {
	look, waits := !now.Before(d.roomAt), false
	full := d.full()
	if full && d.dialing >= max(1, d.cfg.MaxConnections/fullDialsShare) {
		d.roomAt = time.Time{} // one of these will end
		return nil
	}
	for _, n := range d.turnsOf() {
		r := d.lines[n].first()
		if r == nil {
			continue
		}
		if !d.proven(r) {
			if d.young.unproven >= fourFifths(d.cfg.MaxDials) || d.dialingUnproven >= fourFifths(d.cfg.MaxDials+d.silentMost()) {
				continue
			}
			if d.unproven >= max(1, d.cfg.MaxConnections*3/4) && !(look && d.makeRoom(now, r, silent)) {
				waits = true
				continue
			}
		}
		if !d.full() || look && d.makeRoom(now, r, finished(now)) {
			return r
		}
		waits = true
	}
	switch {
	case !waits:
		d.roomAt = time.Time{}
	case look:
		d.roomAt = d.nextRoom(now)
	}
	return nil
}

// made notes that an attempt has succeeded.
func (d *dialer) made(r *relay, address netip.Prefix, now time.Time) {
	d.ended(r)
	d.connected[r] = struct{}{}
	r.dial.connected, r.dial.failed, r.dial.refusals = true, false, 0
	r.dial.connectedAt, r.dial.address = now, address
}

// failed notes that an attempt has not.
func (d *dialer) failed(r *relay, in DialFailed, now time.Time) {
	d.ended(r)
	d.leaveUnproven(r)
	r.dial.failed = true // it waits where it is in nobody's way
	r.dial.retryAt = in.RetryAt
	d.setGood(r, in.Good)
	if in.NotDialed {
		r.dial.refusals++
		if at := now.Add(min(d.retryAfter(r.dial.refusals), d.longer(leastTenure))); at.After(r.dial.retryAt) {
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
func (d *dialer) ended(r *relay) {
	d.notYoung(r)
	r.dial.connecting = false
	d.dialing--
	if r.dial.unproven {
		d.dialingUnproven--
	}
}

// lost notes that a connection has ended.
func (d *dialer) lost(r *relay) {
	delete(d.connected, r)
	d.leaveUnproven(r)
	r.dial.connected = false
}

// forget notes that nothing is wanted of a relay any more.
func (d *dialer) forget(r *relay) {
	if r.dial.connecting || r.dial.connected {
		d.emit(Hangup{Relay: r.url, Epoch: r.dial.epoch})
	}
	switch {
	case r.dial.connecting:
		d.ended(r)
	case r.dial.connected:
		delete(d.connected, r)
	}
	d.leaveUnproven(r)
	r.turn.leave()
	d.timers.set(r, time.Time{})
}

// takeHungUp returns the relays that were hung up in this step, to make room.
func (d *dialer) takeHungUp() []*relay {
	out := d.hungUp
	d.hungUp = nil
	return out
}

// leaveUnproven gives back the place that a relay took up among those that have
// never answered: it has, or its connection is gone.
func (d *dialer) leaveUnproven(r *relay) {
	if r.dial.unproven {
		r.dial.unproven = false
		d.unproven--
	}
}

const (
	// leastTenure is how long a relay that has nothing more to give keeps its connection
	// while others wait for one.
	leastTenure = 10 * time.Minute
	// longTenure is how long one is put up with that is never done, whatever it brought once.
	longTenure = time.Hour
	// lookForRoom is after what time room is looked for again at the latest.
	lookForRoom = time.Minute
	// changingShare is the part of the connections that goes round among all who wait,
	// while the others are for those who have most claim to one.
	changingShare = 4
)

// finished are the relays that have done their work, silent those that have yet to
// answer anything.
func finished(now time.Time) func(*relay) bool {
	return func(r *relay) bool { return r.phase() >= Live || now.Sub(r.dial.connectedAt) >= longTenure }
}

func silent(r *relay) bool { return r.dial.unproven }

// ranking is a connection, and how strong its claim to it is.
type ranking struct {
	*relay
	strength uint64
	// level is what of the strength counts before seniority: who is not much stronger
	// takes nothing from who was here before. A level is as wide as the step between two
	// ages.
	level int
	// hour is the seniority: who comes first of those who come at once gains nothing.
	hour int64
}

func (k *ranking) set(strength uint64) { k.strength, k.level = strength, (bits.Len64(strength)+1)/3 }

// compareStrength orders rankings, the stronger first. It returns 0 where nothing but chance
// could choose.
func compareStrength(a, b ranking) int {
	return cmp.Or(cmp.Compare(b.level, a.level), cmp.Compare(a.hour, b.hour), cmp.Compare(b.strength, a.strength))
}

// ranked returns the connections, the strongest first. What a relay has brought lately
// counts for as much as its claim; that is little, since whoever has a relay can have it
// bring something. One that never answered has no claim. Relays at one address have to
// share: the third and fourth of them count half, the next two half of that, so that as
// many names as somebody likes, which are free, are together worth what four are.
func (d *dialer) ranked() []ranking {
	out := make([]ranking, 0, len(d.connected))
	for r := range d.connected {
		k := ranking{relay: r, hour: r.claim.since.Unix() / int64(time.Hour/time.Second)}
		switch {
		case r.bootstrap:
			continue
		case r.dial.unproven:
		case d.useful(r):
			k.set(2 * r.claim.weight)
		default:
			k.set(r.claim.weight)
		}
		out = append(out, k)
	}
	sort := func() {
		slices.SortFunc(out, func(a, b ranking) int { return cmp.Or(compareStrength(a, b), cmp.Compare(a.dial.epoch, b.dial.epoch)) })
	}
	sort()
	at, shared := make(map[netip.Prefix]uint64), false
	for i := range out {
		if where := out[i].dial.address; where.IsValid() {
			out[i].set(out[i].strength >> min(at[where]/2, 63))
			at[where]++
			shared = shared || at[where] > 2
		}
	}
	if shared {
		sort()
	}
	return out
}

// makeRoom hangs up a connection for a relay that waits for one, which is dialed again
// after a while, when its turn comes. Three quarters of the connections are for those
// whose claim is strongest. The others go round, and so do those among whom nothing but
// chance could choose: who has stood longest gives way, first those that never
// answered, then those of owners of whom nothing is served. That leaves something to
// whoever is new, and who has been here keeps what it has. Of owners of whom nothing is served strangers
// can be any number: beyond a part of the connections they keep none from those of others.
func (d *dialer) makeRoom(now time.Time, waits *relay, mayGo func(*relay) bool) bool {
	ranked, held := d.ranked(), 0
	for _, k := range ranked {
		if k.claim.servedBy == 0 {
			held++
		}
	}
	beyond := waits.claim.servedBy > 0 && held > max(1, d.cfg.MaxConnections/changingShare)
	safe := d.cfg.MaxConnections - max(1, d.cfg.MaxConnections/changingShare) - (len(d.connected) - len(ranked))
	for safe > 0 && safe < len(ranked) && compareStrength(ranked[safe-1], ranked[safe]) == 0 {
		safe--
	}
	var gone *relay
	for _, k := range ranked[min(max(0, safe), len(ranked)):] {
		switch {
		case beyond && k.claim.servedBy == 0:
			if gone == nil || gone.claim.servedBy > 0 || compareRoom(k.relay, gone) < 0 {
				gone = k.relay
			}
		case !mayGo(k.relay), now.Before(k.dial.connectedAt.Add(leastTenure)):
		case gone == nil || compareRoom(k.relay, gone) < 0:
			gone = k.relay
		}
	}
	if gone == nil {
		return false
	}
	d.emit(Hangup{Relay: gone.url, Epoch: gone.dial.epoch})
	d.setGood(gone, gone.dial.good || !gone.dial.unproven) // it has answered, and held for longer than that takes
	d.lost(gone)
	gone.dial.absentSince = time.Time{}
	gone.dial.retryAt = now.Add(d.longer(leastTenure))
	d.timers.set(gone, gone.dial.retryAt)
	d.hungUp = append(d.hungUp, gone)
	return true
}

// nextRoom returns when there may be room that there is not now: when the tenure of
// the next one ends. Of those whose tenure is over it is noticed when they are done.
func (d *dialer) nextRoom(now time.Time) time.Time {
	at := now.Add(lookForRoom)
	for r := range d.connected {
		if end := r.dial.connectedAt.Add(leastTenure); !r.bootstrap && end.After(now) && end.Before(at) {
			at = end
		}
	}
	return at
}

// doneWith notes that a relay may give way now.
func (d *dialer) doneWith(r *relay, now time.Time) {
	if !d.roomAt.IsZero() && r.phase() >= Live && !now.Before(r.dial.connectedAt.Add(leastTenure)) {
		d.roomAt = time.Time{}
	}
}

// compareRoom orders connections by who is to give way first.
func compareRoom(a, b *relay) int {
	rank := func(r *relay) int {
		switch {
		case r.dial.unproven:
			return 0
		case r.claim.servedBy == 0:
			return 1
		}
		return 2
	}
	return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.dial.epoch, b.dial.epoch))
}
