package session

import (
	"errors"
	"slices"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/sync/internal/learned"
	"github.com/graspsync/graspsync/sync/internal/negentropy"
	"github.com/graspsync/graspsync/sync/internal/plan"
	"github.com/graspsync/graspsync/sync/wire"
)

// reconcileNext lets waiting queries reconcile while there is room.
func (s *Session) reconcileNext() {
	for len(s.negQueue) > 0 && s.negActive < s.cfg.Reconciling {
		q := s.negQueue[0]
		s.negQueue = s.negQueue[1:]
		q.state = qLoading
		s.negActive++
		if q.set != nil {
			s.openNeg(q) // a part of what was loaded
			continue
		}
		s.out.do(LoadSet{Query: q.id, Filter: q.filter})
	}
}

// leaveReconciling frees the place of a query that reconciles or waits to.
func (s *Session) leaveReconciling(q *query) {
	switch q.state {
	case qWaiting:
		s.negQueue = slices.DeleteFunc(s.negQueue, func(o *query) bool { return o == q })
	case qLoading, qReconciling:
		s.negActive--
		q.state, q.neg = qFetching, nil
		s.reconcileNext()
	}
}

// leaveNegQueue has no query of a batch reconcile any more that has not begun to.
func (s *Session) leaveNegQueue(b *batch) {
	s.negQueue = slices.DeleteFunc(s.negQueue, func(q *query) bool { return q.b == b })
}

func (s *Session) setLoaded(q *query, set *negentropy.Set, err error) {
	if err != nil || set == nil || !s.negentropy {
		s.byPages(q)
		return
	}
	q.set = set
	if most := s.terms.NegentropyMax; most > 0 && set.Len() > 2*most {
		s.tooLarge(q, s.now) // it would say so
		return
	}
	s.openNeg(q)
}

// openNeg asks for a reconciliation from its start.
func (s *Session) openNeg(q *query) {
	q.neg = negentropy.NewSession(q.set, negentropy.Limits{
		FrameSize: s.cfg.NegFrame, MaxRounds: s.cfg.NegRounds, MaxIDs: s.cfg.NegIDs,
	})
	first, err := q.neg.Open()
	if err != nil {
		s.byPages(q)
		return
	}
	q.last, q.repeats = nil, 0
	q.state = qReconciling
	s.enqueue(&sub{kind: subNeg, q: q, payload: first, filters: []nostr.Filter{q.filter}})
}

func (s *Session) onNegMsg(now time.Time, m wire.Message) {
	x, ok := s.subs[m.Sub]
	if !ok || x.kind != subNeg {
		return
	}
	s.answered(x)
	q := x.q
	q.b.report.Method |= Negent
	reply, done, err := q.neg.Step(m.Payload)
	switch {
	case err != nil:
		s.drop(x, true)
		s.distrustNeg(q, err)
	case done:
		s.drop(x, true)
		s.reconciled(q)
	default:
		x.events++
		x.idleBy = now.Add(s.cfg.IdleTimeout)
		q.last, q.repeats = reply, 0
		s.out.do(Send{wire.Request{Type: wire.TypeNegSend, Sub: x.id, Payload: reply}})
	}
}

// distrustNeg gives up reconciling after a relay broke its rules; bounds that were
// merely reached concern the one query, which goes on behind them.
func (s *Session) distrustNeg(q *query, err error) {
	if !errors.Is(err, negentropy.ErrProtocol) {
		s.salvage(q, true)
		return
	}
	s.noNegentropy(err.Error())
	s.byPages(q)
}

func (s *Session) reconciled(q *query) {
	neg := q.neg
	s.leaveReconciling(q)
	if q.second != nil {
		q.second.unsure = neg.TheirLen() <= q.second.page
	} else {
		s.suspect(q, neg)
	}
	q.b.report.compared(neg.Have())
	q.set = nil
	s.askMissing(q, neg.Need())
}

// askMissing asks which of their ids we need.
func (s *Session) askMissing(q *query, need [][32]byte) {
	q.state = qChecking
	if len(need) == 0 {
		s.idsDone(q)
		return
	}
	ids := make([]graspsync.EventID, len(need))
	for i, id := range need {
		ids[i] = id
	}
	s.out.do(Missing{Query: q.id, IDs: ids})
}

func (s *Session) checked(q *query, ids []graspsync.EventID, err error) {
	q.state = qFetching
	switch {
	case err != nil:
		s.end(q, plan.Failed, err.Error())
	case len(ids) == 0:
		s.idsDone(q)
	default:
		s.fetchIDs(q, ids)
	}
}

func (s *Session) onNegErr(now time.Time, m wire.Message) {
	why := wire.ClassifyNegErr(m.Text, m.Max)
	x, ok := s.subs[m.Sub]
	if !ok {
		s.lateRefusal(now, m, why)
		return
	}
	if x.kind != subNeg {
		return
	}
	if why == wire.RefusalTooLarge {
		s.learn(learned.NegentropyMax, m.Max, m.Text)
	}
	s.refused(now, x, why, m.Text, false)
}

// maxRepeats is how often a message to a session is repeated that the relay says it
// does not have.
const maxRepeats = 3

// maxNegDoubts is how many NEG-OPENs a relay may refuse as bad requests, or as not for
// us, until that is taken to mean NIP-77 itself.
const maxNegDoubts = 1

// negRefused deals with a reconciliation that the relay refused or ended.
func (s *Session) negRefused(x *sub, why wire.Refusal, text string) {
	q := x.q
	if why == wire.RefusalSessionLost && q.repeats < maxRepeats && q.last != nil {
		// khatru answers before it remembers the session, so that a quick reply may
		// find none. It did not take the message in.
		q.repeats++
		s.out.do(Send{wire.Request{Type: wire.TypeNegSend, Sub: x.id, Payload: q.last}})
		return
	}
	s.drop(x, false)
	switch {
	case why == wire.RefusalSessionLost && !q.reopened:
		q.reopened = true
		s.openNeg(q)
	case x.events == 0 && s.negDoubts < maxNegDoubts &&
		(why == wire.RefusalBadRequest || why == wire.RefusalAuthRequired || why == wire.RefusalRestricted):
		// It may be a value in the filter, or NIP-77 that is not for us. Pages find that
		// out: whoever refuses those as well refuses us.
		s.negDoubts++
		s.byPages(q)
	case why == wire.RefusalTooLarge && x.events == 0:
		s.tooLarge(q, s.now)
	case why == wire.RefusalTooLarge, why == wire.RefusalTooManySubs, why == wire.RefusalSessionLost, x.events > 0:
		s.salvage(q, false)
	default:
		s.noNegentropy(text)
		s.byPages(q)
	}
}

// noNegentropy has pages used from now on, for what waits to reconcile as well.
func (s *Session) noNegentropy(reason string) {
	if !s.negentropy {
		return
	}
	s.negentropy = false
	s.out.do(Learned{Kind: learned.NoNegentropy, Value: 1, Reason: reason})
	waiting := s.negQueue
	s.negQueue = nil
	for _, x := range slices.Clone(s.waiting) {
		if x.kind == subNeg {
			s.drop(x, false)
			waiting = append(waiting, x.q)
		}
	}
	for _, q := range waiting {
		s.byPages(q)
	}
}

// unansweredNeg returns the oldest NEG-OPEN that got no answer.
func (s *Session) unansweredNeg() (oldest *sub) {
	for _, x := range s.subs {
		if x.kind == subNeg && x.events == 0 && (oldest == nil || byNumber(x, oldest) < 0) {
			oldest = x
		}
	}
	return oldest
}
