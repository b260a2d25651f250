package session

import (
	"slices"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync/filters"
	"github.com/graspsync/graspsync/sync/internal/plan"
	"github.com/graspsync/graspsync/sync/internal/relaylimits"
	"github.com/graspsync/graspsync/sync/wire"
)

// refused handles a refusal. sendClose means that the relay may still have the request open.
func (s *Session) refused(now time.Time, x *request, why wire.Refusal, text string, sendClose bool) {
	first := s.opening == x // no request was sent after x
	s.unblock(x)
	if x.kind == reqProbe {
		s.probeRefused(now, x, why, text, sendClose)
		return
	}
	if x.closeAt > 0 {
		if why == wire.RefusalRateLimited { // it concerns all requests
			s.cool(now, text)
		}
		s.drop(x, sendClose)
		return
	}
	// The plan fetches the missed events when it opens the subscription again.
	missed := x.kind == reqLive && !first
	if !s.retry(now, x, why, text, sendClose, missed) {
		s.giveUp(x, why, text, sendClose)
	}
}

// maxLimited is the number of consecutive rate-limit refusals, each after a pause, after which a
// request is given up.
const maxLimited = 3

// retry repeats a refused request and returns true, if that is possible. If missed is set, the plan
// repeats the request.
func (s *Session) retry(now time.Time, x *request, why wire.Refusal, text string, sendClose, missed bool) bool {
	if why == wire.RefusalLimitZero && !x.limitZero {
		why = wire.RefusalBadRequest // the refusal has another cause
	}
	switch why {
	case wire.RefusalRateLimited:
		s.cool(now, text)
		if missed || s.limitedAgain(x) {
			return false
		}
		s.again(x, sendClose)
		return true
	case wire.RefusalTooManySubs, wire.RefusalTooManyBytes:
		crowded := s.tooMany
		if why == wire.RefusalTooManyBytes {
			crowded = s.tooManyBytes
		}
		if x.kind == reqNeg || !crowded(x, text) {
			return false
		}
		s.again(x, sendClose)
		return true
	case wire.RefusalAuthRequired:
		if !s.auth.helps(now, x) {
			return false
		}
	case wire.RefusalTooManyFilters, wire.RefusalTooManyValues, wire.RefusalNeedsKinds, wire.RefusalNoNotes,
		wire.RefusalLimitZero, wire.RefusalBadRequest:
		if x.kind == reqIDs {
			return s.kindsOfIDs(x, why, text, sendClose) || s.fewerIDs(x, sendClose)
		}
		if s.outdated(x) || s.diagnose(x, why, text) {
			break
		}
		if why == wire.RefusalBadRequest && x.openAt != 0 {
			break
		}
		if why != wire.RefusalBadRequest || !x.triable() {
			return false
		}
		if s.bisected == nil {
			s.bisect(x, text, missed, sendClose)
			return true
		}
		if missed {
			break
		}
		s.again(x, sendClose) // after the bisection
		return true
	default:
		return false
	}
	switch {
	case missed:
		s.giveUp(x, wire.RefusalOther, text, sendClose)
	case why == wire.RefusalAuthRequired:
		x.toAuth = true
		s.again(x, sendClose)
	default:
		s.relearned(x, sendClose)
	}
	return true
}

func (s *Session) limitedAgain(x *request) bool {
	n := &x.limited
	if x.kind == reqNeg { // each attempt is a new request
		n = &x.q.limited
	}
	*n++
	return *n >= maxLimited
}

func (s *Session) again(x *request, sendClose bool) {
	s.unsend(x, sendClose)
	s.repeat(x)
}

func (s *Session) giveUp(x *request, why wire.Refusal, text string, sendClose bool) {
	switch why {
	case wire.RefusalTooManyFilters, wire.RefusalTooManyValues, wire.RefusalNeedsKinds, wire.RefusalNoNotes,
		wire.RefusalLimitZero:
		why = wire.RefusalBadRequest
	}
	switch x.kind {
	case reqLive:
		at := x.openAt
		s.drop(x, sendClose)
		s.closeLive(x.live, at, why, text)
	case reqNeg:
		s.negRefused(x, why, text)
	default:
		result := plan.Failed
		switch why {
		case wire.RefusalAuthRequired, wire.RefusalRestricted, wire.RefusalBadRequest:
			result = plan.Refused
		}
		s.failWith(x, result, text, sendClose)
	}
}

// diagnose learns a limit from a refusal. It reports whether the request can be repeated in another
// form.
func (s *Session) diagnose(x *request, why wire.Refusal, text string) bool {
	switch why {
	case wire.RefusalTooManyFilters:
		n := len(x.filters)
		most := n / 2
		if said := wire.SaidMost(text); said > 0 && said < n {
			most = said
		}
		return n > 1 && s.caps.learn(relaylimits.MaxFilters, most, text)
	case wire.RefusalTooManyValues:
		most := 0
		for _, f := range x.asks() {
			_, n := filters.Longest(f, true)
			most = max(most, n)
		}
		if most > sqlValues {
			return s.caps.learn(relaylimits.MaxValues, sqlValues, text)
		}
		return most > 1 && s.caps.learn(relaylimits.MaxValues, most/2, text)
	case wire.RefusalNeedsKinds:
		if slices.ContainsFunc(x.asks(), kindless) {
			return s.caps.learn(relaylimits.NeedsKinds, 1, text)
		}
		return s.caps.withoutNotes(x, text)
	case wire.RefusalNoNotes:
		return s.caps.withoutNotes(x, text)
	case wire.RefusalLimitZero:
		return x.limitZero && s.caps.learn(relaylimits.NoLimitZero, 1, text)
	}
	return false
}

