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

// repair decides whether a refused request is repeated or given up.
type repair struct {
	caps      *relayCaps
	requests  *requests
	history   *history
	bisection *bisection // the latest
}

// refused handles a refusal. With sendClose the relay may still have the request open.
func (p *repair) refused(now time.Time, x *request, why wire.Refusal, text string, sendClose bool) {
	first := p.requests.opening == x // no request was sent after x
	p.requests.answered(x)
	if x.kind == reqProbe {
		p.probeRefused(now, x, why, text, sendClose)
		return
	}
	if x.closeAt > 0 {
		if why == wire.RefusalRateLimited { // it concerns all requests
			p.requests.cool(now, text)
		}
		p.requests.drop(x, sendClose)
		return
	}
	// The plan fetches the missed events when it opens the subscription again.
	missed := x.kind == reqLive && !first
	if !p.retry(now, x, why, text, sendClose, missed) {
		p.giveUp(x, why, text, sendClose)
	}
}

// maxLimited is the number of consecutive rate-limit refusals, each after a pause, after which a
// request is given up.
const maxLimited = 3

// retry repeats a refused request and returns true, if that is possible. With missed, the plan
// repeats it.
func (p *repair) retry(now time.Time, x *request, why wire.Refusal, text string, sendClose, missed bool) bool {
	if why == wire.RefusalLimitZero && !x.limitZero {
		why = wire.RefusalBadRequest // the refusal has another cause
	}
	switch why {
	case wire.RefusalRateLimited:
		p.requests.cool(now, text)
		if missed || p.limitedAgain(x) {
			return false
		}
		p.again(x, sendClose)
		return true
	case wire.RefusalTooManySubs, wire.RefusalTooManyBytes:
		if x.kind == reqNeg || !p.requests.crowded(x, why, text) {
			return false
		}
		p.again(x, sendClose)
		return true
	case wire.RefusalAuthRequired:
		if !p.requests.auth.helps(now, x) {
			return false
		}
	case wire.RefusalTooManyFilters, wire.RefusalTooManyValues, wire.RefusalNeedsKinds, wire.RefusalNoNotes,
		wire.RefusalLimitZero, wire.RefusalBadRequest:
		if x.kind == reqIDs {
			return p.history.kindsOfIDs(x, why, text, sendClose) || p.history.fewerIDs(x, sendClose)
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
		if p.requests.bisected == nil {
			p.bisect(x, text, missed, sendClose)
			return true
		}
		if missed {
			break
		}
		p.again(x, sendClose) // after the bisection
		return true
	default:
		return false
	}
	switch {
	case missed:
		p.giveUp(x, wire.RefusalOther, text, sendClose)
	case why == wire.RefusalAuthRequired:
		x.toAuth = true
		p.again(x, sendClose)
	default:
		p.relearned(x, sendClose)
	}
	return true
}

func (p *repair) limitedAgain(x *request) bool {
	n := &x.limited
	if x.kind == reqNeg { // each attempt is a new request
		n = &x.q.limited
	}
	*n++
	return *n >= maxLimited
}

func (p *repair) again(x *request, sendClose bool) {
	p.requests.unsend(x, sendClose)
	p.history.repeat(x)
}

func (p *repair) giveUp(x *request, why wire.Refusal, text string, sendClose bool) {
	switch why {
	case wire.RefusalTooManyFilters, wire.RefusalTooManyValues, wire.RefusalNeedsKinds, wire.RefusalNoNotes,
		wire.RefusalLimitZero:
		why = wire.RefusalBadRequest
	}
	switch x.kind {
	case reqLive:
		at := x.openAt
		p.requests.drop(x, sendClose)
		p.requests.closeLive(x.live, at, why, text)
	case reqNeg:
		p.history.negRefused(x, why, text)
	default:
		result := plan.Failed
		switch why {
		case wire.RefusalAuthRequired, wire.RefusalRestricted, wire.RefusalBadRequest:
			result = plan.Refused
		}
		p.history.failWith(x, result, text, sendClose)
	}
}

// diagnose learns a limit from a refusal. It reports whether the request can be repeated in another
// form.
func (p *repair) diagnose(x *request, why wire.Refusal, text string) bool {
	switch why {
	case wire.RefusalTooManyFilters:
		n := len(x.filters)
		most := n / 2
		if said := wire.SaidMost(text); said > 0 && said < n {
			most = said
		}
		return n > 1 && p.caps.learn(relaylimits.MaxFilters, most, text)
	case wire.RefusalTooManyValues:
		most := 0
		for _, f := range x.asks() {
			_, n := filters.Longest(f, true)
			most = max(most, n)
		}
		if most > sqlValues {
			return p.caps.learn(relaylimits.MaxValues, sqlValues, text)
		}
		return most > 1 && p.caps.learn(relaylimits.MaxValues, most/2, text)
	case wire.RefusalNeedsKinds:
		if slices.ContainsFunc(x.asks(), kindless) {
			return p.caps.learn(relaylimits.NeedsKinds, 1, text)
		}
		return p.caps.withoutNotes(x, text)
	case wire.RefusalNoNotes:
		return p.caps.withoutNotes(x, text)
	case wire.RefusalLimitZero:
		return x.limitZero && p.caps.learn(relaylimits.NoLimitZero, 1, text)
	}
	return false
}

// relearned repeats a request in the form that the learned limits allow, and reshapes waiting ones.
func (p *repair) relearned(x *request, sendClose bool) {
	p.requests.unsend(x, sendClose)
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

// outdated reports whether a request has another form under the current limits. A query with
// progress is not outdated.
func (p *repair) outdated(x *request) bool {
	switch {
	case x.kind == reqLive:
		return p.caps.NoLimitZero && (x.limitZero || x.size() > p.caps.MaxMessage) ||
			p.caps.MaxFilters > 0 && len(x.filters) > p.caps.MaxFilters ||
			slices.ContainsFunc(x.filters, func(f nostr.Filter) bool { return p.caps.mustReshape(f, true) })
	case x.kind == reqPage && x.q.unbegun(), x.kind == reqNeg:
		return p.caps.mustReshape(x.q.filter, false)
	}
	return false
}

func (p *repair) reshape(x *request) {
	p.requests.drop(x, false)
	if x.kind == reqLive {
		p.requests.waiting = append(p.requests.divide(x), p.requests.waiting...)
		return
	}
	p.history.restart(x.q)
}

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

func (p *repair) unsent(x *request, size int, reason string) {
	switch {
	case x.kind == reqNeg:
		p.requests.drop(x, false)
		p.history.byPages(x.q)
		return
	case x.closeAt > 0:
		p.requests.drop(x, false)
		return
	}
	p.requests.answered(x)
	smaller := p.caps.learn(relaylimits.MaxMessage, max(relaylimits.LeastMessage, min(size, p.caps.MaxMessage)/2), reason)
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

func (p *repair) bisect(x *request, text string, missed, sendClose bool) {
	p.requests.unsend(x, sendClose)
	p.requests.bisected = x
	p.bisection = &bisection{caps: p.caps, origin: x, text: text, missed: missed, stack: []*piece{{filters: x.asks()}}}
	p.nextProbe()
}

func (p *repair) nextProbe() {
	if piece := p.bisection.next(); piece != nil {
		p.requests.enqueueFirst(p.bisection.probe(piece))
		return
	}
	p.conclude()
}

func (p *repair) probed(x *request, taken, sendClose bool) {
	p.requests.drop(x, sendClose)
	if p.bisection.probed(taken) {
		p.accepted()
		return
	}
	p.nextProbe()
}

// probeRefused: only a refusal of the content counts as a result.
func (p *repair) probeRefused(now time.Time, x *request, why wire.Refusal, text string, sendClose bool) {
	switch why {
	case wire.RefusalRateLimited:
		p.requests.cool(now, text)
		if p.limitedAgain(x) {
			p.probeFailed(x, text, sendClose)
			return
		}
		p.again(x, sendClose)
	case wire.RefusalOther, wire.RefusalTooManySubs, wire.RefusalAuthRequired:
		p.probeFailed(x, text, sendClose)
	default:
		p.bisection.text = text
		p.probed(x, false, sendClose)
	}
}

func (p *repair) probeFailed(x *request, why string, sendClose bool) {
	p.requests.drop(x, sendClose)
	p.giveUp(p.bisection.origin, wire.RefusalOther, why, false)
}

// accepted repeats a request that was accepted as a probe, once.
func (p *repair) accepted() {
	x, text := p.bisection.origin, p.bisection.text
	if x.passed || p.bisection.missed {
		p.giveUp(x, wire.RefusalOther, text, false)
		return
	}
	x.passed = true
	p.requests.bisected = nil
	p.history.repeat(x)
}

// conclude applies the results of a bisection. If they are incomplete, the next attempt continues.
func (p *repair) conclude() {
	b := p.bisection
	for _, v := range b.badValues {
		p.caps.setAside(v)
	}
	x := b.origin
	changed := b.learned || p.outdated(x)
	switch {
	case !b.over(), changed && b.missed:
		p.giveUp(x, wire.RefusalOther, b.text, false)
	case changed:
		p.requests.bisected = nil
		p.relearned(x, false)
	case x.kind == reqLive && len(b.badFilters) > 0:
		p.giveUp(x, wire.RefusalRestricted, b.text, false) // the plan follows the other filters
	default:
		p.giveUp(x, wire.RefusalBadRequest, b.text, false)
	}
}
