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

// repair finds out what can be done for a request that the relay refused: it is repeated, at
// once, later or in another form, or given up.
type repair struct {
	terms     *terms
	requests  *requests
	history   *history
	bisection *bisection // the last one; it is under way as long as requests names what is bisected
}

// refused deals with a request that the relay did not want, or ended. tell means
// that the relay may still have it open.
func (p *repair) refused(now time.Time, x *request, why wire.Refusal, text string, tell bool) {
	first := p.requests.opening == x // nothing was sent after it
	p.requests.answered(x)
	p.requests.failed(now, x, why)
	if x.kind == reqProbe {
		p.probeRefused(now, x, why, text, tell)
		return
	}
	if p.requests.unwanted(x) {
		if why == wire.RefusalRateLimited { // that is not about this one alone
			p.requests.cool(now, text)
		}
		p.requests.drop(x, tell)
		return
	}
	// What a live subscription should have brought since has to be caught up with:
	// the plan opens it again and sees to that.
	missed := x.kind == reqLive && !first
	if !p.retry(now, x, why, text, tell, missed) {
		p.giveUp(x, why, text, tell)
	}
}

// hungUp is what a relay says that hangs up.
const hungUp = "the relay hung up over it"

// refuseUnasked deals with a request that waits and that the relay is believed to refuse, as
// if it had. It is false if there is none.
func (p *repair) refuseUnasked(now time.Time) bool {
	x := p.requests.suspects.refused(p.requests.waiting)
	if x == nil {
		return false
	}
	x.unasked = true
	why := wire.RefusalBadRequest
	if x.kind == reqNeg {
		why = wire.RefusalNoNegentropy
	}
	switch {
	case x.kind == reqProbe:
		p.probeRefused(now, x, why, hungUp, false)
	case !p.retry(now, x, why, hungUp, false, false):
		p.giveUp(x, why, hungUp, false)
	}
	return true
}

// settleDoubted deals with a request that was not asked for, and would be refused in any form. Whoever
// has answered something else refuses that one. Whoever has not when there is nothing else to
// ask refuses us, or is not up, whatever the form: that has to show, so it is asked.
// It is false if there is nothing to do.
func (p *repair) settleDoubted(now time.Time) bool {
	r := p.requests
	x := r.doubted()
	if x == nil {
		return false
	}
	r.openingOver(now)
	switch {
	case r.suspects.spoken:
		x.doubted = false
		p.giveUp(x, wire.RefusalBadRequest, hungUp, false)
	case r.bisected == nil && r.opening == nil && len(r.waiting) == 0:
		x.doubted, x.sure = false, true
		r.resume(x)
		p.history.repeat(x)
	default:
		return false
	}
	return true
}

// maxLimited is how often in a row a request is repeated that the relay calls too many. It
// is the first to be sent after a time without any: whatever the relay says, it is not the
// rate. What waits behind it must not wait for ever.
const maxLimited = 3

// retry does what can be done for a request to be answered yet; false if nothing
// can. With missed it is not repeated here.
func (p *repair) retry(now time.Time, x *request, why wire.Refusal, text string, tell, missed bool) bool {
	if why == wire.RefusalLimitZero && !x.limitZero {
		why = wire.RefusalBadRequest // it was about something else
	}
	switch why {
	case wire.RefusalRateLimited:
		p.requests.cool(now, text)
		if missed || p.limitedAgain(x) {
			return false
		}
		p.again(x, tell)
		return true
	case wire.RefusalTooManySubs, wire.RefusalTooManyBytes:
		if x.kind == reqNeg || !p.requests.crowded(x, why, text) {
			return false
		}
		p.again(x, tell)
		return true
	case wire.RefusalAuthRequired:
		if !p.requests.auth.helps(now, x) {
			return false
		}
	case wire.RefusalTooManyFilters, wire.RefusalTooManyValues, wire.RefusalNeedsKinds, wire.RefusalNoNotes,
		wire.RefusalLimitZero, wire.RefusalBadRequest:
		if x.kind == reqIDs {
			return p.history.kindsOfIDs(x, why, text, tell) || p.history.fewerIDs(x, tell)
		}
		if p.outdated(x) || p.diagnose(x, why, text) {
			break
		}
		if why == wire.RefusalBadRequest && x.openAt != 0 {
			break
		}
		if why != wire.RefusalBadRequest || !x.triable() {
			return false
		}
		x.missed, x.refusal = missed, text
		p.requests.suspend(x, tell)
		return true
	default:
		return false
	}
	switch {
	case missed:
		p.giveUp(x, wire.RefusalOther, text, tell)
	case why == wire.RefusalAuthRequired:
		x.toAuth = true
		p.again(x, tell)
	default:
		p.relearned(x, tell)
	}
	return true
}

