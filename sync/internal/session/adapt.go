package session

import (
	"slices"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/filters"
	"github.com/graspsync/graspsync/sync/internal/learned"
	"github.com/graspsync/graspsync/sync/internal/plan"
	"github.com/graspsync/graspsync/sync/wire"
)

// Terms are what a relay takes, as far as it said so or was found out.
type Terms struct {
	NoNegentropy     bool // it does not offer NIP-77
	NeedsKinds       bool // it refuses filters without kinds
	NoNotes          bool // it refuses filters for kind 1, or for no kinds, without authors
	NoLimitZero      bool // it refuses filters with limit 0
	MaxValues        int  // of one list of a filter, 0 if unknown
	MaxFilters       int  // of one request
	MaxMessage       int  // bytes of one request
	MaxSubscriptions int  // open at once, 0 if unknown
	MaxRetained      int  // bytes of all open requests together, 0 if unknown
	NegentropyMax    int  // events reconciled at once, 0 if unknown

	Pace time.Duration // between two historic requests, 0: as their turns come
}

// Value is one value of a filter: of a tag, or of the lists "ids" and "authors".
type Value struct{ Tag, Value string }

const (
	// maxAside bounds the values set aside at one relay.
	maxAside = 1000
	// leastMessage is what every relay is trusted to take, in bytes.
	leastMessage = 1 << 10
	// sqlValues is what relays on SQL databases take in one list.
	sqlValues = 10
)

// SetTerms replaces what is believed about the relay, and the values that are set
// aside: some of it has expired. What is open stays as it is.
func (s *Session) SetTerms(t Terms, aside []Value) {
	if t.MaxSubscriptions > s.terms.MaxSubscriptions {
		s.mostHistoric = plan.Limits{MaxSubscriptions: t.MaxSubscriptions}.Historic()
	}
	s.terms = t
	s.negentropy = !t.NoNegentropy
	s.pace.believe(t.Pace)
	clear(s.aside)
	for _, v := range aside[:min(len(aside), maxAside)] {
		s.aside[v] = struct{}{}
	}
}

// adapt turns a filter into those that together ask for the same in a form that
// the relay takes, each in a request of at most so many bytes. less means that values
// were left out that it never takes; if none is left there is no filter.
func (s *Session) adapt(f nostr.Filter, to bounds) (fs []nostr.Filter, less bool) {
	if f, less = s.withoutAside(f); filters.Empty(f) {
		return nil, less
	}
	switch {
	case to.noNotes && asksForNotes(f):
		f = filters.WithoutNotes(f)
	case s.terms.NeedsKinds && kindless(f):
		f = filters.WithKinds(f)
	}
	if filters.Empty(f) {
		return nil, less
	}
	reqs, tooLarge := filters.Pack(filters.AtMost(f, to.values), to.room, 1)
	for _, r := range reqs {
		fs = append(fs, r...)
	}
	return fs, less || len(tooLarge) > 0
}

// bounds are what a filter has to keep to, besides what holds for all.
type bounds struct {
	values  int // of one list, 0 for any number
	room    int // bytes
	noNotes bool
}

// queryBounds are those of a query: half of a message, as it takes when it is planned.
func (s *Session) queryBounds() bounds {
	return bounds{s.terms.MaxValues, max(leastMessage, s.terms.MaxMessage) / 2, s.terms.NoNotes}
}

// liveBounds are those of a filter of a live subscription. It was planned as part of a
// whole message: in halves it would find no room among the others, and what was planned
// as one subscription would become two, for which there may be no room either. Many relays
// do not look at filters of limit 0, so that there notes are asked for until that is refused.
func (s *Session) liveBounds() bounds {
	return bounds{s.liveValues, max(leastMessage, s.terms.MaxMessage), s.terms.NoNotes && (s.liveNoNotes || s.terms.NoLimitZero)}
}

// pack spreads the filters of a live subscription over as few requests as the relay
// takes them in.
func (s *Session) pack(fs []nostr.Filter) [][]nostr.Filter {
	out := make([]nostr.Filter, 0, len(fs))
	for _, f := range fs {
		part, _ := s.adapt(f, s.liveBounds())
		out = append(out, part...)
	}
	reqs, _ := filters.Pack(out, s.terms.MaxMessage, s.terms.MaxFilters)
	return reqs
}

func kindless(f nostr.Filter) bool { return f.Kinds == nil && f.Authors == nil && f.IDs == nil }

// asksForNotes reports whether f asks for kind 1, whoever wrote it.
func asksForNotes(f nostr.Filter) bool {
	return f.Authors == nil && (f.Kinds == nil || slices.Contains(f.Kinds, graspsync.KindNote))
}

