package session

import "slices"

// reconcileQueue limits the number of queries that reconcile (NIP-77) concurrently, because claimed
// ids cost the relay nothing and use local memory. A query leaves its slot before its ids are
// fetched if the ids of all such queries fit into its room. So slow fetches do not block other
// reconciliations.
type reconcileQueue struct {
	most    int  // maximum concurrent queries; read-only
	offered bool // the relay is not known to lack NIP-77
	doubted bool // a NEG-OPEN was refused for a reason that may be the filter
	waiting []*query
	active  int // queries with a slot, from LoadSet on
	granted int // ids that queries with a slot may need
	left    int // ids of queries that left their slot early
}

func (t *reconcileQueue) wait(q *query) { t.waiting = append(t.waiting, q) }

// next gives a slot to the query that has waited longest. It returns nil if no query waits or no
// slot is free.
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

// leave frees the slot of a query or ends its wait. free means that a slot became free.
func (t *reconcileQueue) leave(q *query) (free bool) {
	t.left, q.left = t.left-q.left, 0
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

// leaveWith is leave for a query with ids to fetch. It returns false if the query keeps its slot
// because the ids exceed its room.
func (t *reconcileQueue) leaveWith(q *query, ids int) bool {
	if t.left+ids > q.room {
		q.neg = nil // its ids are kept
		return false
	}
	t.leave(q)
	t.left, q.left = t.left+ids, ids
	return true
}

func (t *reconcileQueue) leaveAll(b *batch) {
	t.waiting = slices.DeleteFunc(t.waiting, func(q *query) bool { return q.b == b })
}

func (t *reconcileQueue) stop() []*query {
	waiting := t.waiting
	t.offered, t.waiting = false, nil
	return waiting
}
