package session

import (
	"math"

	"github.com/graspsync/graspsync/sync/internal/negentropy"
	"github.com/graspsync/graspsync/sync/internal/plan"
)

// Some relays reconcile no more events than their database gives at once, the
// newest ones, and do not say so: whatever is older would never be asked for. Their
// caps are round numbers. So where a relay showed to have such a number of events, a
// page below the oldest of them is asked for. It is empty if the set was whole.

// probe says what is known of a reconciliation whose set may have been cut.
type probe struct {
	oldest int64 // created_at of the oldest event that the relay showed
	below  bool  // the page below it was asked for
}

// suspect has the page below what was reconciled asked for, if need be.
func (s *Session) suspect(q *query, neg *negentropy.Session) {
	n := neg.TheirLen()
	if n == 0 || n%50 != 0 && n != 375 && n != s.pageSize {
		return
	}
	q.probe = &probe{oldest: math.MaxInt64}
	if at, ok := neg.OldestShared(); ok {
		q.probe.oldest = int64(at)
	}
}

// lookBelow asks for the page below the oldest event of a suspect set. It reports
// false if there is nothing to be asked.
func (s *Session) lookBelow(q *query) bool {
	p := q.probe
	if p == nil || p.below || p.oldest <= q.span().since || p.oldest == math.MaxInt64 {
		q.probe = nil
		return false
	}
	p.below = true
	q.hold = max(q.hold, p.oldest) // there may be more of that second
	if q.result != plan.Complete {
		q.hold = noEnd
	}
	method := q.b.report.Method
	s.startPages(q, p.oldest-1)
	q.b.report.Method = method // a look is not a way to fetch
	return true
}

// cutBelow goes on by pages, from the oldest event on, if there was anything below
// it: then the set was cut, maybe in the middle of a second.
func (s *Session) cutBelow(q *query, events int) bool {
	p := q.probe
	q.probe = nil
	if p == nil || events == 0 {
		return false
	}
	if q.hold == p.oldest {
		q.hold = 0
	}
	s.startPages(q, p.oldest)
	return true
}
