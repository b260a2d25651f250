package session

import (
	"cmp"
	"math"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync/filters"
	"github.com/graspsync/graspsync/sync/internal/plan"
)

const (
	maxWindows     = 64 // reconciled one by one, for one query
	maxWindowDepth = 16 // how often a window is divided
	guessedWindows = 16 // made at once of what we have

	firstEvents = 1_600_000_000 // Nostr began after this, Unix time
)

// window is a part of a query: the seconds from since to until, both inclusive.
type window struct{ since, until int64 }

// noEnd is the until of a window without an upper bound.
const noEnd = math.MaxInt64

// newPart makes a query for a part of another one, which waits for it.
func (s *Session) newPart(q *query, f nostr.Filter) *query {
	c := &query{
		id: QueryID(s.number()), b: q.b, index: q.index, parent: q, depth: q.depth + 1, pages: q.pages,
		filter: f, match: filters.Compile([]nostr.Filter{f}),
	}
	q.part = c
	s.queries[c.id] = c
	return c
}

// span returns the seconds that a query is about.
func (q *query) span() window {
	w := window{0, noEnd}
	if f := q.filter; f.Since != nil {
		w.since = max(0, int64(*f.Since))
	}
	if f := q.filter; f.Until != nil {
		w.until = int64(*f.Until)
	}
	return w
}

// tooLarge divides a query whose reconciliation the relay found too large. What
// can't be divided further is fetched by pages.
func (s *Session) tooLarge(q *query, now time.Time) {
	s.leaveReconciling(q)
	span := q.span()
	if q.second != nil || span.since >= span.until || q.depth >= maxWindowDepth || q.whole().windows+2 > maxWindows {
		s.byPages(q)
		return
	}
	bounds := s.guess(q, span)
	if len(bounds) == 0 {
		bounds = []int64{middle(q, span, now.Unix())}
	}
	// From the newest to the oldest, so that how far it got can be told.
	until := span.until
	for _, since := range bounds {
		q.window = append(q.window, window{since, until})
		until = since - 1
	}
	q.window = append(q.window, window{span.since, until})
	q.whole().windows += len(q.window)
	s.nextWindow(q)
}

// whole returns the query of the batch that q is a part of, at any depth.
func (q *query) whole() *query {
	for q.parent != nil {
		q = q.parent
	}
	return q
}

// partEnded goes on with the query that waits for a part.
func (s *Session) partEnded(c *query, result plan.Result, why string) {
	q := c.parent
	switch {
	case s.queries[q.id] != q: // both ended
	case c.second != nil:
		q.part = nil
		s.secondEnded(q, c.second, result)
	case q.from != 0:
		s.turnEnded(q, c, result, why)
	default:
		s.windowEnded(q, c, result, why)
	}
}

// reached returns the second down to which everything was fetched or counted, 0 if
// nothing can be said.
func (q *query) reached() (at int64) {
	switch c := q.part; {
	case q.from != 0:
		at = q.from
		if c != nil && len(q.turns) == 0 { // of all kinds before it everything is here
			at = cmp.Or(c.reached(), at)
		}
	case q.walk != nil:
		if at = q.walk.Until(); at != 0 && c != nil {
			at = max(at, int64(c.second.at))
		}
	case c != nil:
		if at = c.reached(); at == 0 {
			at = q.below
		}
	default:
		at = q.below
	}
	switch {
	case at == 0, q.hold == noEnd:
		return 0
	}
	return max(at, q.hold)
}

// guess divides a query by what we have, so that no window should hold more than
// the relay's maximum: it may well have about the same. It returns where the
// windows begin, newest first, without the oldest; none if there is nothing to go
// by.
func (s *Session) guess(q *query, span window) (bounds []int64) {
	most := s.terms.NegentropyMax
	if q.depth > 0 || most < 1 || q.set == nil {
		return nil
	}
	n := q.set.Len()
	k := min(guessedWindows, (2*n+most-1)/most)
	for i := k - 1; i > 0; i-- {
		at := int64(q.set.Time(n * i / k))
		if at > span.since && at <= span.until && (len(bounds) == 0 || at < bounds[len(bounds)-1]) {
			bounds = append(bounds, at)
		}
	}
	return bounds
}

