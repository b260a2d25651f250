package plan

import (
	"cmp"
	"time"
)

func (p *Plan) actDisconnected(r *relay, now time.Time) {
	var wake time.Time
	switch {
	case r.connecting || r.line != nil:
	case now.Before(r.retryAt):
		wake = r.retryAt
	default:
		r.waitsSince = now
		p.lines[lineOf(r)].add(r)
		if lineOf(r) == lineFirst {
			p.roomAt = time.Time{} // there may be room for it that there is not for others
		}
		p.owners.setUsing(r, true)
	}
	p.timers.set(r, wake)
}

func lineOf(r *relay) int {
	switch {
	case r.bootstrap || r.useful:
		return lineFirst
	case r.good:
		return lineGood
	case r.failed:
		return lineFailed
	}
	return lineNew
}

// proven reports whether a relay is known to be one.
func (r *relay) proven() bool { return r.good || r.bootstrap || r.useful }

// dial starts as many of the waiting attempts as may run. Only a part of the attempts
// and of the connections is for relays that have yet to prove that they are some, so
// that others never wait for relays that are dead or say nothing.
func (p *Plan) dial(now time.Time) {
	for p.dialing < p.cfg.MaxDials {
		r := p.nextTurn(now)
		if r == nil {
			return
		}
		r.served()
		r.connecting = true
		p.dialing++
		if !r.proven() {
			r.unproven = true
			p.unproven++
			p.dialingUnproven++
		}
		if !r.absentSince.IsZero() { // that it had to wait for its turn was our doing
			r.absentSince = r.absentSince.Add(now.Sub(r.waitsSince))
		}
		p.lastEpoch++
		r.epoch = p.lastEpoch
		p.emit(Dial{Relay: r.url, Epoch: r.epoch})
	}
}

// full reports whether a connection must end before another one can be made.
func (p *Plan) full() bool { return p.dialing+len(p.connected) >= p.cfg.MaxConnections }

// turnsOf are the lines in the order in which they are looked at: those of known
// relays come first, and of what is left each fourth turn is for relays that failed.
// Where connections are scarce that order would leave nothing to whoever is new: the
// lines take turns as well.
func (p *Plan) turnsOf() [lines]int {
	turn := p.lastEpoch % 4
	switch {
	case p.full() && turn == 1:
		return [lines]int{lineGood, lineFirst, lineNew, lineFailed}
	case p.full() && turn == 3:
		if p.lastEpoch%16 == 15 {
			return [lines]int{lineFailed, lineNew, lineFirst, lineGood}
		}
		return [lines]int{lineNew, lineFailed, lineFirst, lineGood}
	case turn == 3:
		return [lines]int{lineFirst, lineGood, lineFailed, lineNew}
	}
	return [lines]int{lineFirst, lineGood, lineNew, lineFailed}
}

// nextTurn returns whose turn it is and for whom there is room; nil if there is
// nobody.
func (p *Plan) nextTurn(now time.Time) *relay {
	look, waits := !now.Before(p.roomAt), false
	for _, n := range p.turnsOf() {
		r := p.lines[n].first()
		if r == nil {
			continue
		}
		if !r.proven() {
			if p.dialingUnproven >= p.cfg.MaxDials-p.cfg.MaxDials/5 {
				continue
			}
			if p.unproven >= max(1, p.cfg.MaxConnections*3/4) && !(look && p.makeRoom(now, r, silent)) {
				waits = true
				continue
			}
		}
		if !p.full() || look && p.makeRoom(now, r, finished(now)) {
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
	r.connecting = false
	p.dialing--
	if r.unproven {
		p.dialingUnproven--
	}
}

// leaveUnproven gives back the place that a relay took up among those that have
// never answered: it has, or its connection is gone.
func (p *Plan) leaveUnproven(r *relay) {
	if r.unproven {
		r.unproven = false
		p.unproven--
	}
}

// onUseful notes that a relay brought what nobody else had.
func (p *Plan) onUseful(in Useful) {
	if r := p.current(in.Relay, in.Epoch); r != nil && !r.connecting {
		p.leaveUnproven(r)
		p.owners.setUseful(r)
	}
}

const (
	// tenure is how long a relay that has nothing more to give keeps its connection
	// while others wait for one.
	tenure = 10 * time.Minute
	// longTenure is how long one is put up with that is never done, whatever it brought once.
	longTenure = time.Hour
	// lookForRoom is after what time room is looked for again at the latest.
	lookForRoom = time.Minute
)

// finished are the relays that have done their work, silent those that have yet to
// answer anything.
func finished(now time.Time) func(*relay) bool {
	return func(r *relay) bool {
		if r.bootstrap {
			return false
		}
		return r.phase() >= Live || now.Sub(r.connectedAt) >= longTenure
	}
}

func silent(r *relay) bool { return r.unproven }

// makeRoom hangs up a connection for a relay that waits for one, which is dialed again
// after a while, when its turn comes. Of those that may go it is one that has brought
// nothing, whose owner has most connections, and has stood longest. Nobody gives way
// whose owner has less than an equal part of the connections, and those that have
// brought something only give way to others, but for the part that they leave to
// whoever has yet to.
func (p *Plan) makeRoom(now time.Time, waits *relay, mayGo func(*relay) bool) bool {
	most, equal := p.owners.weigh(p.connected)
	keep := 0
	for r := range p.connected {
		if r.useful || r.bootstrap {
			keep++
		}
	}
	spare := lineOf(waits) == lineFirst || keep > p.cfg.MaxConnections-max(1, p.cfg.MaxConnections/8)
	var worst *relay
	for r := range p.connected {
		switch {
		case !mayGo(r), now.Before(r.connectedAt.Add(tenure)), r.useful && !spare, r.load < min(equal, most):
		case worst == nil || compareRoom(r, worst) < 0:
			worst = r
		}
	}
	if worst == nil {
		return false
	}
	p.emit(Hangup{Relay: worst.url, Epoch: worst.epoch})
	worst.good = worst.good || !worst.unproven // it has answered, and held for longer than that takes
	p.disconnected(worst, nil, now)
	worst.absentSince = time.Time{}
	worst.retryAt = now.Add(p.longer(tenure))
	p.timers.set(worst, worst.retryAt)
	return true
}

// nextRoom returns when there may be room that there is not now: when the tenure of
// the next one ends. Of those whose tenure is over it is noticed when they are done.
func (p *Plan) nextRoom(now time.Time) time.Time {
	at := now.Add(lookForRoom)
	for r := range p.connected {
		if end := r.connectedAt.Add(tenure); !r.bootstrap && end.After(now) && end.Before(at) {
			at = end
		}
	}
	return at
}

// doneWith notes that a relay may give way now.
func (p *Plan) doneWith(r *relay, now time.Time) {
	if !p.roomAt.IsZero() && r.phase() >= Live && !now.Before(r.connectedAt.Add(tenure)) {
		p.roomAt = time.Time{}
	}
}

// compareRoom orders connections by who is to give way first.
func compareRoom(a, b *relay) int {
	useful := func(r *relay) int {
		if r.useful {
			return 1
		}
		return 0
	}
	return cmp.Or(cmp.Compare(useful(a), useful(b)), cmp.Compare(b.load, a.load), cmp.Compare(a.epoch, b.epoch))
}