// withoutAside returns f without the values that were set aside.
func (s *Session) withoutAside(f nostr.Filter) (out nostr.Filter, less bool) {
	if len(s.aside) == 0 {
		return f, false
	}
	keep := func(list string, values []string) []string {
		is := func(v string) bool { _, aside := s.aside[Value{list, v}]; return aside }
		if !slices.ContainsFunc(values, is) {
			return values
		}
		less = true
		return slices.DeleteFunc(slices.Clone(values), is)
	}
	f.IDs, f.Authors = keep(filters.ListIDs, f.IDs), keep(filters.ListAuthors, f.Authors)
	for tag, values := range f.Tags {
		if kept := keep(tag, values); len(kept) < len(values) {
			f.Tags = filters.WithList(f.Tags, tag, kept)
		}
	}
	return f, less
}

// learn makes something believed of the relay, and told if it is news.
func (s *Session) learn(k learned.Kind, value int, reason string) bool {
	t := &s.terms
	field := map[learned.Kind]*int{
		learned.MaxValues: &t.MaxValues, learned.MaxFilters: &t.MaxFilters,
		learned.MaxMessage: &t.MaxMessage, learned.MaxSubscriptions: &t.MaxSubscriptions,
		learned.NegentropyMax: &t.NegentropyMax, learned.MaxRetained: &t.MaxRetained,
	}[k]
	switch {
	case k == learned.NeedsKinds:
		if t.NeedsKinds {
			return false
		}
		t.NeedsKinds = true
	case k == learned.NoNotes:
		if t.NoNotes {
			return false
		}
		t.NoNotes = true
	case k == learned.NoLimitZero:
		if t.NoLimitZero {
			return false
		}
		t.NoLimitZero = true
		t.MaxMessage = max(leastMessage, t.MaxMessage-SinceSize*t.MaxFilters)
	case value < 1 || *field > 0 && value >= *field:
		return false
	default:
		*field = value
	}
	if k == learned.MaxValues {
		s.idChunk = min(s.idChunk, value)
	}
	s.out.do(Learned{Kind: k, Value: value, Reason: reason})
	return true
}

// remedy finds out what was wrong with the form of a request, if the relay says so:
// it may be asked again in another one.
func (s *Session) remedy(x *sub, why wire.Refusal, text string) bool {
	switch why {
	case wire.RefusalTooManyFilters:
		n := len(x.filters)
		most := n / 2
		if said := wire.SaidMost(text); said > 0 && said < n {
			most = said
		}
		return n > 1 && s.learn(learned.MaxFilters, most, text)
	case wire.RefusalTooManyValues:
		most := 0
		for _, f := range x.asks() {
			_, n := filters.Longest(f, true)
			most = max(most, n)
		}
		if most > sqlValues {
			return s.fewerValues(x, sqlValues, text)
		}
		return most > 1 && s.fewerValues(x, most/2, text)
	case wire.RefusalNeedsKinds:
		if slices.ContainsFunc(x.asks(), kindless) {
			return s.learn(learned.NeedsKinds, 1, text)
		}
		return s.withoutNotes(x, text)
	case wire.RefusalNoNotes:
		return s.withoutNotes(x, text)
	case wire.RefusalLimitZero:
		return x.limitZero && s.learn(learned.NoLimitZero, 1, text)
	}
	return false
}

// SinceSize is how many bytes longer a live filter is without limit 0.
const SinceSize = len(`"since":1234567890,`) - len(`"limit":0,`)

// sinceBack is how far back a live subscription looks where it can't say that it wants
// nothing of the past: what was made a moment before may be published a moment later.
const sinceBack = 15 * time.Minute

// form returns the filters of a request as the relay takes them. With since a probe asks
// whether it takes them so.
func (s *Session) form(x *sub, now time.Time) []nostr.Filter {
	if !slices.ContainsFunc(x.filters, func(f nostr.Filter) bool { return f.LimitZero }) {
		return x.filters
	}
	if x.limitZero = !s.terms.NoLimitZero && !x.since; x.limitZero {
		return x.filters
	}
	out := slices.Clone(x.filters)
	from := nostr.Timestamp(now.Add(-sinceBack).Unix())
	for i := range out {
		out[i].LimitZero, out[i].Since = false, &from
	}
	return out
}

// fewerValues learns how many values a request may have. Many relays look at that
// only where they have to search: live subscriptions are split for one that
// refused one of these.
func (s *Session) fewerValues(x *sub, n int, text string) bool {
	if m := s.terms.MaxValues; m > 0 && x.kind == subLive {
		n = min(n, m)
	}
	news := s.learn(learned.MaxValues, n, text)
	if x.kind == subLive && (s.liveValues == 0 || n < s.liveValues) {
		s.liveValues = n
		return true
	}
	return news
}

