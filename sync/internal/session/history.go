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

// batch is a batch that is being fetched.
type batch struct {
	plan.Batch
	open    int // queries that have not ended
	cursors []plan.Cursor
	parts   [][]*query // of each query, ended ones included
	result  plan.Result
	report  Report
	splits  int // pages asked for to split seconds
}

// history fetches batches to their ends: by pages, by reconciliation (NIP-77), and by the
// ids that one found. Reconciliation is in reconcile.go; whose turn it is, in negturns.go.
type history struct {
	cfg      *Config // read-only
	out      *outbox
	terms    *terms
	requests *requests

	batches  map[plan.BatchID]*batch
	queries  map[QueryID]*query
	pageSize int       // largest page the relay ever gave
	now      time.Time // of the last message
	phantoms phantoms

	reconciling negTurns
	room        int // that of the next query
}

func newHistory(cfg *Config, out *outbox, t *terms, r *requests) *history {
	return &history{
		cfg: cfg, out: out, terms: t, requests: r, pageSize: cfg.PageSize,
		batches:     make(map[plan.BatchID]*batch),
		queries:     make(map[QueryID]*query),
		reconciling: negTurns{most: cfg.Reconciling},
	}
}

// fetch starts a batch.
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

// cursors returns how far the batches got.
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

// wake considers when a batch is overdue.
func (h *history) wake(w *wake) {
	for _, b := range h.batches {
		w.consider(b.Deadline)
	}
}

// sum notes how far all parts of one query got: as far as the one behind.
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

