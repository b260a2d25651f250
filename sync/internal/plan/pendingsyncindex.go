package plan

import (
	"maps"
	"slices"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/filters"
)

// BatchID identifies an attempt at a batch. It is never reused.
type BatchID uint64

// Kind is the purpose of a batch.
type Kind uint8

const (
	// History fetches the history of its items.
	History Kind = iota
	// DailyHistory fetches the history again to find missed events.
	DailyHistory
	// Recent fetches events that may have been missed.
	Recent
	// Deletions fetches kind 5 events by author. It has no items.
	Deletions
	// NamedIDs fetches events by id. It has no items.
	NamedIDs
	// Audit fetches a window of history by pages, to find events that NIP-77 missed. It has no
	// items.
	Audit
)

// Batch is an order to fetch history. Its items are confirmed when all queries are complete.
type Batch struct {
	ID       BatchID
	Kind     Kind
	Items    int
	Queries  []Query
	Deadline time.Time
}

// Query is one filter to fetch completely.
type Query struct {
	Filter nostr.Filter // without limit; since only in Recent and Audit batches
	// Until is the cursor of an earlier attempt: all newer events were fetched. 0: no earlier
	// attempt.
	Until        int64
	NoNegentropy bool
}

// Cursor is the progress of a query.
type Cursor int64

const (
	// CursorStart: no progress.
	CursorStart Cursor = 0
	// CursorDone: complete. Any other value is a Unix time in seconds. All events since then were
	// fetched.
	CursorDone Cursor = -1
)

// batch is a [Batch] with its items. A failed batch is repeated with the progress of its queries.
type batch struct {
	Batch
	items   []Item
	ids     []graspsync.EventID // NamedIDs
	poll    *pollGroup          // Recent: a poll
	thread  bool                // of layer 4
	since   nostr.Timestamp     // Recent: of its filters
	begun   time.Time           // start of the first attempt
	tries   int                 // failed attempts, except by failed saves
	retryAt time.Time           // of a failed batch; zero: now
	unsaved bool                // the last attempt failed because events could not be saved
	// advanced: a repetition does not fetch everything.
	advanced bool
}

func (b *batch) isHistory() bool { return b.Kind <= DailyHistory }

// background reports whether a relay counts as complete without a batch.
func (b *batch) background() bool { return b.poll != nil || b.thread || b.Kind == Audit }

// advance removes complete queries, and records the progress of incomplete queries.
func (b *batch) advance(cursors []Cursor) {
	var left []Query
	for i, q := range b.Queries {
		if i < len(cursors) && cursors[i] != CursorStart {
			if b.advanced = true; cursors[i] == CursorDone {
				continue
			}
			q.Until = int64(cursors[i])
		}
		left = append(left, q)
	}
	b.Queries = left
}

type pendingSyncIndex struct {
	open     map[BatchID]*batch
	parked   []*batch // failed, until retryAt
	failures int      // consecutive failures; the wait doubles with each
	gaps     int      // batches of this pass with gaps
}

const graceAfterDeadline = time.Minute

// begin starts an attempt at a batch. A filter takes at most half of a message; the rest is for
// since and until, or for the first message of a reconciliation.
func (p *Plan) begin(r *relayState, b *batch) {
	var queries []Query
	for _, q := range b.Queries {
		each, _, tooLarge := filters.Pack([]nostr.Filter{q.Filter}, r.limits.MaxMessage/2, 1)
		p.dropped("filters", len(tooLarge))
		for _, one := range each {
			q.Filter = one[0]
			queries = append(queries, q)
		}
	}
	if b.retryAt = (time.Time{}); b.begun.IsZero() {
		b.begun = p.now
	}
	if len(queries) == 0 || b.isHistory() && len(b.items) == 0 {
		p.done(r, b)
		return
	}
	p.lastBatch++
	b.Batch = Batch{ID: p.lastBatch, Kind: b.Kind, Items: len(b.items), Queries: queries, Deadline: p.now.Add(p.cfg.BatchTimeout)}
	r.pending.open[b.ID] = b
	p.emit(Start{Relay: r.url, Epoch: r.dial.epoch, Batch: b.Batch})
}

func (p *Plan) queries(items []Item, since nostr.Timestamp) (out []Query) {
	for _, f := range p.repos.itemFilters(items) {
		if since > 0 {
			f = filters.Between(f, &since, nil, 0)
		}
		out = append(out, Query{Filter: f})
	}
	return out
}

