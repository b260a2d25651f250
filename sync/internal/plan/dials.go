package plan

import (
	"cmp"
	"math/bits"
	"net/netip"
	"slices"
	"time"
)

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

func (p *Plan) actDisconnected(r *relay, now time.Time) {
	var wake time.Time
	switch {
	case r.dial.connecting || r.turn.line != nil:
	case now.Before(r.dial.retryAt):
		wake = r.dial.retryAt
	default:
		r.dial.waitsSince = now
		n := p.lineOf(r)
		p.lines[n].add(r)
		if n == lineFirst {
			p.roomAt = time.Time{} // there may be room for it that there is not for others
		}
	}
	p.timers.set(r, wake)
}

func (p *Plan) lineOf(r *relay) int {
	switch {
	case r.bootstrap:
		return lineFirst
	case r.claim.servedBy == 0:
		return lineHeld
	case p.useful(r):
		return lineFirst
	case r.dial.good:
		return lineGood
	case r.dial.failed:
		return lineFailed
	}
	return lineNew
}

// proven reports whether a relay is known to be one.
func (p *Plan) proven(r *relay) bool { return r.dial.good || r.bootstrap || p.useful(r) }

// usefulFor is for how long it counts that a relay brought what nobody else had. Anybody
// can have a relay bring something once.
const usefulFor = 3 * 24 * time.Hour

func (p *Plan) useful(r *relay) bool {
	return !r.dial.usefulAt.IsZero() && p.now.Sub(r.dial.usefulAt) < usefulFor
}

// setGood notes whether a relay is known to work.
func (p *Plan) setGood(r *relay, good bool) {
	if r.dial.good = good; good {
		p.setAnswered(r)
	}
}

