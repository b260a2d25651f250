package session

import "slices"

// negTurns says which queries reconcile (NIP-77), and which wait to: only some do at a time.
type negTurns struct {
	most    int  // at a time; read-only
	offered bool // the relay reconciles, as far as is known
	doubts  int  // NEG-OPENs refused in words that may be about the filter
	waiting []*query
	active  int // queries between LoadSet and the end of reconciliation
}

// wait has a query wait for its turn.
func (t *negTurns) wait(q *query) { t.waiting = append(t.waiting, q) }

// next begins the turn of the query that has waited longest, nil if there is none or no room.
func (t *negTurns) next() *query {
	if len(t.waiting) == 0 || t.active >= t.most {
		return nil
	}
	q := t.waiting[0]
	t.waiting = t.waiting[1:]
	q.state = qLoading
	t.active++
	return q
}

// leave ends the turn of a query, or its waiting for one. It reports whether another may have
// its turn.
func (t *negTurns) leave(q *query) (free bool) {
	switch q.state {
	case qWaiting:
		t.waiting = slices.DeleteFunc(t.waiting, func(o *query) bool { return o == q })
	case qLoading, qReconciling:
		t.active--
		q.state, q.neg = qFetching, nil
		return true
	}
	return false
}

// leaveAll ends the waiting of the queries of a batch.
func (t *negTurns) leaveAll(b *batch) {
	t.waiting = slices.DeleteFunc(t.waiting, func(q *query) bool { return q.b == b })
}

// doubt counts a refusal that may be about the filter. It is false once there are so many that
// they are about NIP-77 itself.
func (t *negTurns) doubt() bool {
	if t.doubts >= maxNegDoubts {
		return false
	}
	t.doubts++
	return true
}

// stop takes note that the relay does not reconcile, and returns what has waited for that.
func (t *negTurns) stop() []*query {
	waiting := t.waiting
	t.offered, t.waiting = false, nil
	return waiting
}

// maxNegDoubts is how many NEG-OPENs a relay may refuse as bad requests, or as not for
// us, until that is taken to mean NIP-77 itself.
const maxNegDoubts = 1
