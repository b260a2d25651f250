package session

import (
	"math"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/sync/internal/negentropy"
	"github.com/graspsync/graspsync/sync/internal/plan"
)

// audit looks for proof that NIP-77 is wrong: when a window of the past has come by pages the relay
// is asked by NIP-77 what it has there, as somebody who has nothing. What that does not show is asked
// for by pages once more. If it comes again the relay had it all the time: it was not published in
// between, nor deleted.
type audit struct {
	came    map[graspsync.EventID]nostr.Timestamp // by pages, and was not known here
	compare bool                                  // NIP-77 was asked, or is being asked
	hidden  map[graspsync.EventID]struct{}        // what came, and was not shown
}

// maxAudited bounds the events of a window that are looked for.
const maxAudited = 1_000

// brought takes in an event that came by page.
func (a *audit) brought(id graspsync.EventID, at nostr.Timestamp) {
	if a.came == nil {
		a.came = make(map[graspsync.EventID]nostr.Timestamp)
	}
	if !a.compare && len(a.came) < maxAudited {
		a.came[id] = at
	}
}

// shown takes in what NIP-77 showed, and reports whether it has hidden anything. Of a set that may have been
// cut what is older than all that it has counts for nothing.
func (a *audit) shown(need [][32]byte, maybeCut bool) bool {
	oldest := nostr.Timestamp(math.MinInt64)
	if maybeCut {
		oldest = math.MaxInt64
	}
	for _, id := range need {
		if at, ok := a.came[id]; ok {
			if maybeCut {
				oldest = min(oldest, at)
			}
			delete(a.came, id)
		}
	}
	a.hidden = make(map[graspsync.EventID]struct{})
	for id, at := range a.came {
		if at > oldest {
			a.hidden[id] = struct{}{}
		}
	}
	return len(a.hidden) > 0
}

// audited goes on with an audit whose pages have come; false if it is over.
func (h *history) audited(q *query, result plan.Result) bool {
	a := q.audit
	if a == nil || a.compare || len(a.came) == 0 || !h.reconciling.offered {
		return false
	}
	a.compare, q.pages, q.result = true, false, max(q.result, result)
	q.state, q.set, q.walk = qWaiting, negentropy.NewSet(nil), nil
	h.fetchPart(q)
	return true
}

// shown goes on with an audit whose NIP-77 has come.
func (h *history) shown(q *query, neg *negentropy.Session) {
	if q.audit.shown(neg.Need(), h.maybeCut(neg.TheirLen())) {
		h.startPages(q, 0)
		return
	}
	h.end(q, q.result, "")
}

// auditPage takes in an event that came by page.
func (h *history) auditPage(q *query, ev graspsync.Event, known bool) {
	a := q.whole().audit
	if a == nil {
		return
	}
	if _, ok := a.hidden[ev.ID]; ok {
		q.b.report.Disproved = true
		h.noNegentropy("it does not show what pages bring", true)
	}
	if !known {
		a.brought(ev.ID, ev.CreatedAt)
	}
}
