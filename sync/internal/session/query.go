package session

import (
	"cmp"
	"slices"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/filters"
	"github.com/graspsync/graspsync/sync/internal/negentropy"
	"github.com/graspsync/graspsync/sync/internal/plan"
	"github.com/graspsync/graspsync/sync/wire"
)

type queryState uint8

const (
	qWaiting     queryState = iota // for a place to reconcile
	qLoading                       // our set is being read
	qReconciling                   // NEG-OPEN is waiting or under way
	qChecking                      // which of their ids we need is being found out
	qFetching                      // it goes on by ids, by pages or in parts
)

// query is one filter that is being fetched to its end.
type query struct {
	id     QueryID
	b      *batch
	index  int
	filter nostr.Filter
	match  *filters.Matcher
	state  queryState
	cursor plan.Cursor // how far it got
	less   bool        // values were left out that the relay never takes
	pages  bool        // it is not to be reconciled

	walk *filters.Walk

	set      *negentropy.Set
	neg      *negentropy.Session
	last     []byte // payload of the last NEG-MSG
	repeats  int    // of last
	reopened bool
	limited  int                 // NEG-OPENs in a row that were refused as one of too many
	todo     []graspsync.EventID // ids to be asked for
	chunks   int                 // id requests that have not ended
	barren   int                 // that brought nothing, in a row
	unserved []graspsync.EventID // ids that did not come
	retried  bool
	probe    *probe      // its reconciliation may have been cut
	rest     *rest       // to be fetched when the ids are
	result   plan.Result // so far

	parent  *query   // what it is a part of
	depth   int      // how many parents there are
	part    *query   // its part that is being fetched
	second  *second  // it is a part, one second that is full
	gaps    int      // gaps of walk that were taken in
	seconds []second // full, to be looked into
	window  []window // to be fetched, newest first
	windows int      // made of the whole, restarts included
	below   int64    // end of what is above the windows that are left
	hold    int64    // newest second that can't be counted as fetched, 0 if there is none

	from  int64          // it is fetched kind by kind from this second on, 0 if it is not
	turns []nostr.Filter // of these kinds, those that wait
}

// noteCursor keeps how far the query got.
func (q *query) noteCursor() {
	if at := q.reached(); at != 0 && q.parent == nil {
		q.cursor = plan.Cursor(at)
		q.b.sum(q.index)
	}
}

