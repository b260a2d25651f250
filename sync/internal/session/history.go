package session

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/filters"
	"github.com/graspsync/graspsync/sync/internal/plan"
	"github.com/graspsync/graspsync/sync/internal/relaylimits"
	"github.com/graspsync/graspsync/sync/wire"
)

type batch struct {
	plan.Batch
	open    int
	cursors []plan.Cursor
	parts   [][]*query // queries by filter, ended ones included
	result  plan.Result
	report  Report
}

// Fetch starts a batch.
func (s *Session) Fetch(now time.Time, in plan.Batch) []Action {
	b := &batch{Batch: in, cursors: make([]plan.Cursor, len(in.Queries)), parts: make([][]*query, len(in.Queries))}
	s.batches[in.ID] = b
	var all []*query
	for i, q := range in.Queries {
		all = append(all, s.queriesFor(b, i, q)...)
	}
	for _, q := range all {
		s.begin(q)
	}
	if len(in.Queries) == 0 {
		delete(s.batches, in.ID)
		s.do(Done{Batch: in.ID})
	}
	s.reconcileNext()
	return s.flush(now)
}

// Cursors returns the progress of the running batches.
func (s *Session) Cursors() map[plan.BatchID][]plan.Cursor {
	for _, q := range s.queries {
		q.noteCursor()
	}
	out := make(map[plan.BatchID][]plan.Cursor, len(s.batches))
	for id, b := range s.batches {
		out[id] = b.cursors
	}
	return out
}

func (b *batch) sum(index int) {
	all := plan.CursorDone
	for _, q := range b.parts[index] {
		switch {
		case q.cursor == plan.CursorStart || all == plan.CursorStart:
			all = plan.CursorStart
		case q.cursor != plan.CursorDone:
			all = max(all, q.cursor) // CursorDone is below all times
		}
	}
	b.cursors[index] = all
}

// queriesFor returns the queries for a filter, divided as the limits of the relay require.
func (s *Session) queriesFor(b *batch, index int, from plan.Query) []*query {
	fs, less := s.caps.reshape(from.Filter, false)
	if len(fs) == 0 {
		fs = []nostr.Filter{{Kinds: []int{}}} // matches nothing
	}
	out := make([]*query, len(fs))
	for i, f := range fs {
		q := &query{
			id: QueryID(s.number()), b: b, index: index,
			less: less, cursor: plan.Cursor(from.Until), pages: from.NoNegentropy,
			filter: f, match: filters.Compile([]nostr.Filter{f}),
		}
		if b.Kind == plan.Audit {
			q.audit = &audit{came: make(map[graspsync.EventID]struct{})}
		}
		out[i] = q
		s.queries[q.id] = q
	}
	b.open += len(out)
	b.parts[index] = append(b.parts[index], out...)
	b.sum(index)
	return out
}

// begin reconciles a query (NIP-77), or fetches it by pages
//   - if the relay does not offer NIP-77 (noNegentropy)
//   - if the plan says so, for ids, few threads and audits
//   - if it is Recent, with few events
//   - if an earlier attempt fetched a part by pages
//
// A failed reconciliation continues by pages (byPages).
func (s *Session) begin(q *query) {
	switch {
	case filters.Empty(q.filter):
		s.end(q, plan.Gaps, "")
	case s.reconciling.offered && !q.pages && q.b.Kind != plan.Recent && q.cursor == plan.CursorStart:
		s.reconciling.wait(q)
	default:
		s.startPages(q, int64(q.cursor))
	}
}

func (s *Session) restart(q *query) {
	q.noteCursor()
	s.dropOthers(q)
	s.leaveReconciling(q)
	delete(s.queries, q.id)
	b := q.b
	b.open--
	b.parts[q.index] = slices.DeleteFunc(b.parts[q.index], func(o *query) bool { return o == q })
	for _, part := range s.queriesFor(b, q.index, plan.Query{
		Filter: q.filter, Until: int64(q.cursor), NoNegentropy: q.pages,
	}) {
		part.less = part.less || q.less
		s.begin(part)
	}
	s.reconcileNext()
}

func (s *Session) end(q *query, result plan.Result, why string) {
	if _, open := s.queries[q.id]; !open || result < plan.Failed && s.audited(q, result) {
		return
	}
	delete(s.queries, q.id)
	s.leaveReconciling(q)
	if len(q.noneServed) > 0 && result < plan.Failed {
		s.countUnserved(q)
	}
	q.forget()
	result = max(result, q.result)
	b := q.b
	b.open--
	if result >= plan.Failed {
		q.noteCursor()
		if b.report.Err == "" {
			b.report.Err = cmp.Or(why, "no reason given")
		}
	} else {
		if q.less {
			result = plan.Gaps
		}
		q.cursor = plan.CursorDone
		b.sum(q.index)
	}
	b.result = max(b.result, result)
	if b.open > 0 || s.batches[b.ID] != b {
		return
	}
	delete(s.batches, b.ID)
	b.report.PageSize = s.pageSize
	s.do(Done{Batch: b.ID, Result: b.result, Cursors: b.cursors, Report: b.report})
}