// queriesFor makes the queries that a filter is fetched by: one, unless the relay
// takes less at a time.
func (h *history) queriesFor(b *batch, index int, from plan.Query) []*query {
	fs, less := h.terms.reshape(from.Filter, h.terms.queryBounds())
	if len(fs) == 0 {
		fs = []nostr.Filter{{Kinds: []int{}}} // matches nothing
	}
	out := make([]*query, len(fs))
	for i, f := range fs {
		q := &query{
			id: QueryID(h.requests.number()), b: b, index: index,
			less: less, cursor: plan.Cursor(from.Until), pages: from.NoNegentropy,
			filter: f, match: filters.CompileShared([]nostr.Filter{f}),
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

// begin starts a query.
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

// restart starts a query anew from where it got to. A part of one has no form
// of its own: the whole is started anew.
func (h *history) restart(q *query) {
	q = q.whole()
	q.noteCursor()
	b := q.b
	for _, part := range h.queriesOf(b) {
		if part.whole() == q {
			h.dropOthers(part)
			h.leaveReconciling(part)
			delete(h.queries, part.id)
		}
	}
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

// newPart makes a query for a part of another one, which waits for it.
func (h *history) newPart(q *query, f nostr.Filter) *query {
	c := &query{
		id: QueryID(h.requests.number()), b: q.b, index: q.index, parent: q, depth: q.depth + 1, pages: q.pages, room: q.room,
		filter: f, match: filters.CompileShared([]nostr.Filter{f}),
	}
	q.part = c
	h.queries[c.id] = c
	return c
}

// partEnded goes on with the query that waits for a part.
func (h *history) partEnded(c *query, result plan.Result, why string) {
	q := c.parent
	switch {
	case h.queries[q.id] != q: // both ended
	case c.full != nil:
		q.part = nil
		h.fullSecondEnded(q, c.full, result)
	case q.from != 0:
		h.turnEnded(q, c, result, why)
	default:
		h.windowEnded(q, c, result, why)
	}
}

// end ends a query, and its batch with the last one.
func (h *history) end(q *query, result plan.Result, why string) {
	if _, open := h.queries[q.id]; !open || result < plan.Failed && h.audited(q, result) {
		return
	}
	delete(h.queries, q.id)
	h.leaveReconciling(q)
	if q.vain && result < plan.Failed {
		h.countUnserved(q)
	}
	q.forget()
	result = max(result, q.result)
	if q.parent != nil {
		h.partEnded(q, result, why)
		return
	}
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

// fail ends a query whose request failed.
func (h *history) fail(x *request, why string) {
	h.failWith(x, plan.Failed, why, true)
}

func (h *history) failWith(x *request, result plan.Result, why string, tell bool) {
	h.requests.drop(x, tell)
	h.dropOthers(x.q)
	h.end(x.q, result, why)
}

// dropOthers ends the other requests of a query.
func (h *history) dropOthers(q *query) {
	for _, x := range h.requests.requestsOf(q) {
		h.requests.drop(x, true)
	}
}

// abandon ends a batch without a report.
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

// expire ends the batches that have taken too long.
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

// ahead is how far ahead of our clock events are looked for when a query begins anew by
// pages.
const ahead = time.Hour

// expireBatch ends a batch that has taken too long; what it fetched is kept. One that got so
// much to fetch by reconciling goes on by pages the next time, which tell how far they
// got: to reconcile again would begin with the same ids, and never come to the others.
func (h *history) expireBatch(b *batch, now time.Time) {
	h.reconciling.leaveAll(b)
	b.report.Late = b.result < plan.Failed && b.report.Events > 0
	for _, q := range h.queriesOf(b) {
		if q.ids.open > 0 && q.parent == nil && q.reached() == 0 {
			q.below = now.Add(ahead).Unix()
		}
		h.dropOthers(q)
		h.end(q, plan.Failed, "took too long")
	}
}

// repeat has a request opened again that is not open any more.
func (h *history) repeat(x *request) {
	switch x.kind {
	case reqPage:
		x.q.repeatPage()
	case reqNeg:
		h.openNeg(x.q)
		return
	}
	h.requests.enqueueFirst(x)
}

// onHistoric takes in an event of the past. It is counted here, at the wire,
// whatever is thought of it later.
func (h *history) onHistoric(now time.Time, x *request, m wire.Message, matches bool) {
	x.idleBy = now.Add(h.cfg.IdleTimeout)
	x.events++
	x.q.b.report.Events++
	again := false
	switch x.kind {
	case reqPage:
		x.q.saw(m.Event)
		if h.phantoms.has(m.Event.ID) {
			h.gaveByPage(x.q)
		}
		if matches {
			h.auditPage(x.q, m.Event, m.Known)
		}
	case reqIDs:
		_, wanted := x.want[m.Event.ID]
		again = !wanted
		delete(x.want, m.Event.ID)
		x.q.heard(m.Event.Event)
	}
	if matches && !again {
		h.out.do(Deliver{
			Event: m.Event, Known: m.Known, Size: m.Size,
			Batch: x.q.b.ID, Kind: x.q.b.Kind, Gap: !m.Known && h.requests.lives.missed(now, h.cfg.GapAge, m.Event.Event),
		})
	}
	if x.events > h.cfg.MaxPage {
		h.fail(x, "answer without end")
	}
}

// resembles reports whether an event that does not match may still come from an
// honest relay: some match a tag value under any name, some overlook since and
// until. Such an event is no proof of hostility. It takes up room in a page, but
// goes no further.
func resembles(f nostr.Filter, ev *nostr.Event) bool {
	if f.IDs != nil || f.Kinds != nil && !slices.Contains(f.Kinds, ev.Kind) ||
		f.Authors != nil && !slices.Contains(f.Authors, ev.PubKey) {
		return false
	}
	return len(f.Tags) == 0 || hasValue(f.Tags, ev.Tags)
}

func hasValue(wanted nostr.TagMap, tags nostr.Tags) bool {
	for _, values := range wanted {
		for _, t := range tags {
			if len(t) > 1 && slices.Contains(values, t[1]) {
				return true
			}
		}
	}
	return false
}

// leastPage is a page size that every relay can be trusted to have. Without it, as
// long as no larger page was seen, a lone event would look like a page that was
// cut.
const leastPage = 5

// startPages fetches a query by pages, going on at until.
func (h *history) startPages(q *query, until int64) {
	h.leaveReconciling(q)
	q.b.report.Method |= Pages
	q.gaps = 0
	q.walk = filters.NewWalk(q.filter, filters.WalkStart{
		Limit: h.cfg.PageLimit, PageSize: max(h.pageSize, leastPage), Until: until,
	})
	h.nextPage(q)
}

func (h *history) nextPage(q *query) {
	f := q.walk.Next()
	h.requests.enqueue(&request{kind: reqPage, q: q, filters: []nostr.Filter{f}, match: filters.CompileShared([]nostr.Filter{f})})
}

func (h *history) endPage(x *request, hint wire.Hint) {
	q := x.q
	if x.noticed && x.events == 0 {
		// Some relays report a failed query so.
		h.fail(x, "notice and nothing else")
		return
	}
	h.requests.drop(x, true)
	q.b.report.Pages++
	if q.full != nil {
		h.endPart(q, hint)
		return
	}
	if h.cutBelow(q, x.events) {
		return
	}
	q.walk.End(hint == wire.HintFinish, hint == wire.HintMore)
	h.pageSize = max(h.pageSize, q.walk.PageSize())
	if h.fullSeconds(q) {
		return
	}
	h.goOn(q)
}

// goOn goes on with a walk all of whose full seconds were looked into.
func (h *history) goOn(q *query) {
	if q.walk.Done() {
		h.end(q, plan.Complete, "")
		return
	}
	if h.isMixed(q) {
		h.inTurns(q)
		return
	}
	h.nextPage(q)
}

const (
	secondRequests = 200   // pages for one second
	splitRequests  = 2_000 // pages for all the seconds of a batch
	leastDoubt     = 20    // events in a second that is looked into on suspicion
)

// fullSeconds has the seconds looked into that a walk found to be full since it was
// last asked. It reports whether there are any: then the walk waits for them.
func (h *history) fullSeconds(q *query) bool {
	w := q.walk
	gaps := w.Gaps()
	found := gaps[q.gaps:]
	q.gaps = len(gaps)
	if w.Done() && !w.Ended() {
		// It does not keep to until, or keeps something back: nothing can be proven.
		h.full(q, max(1, len(found)), nostr.Timestamp(w.Until()))
		return false
	}
	page := max(leastPage, min(h.cfg.PageLimit, w.Largest()))
	for _, at := range found {
		q.seconds = append(q.seconds, fullSecond{at: at, page: page})
	}
	if at, size := w.Doubt(); w.Done() && size >= leastDoubt {
		q.seconds = append(q.seconds, fullSecond{at: at, page: page, doubt: size})
	}
	return h.nextSecond(q)
}

// full counts seconds that may hold more than the relay gave. How far the query got
// is no further than the first of them.
func (h *history) full(q *query, n int, at nostr.Timestamp) {
	q.b.report.Seconds += n
	q.result = max(q.result, plan.Gaps)
	q.hold = max(q.hold, int64(at))
}

// nextSecond looks into the next second that waits for it.
func (h *history) nextSecond(q *query) bool {
	if len(q.seconds) == 0 {
		return false
	}
	sec := q.seconds[0]
	q.seconds = q.seconds[1:]
	c := h.newPart(q, filters.Between(q.filter, &sec.at, &sec.at, 0))
	c.full = &sec
	sec.split = filters.NewSplit(c.filter, sec.at, filters.SplitBounds{
		Limit: h.cfg.PageLimit, Page: sec.page, Requests: secondRequests,
	})
	if sec.doubt > 0 {
		h.splitFullSecond(c)
	} else {
		h.fetchPart(c)
	}
	return true
}

// splitFullSecond fetches a second by parts of its filter.
func (h *history) splitFullSecond(q *query) {
	h.leaveReconciling(q)
	q.b.report.Method |= Pages
	h.nextPart(q)
}

func (h *history) nextPart(q *query) {
	f, ok := q.full.split.Next()
	if !ok || q.b.splits >= splitRequests {
		h.endSplit(q)
		return
	}
	q.b.splits++
	h.requests.enqueue(&request{kind: reqPage, q: q, filters: []nostr.Filter{f}, match: filters.CompileShared([]nostr.Filter{f})})
}

// endPart takes in the end of a page of a split.
func (h *history) endPart(q *query, hint wire.Hint) {
	q.full.split.End(hint == wire.HintFinish, hint == wire.HintMore)
	h.nextPart(q)
}

// endSplit judges a second. One that was only suspected is taken for whole if
// nothing new came: the relay gave larger pages elsewhere.
func (h *history) endSplit(q *query) {
	sp := q.full.split
	if sp.Complete() || q.full.doubt > 0 && sp.Seen() <= q.full.doubt {
		h.end(q, plan.Complete, "")
		return
	}
	h.end(q, plan.Gaps, "")
}

// fullSecondEnded goes on with the walk that a second belongs to. Whatever kept the second from
// being proven complete, a refusal or a silence too, what is below it is fetched.
func (h *history) fullSecondEnded(q *query, sec *fullSecond, result plan.Result) {
	if result != plan.Complete {
		h.full(q, 1, sec.at)
	}
	if !h.nextSecond(q) {
		h.goOn(q)
	}
}

// Pages go from the newest event to the oldest, but states say nothing without the
// announcement that is older than they are. Those that come first wait for it, and what
// waits costs its relay: a relay that has many states would have to wait for its own
// announcements. So where there are many of both, what is left of them comes kind by kind.

// mixedPages is how many pages' worth of events a batch takes in with all kinds together:
// fewer of them are not worth more requests.
const mixedPages = 2

// isMixed reports whether the rest of a walk should come kind by kind.
func (h *history) isMixed(q *query) bool {
	return q.from == 0 && q.walk.Until() != 0 && q.b.report.Events >= mixedPages*h.cfg.PageLimit &&
		len(q.filter.Kinds) > 1 && slices.Contains(q.filter.Kinds, graspsync.KindAnnouncement)
}

// inTurns goes on with a walk kind by kind, announcements first.
func (h *history) inTurns(q *query) {
	first, rest := q.filter, q.filter
	first.Kinds = []int{graspsync.KindAnnouncement}
	rest.Kinds = slices.DeleteFunc(slices.Clone(rest.Kinds), func(kind int) bool {
		return kind == graspsync.KindAnnouncement
	})
	q.from, q.turns = q.walk.Until(), []nostr.Filter{first, rest}
	h.nextTurn(q)
}

func (h *history) nextTurn(q *query) {
	if len(q.turns) == 0 {
		h.end(q, plan.Complete, "")
		return
	}
	f := q.turns[0]
	q.turns = q.turns[1:]
	h.startPages(h.newPart(q, f), q.from)
}

// turnEnded goes on with the next kind, or gives up the whole with this one.
func (h *history) turnEnded(q, c *query, result plan.Result, why string) {
	if result >= plan.Failed {
		h.end(q, result, why)
		return
	}
	if result == plan.Gaps {
		q.result = plan.Gaps
		q.hold = max(q.hold, cmp.Or(c.hold, noEnd))
	}
	q.part = nil
	h.nextTurn(q)
}

const maxUnserved = 1_000 // ids that a report names

// fetchIDs asks for events by id.
func (h *history) fetchIDs(q *query, ids []graspsync.EventID) {
	q.ids.ask(ids)
	h.moreIDs(q)
}

// moreIDs makes the next requests by id.
func (h *history) moreIDs(q *query) {
	for len(q.ids.todo) > 0 && q.ids.open < 2*h.requests.mostHistoric {
		ids := q.ids.next(h.terms.idChunk)
		want := make(map[graspsync.EventID]struct{}, len(ids))
		for _, id := range ids {
			want[id] = struct{}{}
		}
		fs := []nostr.Filter{h.terms.byID(q.filter, ids)}
		h.requests.enqueue(&request{
			kind: reqIDs, q: q, want: want, asked: len(want), filters: fs, match: filters.CompileShared(fs),
		})
	}
}

// endIDs takes in the end of a request by id. What did not come is asked for once more
// and then counted: a relay may announce what it can't or won't serve.
func (h *history) endIDs(x *request) {
	q := x.q
	if x.noticed && x.events == 0 {
		// Some relays report a failed query so.
		h.fail(x, "notice and nothing else")
		return
	}
	h.requests.drop(x, true)
	if limit := q.ids.took(x); limit > 0 {
		h.terms.idsAtMost(limit)
	}
	h.moreIDs(q)
	if q.ids.open > 0 {
		return
	}
	ids, limit := q.ids.retry()
	if limit > 0 {
		h.terms.idsAtMost(limit)
	}
	if len(ids) > 0 {
		h.fetchIDs(q, ids)
		return
	}
	if q.ids.came == 0 { // nor would the others
		q.ids.unserved = append(q.ids.unserved, q.later...)
		q.ids.more = len(q.found)
		q.later, q.found = nil, nil
		if h.phantoms.add(q.ids.unserved, h.now) {
			h.insteadOfIDs(q)
			return
		}
	}
	if len(q.ids.unserved) > 0 {
		h.countUnserved(q)
	}
	h.idsDone(q)
}

// insteadOfIDs fetches a query by pages of which nothing came by id. What the relay does not
// have these don't bring either: then it made that up, which is counted in the end.
func (h *history) insteadOfIDs(q *query) {
	q.vain, q.pages, q.rest, q.cut = true, true, nil, nil
	h.byPages(q)
}

// gaveByPage takes note that something came by page that had not come by id: the relay has it.
func (h *history) gaveByPage(q *query) {
	for ; q != nil; q = q.parent {
		q.vain = false
	}
	h.noNegentropy("what it announces it gives by pages only", true)
}

func (h *history) countUnserved(q *query) {
	ids := q.ids.missing()
	r := &q.b.report
	r.Missing += len(ids) + q.ids.more
	q.ids.more = 0
	r.Unserved = append(r.Unserved, ids[:min(len(ids), maxUnserved-len(r.Unserved))]...)
	q.result = max(q.result, plan.Gaps)
}

// fewerIDs asks for fewer events by id at a time.
func (h *history) fewerIDs(x *request, tell bool) bool {
	n := len(x.filters[0].IDs)
	if n < 2 {
		return false
	}
	h.terms.idsAtMost(n / 2)
	h.againIDs(x, tell)
	return true
}

// kindsOfIDs asks for events by id and kind, if the relay refuses what names no kinds.
func (h *history) kindsOfIDs(x *request, why wire.Refusal, text string, tell bool) bool {
	k, ok := map[wire.Refusal]relaylimits.Kind{
		wire.RefusalNeedsKinds: relaylimits.NeedsKinds, wire.RefusalNoNotes: relaylimits.NoNotes,
	}[why]
	if f := x.filters[0]; !ok || f.Kinds != nil || f.Authors != nil {
		return false
	}
	h.terms.learn(k, 1, text)
	h.againIDs(x, tell)
	return true
}

// againIDs asks for events by id anew, in the form in which that is done by now.
func (h *history) againIDs(x *request, tell bool) {
	h.requests.drop(x, tell)
	x.q.ids.again(x)
	h.moreIDs(x.q)
}
