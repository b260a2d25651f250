package session

import (
	"cmp"
	"slices"
	"time"

	"github.com/graspsync/graspsync/sync/internal/plan"
)

// Tick does what has become due.
func (s *Session) Tick(now time.Time) []Action {
	late := make([]*sub, 0, 4)
	for _, x := range s.subs {
		if x.kind != subLive && (!now.Before(x.idleBy) || !now.Before(x.totalBy)) {
			late = append(late, x)
		}
	}
	slices.SortFunc(late, byNumber)
	for _, x := range late {
		if s.subs[x.id] != x {
			continue // ended along with another
		}
		if x.kind == subNeg {
			s.drop(x, true)
			s.negSilent(x, now)
			continue
		}
		if x.kind == subProbe {
			s.probeFailed(x, "no answer in time", true)
			continue
		}
		s.fail(x, "no answer in time")
	}
	if s.auth.late(now) {
		s.authOver(false, "authentication got no answer")
	}
	for _, b := range s.overdue(now) {
		s.expire(b, now)
	}
	return s.flush(now)
}

// negSilent deals with a reconciliation that got no answer in time. Silence from
// the start is how some relays say that they don't know NIP-77. One that took too
// long in all is asked about the rest.
func (s *Session) negSilent(x *sub, now time.Time) {
	if x.events == 0 {
		s.noNegentropy("no answer to NEG-OPEN")
	}
	s.salvage(x.q, now.Before(x.idleBy))
}

// byNumber orders requests that were sent as they were sent.
func byNumber(a, b *sub) int { return cmp.Compare(a.number, b.number) }

func (s *Session) overdue(now time.Time) (out []*batch) {
	for _, b := range s.batches {
		if !now.Before(b.Deadline) {
			out = append(out, b)
		}
	}
	slices.SortFunc(out, func(a, b *batch) int { return cmp.Compare(a.ID, b.ID) })
	return out
}

// ahead is how far ahead of our clock events are looked for when a query begins anew by
// pages.
const ahead = time.Hour

// expire ends a batch that has taken too long; what it fetched is kept. One that got so
// much to fetch by reconciling goes on by pages the next time, which tell how far they
// got: to reconcile again would begin with the same ids, and never come to the others.
func (s *Session) expire(b *batch, now time.Time) {
	s.leaveNegQueue(b)
	b.report.Late = b.result < plan.Failed && b.report.Events > 0
	for _, q := range s.queriesOf(b) {
		if q.chunks > 0 && q.parent == nil && q.reached() == 0 {
			q.below = now.Add(ahead).Unix()
		}
		s.dropOthers(q)
		s.end(q, plan.Failed, "took too long")
	}
}

func (s *Session) queriesOf(b *batch) (out []*query) {
	for _, q := range s.queries {
		if q.b == b {
			out = append(out, q)
		}
	}
	slices.SortFunc(out, func(a, b *query) int { return cmp.Compare(a.id, b.id) })
	return out
}

// NextWake returns when Tick is due; false if nothing is waited for.
func (s *Session) NextWake() (next time.Time, ok bool) {
	consider := func(t time.Time) {
		if !ok || t.Before(next) {
			next, ok = t, true
		}
	}
	for _, x := range s.subs {
		if x.kind != subLive {
			consider(x.idleBy)
			consider(x.totalBy)
		}
	}
	for _, b := range s.batches {
		consider(b.Deadline)
	}
	if s.auth.underWay() {
		consider(s.auth.by)
	}
	if len(s.waiting) == 0 && len(s.closing) == 0 {
		return next, ok
	}
	switch {
	case s.opening != nil:
		consider(s.opening.openBy)
	case !s.pace.until.IsZero():
		consider(s.pace.until)
	case !s.auth.underWay() && s.tried == nil:
		if at, waits := s.affordedAt(); waits {
			consider(at)
		}
	}
	if s.pace.until.IsZero() && !s.pace.next.IsZero() {
		consider(s.pace.next)
	}
	return next, ok
}

// Excuse puts all deadlines of answers off by d: we were not reading.
func (s *Session) Excuse(d time.Duration) {
	for _, x := range s.subs {
		x.idleBy = x.idleBy.Add(d)
		x.totalBy = x.totalBy.Add(d)
	}
	if s.opening != nil {
		s.opening.openBy = s.opening.openBy.Add(d)
	}
	s.auth.by = s.auth.by.Add(d)
}

// Open reports how many requests are open or wait to be: for tests and status.
func (s *Session) Open() (live, historic, waiting int) {
	for _, x := range s.subs {
		if x.kind == subLive {
			live++
		}
	}
	return live, s.historic, len(s.waiting)
}
