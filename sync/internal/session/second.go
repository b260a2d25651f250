package session

import (
	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/filters"
	"github.com/graspsync/graspsync/sync/internal/plan"
	"github.com/graspsync/graspsync/sync/wire"
)

const (
	secondRequests = 200   // pages for one second
	splitRequests  = 2_000 // pages for all the seconds of a batch
	leastDoubt     = 20    // events in a second that is looked into on suspicion
)

// second is the part of a query that is one second with more events than a page
// holds. It is reconciled (NIP-77), or else split.
type second struct {
	at    nostr.Timestamp
	page  int // answers smaller than this are whole
	doubt int // > 0: it gave so many, and it is only suspected that there are more
	split *filters.Split
	// unsure: the relay reconciled no more events than a page holds. It may have a
	// cap there, too.
	unsure bool
}

// fullSeconds has the seconds looked into that a walk found to be full since it was
// last asked. It reports whether there are any: then the walk waits for them.
func (s *Session) fullSeconds(q *query) bool {
	w := q.walk
	gaps := w.Gaps()
	found := gaps[q.gaps:]
	q.gaps = len(gaps)
	if w.Done() && !w.Ended() {
		// It does not keep to until, or keeps something back: nothing can be proven.
		s.full(q, max(1, len(found)), nostr.Timestamp(w.Until()))
		return false
	}
	page := max(leastPage, min(s.cfg.PageLimit, w.Largest()))
	for _, at := range found {
		q.seconds = append(q.seconds, second{at: at, page: page})
	}
	if at, size := w.Doubt(); w.Done() && size >= leastDoubt {
		q.seconds = append(q.seconds, second{at: at, page: page, doubt: size})
	}
	return s.nextSecond(q)
}

// full counts seconds that may hold more than the relay gave. How far the query got
// is no further than the first of them.
func (s *Session) full(q *query, n int, at nostr.Timestamp) {
	q.b.report.Seconds += n
	q.result = max(q.result, plan.Gaps)
	q.hold = max(q.hold, int64(at))
}

// nextSecond looks into the next second that waits for it.
func (s *Session) nextSecond(q *query) bool {
	if len(q.seconds) == 0 {
		return false
	}
	sec := q.seconds[0]
	q.seconds = q.seconds[1:]
	c := s.newPart(q, filters.Between(q.filter, &sec.at, &sec.at, 0))
	c.second = &sec
	sec.split = filters.NewSplit(c.filter, sec.at, filters.SplitOptions{
		Limit: s.cfg.PageLimit, Page: sec.page, Requests: secondRequests,
	})
	if sec.doubt > 0 {
		s.splitSecond(c)
	} else {
		s.fetchPart(c)
	}
	return true
}

// splitSecond fetches a second by parts of its filter.
func (s *Session) splitSecond(q *query) {
	s.leaveReconciling(q)
	q.b.report.Method |= Pages
	s.nextPart(q)
}

func (s *Session) nextPart(q *query) {
	f, ok := q.second.split.Next()
	if !ok || q.b.splits >= splitRequests {
		s.endSplit(q)
		return
	}
	q.b.splits++
	s.enqueue(&sub{kind: subPage, q: q, filters: []nostr.Filter{f}, match: filters.Compile([]nostr.Filter{f})})
}

// saw counts an event of a page.
func (q *query) saw(id graspsync.EventID, ev *nostr.Event) {
	if q.second != nil {
		q.second.split.Saw(id, ev)
		return
	}
	q.walk.Saw(id, ev.CreatedAt)
}

// heard takes in an event that was asked for by its id.
func (q *query) heard(ev *nostr.Event) {
	if q.second != nil {
		q.second.split.Heard(ev)
	}
	if q.probe != nil {
		q.probe.oldest = min(q.probe.oldest, int64(ev.CreatedAt))
	}
}

// repeatPage forgets what was counted of the page under way.
func (q *query) repeatPage() {
	if q.second != nil {
		q.second.split.Next()
		return
	}
	q.walk.Next()
}

// endPart takes in the end of a page of a split.
func (s *Session) endPart(q *query, hint wire.Hint) {
	q.second.split.End(hint == wire.HintFinish, hint == wire.HintMore)
	s.nextPart(q)
}

// endSplit judges a second. One that was only suspected is taken for whole if
// nothing new came: the relay gave larger pages elsewhere.
func (s *Session) endSplit(q *query) {
	sp := q.second.split
	if sp.Complete() || q.second.doubt > 0 && sp.Seen() <= q.second.doubt {
		s.end(q, plan.Complete, "")
		return
	}
	s.end(q, plan.Gaps, "")
}

// secondEnded goes on with the walk that a second belongs to. Whatever kept the second from
// being proven complete, a refusal or a silence too, what is below it is fetched.
func (s *Session) secondEnded(q *query, sec *second, result plan.Result) {
	if result != plan.Complete {
		s.full(q, 1, sec.at)
	}
	if !s.nextSecond(q) {
		s.goOn(q)
	}
}

// goOn goes on with a walk all of whose full seconds were looked into.
func (s *Session) goOn(q *query) {
	if q.walk.Done() {
		s.end(q, plan.Complete, "")
		return
	}
	if s.isMixed(q) {
		s.inTurns(q)
		return
	}
	s.nextPage(q)
}