// withoutNotes learns that the relay has to be asked for kinds, and not for kind 1.
func (s *Session) withoutNotes(x *sub, text string) bool {
	if !slices.ContainsFunc(x.asks(), asksForNotes) {
		return false
	}
	news := s.learn(learned.NoNotes, 1, text)
	if x.kind == subLive && !s.liveNoNotes {
		s.liveNoNotes, news = true, true
	}
	return news
}

// relearned repeats a request that was refused and, since something was learned
// from that, can be made in another form. What waits is adapted as well.
func (s *Session) relearned(x *sub, tell bool) {
	s.unsend(x, tell)
	s.readapt(x)
	waiting := slices.Clone(s.waiting)
	for _, w := range slices.Backward(waiting) {
		if w.kind == subLive && s.outdated(w) && slices.Contains(s.waiting, w) {
			s.readapt(w) // to the front
		}
	}
	for _, w := range waiting {
		if w.kind != subLive && s.outdated(w) && slices.Contains(s.waiting, w) {
			s.readapt(w)
		}
	}
}

// outdated reports whether a request that waits has another form by now. A query
// that has got somewhere was not refused in its own.
func (s *Session) outdated(x *sub) bool {
	switch {
	case x.kind == subLive:
		return s.terms.NoLimitZero && (x.limitZero || x.size() > s.terms.MaxMessage) ||
			s.terms.MaxFilters > 0 && len(x.filters) > s.terms.MaxFilters ||
			slices.ContainsFunc(x.filters, func(f nostr.Filter) bool { return s.mustAdapt(f, s.liveBounds()) })
	case x.kind == subPage && x.q.unbegun(), x.kind == subNeg:
		return s.mustAdapt(x.q.filter, s.queryBounds())
	}
	return false
}

// mustAdapt reports whether adapt would change a filter.
func (s *Session) mustAdapt(f nostr.Filter, to bounds) bool {
	fs, less := s.adapt(f, to)
	return less || len(fs) != 1 || len(fs[0].Kinds) != len(f.Kinds)
}

// readapt has a request that is not open made anew, as the relay takes it by now.
func (s *Session) readapt(x *sub) {
	s.drop(x, false)
	if x.kind == subLive {
		s.waiting = append(s.parts(x), s.waiting...)
		return
	}
	s.readaptQuery(x.q)
}

// parts makes the requests of a live subscription: one, unless the relay takes less
// than it was planned for.
func (s *Session) parts(x *sub) []*sub {
	var out []*sub
	for _, part := range s.pack(x.filters) {
		out = append(out, &sub{
			kind: subLive, filters: part, match: filters.Compile(part), live: x.live, last: x.last, order: x.order,
		})
	}
	if n := s.terms.MaxSubscriptions; len(out) > 1 && n > 0 {
		for _, others := range s.lives {
			if len(others) > 0 && (x.last || !others[0].last) {
				n -= len(others)
			}
		}
		if len(out) > n-1 { // one is left to history
			s.closeLive(x.live, wire.RefusalTooManySubs, "no room for what it has to be split into")
			return nil
		}
	}
	if len(out) > 0 {
		s.lives[x.live] = append(s.lives[x.live], out...)
	}
	return out
}

// queriesFor makes the queries that a filter is fetched by: one, unless the relay
// takes less at a time.
func (s *Session) queriesFor(b *batch, index int, from plan.Query) []*query {
	fs, less := s.adapt(from.Filter, s.queryBounds())
	if len(fs) == 0 {
		fs = []nostr.Filter{{Kinds: []int{}}} // matches nothing
	}
	out := make([]*query, len(fs))
	for i, f := range fs {
		q := &query{
			id: QueryID(s.number()), b: b, index: index, less: less, cursor: plan.Cursor(from.Until), pages: from.NoNegentropy,
			filter: f, match: filters.Compile([]nostr.Filter{f}),
		}
		out[i] = q
		s.queries[q.id] = q
	}
	b.open += len(out)
	b.parts[index] = append(b.parts[index], out...)
	b.sum(index)
	return out
}

// unbegun reports whether a query is fetched by pages and has not got any.
func (q *query) unbegun() bool { return q.walk != nil && q.walk.Pages() == 0 }

// readaptQuery starts a query anew from where it got to. A part of one has no form
// of its own: the whole is started anew.
func (s *Session) readaptQuery(q *query) {
	q = q.whole()
	q.noteCursor()
	b := q.b
	for _, part := range s.queriesOf(b) {
		if part.whole() == q {
			s.dropOthers(part)
			s.leaveReconciling(part)
			delete(s.queries, part.id)
		}
	}
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

// begin starts a query.
func (s *Session) begin(q *query) {
	switch {
	case filters.Empty(q.filter):
		s.end(q, plan.Gaps, "")
	case s.negentropy && !q.pages && q.b.Kind != plan.Recent && q.cursor == plan.CursorStart:
		s.negQueue = append(s.negQueue, q)
	default:
		s.startPages(q, int64(q.cursor))
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
