package session

import (
	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/sync/internal/negentropy"
	"github.com/graspsync/graspsync/sync/internal/plan"
)

// audit looks for proof that NIP-77 hides events. A window that was fetched by pages is reconciled
// with an empty set. NIP-77 hides events that it does not show and that arrive by pages again.
type audit struct {
	came    map[graspsync.EventID]struct{} // not stored, received by pages
	compare bool
	hidden  map[graspsync.EventID]struct{} // received by pages, not shown by NIP-77
}

const maxAudited = 1_000

// audited continues an audit whose pages arrived. It returns false if the audit is complete.
func (s *Session) audited(q *query, result plan.Result) bool {
	a := q.audit
	if a == nil || a.compare || len(a.came) == 0 || !s.reconciling.offered {
		return false
	}
	a.compare, q.pages, q.result = true, false, max(q.result, result)
	q.state, q.set, q.walk = qWaiting, negentropy.NewSet(nil), nil
	s.reconciling.wait(q)
	s.reconcileNext()
	return true
}

func (s *Session) shown(q *query, neg *negentropy.Session) {
	hidden := q.audit.came
	for _, id := range neg.Need() {
		delete(hidden, id)
	}
	if len(hidden) > 0 && !s.maybeCut(neg.TheirLen()) { // a cut set proves nothing
		q.audit.hidden = hidden
		s.startPages(q, 0)
		return
	}
	s.end(q, q.result, "")
}

func (s *Session) auditPage(q *query, ev graspsync.Event, known bool) {
	a := q.audit
	if a == nil {
		return
	}
	if _, ok := a.hidden[ev.ID]; ok {
		q.b.report.Disproved = true
		s.noNegentropy("NIP-77 hides events that pages contain", true)
	}
	if !known && !a.compare && len(a.came) < maxAudited {
		a.came[ev.ID] = struct{}{}
	}
}
