package session

import (
	"cmp"
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

// history fetches batches by pages, by reconciliation (NIP-77, see reconcile.go) and by ids.
type history struct {
	cfg      *Config
	out      *outbox
	caps     *relayCaps
	requests *requests

	batches  map[plan.BatchID]*batch
	queries  map[QueryID]*query
	pageSize int

	reconciling reconcileQueue
	room        int
}

func newHistory(cfg *Config, out *outbox, t *relayCaps, r *requests) *history {
	return &history{
		cfg: cfg, out: out, caps: t, requests: r, pageSize: cfg.PageSize,
		batches:     make(map[plan.BatchID]*batch),
		queries:     make(map[QueryID]*query),
		reconciling: reconcileQueue{most: cfg.Reconciling},
	}
}

func (h *history) fetch(in plan.Batch) {
	b := &batch{Batch: in, cursors: make([]plan.Cursor, len(in.Queries)), parts: make([][]*query, len(in.Queries))}
	h.batches[in.ID] = b
	var all []*query
	for i, q := range in.Queries {
		all = append(all, h.queriesFor(b, i, q)...)
	}
	for _, q := range all {
		h.begin(q)
	}
	if len(in.Queries) == 0 {
		delete(h.batches, in.ID)
		h.out.do(Done{Batch: in.ID})
	}
	h.reconcileNext()
}

func (h *history) cursors() map[plan.BatchID][]plan.Cursor {
	for _, q := range h.queries {
		q.noteCursor()
	}
	out := make(map[plan.BatchID][]plan.Cursor, len(h.batches))
	for id, b := range h.batches {
		out[id] = b.cursors
	}
	return out
}

func (h *history) wake(w *wake) {
	for _, b := range h.batches {
		w.consider(b.Deadline)
	}
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
func (h *history) queriesFor(b *batch, index int, from plan.Query) []*query {
	fs, less := h.caps.reshape(from.Filter, false)
	if len(fs) == 0 {
		fs = []nostr.Filter{{Kinds: []int{}}} // matches nothing
	}
	out := make([]*query, len(fs))
	for i, f := range fs {
		q := &query{
			id: QueryID(h.requests.number()), b: b, index: index,
			less: less, cursor: plan.Cursor(from.Until), pages: from.NoNegentropy,
			filter: f, match: filters.Compile([]nostr.Filter{f}),
		}
		if b.Kind == plan.Audit {
			q.audit = &audit{}
		}
		out[i] = q
		h.queries[q.id] = q
	}
	b.open += len(out)
	b.parts[index] = append(b.parts[index], out...)
	b.sum(index)
	return out
}

func (h *history) begin(q *query) {
	switch {
	case filters.Empty(q.filter):
		h.end(q, plan.Gaps, "")
	case h.reconciling.offered && !q.pages && q.b.Kind != plan.Recent && q.cursor == plan.CursorStart:
		h.reconciling.wait(q)
	default:
		h.startPages(q, int64(q.cursor))
	}
}

func (h *history) restart(q *query) {
	q.noteCursor()
	h.dropOthers(q)
	h.leaveReconciling(q)
	delete(h.queries, q.id)
	b := q.b
	b.open--
	b.parts[q.index] = slices.DeleteFunc(b.parts[q.index], func(o *query) bool { return o == q })
	for _, part := range h.queriesFor(b, q.index, plan.Query{
		Filter: q.filter, Until: int64(q.cursor), NoNegentropy: q.pages,
	}) {
		part.less = part.less || q.less
		h.begin(part)
	}
	h.reconcileNext()
}

func (h *history) end(q *query, result plan.Result, why string) {
	if _, open := h.queries[q.id]; !open || result < plan.Failed && h.audited(q, result) {
		return
	}
	delete(h.queries, q.id)
	h.leaveReconciling(q)
	if len(q.noneServed) > 0 && result < plan.Failed {
		h.countUnserved(q)
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
	if b.open > 0 || h.batches[b.ID] != b {
		return
	}
	delete(h.batches, b.ID)
	b.report.PageSize = h.pageSize
	h.out.do(Done{Batch: b.ID, Result: b.result, Cursors: b.cursors, Report: b.report})
}

func (h *history) fail(x *request, why string) {
	h.failWith(x, plan.Failed, why, true)
}

func (h *history) failWith(x *request, result plan.Result, why string, sendClose bool) {
	h.requests.drop(x, sendClose)
	h.dropOthers(x.q)
	h.end(x.q, result, why)
}

func (h *history) dropOthers(q *query) {
	for _, x := range h.requests.where(func(x *request) bool { return x.q == q }) {
		h.requests.drop(x, true)
	}
}

func (h *history) abandon(id plan.BatchID) {
	b, ok := h.batches[id]
	if !ok {
		return
	}
	h.reconciling.leaveAll(b)
	for _, q := range h.queriesOf(b) {
		h.dropOthers(q)
		h.leaveReconciling(q)
		delete(h.queries, q.id)
	}
	delete(h.batches, b.ID)
}

func (h *history) queriesOf(b *batch) (out []*query) {
	for _, q := range h.queries {
		if q.b == b {
			out = append(out, q)
		}
	}
	slices.SortFunc(out, func(a, b *query) int { return cmp.Compare(a.id, b.id) })
	return out
}

func (h *history) expire(now time.Time) {
	for _, b := range h.overdue(now) {
		h.expireBatch(b, now)
	}
}

func (h *history) overdue(now time.Time) (out []*batch) {
	for _, b := range h.batches {
		if !now.Before(b.Deadline) {
			out = append(out, b)
		}
	}
	slices.SortFunc(out, func(a, b *batch) int { return cmp.Compare(a.ID, b.ID) })
	return out
}

// ahead is added to the current time if a query starts over by pages, so that events dated in the
// future are included.
const ahead = time.Hour

// expireBatch ends a batch at its deadline. A query by id continues by pages, because another
// reconciliation would begin with the same ids.
func (h *history) expireBatch(b *batch, now time.Time) {
	h.reconciling.leaveAll(b)
	b.report.Late = b.result < plan.Failed && b.report.Events > 0
	for _, q := range h.queriesOf(b) {
		if q.ids.open > 0 && q.walk == nil {
			q.cursor = plan.Cursor(now.Add(ahead).Unix())
			b.sum(q.index)
		}
		h.dropOthers(q)
		h.end(q, plan.Failed, "took too long")
	}
}

func (h *history) repeat(x *request) {
	switch x.kind {
	case reqPage:
		x.q.walk.Next()
	case reqNeg:
		h.openNeg(x.q)
		return
	}
	h.requests.enqueueFirst(x)
}

func (h *history) onHistoric(now time.Time, x *request, m wire.Message, matches bool) {
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
			h.noNegentropy("events announced by NIP-77 arrive by pages only", true)
		}
		if matches {
			h.auditPage(x.q, m.Event, m.Known)
		}
	case reqIDs:
		_, wanted := x.want[m.Event.ID]
		again = !wanted
		delete(x.want, m.Event.ID)
	}
	if matches && !again {
		h.out.do(Deliver{
			Event: m.Event, Known: m.Known, Size: m.Size,
			Batch: x.q.b.ID, Kind: x.q.b.Kind, Gap: !m.Known && h.requests.liveSubs.missed(now, m.Event.Event),
		})
	}
	if x.events > h.cfg.MaxPage {
		h.fail(x, "answer has too many events")
	}
}

// resembles reports whether an honest relay may send an event that does not match. Some match a tag
// value under any name, or ignore since and until.
func resembles(fs []nostr.Filter, ev *nostr.Event) bool {
	values := make(map[string]struct{}, len(ev.Tags))
	for _, t := range ev.Tags {
		if len(t) > 1 {
			values[t[1]] = struct{}{}
		}
	}
	return slices.ContainsFunc(fs, func(f nostr.Filter) bool {
		if f.IDs != nil || f.Kinds != nil && !slices.Contains(f.Kinds, ev.Kind) ||
			f.Authors != nil && !slices.Contains(f.Authors, ev.PubKey) {
			return false
		}
		return len(f.Tags) == 0 || hasValue(f.Tags, values)
	})
}

func hasValue(wanted nostr.TagMap, values map[string]struct{}) bool {
	for _, list := range wanted {
		for _, v := range list {
			if _, ok := values[v]; ok {
				return true
			}
		}
	}
	return false
}

// leastPage is the page size that every relay supports. Without it a single event would look like a
// full page.
const leastPage = 5

func (h *history) startPages(q *query, until int64) {
	h.leaveReconciling(q)
	q.b.report.Method |= Pages
	q.walk = filters.NewWalk(q.filter, filters.WalkStart{
		Limit: h.cfg.PageLimit, PageSize: max(h.pageSize, leastPage), Until: until,
	})
	h.nextPage(q)
}

func (h *history) nextPage(q *query) {
	f := q.walk.Next()
	h.requests.enqueue(&request{kind: reqPage, q: q, filters: []nostr.Filter{f}, match: filters.Compile([]nostr.Filter{f})})
}

func (h *history) endPage(x *request, hint wire.Hint) {
	q := x.q
	h.requests.drop(x, true)
	q.b.report.Pages++
	q.walk.End(hint == wire.HintFinish, hint == wire.HintMore)
	h.pageSize = max(h.pageSize, q.walk.PageSize())
	if q.walk.Done() {
		h.walked(q)
		return
	}
	h.nextPage(q)
}

const leastDoubt = 20

// walked ends a query after its last page. Full seconds are reconciled, or else reported as gaps.
func (h *history) walked(q *query) {
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
		h.end(q, plan.Complete, "")
	case w.Ended() && h.reconciling.offered && !q.pages:
		q.state, q.set = qWaiting, nil
		h.reconciling.wait(q)
		h.reconcileNext()
	default:
		h.fullSeconds(q)
	}
}

