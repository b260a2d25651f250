package session

import (
	"maps"
	"slices"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/sync/internal/learned"
	"github.com/graspsync/graspsync/sync/internal/plan"
	"github.com/graspsync/graspsync/sync/wire"
)

// refused deals with a request that the relay did not want, or ended. tell means
// that the relay may still have it open.
func (s *Session) refused(now time.Time, x *sub, why wire.Refusal, text string, tell bool) {
	first := s.opening == x // nothing was sent after it
	s.answered(x)
	if x.kind == subProbe {
		s.probeRefused(now, x, why, text, tell)
		return
	}
	if s.unwanted(x) {
		if why == wire.RefusalRateLimited { // that is not about this one alone
			s.cool(now, text)
		}
		s.drop(x, tell)
		return
	}
	// What a live subscription should have brought since has to be caught up with:
	// the plan opens it again and sees to that.
	missed := x.kind == subLive && !first
	if !s.cured(now, x, why, text, tell, missed) {
		s.final(x, why, text, tell)
	}
}

// unwanted reports whether a live subscription is only open since what replaces it does
// not stand yet.
func (s *Session) unwanted(x *sub) bool {
	return slices.ContainsFunc(s.closing, func(c closing) bool { return c.sub == x })
}

// maxLimited is how often in a row a request is repeated that the relay calls too many. It
// is the first to be sent after a time without any: whatever the relay says, it is not the
// rate. What waits behind it must not wait for ever.
const maxLimited = 3

// cured does what can be done for a request to be answered yet; false if nothing
// can. With missed it is not repeated here.
func (s *Session) cured(now time.Time, x *sub, why wire.Refusal, text string, tell, missed bool) bool {
	if why == wire.RefusalLimitZero && !x.limitZero {
		why = wire.RefusalBadRequest // it was about something else
	}
	switch why {
	case wire.RefusalRateLimited:
		s.cool(now, text)
		if missed || s.limitedAgain(x) {
			return false
		}
		s.again(x, tell)
		return true
	case wire.RefusalTooManySubs, wire.RefusalTooManyBytes:
		if x.kind == subNeg || !s.crowded(x, why, text) {
			return false
		}
		s.again(x, tell)
		return true
	case wire.RefusalAuthRequired:
		if !s.auth.helps(now, x) {
			return false
		}
	case wire.RefusalTooManyFilters, wire.RefusalTooManyValues, wire.RefusalNeedsKinds, wire.RefusalNoNotes,
		wire.RefusalLimitZero, wire.RefusalBadRequest:
		if x.kind == subIDs {
			return s.kindsOfIDs(x, why, text, tell) || s.fewerIDs(x, tell)
		}
		if s.outdated(x) || s.remedy(x, why, text) {
			break
		}
		if why == wire.RefusalBadRequest && x.openAt != 0 {
			break
		}
		if why != wire.RefusalBadRequest || !x.triable() {
			return false
		}
		x.missed, x.refusal = missed, text
		s.unsend(x, tell)
		s.held = append(s.held, x)
		return true
	default:
		return false
	}
	switch {
	case missed:
		s.final(x, wire.RefusalOther, text, tell)
	case why == wire.RefusalAuthRequired:
		x.toAuth = true
		s.again(x, tell)
	default:
		s.relearned(x, tell)
	}
	return true
}

// limitedAgain counts the refusals of a request as one of too many, and reports whether it
// is to be given up.
func (s *Session) limitedAgain(x *sub) bool {
	n := &x.limited
	if x.kind == subNeg { // each time it is another
		n = &x.q.limited
	}
	*n++
	return *n >= maxLimited
}

// final gives a request up.
func (s *Session) final(x *sub, why wire.Refusal, text string, tell bool) {
	switch why {
	case wire.RefusalTooManyFilters, wire.RefusalTooManyValues, wire.RefusalNeedsKinds, wire.RefusalNoNotes,
		wire.RefusalLimitZero:
		why = wire.RefusalBadRequest
	}
	switch x.kind {
	case subLive:
		s.drop(x, tell)
		s.closeLive(x.live, why, text)
	case subNeg:
		s.negRefused(x, why, text)
	default:
		result := plan.Failed
		switch why {
		case wire.RefusalAuthRequired, wire.RefusalRestricted, wire.RefusalBadRequest:
			result = plan.Refused
		}
		s.giveUp(x, result, text, tell)
	}
}