// middle returns where the newer half of a window begins. Every other time it is
// the middle of what we have; in between, since they may have other things, the
// middle of the time in which events were made.
func middle(q *query, span window, now int64) int64 {
	if q.set != nil && q.depth%2 == 0 && q.set.Len() >= 16 {
		at := int64(q.set.Time(q.set.Len() / 2))
		if at > span.since && at <= span.until {
			return at
		}
	}
	from, to := span.since, span.until
	if to > now {
		to = max(now, from+1) // what is newer comes with the newer half
	}
	if to > firstEvents {
		from = max(from, firstEvents)
	}
	return from + (to-from+1)/2
}

// nextWindow goes on with the next window, newest first.
func (s *Session) nextWindow(q *query) {
	if len(q.window) == 0 {
		s.end(q, plan.Complete, "")
		return
	}
	w := q.window[0]
	q.window = q.window[1:]
	s.fetchPart(s.newWindow(q, w))
}

// fetchPart reconciles a part of a query if the relay does that.
func (s *Session) fetchPart(c *query) {
	if !s.negentropy || c.pages {
		s.byPages(c)
		return
	}
	s.negQueue = append(s.negQueue, c)
	s.reconcileNext()
}

// byPages fetches by pages what is not reconciled.
func (s *Session) byPages(q *query) {
	if q.second != nil {
		s.splitSecond(q)
		return
	}
	s.startPages(q, 0)
}

// newWindow makes the query for a window.
func (s *Session) newWindow(q *query, w window) *query {
	since := nostr.Timestamp(w.since)
	bounds := [2]*nostr.Timestamp{q.filter.Since, q.filter.Until}
	if w.since > q.span().since {
		bounds[0] = &since
	}
	until := nostr.Timestamp(w.until)
	if w.until < q.span().until {
		bounds[1] = &until
	}
	c := s.newPart(q, filters.Between(q.filter, bounds[0], bounds[1], 0))
	if q.set != nil {
		c.set = q.set.Between(uint64(w.since), uint64(w.until))
	}
	return c
}

// windowEnded goes on below a window, or gives up the whole with it.
func (s *Session) windowEnded(q, c *query, result plan.Result, why string) {
	if result >= plan.Failed {
		s.end(q, result, why)
		return
	}
	if result == plan.Gaps {
		q.result = plan.Gaps
		q.hold = max(q.hold, cmp.Or(c.hold, c.span().until))
	}
	q.below, q.part = c.span().since-1, nil
	s.nextWindow(q)
}

// salvage ends a reconciliation that did not come to its end. What it found is
// fetched, and then the rest: by another one if again is set and this one got
// somewhere, else by pages.
func (s *Session) salvage(q *query, again bool) {
	span := q.span()
	settled := int64(min(q.neg.Settled(), uint64(noEnd)))
	need := q.neg.Need()
	need = need[:min(len(need), s.cfg.NegIDs)]
	if q.second != nil || settled <= span.since || settled > span.until {
		settled, again = span.since, false
	}
	if len(need) == 0 && settled == span.since {
		s.byPages(q)
		return
	}
	s.leaveReconciling(q)
	again = again && q.whole().windows < maxWindows && q.depth < maxWindowDepth
	q.rest = &rest{window{settled, span.until}, again}
	s.askMissing(q, need)
}

// rest is what a reconciliation did not come to.
type rest struct {
	window
	again bool // reconcile it
}

// idsDone goes on when what was found by reconciling was fetched.
func (s *Session) idsDone(q *query) {
	switch r := q.rest; {
	case r != nil:
		q.rest = nil
		if q.result != plan.Complete {
			q.hold = noEnd // nobody knows where the ids belong that did not come
		}
		if q.second != nil {
			s.splitSecond(q)
			return
		}
		c := s.newWindow(q, r.window)
		q.set = nil
		q.whole().windows++
		if r.again {
			s.fetchPart(c)
			return
		}
		s.byPages(c)
	case q.second != nil && q.second.unsure:
		s.splitSecond(q)
	case !s.lookBelow(q):
		s.end(q, plan.Complete, "")
	}
}
