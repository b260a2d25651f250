package session

import "slices"

// negTurns says which queries reconcile (NIP-77), and which wait to: only some do at a time. What a relay claims to have costs
// it nothing and takes our memory. A query leaves its place with what it has found where there is room for that beside what others have
// left with: what is not for us comes slowly, and they go on meanwhile. Else it keeps its place until that was asked for.
type negTurns struct {
	most    int  // at a time; read-only
	offered bool // the relay reconciles, as far as is known
	doubts  int  // NEG-OPENs refused in words that may be about the filter
	waiting []*query
	active  int // queries that have a place, from LoadSet on
	granted int // ids that they may be found to need
	left    int // ids of queries that have left their place with them
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
	q.state, q.placed = qLoading, true
	t.active++
	return q
}

// grant has a query that has a place take the room for what it may be found to need.
func (t *negTurns) grant(q *query) {
	t.granted += q.room - q.granted
	q.granted = q.room
}

// leave ends the turn of a query, or its waiting for one. It reports whether another may have
// its turn.
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

// leaveWith is leave of a query that has so many ids still. It is false if the query keeps its place until these were asked for:
// together with what others have they are more than one may find.
func (t *negTurns) leaveWith(q *query, ids int) bool {
	if t.left+ids > q.room {
		q.neg = nil // but not what it has found
		return false
	}
	t.leave(q)
	t.left, q.left = t.left+ids, ids
	return true
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
