package session

import "slices"

// negTurns limits the number of queries that reconcile (NIP-77) concurrently, because claimed ids
// cost the relay nothing and use local memory. A query leaves its slot before its ids are fetched
// if the ids of all such queries fit into its room. So slow fetches do not block other
// reconciliations.
type negTurns struct {
	most    int  // maximum concurrent queries; read-only
	offered bool // the relay is not known to lack NIP-77
	doubts  int  // NEG-OPENs refused for a reason that may be the filter
	waiting []*query
	active  int // queries with a slot, from LoadSet on
	granted int // ids that queries with a slot may need
	left    int // ids of queries that left their slot early
}

func (t *negTurns) wait(q *query) { t.waiting = append(t.waiting, q) }

// next gives a slot to the query that has waited longest. It returns nil if no query waits or no
// slot is free.
func (t *negTurns) next() *query {
	if len(t.waiting) == 0 || t.active >= t.most {
		return nil
	}
	q := t.waiting[0]
	t.waiting = t.waiting[1:]
	q.state, q.placed = qLoading, true
	t.active++
	return q
}

func (t *negTurns) grant(q *query) {
	t.granted += q.room - q.granted
	q.granted = q.room
}

// leave frees the slot of a query or ends its wait. free means that a slot became free.
func (t *negTurns) leave(q *query) (free bool) {
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
func (t *negTurns) leaveWith(q *query, ids int) bool {
	if t.left+ids > q.room {
		q.neg = nil // its ids are kept
		return false
	}
	t.leave(q)
	t.left, q.left = t.left+ids, ids
	return true
}

func (t *negTurns) leaveAll(b *batch) {
	t.waiting = slices.DeleteFunc(t.waiting, func(q *query) bool { return q.b == b })
}

// doubt counts a refusal that may concern the filter. It returns false if there were so many that
// NIP-77 itself is refused.
func (t *negTurns) doubt() bool {
	if t.doubts >= maxNegDoubts {
		return false
	}
	t.doubts++
	return true
}

func (t *negTurns) stop() []*query {
	waiting := t.waiting
	t.offered, t.waiting = false, nil
	return waiting
}

// maxNegDoubts is the number of NEG-OPENs that may be refused as bad or restricted requests before
// NIP-77 counts as unsupported.
const maxNegDoubts = 1
