package session

import (
	"errors"
	"slices"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/sync/internal/negentropy"
	"github.com/graspsync/graspsync/sync/internal/plan"
	"github.com/graspsync/graspsync/sync/internal/relaylimits"
	"github.com/graspsync/graspsync/sync/wire"
)

// repetitions of a message after the relay lost the session
const maxRepeats = 3

// checkedAtOnce is the maximum number of ids in one comparison with the stored events.
const checkedAtOnce = 1_000

func (h *history) reconcileNext() {
	for q := h.reconciling.next(); q != nil; q = h.reconciling.next() {
		if q.set != nil {
			h.openNeg(q) // its set is part of a loaded set
			continue
		}
		h.out.do(LoadSet{Query: q.id, Filter: q.compared()})
	}
}

func (h *history) leaveReconciling(q *query) {
	if h.reconciling.leave(q) {
		h.reconcileNext()
	}
}

// byPages fetches a query by pages, or ends it if its full seconds could not be reconciled.
func (h *history) byPages(q *query) {
	if len(q.full) > 0 {
		h.fullSeconds(q)
		return
	}
	h.startPages(q, 0)
}

func (h *history) setLoaded(id QueryID, set *negentropy.Set, err error) {
	q, ok := h.queries[id]
	if !ok || q.state != qLoading {
		return
	}
	if h.caps.mustReshape(q.filter, false) {
		h.restart(q) // the form of the filter has changed
		return
	}
	if err != nil || set == nil || !h.reconciling.offered {
		h.byPages(q)
		return
	}
	q.set, q.room = set, h.room
	h.openNeg(q)
}

func (h *history) openNeg(q *query) {
	if most := h.caps.NegentropyMax; most > 0 && q.set.Len() > 2*most {
		h.byPages(q) // the relay would refuse it
		return
	}
	if q.room == 0 {
		q.room = 2 * h.cfg.NegIDs
	}
	h.reconciling.grant(q)
	most := min(h.cfg.NegIDs, q.room/2) // ids claimed twice may double the number
	q.neg = negentropy.NewSession(q.set, negentropy.Limits{FrameSize: h.cfg.NegFrame, MaxRounds: h.cfg.NegRounds, MaxIDs: most})
	first, err := q.neg.Open()
	if err != nil {
		h.byPages(q)
		return
	}
	q.last, q.repeats = nil, 0
	q.state = qReconciling
	h.requests.enqueue(&request{kind: reqNeg, q: q, payload: first, filters: []nostr.Filter{q.compared()}})
}

func (h *history) negotiate(now time.Time, x *request, payload []byte) {
	q := x.q
	q.b.report.Method |= Negent
	reply, done, err := q.neg.Step(payload)
	switch {
	case err != nil:
		h.requests.drop(x, true)
		h.distrustNeg(q, err)
	case done:
		h.requests.drop(x, true)
		h.reconciled(q)
	default:
		x.events++
		x.idleBy = now.Add(idleTimeout)
		q.last, q.repeats = reply, 0
		h.out.do(Send{wire.Request{Type: wire.TypeNegSend, Sub: x.id, Payload: reply}})
	}
}

// distrustNeg: a protocol error ends NIP-77 with this relay, a reached limit concerns only this
// query.
func (h *history) distrustNeg(q *query, err error) {
	if !errors.Is(err, negentropy.ErrProtocol) {
		h.salvage(q)
		return
	}
	h.noNegentropy(err.Error(), false)
	h.byPages(q)
}

// negSilent: relays without NIP-77 may ignore NEG-OPEN.
func (h *history) negSilent(x *request) {
	if x.events == 0 {
		h.noNegentropy("no answer to NEG-OPEN", false)
	}
	h.salvage(x.q)
}

func (h *history) negRefused(x *request, why wire.Refusal, text string) {
	q := x.q
	if why == wire.RefusalSessionLost && q.repeats < maxRepeats && q.last != nil {
		// khatru answers before it stores the session, so our next message may find none.
		q.repeats++
		h.out.do(Send{wire.Request{Type: wire.TypeNegSend, Sub: x.id, Payload: q.last}})
		return
	}
	h.requests.drop(x, false)
	switch {
	case why == wire.RefusalSessionLost && !q.reopened:
		q.reopened = true
		h.openNeg(q)
	case x.events == 0 &&
		(why == wire.RefusalBadRequest || why == wire.RefusalAuthRequired || why == wire.RefusalRestricted) && !h.reconciling.doubted:
		// The cause may be a value, or NIP-77 may be restricted. Pages show which.
		h.reconciling.doubted = true
		h.byPages(q)
	case why == wire.RefusalTooLarge, why == wire.RefusalTooManySubs, why == wire.RefusalSessionLost, x.events > 0:
		h.salvage(q)
	default:
		h.noNegentropy(text, false)
		h.byPages(q)
	}
}

