package session

import (
	"cmp"
	"slices"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/sync/internal/plan"
)

// Pages go from the newest event to the oldest, but states say nothing without the
// announcement that is older than they are. Those that come first wait for it, and what
// waits costs its relay: a relay that has many states would have to wait for its own
// announcements. So where there are many of both, what is left of them comes kind by kind.

// mixedPages is how many pages' worth of events a batch takes in with all kinds together:
// fewer of them are not worth more requests.
const mixedPages = 2

// isMixed reports whether the rest of a walk should come kind by kind.
func (s *Session) isMixed(q *query) bool {
	return q.from == 0 && q.walk.Until() != 0 && q.b.report.Events >= mixedPages*s.cfg.PageLimit &&
		len(q.filter.Kinds) > 1 && slices.Contains(q.filter.Kinds, graspsync.KindAnnouncement)
}

// inTurns goes on with a walk kind by kind, announcements first.
func (s *Session) inTurns(q *query) {
	first, rest := q.filter, q.filter
	first.Kinds = []int{graspsync.KindAnnouncement}
	rest.Kinds = slices.DeleteFunc(slices.Clone(rest.Kinds), func(kind int) bool { return kind == graspsync.KindAnnouncement })
	q.from, q.turns = q.walk.Until(), []nostr.Filter{first, rest}
	s.nextTurn(q)
}

func (s *Session) nextTurn(q *query) {
	if len(q.turns) == 0 {
		s.end(q, plan.Complete, "")
		return
	}
	f := q.turns[0]
	q.turns = q.turns[1:]
	s.startPages(s.newPart(q, f), q.from)
}

// turnEnded goes on with the next kind, or gives up the whole with this one.
func (s *Session) turnEnded(q, c *query, result plan.Result, why string) {
	if result >= plan.Failed {
		s.end(q, result, why)
		return
	}
	if result == plan.Gaps {
		q.result = plan.Gaps
		q.hold = max(q.hold, cmp.Or(c.hold, noEnd))
	}
	q.part = nil
	s.nextTurn(q)
}