func (s *Session) fail(x *request, why string) { s.failWith(x, plan.Failed, why, true) }

func (s *Session) failWith(x *request, result plan.Result, why string, sendClose bool) {
	s.drop(x, sendClose)
	s.dropOthers(x.q)
	s.end(x.q, result, why)
}

func (s *Session) dropOthers(q *query) {
	for _, x := range s.where(func(x *request) bool { return x.q == q }) {
		s.drop(x, true)
	}
}

// Abandon ends a batch without a report.
func (s *Session) Abandon(now time.Time, id plan.BatchID) []Action {
	if b, ok := s.batches[id]; ok {
		s.reconciling.leaveAll(b)
		for _, q := range s.queriesOf(b) {
			s.dropOthers(q)
			s.leaveReconciling(q)
			delete(s.queries, q.id)
		}
		delete(s.batches, id)
	}
	return s.flush(now)
}

func (s *Session) queriesOf(b *batch) (out []*query) {
	for _, id := range slices.Sorted(maps.Keys(s.queries)) {
		if q := s.queries[id]; q.b == b {
			out = append(out, q)
		}
	}
	return out
}

func (s *Session) expire(now time.Time) {
	for _, id := range slices.Sorted(maps.Keys(s.batches)) {
		if b := s.batches[id]; b != nil && !now.Before(b.Deadline) {
			s.expireBatch(b, now)
		}
	}
}

// ahead is added to the current time if a query starts over by pages, so that events dated in the
// future are included.
const ahead = time.Hour

// expireBatch ends a batch at its deadline. A query by id continues by pages, because another
// reconciliation would begin with the same ids.
func (s *Session) expireBatch(b *batch, now time.Time) {
	s.reconciling.leaveAll(b)
	b.report.Late = b.result < plan.Failed && b.report.Events > 0
	for _, q := range s.queriesOf(b) {
		if q.ids.open > 0 && q.walk == nil {
			q.cursor = plan.Cursor(now.Add(ahead).Unix())
			b.sum(q.index)
		}
		s.dropOthers(q)
		s.end(q, plan.Failed, "took too long")
	}
}

func (s *Session) repeat(x *request) {
	switch x.kind {
	case reqPage:
		x.q.walk.Next()
	case reqNeg:
		s.openNeg(x.q)
		return
	}
	s.enqueueFirst(x)
}

func (s *Session) onHistoric(now time.Time, x *request, m wire.Message, matches bool) {
	x.idleBy = now.Add(idleTimeout)
	x.events++
	x.q.b.report.Events++
	again := false
	switch x.kind {
	case reqPage:
		x.q.walk.Saw(m.Event.ID, m.Event.CreatedAt)
		if _, ok := x.q.noneServed[m.Event.ID]; ok {
			// The relay did not invent the ids.
			x.q.noneServed = nil
			s.noNegentropy("events announced by NIP-77 arrive by pages only", true)
		}
		if matches {
			s.auditPage(x.q, m.Event, m.Known)
		}
	case reqIDs:
		_, wanted := x.missing[m.Event.ID]
		again = !wanted
		delete(x.missing, m.Event.ID)
	}
	if matches && !again {
		s.do(Deliver{
			Event: m.Event, Known: m.Known, Size: m.Size,
			Batch: x.q.b.ID, Kind: x.q.b.Kind, Gap: !m.Known && s.liveSubs.missed(now, m.Event.Event),
		})
	}
	if x.events > s.cfg.MaxPage {
		s.fail(x, "answer has too many events")
	}
}

// leastPage is the page size that every relay supports, so that a single event is no full page.
const leastPage = 5

func (s *Session) startPages(q *query, until int64) {
	s.leaveReconciling(q)
	q.b.report.Method |= Pages
	q.walk = filters.NewWalk(q.filter, filters.WalkStart{
		Limit: s.cfg.PageLimit, PageSize: max(s.pageSize, leastPage), Until: until,
	})
	s.nextPage(q)
}

func (s *Session) nextPage(q *query) {
	f := q.walk.Next()
	s.enqueue(&request{kind: reqPage, q: q, filters: []nostr.Filter{f}, match: filters.Compile([]nostr.Filter{f})})
}

