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

func (s *Session) reconcileNext() {
	for q := s.reconciling.next(); q != nil; q = s.reconciling.next() {
		if q.set != nil {
			s.openNeg(q) // its set is part of a loaded set
			continue
		}
		s.do(LoadSet{Query: q.id, Filter: q.compared()})
	}
}

func (s *Session) leaveReconciling(q *query) {
	if s.reconciling.leave(q) {
		s.reconcileNext()
	}
}

// byPages fetches a query by pages, or ends it if its full seconds could not be reconciled.
func (s *Session) byPages(q *query) {
	if len(q.full) > 0 {
		s.fullSeconds(q)
		return
	}
	s.startPages(q, 0)
}

func (s *Session) setLoaded(id QueryID, set *negentropy.Set, err error) {
	q, ok := s.queries[id]
	if !ok || q.state != qLoading {
		return
	}
	if s.caps.mustReshape(q.filter, false) {
		s.restart(q) // the form of the filter has changed
		return
	}
	if err != nil || set == nil || !s.reconciling.offered {
		s.byPages(q)
		return
	}
	q.set, q.room = set, s.room
	s.openNeg(q)
}

func (s *Session) openNeg(q *query) {
	if most := s.caps.NegentropyMax; most > 0 && q.set.Len() > 2*most {
		s.byPages(q) // the relay would refuse it
		return
	}
	if q.room == 0 {
		q.room = 2 * s.cfg.NegIDs
	}
	s.reconciling.reserved += q.room - q.granted
	q.granted = q.room
	most := min(s.cfg.NegIDs, q.room/2) // ids claimed twice may double the number
	q.neg = negentropy.NewSession(q.set, negentropy.Limits{FrameSize: s.cfg.NegFrame, MaxRounds: s.cfg.NegRounds, MaxIDs: most})
	first, err := q.neg.Open()
	if err != nil {
		s.byPages(q)
		return
	}
	q.last, q.repeats = nil, 0
	q.state = qReconciling
	s.enqueue(&request{kind: reqNeg, q: q, payload: first, filters: []nostr.Filter{q.compared()}})
}

func (s *Session) negotiate(now time.Time, x *request, payload []byte) {
	q := x.q
	q.b.report.Method |= Negent
	reply, done, err := q.neg.Step(payload)
	switch {
	case err != nil:
		s.drop(x, true)
		s.distrustNeg(q, err)
	case done:
		s.drop(x, true)
		s.reconciled(q)
	default:
		x.events++
		x.idleBy = now.Add(idleTimeout)
		q.last, q.repeats = reply, 0
		s.do(Send{wire.Request{Type: wire.TypeNegSend, Sub: x.id, Payload: reply}})
	}
}

// distrustNeg: a protocol error ends NIP-77 with this relay, a reached limit concerns only this
// query.
func (s *Session) distrustNeg(q *query, err error) {
	if !errors.Is(err, negentropy.ErrProtocol) {
		s.salvage(q)
		return
	}
	s.noNegentropy(err.Error(), false)
	s.byPages(q)
}

// negSilent: relays without NIP-77 may ignore NEG-OPEN.
func (s *Session) negSilent(x *request) {
	if x.events == 0 {
		s.noNegentropy("no answer to NEG-OPEN", false)
	}
	s.salvage(x.q)
}

func (s *Session) negRefused(x *request, why wire.Refusal, text string) {
	q := x.q
	if why == wire.RefusalSessionLost && q.repeats < maxRepeats && q.last != nil {
		// khatru answers before it stores the session, so our next message may find none.
		q.repeats++
		s.do(Send{wire.Request{Type: wire.TypeNegSend, Sub: x.id, Payload: q.last}})
		return
	}
	s.drop(x, false)
	switch {
	case why == wire.RefusalSessionLost && !q.reopened:
		q.reopened = true
		s.openNeg(q)
	case x.events == 0 &&
		(why == wire.RefusalBadRequest || why == wire.RefusalAuthRequired || why == wire.RefusalRestricted) && !s.reconciling.doubted:
		// The cause may be a value, or NIP-77 may be restricted. Pages show which.
		s.reconciling.doubted = true
		s.byPages(q)
	case why == wire.RefusalTooLarge, why == wire.RefusalTooManySubs, why == wire.RefusalSessionLost, x.events > 0:
		s.salvage(q)
	default:
		s.noNegentropy(text, false)
		s.byPages(q)
	}
}

