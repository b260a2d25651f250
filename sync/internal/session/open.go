package session

import (
	"iter"
	"slices"
	"strconv"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync/sync/wire"
)

// open sends what waits, one request at a time, and history only into free slots.
func (s *Session) open(now time.Time) {
	s.openingOver(now)
	s.closeReplaced()
	if s.pace.cooling(now) {
		return
	}
	s.pace.pass(now)
	for s.opening == nil && !s.auth.underWay() {
		s.turnAway()
		affordable := s.affordable()
		i := slices.IndexFunc(s.waiting, func(x *sub) bool {
			if s.tried != nil && x.kind != subProbe {
				return false // first it has to be known what the relay takes
			}
			if x.kind != subLive && !s.pace.next.IsZero() {
				return false
			}
			return s.hasRoom(x) && affordable(x)
		})
		if i < 0 {
			return
		}
		x := s.waiting[i]
		s.waiting = slices.Delete(s.waiting, i, i+1)
		s.send(now, x)
	}
}

// requests is how many REQs are open.
func (s *Session) requests() (n int) {
	for _, x := range s.subs {
		if x.kind != subNeg {
			n++
		}
	}
	return n
}

// openingOver ends the time in which the request sent last holds up the others, and
// in which a NOTICE is taken to be about it.
func (s *Session) openingOver(now time.Time) {
	if s.opening != nil && !now.Before(s.opening.openBy) {
		s.opening = nil
	}
}

// closeReplaced closes the live subscriptions that are no longer wanted and whose
// successors stand.
func (s *Session) closeReplaced() {
	for len(s.closing) > 0 {
		c := s.closing[0]
		before := func(x *sub) bool { return x.kind == subLive && x.order < c.order }
		if s.opening != nil && before(s.opening) || slices.ContainsFunc(s.waiting, before) || slices.ContainsFunc(s.held, before) {
			return
		}
		s.closing = s.closing[1:]
		if s.sent(c.sub) {
			s.drop(c.sub, true)
		}
	}
}

// sent reports whether a request is open at the relay, as far as we know.
func (s *Session) sent(x *sub) bool { return x.id != "" && s.subs[x.id] == x }

func (s *Session) send(now time.Time, x *sub) {
	s.makeRoom(x)
	x.events, x.noticed, x.openAt = 0, false, 0
	x.openBy = now.Add(s.cfg.OpenTimeout)
	s.opening = x
	r := wire.Request{Type: wire.TypeReq, Filters: s.form(x, now)}
	prefix := "r"
	switch x.kind {
	case subLive:
		prefix = "l"
	case subProbe:
		prefix = "p"
		s.historic++
		x.idleBy, x.totalBy = s.answerBy(now), now.Add(s.cfg.TotalTimeout)
	case subNeg:
		prefix = "n"
		r.Type, r.Payload = wire.TypeNegOpen, x.payload
		x.idleBy, x.totalBy = now.Add(s.cfg.FirstNeg), now.Add(s.cfg.NegTimeout)
	default:
		s.historic++
		x.idleBy, x.totalBy = s.answerBy(now), now.Add(s.cfg.TotalTimeout)
	}
	if x.kind != subLive {
		s.pace.asked(now)
	}
	x.number = s.number()
	x.id = prefix + strconv.FormatUint(x.number, 10)
	r.Sub = x.id
	s.subs[x.id] = x
	s.out.do(Send{r})
}

// answerBy is when an answer must have begun. Large relays under load take longer for that
// than for what follows.
func (s *Session) answerBy(now time.Time) time.Time {
	return now.Add(max(s.cfg.FirstAnswer, s.cfg.IdleTimeout))
}

// answered lets the next request be opened.
func (s *Session) answered(x *sub) {
	if s.opening == x {
		s.opening = nil
	}
}

// enqueue has a historic request opened when its turn comes.
func (s *Session) enqueue(x *sub) { s.waiting = append(s.waiting, x) }

// enqueueFirst has a request opened before all others: it was refused for now.
func (s *Session) enqueueFirst(x *sub) { s.waiting = slices.Insert(s.waiting, 0, x) }

// drop ends a request, telling the relay if it does not know yet.
func (s *Session) drop(x *sub, tell bool) {
	s.answered(x)
	is := func(y *sub) bool { return y == x }
	if x.kind == subLive && slices.ContainsFunc(s.lives[x.live], is) {
		s.lives[x.live] = slices.DeleteFunc(s.lives[x.live], is)
		if len(s.lives[x.live]) == 0 {
			delete(s.lives, x.live)
		}
		s.noteLive()
	}
	if !s.sent(x) {
		s.waiting = slices.DeleteFunc(s.waiting, is)
		s.held = slices.DeleteFunc(s.held, is)
		if s.tried == x {
			s.tried = nil
			for _, y := range s.probes() {
				s.drop(y, true)
			}
		}
		return
	}
	delete(s.subs, x.id)
	switch x.kind {
	case subPage, subIDs, subProbe:
		s.historic--
	}
	if !tell {
		return
	}
	typ := wire.TypeClose
	if x.kind == subNeg {
		typ = wire.TypeNegClose
	}
	s.out.do(Send{wire.Request{Type: typ, Sub: x.id}})
}

// again has a request repeated that was refused for now. What it had brought by
// then counts for nothing.
func (s *Session) again(x *sub, tell bool) {
	s.unsend(x, tell)
	s.repeat(x)
}

// unsend ends a request at the relay that is still wanted.
func (s *Session) unsend(x *sub, tell bool) {
	s.drop(x, tell)
	if x.kind == subLive {
		s.lives[x.live] = append(s.lives[x.live], x)
	}
}

// repeat has a request opened again that is not open any more.
func (s *Session) repeat(x *sub) {
	switch x.kind {
	case subPage:
		x.q.repeatPage()
	case subNeg:
		s.openNeg(x.q)
		return
	}
	s.enqueueFirst(x)
}

// liveSubs yields the requests of all live subscriptions.
func (s *Session) liveSubs() iter.Seq[*sub] {
	return func(yield func(*sub) bool) {
		for _, parts := range s.lives {
			for _, x := range parts {
				if !yield(x) {
					return
				}
			}
		}
	}
}

// noteLive finds when the oldest live subscription was opened.
func (s *Session) noteLive() {
	s.liveFrom = 0
	for x := range s.liveSubs() {
		if x.openAt != 0 && (s.liveFrom == 0 || x.openAt < s.liveFrom) {
			s.liveFrom = x.openAt
		}
	}
}

// missedLive reports whether a live subscription should have brought an event.
func (s *Session) missedLive(now time.Time, ev *nostr.Event) bool {
	age := int64(s.cfg.GapAge / time.Second)
	at := int64(ev.CreatedAt)
	if s.liveFrom == 0 || at < s.liveFrom+age || at > now.Unix()-age {
		return false
	}
	for x := range s.liveSubs() {
		if x.openAt != 0 && at >= x.openAt+age && x.match.Match(ev) {
			return true
		}
	}
	return false
}