// end ends a query, and its batch with the last one.
func (s *Session) end(q *query, result plan.Result, why string) {
	if _, open := s.queries[q.id]; !open {
		return
	}
	delete(s.queries, q.id)
	s.leaveReconciling(q)
	result = max(result, q.result)
	if q.parent != nil {
		s.partEnded(q, result, why)
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
	if b.open > 0 || s.batches[b.ID] != b {
		return
	}
	delete(s.batches, b.ID)
	b.report.PageSize = s.pageSize
	s.out.do(Done{Batch: b.ID, Result: b.result, Cursors: b.cursors, Report: b.report})
}

// fail ends a query whose request failed.
func (s *Session) fail(x *sub, why string) {
	s.giveUp(x, plan.Failed, why, true)
}

func (s *Session) giveUp(x *sub, result plan.Result, why string, tell bool) {
	s.drop(x, tell)
	s.dropOthers(x.q)
	s.end(x.q, result, why)
}

// dropOthers ends the other requests of a query.
func (s *Session) dropOthers(q *query) {
	for _, x := range s.subsOf(q) {
		s.drop(x, true)
	}
}

func (s *Session) subsOf(q *query) (out []*sub) {
	for _, x := range s.subs {
		if x.q == q {
			out = append(out, x)
		}
	}
	slices.SortFunc(out, byNumber)
	for _, x := range slices.Concat(s.waiting, s.held) {
		if x.q == q {
			out = append(out, x)
		}
	}
	return out
}

func (s *Session) abandon(b *batch) {
	s.leaveNegQueue(b)
	for _, q := range s.queriesOf(b) {
		s.dropOthers(q)
		s.leaveReconciling(q)
		delete(s.queries, q.id)
	}
	delete(s.batches, b.ID)
}

// leastPage is a page size that every relay can be trusted to have. Without it, as
// long as no larger page was seen, a lone event would look like a page that was
// cut.
const leastPage = 5

// startPages fetches a query by pages, going on at until.
func (s *Session) startPages(q *query, until int64) {
	s.leaveReconciling(q)
	q.b.report.Method |= Pages
	q.walk = filters.NewWalk(q.filter, filters.WalkOptions{
		Limit: s.cfg.PageLimit, PageSize: max(s.pageSize, leastPage), Until: until,
	})
	s.nextPage(q)
}

func (s *Session) nextPage(q *query) {
	f := q.walk.Next()
	s.enqueue(&sub{kind: subPage, q: q, filters: []nostr.Filter{f}, match: filters.Compile([]nostr.Filter{f})})
}

func (s *Session) onEvent(now time.Time, m wire.Message) {
	x, ok := s.subs[m.Sub]
	if !ok {
		if !s.issued(m.Sub) {
			s.strike(now, "event for an unknown subscription")
		}
		return
	}
	s.answered(x)
	if x.kind == subProbe {
		s.probed(x, true, true)
		return
	}
	id, err := graspsync.ParseEventID(m.Event.ID)
	if err != nil || x.kind == subNeg {
		s.strike(now, "event that was not asked for")
		return
	}
	matches := x.match.Match(m.Event)
	if !matches && !resembles(x.filters, m.Event) {
		s.strike(now, "event that was not asked for")
		return
	}
	if x.kind == subLive {
		if matches {
			s.out.do(Deliver{Event: m.Event, Size: m.Size, Current: x.openAt != 0})
		}
		return
	}
	s.onHistoric(now, x, m, id, matches)
}

// onHistoric takes in an event of the past. It is counted here, at the wire,
// whatever is thought of it later.
func (s *Session) onHistoric(now time.Time, x *sub, m wire.Message, id graspsync.EventID, matches bool) {
	x.idleBy = now.Add(s.cfg.IdleTimeout)
	x.events++
	x.q.b.report.Events++
	again := false
	switch x.kind {
	case subPage:
		x.q.saw(id, m.Event)
	case subIDs:
		_, wanted := x.want[id]
		again = !wanted
		delete(x.want, id)
		x.q.heard(m.Event)
	}
	if matches && !again {
		s.out.do(Deliver{
			Event: m.Event, Size: m.Size,
			Batch: x.q.b.ID, Kind: x.q.b.Kind, Gap: s.missedLive(now, m.Event),
			Ours: OfOurs(x.q.filter), Asked: x.events <= x.most(),
		})
	}
	if x.events > s.cfg.MaxPage {
		s.fail(x, "answer without end")
	}
}

// resembles reports whether an event that does not match may still come from an
// honest relay: some match a tag value under any name, some overlook since and
// until. Such an event is no proof of hostility. It takes up room in a page, but
// goes no further.
func resembles(fs []nostr.Filter, ev *nostr.Event) bool {
	for _, f := range fs {
		if f.IDs != nil || (f.Kinds != nil && !slices.Contains(f.Kinds, ev.Kind)) ||
			(f.Authors != nil && !slices.Contains(f.Authors, ev.PubKey)) {
			continue
		}
		if len(f.Tags) == 0 || hasValue(f.Tags, ev.Tags) {
			return true
		}
	}
	return false
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

func (s *Session) onEOSE(now time.Time, m wire.Message) {
	x, ok := s.subs[m.Sub]
	if !ok {
		return
	}
	s.answered(x)
	switch x.kind {
	case subLive:
		if x.openAt == 0 {
			x.openAt = now.Unix()
			s.noteLive()
		}
	case subPage:
		s.endPage(x, m.Hint)
	case subIDs:
		s.endIDs(x)
	case subProbe:
		s.probed(x, !x.noticed, true)
	}
}

func (s *Session) endPage(x *sub, hint wire.Hint) {
	q := x.q
	if x.noticed && x.events == 0 {
		// Some relays report a failed query so.
		s.fail(x, "notice and nothing else")
		return
	}
	s.drop(x, true)
	q.b.report.Pages++
	if q.second != nil {
		s.endPart(q, hint)
		return
	}
	if s.cutBelow(q, x.events) {
		return
	}
	q.walk.End(hint == wire.HintFinish, hint == wire.HintMore)
	s.pageSize = max(s.pageSize, q.walk.PageSize())
	if s.fullSeconds(q) {
		return
	}
	s.goOn(q)
}

func (s *Session) onClosed(now time.Time, m wire.Message) {
	x, ok := s.subs[m.Sub]
	if !ok {
		s.lateRefusal(now, m, wire.ClassifyClosed(m.Text))
		return
	}
	why := wire.ClassifyClosed(m.Text)
	if x.kind == subNeg {
		why = wire.ClassifyNegErr(m.Text, 0)
	}
	s.refused(now, x, why, m.Text, false)
}

// lateRefusal takes in the refusal of a request that was given up by then: what the relay
// says of its rate holds all the same.
func (s *Session) lateRefusal(now time.Time, m wire.Message, why wire.Refusal) {
	if s.issued(m.Sub) && why == wire.RefusalRateLimited {
		s.cool(now, m.Text)
	}
}

// onNotice ties a NOTICE to the request that was opened last, if it can be about
// one. A refusal is an answer; other words are only remembered, because some
// relays follow them with an EOSE.
func (s *Session) onNotice(now time.Time, m wire.Message) {
	why := wire.ClassifyNotice(m.Text)
	x := s.opening
	neg := s.unansweredNeg()
	switch {
	case neg != nil && x == nil && why == wire.RefusalRateLimited:
		x = neg // else its silence would be taken for an answer
	case neg != nil && (why == wire.RefusalNoNegentropy || (x == nil || x == neg) && wire.RefusesNegentropy(m.Text)):
		x = neg
		if why == wire.RefusalOther || wire.ClassifyNegErr(m.Text, 0) == wire.RefusalNoNegentropy {
			why = wire.RefusalNoNegentropy
		}
	case why == wire.RefusalNoNegentropy:
		why = wire.RefusalOther
	}
	switch {
	case why == wire.RefusalRateLimited && x == nil:
		s.cool(now, m.Text)
	case why == wire.RefusalAuthRequired && x == nil:
		s.auth.begin(now)
		s.out.do(Notice{Text: m.Text})
	case x == nil, why == wire.RefusalOther && x.kind == subNeg:
		if why >= wire.RefusalBadRequest {
			s.suspectAll()
		}
		s.out.do(Notice{Text: m.Text})
	case why == wire.RefusalOther:
		x.noticed = true
		if x.kind != subNeg { // an answer has begun
			x.idleBy = now.Add(s.cfg.IdleTimeout)
		}
		s.answered(x)
		s.out.do(Notice{Text: m.Text})
	default:
		s.refused(now, x, why, m.Text, true)
	}
}