// noNegentropy uses pages from now on. wrong reports that NIP-77 is offered with wrong answers.
func (s *Session) noNegentropy(reason string, wrong bool) {
	if !s.reconciling.offered {
		return
	}
	waiting := s.reconciling.waiting
	s.reconciling.offered, s.reconciling.waiting = false, nil
	s.do(Learned{Kind: relaylimits.NoNegentropy, Value: 1, Reason: reason, Wrong: wrong})
	for _, x := range slices.Clone(s.waiting) {
		if x.kind == reqNeg {
			s.drop(x, false)
			waiting = append(waiting, x.q)
		}
	}
	for _, q := range waiting {
		s.byPages(q)
	}
}

func (s *Session) reconciled(q *query) {
	neg := q.neg
	if q.audit != nil && q.audit.compare {
		s.leaveReconciling(q)
		s.shown(q, neg)
		return
	}
	have, need := neg.Have(), neg.Need()
	// Equal sets are not cut, because events older than a cut set were fetched by pages before.
	q.unsure = s.maybeCut(neg.TheirLen()) && len(have)+len(need) > 0
	if len(q.full) > 0 {
		q.unsure = neg.TheirLen() <= max(leastPage, min(s.cfg.PageLimit, q.walk.Largest()))
	}
	q.set = nil
	s.askMissing(q, need)
}

func (s *Session) askMissing(q *query, need [][32]byte) {
	q.neg = nil // its ids are kept
	if len(need) == 0 {
		s.idsDone(q)
		return
	}
	ids := make([]graspsync.EventID, len(need))
	for i, id := range need {
		ids[i] = id
	}
	s.ask(q, ids)
}

func (s *Session) ask(q *query, ids []graspsync.EventID) {
	n := min(len(ids), checkedAtOnce)
	q.state, q.found = qChecking, ids[n:]
	s.do(Missing{Query: q.id, Batch: q.b.ID, IDs: slices.Clip(ids[:n]), More: len(q.found) > 0})
}

func (s *Session) checked(id QueryID, ids, later []graspsync.EventID, err error) {
	q, ok := s.queries[id]
	if !ok || q.state != qChecking {
		return
	}
	q.state, q.later = qFetching, append(q.later, later...)
	switch {
	case err != nil:
		s.end(q, plan.Failed, err.Error())
	case len(ids) == 0:
		s.idsDone(q)
	default:
		q.ids = wanted{} // results of earlier ids do not count
		s.fetchIDs(q, ids)
	}
}

func (s *Session) idsDone(q *query) {
	if len(q.found) > 0 {
		s.ask(q, q.found)
		return
	}
	if later := q.later; len(later) > 0 {
		q.later = nil
		s.ask(q, later)
		return
	}
	s.leaveReconciling(q)
	if q.unsure {
		q.unsure = false
		s.byPages(q)
		return
	}
	s.end(q, plan.Complete, "")
}

// salvage ends an incomplete reconciliation. Its ids are fetched, then the rest by pages.
func (s *Session) salvage(q *query) {
	q.unsure = true
	s.askMissing(q, q.neg.Need())
}

// maybeCut reports whether n looks like the relay's limit for one reconciliation. Some relays
// silently reconcile only a round number of their newest events, unlike relays that refuse large
// sets.
func (s *Session) maybeCut(n int) bool {
	return n > 0 && s.caps.NegentropyMax == 0 && (n%50 == 0 || n == 375 || n == s.pageSize)
}

// reconcileQueue limits the number of concurrent reconciliations, because claimed ids cost the
// relay nothing and use local memory.
type reconcileQueue struct {
	most     int
	offered  bool // not known to lack NIP-77
	doubted  bool // a NEG-OPEN was refused for a reason that may be the filter
	waiting  []*query
	active   int
	reserved int // ids that queries with a slot may need
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

// leave frees the slot of a query or ends its wait.
func (t *reconcileQueue) leave(q *query) (free bool) {
	switch {
	case q.state == qWaiting:
		t.waiting = slices.DeleteFunc(t.waiting, func(o *query) bool { return o == q })
	case q.placed:
		t.active--
		t.reserved, q.granted = t.reserved-q.granted, 0
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
