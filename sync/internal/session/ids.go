package session

import (
	"maps"
	"slices"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/filters"
	"github.com/graspsync/graspsync/sync/internal/plan"
)

const (
	maxUnserved = 1_000 // ids that a report names
	maxBarren   = 8     // requests by id in a row that bring nothing
)

// fetchIDs asks for events by id, one chunk a request.
func (s *Session) fetchIDs(q *query, ids []graspsync.EventID) {
	q.todo, q.barren = ids, 0
	s.moreIDs(q)
}

// moreIDs asks for the next chunks. What was asked for once already goes into
// smaller ones.
func (s *Session) moreIDs(q *query) {
	size := s.idChunk
	if q.retried && size > 2*leastPage {
		size /= 2
	}
	for len(q.todo) > 0 && q.chunks < 2*s.mostHistoric {
		chunk := q.todo[:min(size, len(q.todo))]
		q.todo = q.todo[len(chunk):]
		want := make(map[graspsync.EventID]struct{}, len(chunk))
		for _, id := range chunk {
			want[id] = struct{}{}
		}
		q.chunks++
		fs := []nostr.Filter{s.byID(q, chunk)}
		s.enqueue(&sub{kind: subIDs, q: q, want: want, asked: len(want), filters: fs, match: filters.Compile(fs)})
	}
}

// byID is the filter for events that were found by a query.
func (s *Session) byID(q *query, ids []graspsync.EventID) nostr.Filter {
	f := filters.ByID(ids, len(ids))[0]
	kinds := nostr.Filter{Kinds: q.filter.Kinds, Authors: q.filter.Authors}
	switch {
	case s.terms.NoNotes:
		kinds = filters.WithoutNotes(kinds)
	case s.terms.NeedsKinds && kinds.Authors == nil:
		kinds = filters.WithKinds(kinds)
	case !s.terms.NeedsKinds:
		return f
	}
	if !filters.Empty(kinds) {
		f.Kinds, f.Authors = kinds.Kinds, kinds.Authors
	}
	return f
}

// endIDs takes in the end of one chunk. What did not come is asked for once more
// and then counted: a relay may announce what it can't or won't serve.
func (s *Session) endIDs(x *sub) {
	q := x.q
	if x.noticed && x.events == 0 {
		// Some relays report a failed query so.
		s.fail(x, "notice and nothing else")
		return
	}
	s.drop(x, true)
	q.chunks--
	s.takeChunk(q, x)
	s.moreIDs(q)
	switch {
	case q.chunks > 0:
	case len(q.unserved) == 0:
		s.idsDone(q)
	case !q.retried:
		q.retried = true
		ids := q.unserved
		q.unserved = nil
		slices.SortFunc(ids, graspsync.EventID.Compare)
		s.fetchIDs(q, ids)
	default:
		s.countUnserved(q)
		s.idsDone(q)
	}
}

// takeChunk decides what becomes of the ids that did not come. If fewer than half
// came, the relay has a cap, and smaller chunks are asked for from now on.
func (s *Session) takeChunk(q *query, x *sub) {
	left := slices.SortedFunc(maps.Keys(x.want), graspsync.EventID.Compare)
	got := x.asked - len(left)
	if got > 0 && got < x.asked/2 && x.asked > 2*leastPage {
		s.idChunk = min(s.idChunk, max(leastPage, got))
		q.todo = append(slices.Clip(q.todo), left...)
	} else {
		q.unserved = append(q.unserved, left...)
	}
	q.barren++
	if got > 0 {
		q.barren = 0
	}
	if q.barren >= maxBarren {
		// They were made up, or the relay is not in the mood.
		q.unserved = append(q.unserved, q.todo...)
		q.todo, q.retried = nil, true
	}
}

func (s *Session) countUnserved(q *query) {
	slices.SortFunc(q.unserved, graspsync.EventID.Compare)
	r := &q.b.report
	r.Missing += len(q.unserved)
	r.Unserved = append(r.Unserved, q.unserved[:min(len(q.unserved), maxUnserved-len(r.Unserved))]...)
	q.unserved = nil
	q.result = max(q.result, plan.Gaps)
}