func (s *Session) endPage(x *request, hint wire.Hint) {
	q := x.q
	s.drop(x, true)
	q.b.report.Pages++
	q.walk.End(hint == wire.HintFinish, hint == wire.HintMore)
	s.pageSize = max(s.pageSize, q.walk.PageSize())
	if q.walk.Done() {
		s.walked(q)
		return
	}
	s.nextPage(q)
}

const leastDoubt = 20

// walked ends a query after its last page. Full seconds are reconciled, or else reported as gaps.
func (s *Session) walked(q *query) {
	w := q.walk
	q.full = w.Gaps()
	if at, size := w.Doubt(); size >= leastDoubt {
		q.full = append(q.full, at)
	}
	if !w.Ended() && len(q.full) == 0 { // the relay ignores until or withholds events
		q.full = []nostr.Timestamp{nostr.Timestamp(w.Until())}
	}
	switch {
	case len(q.full) == 0:
		s.end(q, plan.Complete, "")
	case w.Ended() && s.reconciling.offered && !q.pages:
		q.state, q.set = qWaiting, nil
		s.reconciling.wait(q)
		s.reconcileNext()
	default:
		s.fullSeconds(q)
	}
}

func (s *Session) fullSeconds(q *query) {
	s.leaveReconciling(q)
	q.b.report.Seconds += len(q.full)
	s.end(q, plan.Gaps, "")
}

const maxUnserved = 1_000 // maximum ids in a report

func (s *Session) fetchIDs(q *query, ids []graspsync.EventID) {
	q.ids.todo, q.ids.again = ids, nil
	s.moreIDs(q)
}

func (s *Session) moreIDs(q *query) {
	for len(q.ids.todo) > 0 && q.ids.open < q.ids.atOnce(2*s.maxHistoric) {
		ids := q.ids.next(s.caps.idChunk)
		missing := make(map[graspsync.EventID]struct{}, len(ids))
		for _, id := range ids {
			missing[id] = struct{}{}
		}
		fs := []nostr.Filter{s.caps.byID(q.filter, ids)}
		s.enqueue(&request{
			kind: reqIDs, q: q, missing: missing, asked: len(missing), filters: fs, match: filters.Compile(fs),
		})
	}
}

func (s *Session) endIDs(x *request) {
	q := x.q
	s.drop(x, true)
	if limit := q.ids.took(x); limit > 0 {
		s.caps.idsAtMost(limit)
	}
	s.moreIDs(q)
	if q.ids.open > 0 {
		return
	}
	if len(q.ids.again) > 0 {
		q.ids.second = true
		s.fetchIDs(q, q.ids.again)
		return
	}
	if q.ids.came == 0 { // the relay would not serve the other ids either
		q.ids.unserved = append(q.ids.unserved, q.later...)
		q.ids.more = len(q.found)
		q.later, q.found = nil, nil
		q.noneServed = make(map[graspsync.EventID]struct{})
		for _, id := range q.ids.unserved {
			q.noneServed[id] = struct{}{}
		}
		q.pages, q.unsure = true, false
		s.byPages(q)
		return
	}
	if len(q.ids.unserved) > 0 {
		s.countUnserved(q)
	}
	s.idsDone(q)
}

func (s *Session) countUnserved(q *query) {
	ids := q.ids.missing()
	r := &q.b.report
	r.Missing += len(ids) + q.ids.more
	q.ids.more = 0
	r.Unserved = append(r.Unserved, ids[:min(len(ids), maxUnserved-len(r.Unserved))]...)
	q.result = max(q.result, plan.Gaps)
}

// fewerIDs repeats a request with at most half of the ids, if it has several.
func (s *Session) fewerIDs(x *request, sendClose bool) bool {
	n := len(x.filters[0].IDs)
	if n < 2 {
		return false
	}
	s.caps.idsAtMost(n / 2)
	s.againIDs(x, sendClose)
	return true
}

// kindsOfIDs adds kinds if the relay refuses filters without kinds.
func (s *Session) kindsOfIDs(x *request, why wire.Refusal, text string, sendClose bool) bool {
	k, ok := map[wire.Refusal]relaylimits.Kind{
		wire.RefusalNeedsKinds: relaylimits.NeedsKinds, wire.RefusalNoNotes: relaylimits.NoNotes,
	}[why]
	if f := x.filters[0]; !ok || f.Kinds != nil || f.Authors != nil {
		return false
	}
	s.caps.learn(k, 1, text)
	s.againIDs(x, sendClose)
	return true
}

func (s *Session) againIDs(x *request, sendClose bool) {
	s.drop(x, sendClose)
	x.q.ids.putBack(x)
	s.moreIDs(x.q)
}