// setAnswered notes that a relay has answered as one.
func (p *Plan) setAnswered(r *relay) {
	if !r.dial.answered {
		r.dial.answered = true
		p.owners.table.fix(r)
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
func (p *Plan) silentMost() int {
	return min(silentDials*p.cfg.MaxDials, p.cfg.MaxConnections/silentDialsShare)
}

// mature has those attempts count as young no more that are not.
func (p *Plan) mature(now time.Time) {
	q := p.young.queue
	for len(q) > 0 {
		a := q[0]
		if current := a.relay.dial.young && a.relay.dial.epoch == a.epoch; current && a.until.After(now) {
			break
		} else if current {
			p.notYoung(a.relay)
		}
		q[0] = youngAttempt{}
		q = q[1:]
	}
	p.young.queue = q
}

func (p *Plan) notYoung(r *relay) {
	if r.dial.young {
		r.dial.young = false
		p.young.all--
		if r.dial.unproven {
			p.young.unproven--
		}
	}
}

// patienceEnds returns when the next attempt makes room for those who wait; zero: for
// nobody.
func (p *Plan) patienceEnds() time.Time {
	if len(p.young.queue) == 0 || p.dialing >= p.cfg.MaxDials+p.silentMost() {
		return time.Time{}
	}
	if p.anyWaits() {
		return p.young.queue[0].until
	}
	return time.Time{}
}

// anyWaits reports whether a relay waits for its turn to be dialed.
func (p *Plan) anyWaits() bool {
	for i := range p.lines {
		if p.lines[i].first() != nil {
			return true
		}
	}
	return false
}

// fourFifths leaves a part of what there is to relays that are proven.
func fourFifths(n int) int { return n - n/5 }

// dial starts as many of the waiting attempts as may run. Only a part of the attempts
// and of the connections is for relays that have yet to prove that they are some, so
// that others never wait for relays that are dead or say nothing.
func (p *Plan) dial(now time.Time) {
	p.mature(now)
	for p.mayDial() && !now.Before(p.dialAt) {
		r := p.nextTurn(now)
		if r == nil {
			return
		}
		r.served()
		r.dial.connecting = true
		p.dialing++
		p.young.all++
		if !p.proven(r) {
			r.dial.unproven = true
			p.unproven++
			p.dialingUnproven++
			p.young.unproven++
		}
		if !r.dial.absentSince.IsZero() { // that it had to wait for its turn was our doing
			r.dial.absentSince = r.dial.absentSince.Add(now.Sub(r.dial.waitsSince))
		}
		p.lastEpoch++
		r.dial.epoch, r.dial.young = p.lastEpoch, true
		p.young.queue = append(p.young.queue, youngAttempt{r, r.dial.epoch, now.Add(patience)})
		p.dialAt = now.Add(p.cfg.DialEvery) // one proxy, or one resolver, may be behind all
		p.emit(Dial{Relay: r.url, Epoch: r.dial.epoch})
	}
}

// mayDial reports whether one more attempt may run.
func (p *Plan) mayDial() bool {
	return p.young.all < p.cfg.MaxDials && p.dialing < p.cfg.MaxDials+p.silentMost()
}

// full reports whether a connection must end before another one can be made.
func (p *Plan) full() bool { return p.dialing+len(p.connected) >= p.cfg.MaxConnections }

// rounds is which line has its turn: none of them starves another, whoever fills it.
var rounds = [...]int{lineFirst, lineGood, lineFirst, lineNew, lineFirst, lineFailed, lineNew, lineHeld}

// turnsOf are the lines in the order in which they are looked at: first the one whose
// turn it is, then the others, those of known relays first.
func (p *Plan) turnsOf() [lines]int {
	order := [lines]int{lineFirst, lineGood, lineNew, lineFailed, lineHeld}
	turn := rounds[p.lastEpoch%uint64(len(rounds))]
	at := slices.Index(order[:], turn)
	copy(order[1:], order[:at])
	order[0] = turn
	return order
}

// nextTurn returns whose turn it is and for whom there is room; nil if there is
// nobody.
func (p *Plan) nextTurn(now time.Time) *relay {
	look, waits := !now.Before(p.roomAt), false
	full := p.full()
	if full && p.dialing >= max(1, p.cfg.MaxConnections/fullDialsShare) {
		p.roomAt = time.Time{} // one of these will end
		return nil
	}
	for _, n := range p.turnsOf() {
		r := p.lines[n].first()
		if r == nil {
			continue
		}
		if !p.proven(r) {
			if p.young.unproven >= fourFifths(p.cfg.MaxDials) || p.dialingUnproven >= fourFifths(p.cfg.MaxDials+p.silentMost()) {
				continue
			}
			if p.unproven >= max(1, p.cfg.MaxConnections*3/4) && !(look && p.makeRoom(now, silent)) {
				waits = true
				continue
			}
		}
		if !p.full() || look && p.makeRoom(now, finished(now)) {
			return r
		}
		waits = true
	}
	switch {
	case !waits:
		p.roomAt = time.Time{}
	case look:
		p.roomAt = p.nextRoom(now)
	}
	return nil
}

// dialEnded notes that an attempt is over.
func (p *Plan) dialEnded(r *relay) {
	p.notYoung(r)
	r.dial.connecting = false
	p.dialing--
	if r.dial.unproven {
		p.dialingUnproven--
	}
}

// leaveUnproven gives back the place that a relay took up among those that have
// never answered: it has, or its connection is gone.
func (p *Plan) leaveUnproven(r *relay) {
	if r.dial.unproven {
		r.dial.unproven = false
		p.unproven--
	}
}

// onUseful notes that a relay brought what nobody else had.
func (p *Plan) onUseful(now time.Time, in Useful) {
	if r := p.current(in.Relay, in.Epoch); r != nil && !r.dial.connecting {
		p.leaveUnproven(r)
		p.setAnswered(r)
		r.dial.usefulAt = now
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

// compareStrength has the stronger one first; 0 where nothing but chance could choose.
func compareStrength(a, b ranking) int {
	return cmp.Or(cmp.Compare(b.level, a.level), cmp.Compare(a.hour, b.hour), cmp.Compare(b.strength, a.strength))
}

// ranked returns the connections, the strongest first. What a relay has brought lately
// counts for as much as its claim; that is little, since whoever has a relay can have it
// bring something. One that never answered has no claim. Relays at one address have to
// share: the third and fourth of them count half, the next two half of that, so that as
// many names as somebody likes, which are free, are together worth what four are.
func (p *Plan) ranked() []ranking {
	out := make([]ranking, 0, len(p.connected))
	for r := range p.connected {
		k := ranking{relay: r, hour: r.claim.since.Unix() / int64(time.Hour/time.Second)}
		switch {
		case r.bootstrap:
			continue
		case r.dial.unproven:
		case p.useful(r):
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
// whoever is new, and who has been here keeps what it has.
func (p *Plan) makeRoom(now time.Time, mayGo func(*relay) bool) bool {
	ranked := p.ranked()
	safe := p.cfg.MaxConnections - max(1, p.cfg.MaxConnections/changingShare) - (len(p.connected) - len(ranked))
	for safe > 0 && safe < len(ranked) && compareStrength(ranked[safe-1], ranked[safe]) == 0 {
		safe--
	}
	var gone *relay
	for _, k := range ranked[min(max(0, safe), len(ranked)):] {
		switch {
		case !mayGo(k.relay), now.Before(k.dial.connectedAt.Add(leastTenure)):
		case gone == nil || compareRoom(k.relay, gone) < 0:
			gone = k.relay
		}
	}
	if gone == nil {
		return false
	}
	p.emit(Hangup{Relay: gone.url, Epoch: gone.dial.epoch})
	p.setGood(gone, gone.dial.good || !gone.dial.unproven) // it has answered, and held for longer than that takes
	alive := gone.dial.connectedAt                         // what it has sent since all was settled may not have been read
	if gone.checkpoint.mark.After(alive) {
		alive = gone.checkpoint.mark
	}
	if !gone.checkpoint.unsettled && p.settledAt.After(alive) {
		alive = p.settledAt
	}
	p.disconnected(gone, nil, alive)
	gone.dial.absentSince = time.Time{}
	gone.dial.retryAt = now.Add(p.longer(leastTenure))
	p.timers.set(gone, gone.dial.retryAt)
	return true
}

// nextRoom returns when there may be room that there is not now: when the tenure of
// the next one ends. Of those whose tenure is over it is noticed when they are done.
func (p *Plan) nextRoom(now time.Time) time.Time {
	at := now.Add(lookForRoom)
	for r := range p.connected {
		if end := r.dial.connectedAt.Add(leastTenure); !r.bootstrap && end.After(now) && end.Before(at) {
			at = end
		}
	}
	return at
}

// doneWith notes that a relay may give way now.
func (p *Plan) doneWith(r *relay, now time.Time) {
	if !p.roomAt.IsZero() && r.phase() >= Live && !now.Before(r.dial.connectedAt.Add(leastTenure)) {
		p.roomAt = time.Time{}
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