func (in Done) apply(p *Plan) {
	r := p.current(in.Relay, in.Epoch)
	if r == nil || r.pending.open[in.Batch] == nil {
		return
	}
	b := r.pending.open[in.Batch]
	delete(r.pending.open, in.Batch)
	if p.end(r, b, in); in.Disproved {
		p.startOver(r)
	}
}

func (p *Plan) end(r *relayState, b *batch, in Done) {
	if in.Result >= Failed {
		p.failed(r, b, in)
		return
	}
	r.pending.failures = 0
	r.reconciles = r.reconciles || in.Reconciled
	if in.Result == Gaps {
		r.pending.gaps++
	}
	p.done(r, b)
}

func (p *Plan) expire(r *relayState) {
	for _, id := range slices.Sorted(maps.Keys(r.pending.open)) {
		b := r.pending.open[id]
		if p.now.Before(b.Deadline.Add(graceAfterDeadline)) {
			continue
		}
		delete(r.pending.open, id)
		p.emit(Cancel{Relay: r.url, Epoch: r.dial.epoch, Batch: id})
		p.end(r, b, Done{Result: Failed})
	}
}

// done records that a batch is complete, possibly with gaps.
func (p *Plan) done(r *relayState, b *batch) {
	if b.poll != nil {
		b.poll.since = b.begun
	}
	if b.isHistory() {
		for _, it := range b.items {
			r.history.change(it, confirmed)
		}
	}
	for _, id := range b.ids {
		delete(r.byID.known, id)
	}
	if len(r.byID.known) == 0 {
		r.byID.known = nil
	}
}

// maxNamedTries is the maximum number of requests for an id at one relay.
const maxNamedTries = 3

func (p *Plan) failed(r *relayState, b *batch, in Done) {
	if b.unsaved = in.Unsaved; !b.unsaved {
		b.tries++
	}
	if !in.Late { // a late batch is only too large for its time
		r.pending.failures++
	}
	b.advance(in.Cursors)
	b.retryAt = p.now.Add(p.retryAfter(max(1, r.pending.failures)))
	if in.Result == Refused {
		b.retryAt = p.now.Add(p.withJitter(p.cfg.RetryMax))
	}
	switch {
	case b.Kind == Audit:
	case b.Kind == NamedIDs && (in.Result == Refused || b.tries >= maxNamedTries):
		p.done(r, b)
		p.dropped("id_queue", len(b.ids))
	default:
		r.pending.parked = append(r.pending.parked, b)
	}
}

// repeat starts a parked batch whose wait is over.
func (p *Plan) repeat(r *relayState) bool {
	threads := r.threadsMayRun()
	i := slices.IndexFunc(r.pending.parked, func(b *batch) bool { return !p.now.Before(b.retryAt) && (threads || !b.thread) })
	if i < 0 {
		return false
	}
	b := r.pending.parked[i]
	r.pending.parked = slices.Delete(r.pending.parked, i, i+1)
	p.begin(r, b)
	return true
}

func (s *pendingSyncIndex) unpark() {
	for _, b := range s.parked {
		b.retryAt = time.Time{}
	}
}

// interrupt parks the open batches of an ended connection. It drops audits, and batches that
// catchUpState.missed covers.
func (s *pendingSyncIndex) interrupt(cursors map[BatchID][]Cursor) {
	for _, id := range slices.Sorted(maps.Keys(s.open)) {
		s.open[id].advance(cursors[id])
		s.parked = append(s.parked, s.open[id])
	}
	clear(s.open)
	s.parked = slices.DeleteFunc(s.parked, func(b *batch) bool { return b.Kind == Recent || b.Kind == Audit })
	s.unpark()
}

// waiting returns the number of failed batches that wait, of all kinds or of some.
func (s *pendingSyncIndex) waiting(kinds ...Kind) (n int) {
	for _, b := range s.parked {
		if !b.retryAt.IsZero() && (len(kinds) == 0 || slices.Contains(kinds, b.Kind)) {
			n++
		}
	}
	return n
}

// runs reports whether a batch is open, or waits only for its turn.
func (s *pendingSyncIndex) runs(is func(*batch) bool) bool {
	return slices.ContainsFunc(s.all(), func(b *batch) bool { return b.retryAt.IsZero() && is(b) })
}

func (s *pendingSyncIndex) all() []*batch {
	return slices.AppendSeq(slices.Clone(s.parked), maps.Values(s.open))
}

func (s *pendingSyncIndex) without(it Item) {
	for _, b := range s.all() {
		b.items = slices.DeleteFunc(b.items, func(o Item) bool { return o == it })
	}
}