// limitedAgain counts the refusals of a request as one of too many, and reports whether it
// is to be given up.
func (p *repair) limitedAgain(x *request) bool {
	n := &x.limited
	if x.kind == reqNeg { // each time it is another
		n = &x.q.limited
	}
	*n++
	return *n >= maxLimited
}

// again has a request repeated that was refused for now. What it had brought by
// then counts for nothing.
func (p *repair) again(x *request, tell bool) {
	p.requests.unsend(x, tell)
	p.history.repeat(x)
}

// giveUp gives a request up.
func (p *repair) giveUp(x *request, why wire.Refusal, text string, tell bool) {
	switch why {
	case wire.RefusalTooManyFilters, wire.RefusalTooManyValues, wire.RefusalNeedsKinds, wire.RefusalNoNotes,
		wire.RefusalLimitZero:
		why = wire.RefusalBadRequest
	}
	switch x.kind {
	case reqLive:
		at := x.openAt
		p.requests.drop(x, tell)
		p.requests.closeLive(x.live, at, why, text)
	case reqNeg:
		p.history.negRefused(x, why, text)
	default:
		result := plan.Failed
		switch why {
		case wire.RefusalAuthRequired, wire.RefusalRestricted, wire.RefusalBadRequest:
			result = plan.Refused
		}
		p.history.failWith(x, result, text, tell)
	}
}

// diagnose finds out what was wrong with the form of a request, if the relay says so:
// it may be asked again in another one.
func (p *repair) diagnose(x *request, why wire.Refusal, text string) bool {
	switch why {
	case wire.RefusalTooManyFilters:
		n := x.count()
		most := n / 2
		if said := wire.SaidMost(text); said > 0 && said < n {
			most = said
		}
		return n > 1 && p.terms.learn(relaylimits.MaxFilters, most, text)
	case wire.RefusalTooManyValues:
		most := 0
		for _, f := range x.asks() {
			_, n := filters.Longest(f, true)
			most = max(most, n)
		}
		if most > sqlValues {
			return p.terms.fewerValues(x, sqlValues, text)
		}
		return most > 1 && p.terms.fewerValues(x, most/2, text)
	case wire.RefusalNeedsKinds:
		if slices.ContainsFunc(x.asks(), kindless) {
			return p.terms.learn(relaylimits.NeedsKinds, 1, text)
		}
		return p.terms.withoutNotes(x, text)
	case wire.RefusalNoNotes:
		return p.terms.withoutNotes(x, text)
	case wire.RefusalLimitZero:
		return x.limitZero && p.terms.learn(relaylimits.NoLimitZero, 1, text)
	}
	return false
}

// relearned repeats a request that was refused and, since something was learned
// from that, can be made in another form. What waits is reshaped as well.
func (p *repair) relearned(x *request, tell bool) {
	p.requests.unsend(x, tell)
	p.reshape(x)
	waiting := slices.Clone(p.requests.waiting)
	for _, w := range slices.Backward(waiting) {
		if w.kind == reqLive && p.outdated(w) && slices.Contains(p.requests.waiting, w) {
			p.reshape(w) // to the front
		}
	}
	for _, w := range waiting {
		if w.kind != reqLive && p.outdated(w) && slices.Contains(p.requests.waiting, w) {
			p.reshape(w)
		}
	}
}

// outdated reports whether a request that waits has another form by now. A query
// that has got somewhere was not refused in its own.
func (p *repair) outdated(x *request) bool {
	switch {
	case x.kind == reqLive:
		return p.terms.NoLimitZero && (x.limitZero || x.size() > p.terms.MaxMessage) ||
			p.terms.MaxFilters > 0 && x.count() > p.terms.MaxFilters ||
			slices.ContainsFunc(x.spell(), func(f nostr.Filter) bool { return p.terms.mustReshape(f, p.terms.liveBounds()) })
	case x.kind == reqPage && x.q.unbegun(), x.kind == reqNeg:
		return p.terms.mustReshape(x.q.filter, p.terms.queryBounds())
	}
	return false
}

// reshape has a request that is not open made anew, as the relay takes it by now.
func (p *repair) reshape(x *request) {
	p.requests.drop(x, false)
	if x.kind == reqLive {
		p.requests.waiting = append(p.requests.divide(x), p.requests.waiting...)
		return
	}
	p.history.restart(x.q)
}