// relearned repeats a request in the form that the learned limits allow, and reshapes waiting ones.
func (s *Session) relearned(x *request, sendClose bool) {
	s.unsend(x, sendClose)
	s.reshape(x)
	waiting := slices.Clone(s.waiting)
	for _, w := range slices.Backward(waiting) {
		if w.kind == reqLive && s.outdated(w) && slices.Contains(s.waiting, w) {
			s.reshape(w) // to the front
		}
	}
	for _, w := range waiting {
		if w.kind != reqLive && s.outdated(w) && slices.Contains(s.waiting, w) {
			s.reshape(w)
		}
	}
}

// outdated reports whether a request has another form under the current limits. A query with
// progress is not outdated.
func (s *Session) outdated(x *request) bool {
	switch {
	case x.kind == reqLive:
		return s.caps.NoLimitZero && (x.limitZero || x.size() > s.caps.MaxMessage) ||
			s.caps.MaxFilters > 0 && len(x.filters) > s.caps.MaxFilters ||
			slices.ContainsFunc(x.filters, func(f nostr.Filter) bool { return s.caps.mustReshape(f, true) })
	case x.kind == reqPage && x.q.unbegun(), x.kind == reqNeg:
		return s.caps.mustReshape(x.q.filter, false)
	}
	return false
}

func (s *Session) reshape(x *request) {
	s.drop(x, false)
	if x.kind == reqLive {
		s.waiting = append(s.divide(x), s.waiting...)
		return
	}
	s.restart(x.q)
}

func (s *Session) authenticated(accepted bool, text string) {
	s.auth.over(accepted, s.last)
	if accepted {
		return
	}
	for _, x := range slices.Clone(s.waiting) {
		if x.toAuth && slices.Contains(s.waiting, x) {
			s.giveUp(x, wire.RefusalAuthRequired, text, false)
		}
	}
}

func (s *Session) unsent(x *request, size int, reason string) {
	switch {
	case x.kind == reqNeg:
		s.drop(x, false)
		s.byPages(x.q)
		return
	case x.closeAt > 0:
		s.drop(x, false)
		return
	}
	s.unblock(x)
	smaller := s.caps.learn(relaylimits.MaxMessage, max(relaylimits.MinMessage, min(size, s.caps.MaxMessage)/2), reason)
	switch {
	case x.kind == reqIDs && s.fewerIDs(x, false):
	case x.kind == reqProbe:
		s.probeFailed(x, reason, false)
	case smaller && x.kind != reqIDs:
		s.relearned(x, false)
	default:
		s.giveUp(x, wire.RefusalBadRequest, reason, false)
	}
}

func (s *Session) bisect(x *request, text string, missed, sendClose bool) {
	s.unsend(x, sendClose)
	s.bisected = x
	s.bisection = &bisection{caps: s.caps, origin: x, text: text, missed: missed, stack: []*piece{{filters: x.asks()}}}
	s.nextProbe()
}

func (s *Session) nextProbe() {
	if piece := s.bisection.next(); piece != nil {
		s.enqueueFirst(s.bisection.probe(piece))
		return
	}
	s.conclude()
}

func (s *Session) probed(x *request, taken, sendClose bool) {
	s.drop(x, sendClose)
	if s.bisection.probed(taken) {
		s.accepted()
		return
	}
	s.nextProbe()
}

// probeRefused handles the refusal of a probe. Only a refusal of the content is a result.
func (s *Session) probeRefused(now time.Time, x *request, why wire.Refusal, text string, sendClose bool) {
	switch why {
	case wire.RefusalRateLimited:
		s.cool(now, text)
		if s.limitedAgain(x) {
			s.probeFailed(x, text, sendClose)
			return
		}
		s.again(x, sendClose)
	case wire.RefusalOther, wire.RefusalTooManySubs, wire.RefusalAuthRequired:
		s.probeFailed(x, text, sendClose)
	default:
		s.bisection.text = text
		s.probed(x, false, sendClose)
	}
}

func (s *Session) probeFailed(x *request, why string, sendClose bool) {
	s.drop(x, sendClose)
	s.giveUp(s.bisection.origin, wire.RefusalOther, why, false)
}

// accepted repeats a request that was accepted as a probe, once.
func (s *Session) accepted() {
	x, text := s.bisection.origin, s.bisection.text
	if x.passed || s.bisection.missed {
		s.giveUp(x, wire.RefusalOther, text, false)
		return
	}
	x.passed = true
	s.bisected = nil
	s.repeat(x)
}

// conclude applies the results of a bisection. If they are incomplete, the next attempt continues.
func (s *Session) conclude() {
	b := s.bisection
	for _, v := range b.badValues {
		s.caps.exclude(v)
	}
	x := b.origin
	changed := b.learned || s.outdated(x)
	switch {
	case !b.over(), changed && b.missed:
		s.giveUp(x, wire.RefusalOther, b.text, false)
	case changed:
		s.bisected = nil
		s.relearned(x, false)
	case x.kind == reqLive && len(b.badFilters) > 0:
		s.giveUp(x, wire.RefusalRestricted, b.text, false) // the plan follows the other filters
	default:
		s.giveUp(x, wire.RefusalBadRequest, b.text, false)
	}
}
