package session

import (
	"math"

	"github.com/graspsync/graspsync/sync/internal/plan"
)

// A query is broad if it asks for all that a relay has, far more than is wanted. It is reconciled
// (NIP-77), for next to nothing where both have nearly the same, and that is all that is done
// for it: where much differs, the relay refuses or anything else is not as it should be, it ends
// without result, and nothing is learned from that. What is wanted is asked for by itself then.
// What it proves is much, and relays that reconcile no more than so many events would leave
// something out each time. So whatever the number is, the relay must not have anything below what
// it showed, nor anything else of the oldest second of that.

const (
	// leastBroad is what there must be here. With less, all ids would be listed at once.
	leastBroad = 32
	// The ids that may be missing: a part of what is here, and some more.
	broadShare = 50
	broadIDs   = 300
)

// noUse ends a query that is broad without result.
func (h *history) noUse(q *query, why string) { h.end(q, plan.Failed, why) }

// mayPay reports whether what we have suits a query that is broad.
func (h *history) mayPay(q *query) bool {
	n, most := q.set.Len(), h.terms.NegentropyMax
	return n >= leastBroad && (most == 0 || n <= most)
}

// mostIDs is how many ids may be missing.
func (h *history) mostIDs(q *query) int {
	if q.broad == 0 {
		return h.cfg.NegIDs
	}
	return min(h.cfg.NegIDs, q.set.Len()/broadShare+broadIDs)
}

// tooDear counts the bytes of two messages, which are twice as many as hex, and reports whether
// a query that is broad has used up those that it has.
func (h *history) tooDear(q *query, bytes int) bool {
	q.spent += 2 * bytes
	return q.broad > 0 && q.spent > q.broad
}

// lookBroadly has the oldest second asked for of which the relay showed something, and what is
// below it.
func (h *history) lookBroadly(q *query) bool {
	p := q.cut
	if p.oldest == math.MaxInt64 || p.shown >= max(h.pageSize, leastPage) {
		h.noUse(q, "it can't be told whether that is all")
		return true
	}
	method := q.b.report.Method
	h.startPages(q, p.oldest)
	q.b.report.Method = method // a look is not a way to fetch
	return true
}

// broadEnded ends a query that is broad after that look.
func (h *history) broadEnded(q *query, whole bool) {
	if !whole {
		h.noUse(q, "it does not compare all that it has")
		return
	}
	h.end(q, plan.Complete, "")
}
