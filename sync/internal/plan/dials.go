package plan

import (
	"cmp"
	"container/list"
	"time"
)

func (p *Plan) actDisconnected(r *relay, now time.Time) {
	var wake time.Time
	switch {
	case r.connecting || r.turn != nil:
	case now.Before(r.retryAt):
		wake = r.retryAt
	case r.good || r.bootstrap:
		r.turn = p.dialGood.PushBack(r)
	case r.failed:
		r.turn = p.dialFailed.PushBack(r)
	default:
		r.turn = p.dialNew.PushBack(r)
	}
	p.timers.set(r, wake)
}

// dial starts as many of the queued attempts as may run: relays that are known to
// work and bootstrap relays first, then those that were never tried, and those that
// failed, which get every fourth turn of what is left. Only a part of the attempts
// and of the connections is for the latter two, so that the former never wait for
// relays that are dead or say nothing.
func (p *Plan) dial(now time.Time) {
	for p.dialing < p.cfg.MaxDials {
		turn := p.nextTurn(now)
		if turn == nil {
			return
		}
		r := turn.Value.(*relay)
		if p.dialing+len(p.connected) >= p.cfg.MaxConnections && !p.makeRoom(now, finished) {
			return
		}
		p.leaveQueue(r)
		r.connecting = true
		p.dialing++
		if !r.good && !r.bootstrap {
			r.unproven = true
			p.unproven++
			p.dialingUnproven++
		}
		p.lastEpoch++
		r.epoch = p.lastEpoch
		p.emit(Dial{Relay: r.url, Epoch: r.epoch})
	}
}

// nextTurn returns whose turn it is in the queues; nil if nobody's.
func (p *Plan) nextTurn(now time.Time) *list.Element {
	if turn := p.dialGood.Front(); turn != nil {
		return turn
	}
	fresh, failed := p.dialNew.Front(), p.dialFailed.Front()
	if fresh == nil && failed == nil || p.dialingUnproven >= p.cfg.MaxDials-p.cfg.MaxDials/5 {
		return nil
	}
	if p.unproven >= max(1, p.cfg.MaxConnections*3/4) && !p.makeRoom(now, silent) {
		return nil
	}
	if fresh == nil || (failed != nil && p.lastEpoch%4 == 3) {
		return failed
	}
	return fresh
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

// leaveQueue takes a relay out of the queue that it waits in, if any.
func (p *Plan) leaveQueue(r *relay) {
	if r.turn != nil {
		p.dialGood.Remove(r.turn)
		p.dialNew.Remove(r.turn)
		p.dialFailed.Remove(r.turn)
		r.turn = nil
	}
}

// tenure is how long a relay that has nothing more to give keeps its connection
// while others wait for one.
const tenure = 10 * time.Minute

// finished are the relays that have done their work, silent those that have yet to
// answer anything.
func finished(r *relay) bool { return !r.bootstrap && r.phase() >= Live }
func silent(r *relay) bool   { return r.unproven }

// makeRoom hangs up the connection that has stood longest of those that may go.
// That relay is dialed again after the others.
func (p *Plan) makeRoom(now time.Time, mayGo func(*relay) bool) bool {
	var oldest *relay
	for r := range p.connected {
		if !mayGo(r) {
			continue
		}
		if oldest == nil || cmp.Or(r.connectedAt.Compare(oldest.connectedAt), r.url.Compare(oldest.url)) < 0 {
			oldest = r
		}
	}
	if oldest == nil {
		return false
	}
	if until := oldest.connectedAt.Add(tenure); now.Before(until) {
		if oldest.wakeAt.IsZero() || until.Before(oldest.wakeAt) {
			p.timers.set(oldest, until)
		}
		return false
	}
	p.emit(Hangup{Relay: oldest.url, Epoch: oldest.epoch})
	p.disconnected(oldest, nil, now)
	oldest.retryAt = now.Add(p.longer(tenure))
	p.timers.set(oldest, oldest.retryAt)
	return true
}