// authenticated has what was refused repeated, or gives it up.
func (p *repair) authenticated(accepted bool, text string) {
	p.requests.auth.over(accepted, p.requests.next)
	if accepted {
		return
	}
	for _, x := range slices.Clone(p.requests.waiting) {
		if x.toAuth && slices.Contains(p.requests.waiting, x) {
			p.giveUp(x, wire.RefusalAuthRequired, text, false)
		}
	}
}

// unsent takes back a request that is larger than what may be sent.
func (p *repair) unsent(x *request, size int, reason string) {
	switch {
	case x.kind == reqNeg:
		p.requests.drop(x, false)
		p.history.byPages(x.q)
		return
	case p.requests.unwanted(x):
		p.requests.drop(x, false)
		return
	}
	p.requests.answered(x)
	smaller := p.terms.learn(relaylimits.MaxMessage, max(relaylimits.LeastMessage, min(size, p.terms.MaxMessage)/2), reason)
	switch {
	case x.kind == reqIDs && p.history.fewerIDs(x, false):
	case x.kind == reqProbe:
		p.probeFailed(x, reason, false)
	case smaller && x.kind != reqIDs:
		p.relearned(x, false)
	default:
		p.giveUp(x, wire.RefusalBadRequest, reason, false)
	}
}

// bisectNext has the first of the requests that are suspended bisected, unless its form was
// found out meanwhile.
func (p *repair) bisectNext() {
	for p.requests.bisected == nil {
		i := slices.IndexFunc(p.requests.suspended, func(x *request) bool { return !x.doubted || p.outdated(x) })
		if i < 0 {
			return
		}
		x := p.requests.suspended[i]
		if p.outdated(x) {
			p.reshape(x)
			continue
		}
		p.requests.bisected = x
		p.bisection = newBisection(p.terms, x)
		p.nextProbe()
	}
}

// nextProbe asks for the next piece, or passes judgement.
func (p *repair) nextProbe() {
	if piece := p.bisection.next(); piece != nil {
		p.requests.enqueueFirst(p.bisection.probe(piece))
		return
	}
	p.conclude()
}

// probed takes in what became of a probe.
func (p *repair) probed(x *request, taken, tell bool) {
	p.requests.drop(x, tell)
	if p.bisection.probed(taken) {
		p.accepted()
		return
	}
	p.nextProbe()
}

// probeRefused tells a refusal that is about what was asked for from others.
func (p *repair) probeRefused(now time.Time, x *request, why wire.Refusal, text string, tell bool) {
	switch why {
	case wire.RefusalRateLimited:
		p.requests.cool(now, text)
		if p.limitedAgain(x) {
			p.probeFailed(x, text, tell)
			return
		}
		p.again(x, tell)
	case wire.RefusalOther, wire.RefusalTooManySubs, wire.RefusalAuthRequired:
		p.probeFailed(x, text, tell)
	default:
		p.bisection.text = text
		p.probed(x, false, tell)
	}
}

// probeFailed ends a bisection that can't go on.
func (p *repair) probeFailed(x *request, why string, tell bool) {
	p.requests.drop(x, tell)
	p.giveUp(p.bisection.origin, wire.RefusalOther, why, false)
}

// accepted repeats a request that as such is taken; once.
func (p *repair) accepted() {
	x, text := p.bisection.origin, p.bisection.text
	if x.passed || x.missed {
		p.giveUp(x, wire.RefusalOther, text, false)
		return
	}
	x.passed, x.sure = true, true
	p.requests.resume(x)
	p.history.repeat(x)
}

// conclude ends a bisection with what was found out. If that is not all, the request
// fails, and what is wrong with it beyond that is for the next time.
func (p *repair) conclude() {
	b := p.bisection
	for _, v := range b.badValues {
		p.terms.setAside(v)
	}
	x := b.origin
	if x.kind == reqLive && len(b.badFilters) > 0 {
		// The rest can be followed.
		x.standing = x.standing.Sealer().Seal(slices.DeleteFunc(x.spell(), func(f nostr.Filter) bool {
			return slices.ContainsFunc(b.badFilters, func(g nostr.Filter) bool { return nostr.FilterEqual(f, g) })
		}))
		x.forms = nil
	}
	changed := x.kind == reqLive && len(b.badFilters) > 0 && x.count() > 0 || b.learned || p.outdated(x)
	switch {
	case !b.over(), changed && x.missed:
		p.giveUp(x, wire.RefusalOther, b.text, false)
	case !changed && x.unasked && !p.requests.suspects.spoken:
		x.doubted = true
		p.requests.bisected = nil
	case !changed:
		p.giveUp(x, wire.RefusalBadRequest, b.text, false)
	default:
		p.requests.resume(x)
		p.relearned(x, false)
	}
}