func (h *history) fullSeconds(q *query) {
	h.leaveReconciling(q)
	q.b.report.Seconds += len(q.full)
	h.end(q, plan.Gaps, "")
}

const maxUnserved = 1_000 // maximum ids in a report

func (h *history) fetchIDs(q *query, ids []graspsync.EventID) {
	q.ids.todo, q.ids.again = ids, nil
	h.moreIDs(q)
}

func (h *history) moreIDs(q *query) {
	for len(q.ids.todo) > 0 && q.ids.open < q.ids.atOnce(2*h.requests.mostHistoric) {
		ids := q.ids.next(h.caps.idChunk)
		want := make(map[graspsync.EventID]struct{}, len(ids))
		for _, id := range ids {
			want[id] = struct{}{}
		}
		fs := []nostr.Filter{h.caps.byID(q.filter, ids)}
		h.requests.enqueue(&request{
			kind: reqIDs, q: q, want: want, asked: len(want), filters: fs, match: filters.Compile(fs),
		})
	}
}

// endIDs ends a request by id.
func (h *history) endIDs(x *request) {
	q := x.q
	h.requests.drop(x, true)
	if limit := q.ids.took(x); limit > 0 {
		h.caps.idsAtMost(limit)
	}
	h.moreIDs(q)
	if q.ids.open > 0 {
		return
	}
	if len(q.ids.again) > 0 {
		q.ids.second = true
		h.fetchIDs(q, q.ids.again)
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
		h.byPages(q)
		return
	}
	if len(q.ids.unserved) > 0 {
		h.countUnserved(q)
	}
	h.idsDone(q)
}