// crowded learns from a request for which the relay had no room, and reports whether it is to
// be repeated when there is.
func (s *Session) crowded(x *sub, why wire.Refusal, text string) bool {
	if why == wire.RefusalTooManyBytes {
		return s.tooManyBytes(x, text)
	}
	return s.tooMany(x, text)
}

// tooMany learns how many requests the relay takes: what is open shows it.
func (s *Session) tooMany(x *sub, text string) bool {
	open := 0
	for _, y := range s.subs {
		if y != x && y.kind != subNeg {
			open++
		}
	}
	s.learn(learned.MaxSubscriptions, open, text)
	if n := s.terms.MaxSubscriptions; n > 0 {
		s.mostHistoric = min(s.mostHistoric, plan.Limits{MaxSubscriptions: n}.Historic())
	}
	if x.kind == subLive {
		return false
	}
	if y := s.lastOpen(); y != nil {
		s.giveWay(y)
		return true
	}
	s.mostHistoric = max(1, min(s.mostHistoric, s.historic-1))
	return s.historic > 1
}

// leastRetained is what every relay is trusted to keep of requests, in bytes.
const leastRetained = 4 << 10

// tooManyBytes learns how many bytes of requests the relay keeps: it says so, or what is open
// shows it. History waits until there is room; live subscriptions the plan makes anew, with
// fewer bytes.
func (s *Session) tooManyBytes(x *sub, text string) bool {
	others := s.retained()
	if s.sent(x) {
		others -= x.size()
	}
	most := others + x.size() - 1
	if n := wire.SaidMost(text); n > 0 {
		most = min(most, n)
	} else if others > 0 {
		most = others
	}
	return s.learn(learned.MaxRetained, max(most, leastRetained), text) && x.kind != subLive
}

// closeLive ends a live subscription that the relay does not want, and tells so.
func (s *Session) closeLive(live plan.LiveID, why wire.Refusal, text string) {
	s.dropLive(live)
	s.out.do(LiveClosed{Live: live, Reason: text, Why: why})
}

// dropLive ends what there is of a live subscription.
func (s *Session) dropLive(live plan.LiveID) {
	for _, part := range slices.Clone(s.lives[live]) {
		s.drop(part, true)
	}
}

// fewerIDs asks for events by id in smaller chunks.
func (s *Session) fewerIDs(x *sub, tell bool) bool {
	n := len(x.filters[0].IDs)
	if n < 2 {
		return false
	}
	s.idChunk = min(s.idChunk, n/2)
	s.againIDs(x, tell)
	return true
}

// kindsOfIDs asks for events by id and kind, if the relay refuses what names no kinds.
func (s *Session) kindsOfIDs(x *sub, why wire.Refusal, text string, tell bool) bool {
	k, ok := map[wire.Refusal]learned.Kind{wire.RefusalNeedsKinds: learned.NeedsKinds, wire.RefusalNoNotes: learned.NoNotes}[why]
	if f := x.filters[0]; !ok || f.Kinds != nil || f.Authors != nil {
		return false
	}
	s.learn(k, 1, text)
	s.againIDs(x, tell)
	return true
}

// againIDs asks for events by id anew, in the form in which that is done by now.
func (s *Session) againIDs(x *sub, tell bool) {
	s.drop(x, tell)
	x.q.chunks--
	x.q.todo = append(slices.SortedFunc(maps.Keys(x.want), graspsync.EventID.Compare), x.q.todo...)
	s.moreIDs(x.q)
}

// suspectAll notes a complaint that can't be told to belong to any request: an
// answer that is empty may be no answer.
func (s *Session) suspectAll() {
	for _, x := range s.subs {
		if x.kind != subLive && x.events == 0 {
			x.noticed = true
		}
	}
}

// Unsent takes back a request that is larger than what may be sent.
func (s *Session) Unsent(now time.Time, id string, size int, reason string) []Action {
	x, ok := s.subs[id]
	switch {
	case !ok:
	case x.kind == subNeg:
		s.drop(x, false)
		s.byPages(x.q)
	case s.unwanted(x):
		s.drop(x, false)
	default:
		s.answered(x)
		smaller := s.learn(learned.MaxMessage, max(leastMessage, min(size, s.terms.MaxMessage)/2), reason)
		switch {
		case x.kind == subIDs && s.fewerIDs(x, false):
		case x.kind == subProbe:
			s.probeFailed(x, reason, false)
		case smaller && x.kind != subIDs:
			s.relearned(x, false)
		default:
			s.final(x, wire.RefusalBadRequest, reason, false)
		}
	}
	return s.flush(now)
}