// noNegentropy uses pages from now on. wrong reports that NIP-77 is offered with wrong answers.
func (h *history) noNegentropy(reason string, wrong bool) {
	if !h.reconciling.offered {
		return
	}
	waiting := h.reconciling.stop()
	h.out.do(Learned{Kind: relaylimits.NoNegentropy, Value: 1, Reason: reason, Wrong: wrong})
	for _, x := range slices.Clone(h.requests.waiting) {
		if x.kind == reqNeg {
			h.requests.drop(x, false)
			waiting = append(waiting, x.q)
		}
	}
	for _, q := range waiting {
		h.byPages(q)
	}
}

func (h *history) reconciled(q *query) {
	neg := q.neg
	if q.audit != nil && q.audit.compare {
		h.leaveReconciling(q)
		h.shown(q, neg)
		return
	}
	have, need := neg.Have(), neg.Need()
	// Equal sets are not cut, because events older than a cut set were fetched by pages before.
	q.unsure = h.maybeCut(neg.TheirLen()) && len(have)+len(need) > 0
	if len(q.full) > 0 {
		q.unsure = neg.TheirLen() <= max(leastPage, min(h.cfg.PageLimit, q.walk.Largest()))
	}
	q.b.report.Reconciled++
	q.set = nil
	h.askMissing(q, need)
}

func (h *history) askMissing(q *query, need [][32]byte) {
	q.neg = nil // its ids are kept
	if len(need) == 0 {
		h.idsDone(q)
		return
	}
	ids := make([]graspsync.EventID, len(need))
	for i, id := range need {
		ids[i] = id
	}
	h.ask(q, ids)
}

func (h *history) ask(q *query, ids []graspsync.EventID) {
	n := min(len(ids), checkedAtOnce)
	q.state, q.found = qChecking, ids[n:]
	h.out.do(Missing{Query: q.id, Batch: q.b.ID, IDs: slices.Clip(ids[:n]), More: len(q.found) > 0})
}

func (h *history) checked(id QueryID, ids, later []graspsync.EventID, err error) {
	q, ok := h.queries[id]
	if !ok || q.state != qChecking {
		return
	}
	q.state, q.later = qFetching, append(q.later, later...)
	switch {
	case err != nil:
		h.end(q, plan.Failed, err.Error())
	case len(ids) == 0:
		h.idsDone(q)
	default:
		q.ids = wanted{} // results of earlier ids do not count
		h.fetchIDs(q, ids)
	}
}

func (h *history) idsDone(q *query) {
	if len(q.found) > 0 {
		h.ask(q, q.found)
		return
	}
	if later := q.later; len(later) > 0 {
		q.later = nil
		h.ask(q, later)
		return
	}
	h.leaveReconciling(q)
	if q.unsure {
		q.unsure = false
		h.byPages(q)
		return
	}
	h.end(q, plan.Complete, "")
}

// salvage ends an incomplete reconciliation. Its ids are fetched, then the rest by pages.
func (h *history) salvage(q *query) {
	q.unsure = true
	h.askMissing(q, q.neg.Need())
}

// maybeCut reports whether n looks like the relay's limit for one reconciliation. Some relays
// silently reconcile only the newest events, a round number of them. A relay that refuses large
// sets does not cut them.
func (h *history) maybeCut(n int) bool {
	return n > 0 && h.caps.NegentropyMax == 0 && (n%50 == 0 || n == 375 || n == h.pageSize)
}

// reconcileQueue limits the number of concurrent reconciliations, because claimed ids cost the
// relay nothing and use local memory.
type reconcileQueue struct {
	most    int
	offered bool // not known to lack NIP-77
	doubted bool // a NEG-OPEN was refused for a reason that may be the filter
	waiting []*query
	active  int
	granted int // ids that queries with a slot may need
}

func (t *reconcileQueue) wait(q *query) { t.waiting = append(t.waiting, q) }

func (t *reconcileQueue) next() *query {
	if len(t.waiting) == 0 || t.active >= t.most {
		return nil
	}
	q := t.waiting[0]
	t.waiting = t.waiting[1:]
	q.state, q.placed = qLoading, true
	t.active++
	return q
}

func (t *reconcileQueue) grant(q *query) {
	t.granted += q.room - q.granted
	q.granted = q.room
}

// leave frees the slot of a query or ends its wait.
func (t *reconcileQueue) leave(q *query) (free bool) {
	switch {
	case q.state == qWaiting:
		t.waiting = slices.DeleteFunc(t.waiting, func(o *query) bool { return o == q })
	case q.placed:
		t.active--
		t.granted, q.granted = t.granted-q.granted, 0
		q.placed, q.neg = false, nil
		if q.state == qLoading || q.state == qReconciling {
			q.state = qFetching
		}
		return true
	}
	return false
}

func (t *reconcileQueue) leaveAll(b *batch) {
	t.waiting = slices.DeleteFunc(t.waiting, func(q *query) bool { return q.b == b })
}

func (t *reconcileQueue) stop() []*query {
	waiting := t.waiting
	t.offered, t.waiting = false, nil
	return waiting
}