func (h *history) countUnserved(q *query) {
	ids := q.ids.missing()
	r := &q.b.report
	r.Missing += len(ids) + q.ids.more
	q.ids.more = 0
	r.Unserved = append(r.Unserved, ids[:min(len(ids), maxUnserved-len(r.Unserved))]...)
	q.result = max(q.result, plan.Gaps)
}

// fewerIDs repeats a request with at most half of the ids, if it has several.
func (h *history) fewerIDs(x *request, sendClose bool) bool {
	n := len(x.filters[0].IDs)
	if n < 2 {
		return false
	}
	h.caps.idsAtMost(n / 2)
	h.againIDs(x, sendClose)
	return true
}

// kindsOfIDs adds kinds if the relay refuses filters without kinds.
func (h *history) kindsOfIDs(x *request, why wire.Refusal, text string, sendClose bool) bool {
	k, ok := map[wire.Refusal]relaylimits.Kind{
		wire.RefusalNeedsKinds: relaylimits.NeedsKinds, wire.RefusalNoNotes: relaylimits.NoNotes,
	}[why]
	if f := x.filters[0]; !ok || f.Kinds != nil || f.Authors != nil {
		return false
	}
	h.caps.learn(k, 1, text)
	h.againIDs(x, sendClose)
	return true
}

func (h *history) againIDs(x *request, sendClose bool) {
	h.requests.drop(x, sendClose)
	x.q.ids.back(x)
	h.moreIDs(x.q)
}
