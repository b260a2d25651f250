package plan

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/filters"
)

// BatchID identifies a batch. It is never reused.
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

	role filterRole
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

// pendingSyncIndex starts batches for the fetchers, and parks those that failed.
type pendingSyncIndex struct {
	*core
	last     BatchID
	unsaving bool // the Store saves nothing now
}

// fetcher is a part of the plan that starts batches.
type fetcher interface {
	due(r *relayState, now time.Time) bool
	start(r *relayState, now time.Time)
	// done: a batch is complete, possibly with gaps.
	done(r *relayState, b *batch)
	// failed: a batch has failed and its wait is over, or the connection was lost. The rest is
	// requested again.
	failed(r *relayState, b *batch, in Done)
}

// batch is a [Batch] with the state that its fetcher needs to repeat it.
type batch struct {
	of       fetcher
	kind     Kind
	items    []Item
	queries  []Query
	deadline time.Time
	failure  Done
	retryAt  time.Time // of a failed batch

	// Deletions: number of authors, and the position in the rotation.
	authors, authorsAt int

	begun  time.Time
	named  []wantedID
	poll   *pollGroup // Recent: a poll
	thread bool       // of layer 4

	// Recent: the progress of an earlier attempt, and the since of its filters.
	resume *batchProgress
	since  nostr.Timestamp
}

// background reports whether a relay counts as complete without a batch.
func (b *batch) background() bool {
	return b.poll != nil || b.thread || b.kind == Audit
}

// pendingBatches are the batches of one relay.
type pendingBatches struct {
	open     map[BatchID]*batch
	parked   []*batch // failed, until retryAt
	failures int      // consecutive failures; the wait doubles with each
	unsaved  int      // the same for batches whose events could not be saved
	late     bool     // a batch failed because events could not be saved, and is repeated when they can
	gaps     int      // batches of this pass with gaps
}

// queries returns the queries that an earlier attempt did not complete. A filter takes at most half
// of a message; the rest is for bounds, or for the first message of a reconciliation.
func (bs *pendingSyncIndex) queries(r *relayState, fs []nostr.Filter, since nostr.Timestamp, resume *batchProgress) (out []Query) {
	each, _, tooLarge := filters.Pack(fs, r.limits.MaxMessage/2, 1)
	if len(tooLarge) > 0 {
		bs.emit(Dropped{Reason: "filters", Count: len(tooLarge)})
	}
	for _, one := range each {
		f := one[0]
		as := roleOf(f)
		at := CursorStart
		if resume != nil {
			at = resume.at[as]
		}
		if at == CursorDone {
			continue
		}
		if since > 0 {
			f = filters.Between(f, &since, nil, 0)
		}
		out = append(out, Query{Filter: f, Until: int64(at), role: as})
	}
	return out
}

const graceAfterDeadline = time.Minute

func (bs *pendingSyncIndex) start(r *relayState, b *batch, qs []Query, now time.Time) {
	bs.last++
	deadline := now.Add(bs.cfg.BatchTimeout)
	b.queries, b.begun = qs, now
	b.deadline = deadline.Add(graceAfterDeadline)
	r.pending.open[bs.last] = b
	bs.emit(Start{Relay: r.url, Epoch: r.dial.epoch, Batch: Batch{
		ID: bs.last, Kind: b.kind, Items: len(b.items), Queries: qs, Deadline: deadline,
	}})
}

// failed parks a failed batch.
func (bs *pendingSyncIndex) failed(r *relayState, b *batch, in Done, now time.Time) {
	failures := &r.pending.failures
	if in.Unsaved = in.Unsaved || bs.unsaving; in.Unsaved {
		failures, r.pending.late = &r.pending.unsaved, true
	}
	if !in.Late { // a late batch is only too large for its time
		*failures++
	}
	b.failure, b.retryAt = in, now.Add(bs.retryAfter(max(1, *failures)))
	if in.Result == Refused {
		b.retryAt = now.Add(bs.longer(bs.cfg.RetryMax))
	}
	if b.kind != Audit {
		r.pending.parked = append(r.pending.parked, b)
	}
}

// unpark passes the parked batches whose wait is over to their fetchers.
func (b *pendingBatches) unpark(r *relayState, now time.Time) {
	parked := b.parked
	b.parked = nil
	for _, p := range parked {
		if now.Before(p.retryAt) {
			b.parked = append(b.parked, p)
		} else {
			p.of.failed(r, p, p.failure)
		}
	}
}

func (b *pendingBatches) unparkAll(r *relayState) {
	for _, p := range b.parked {
		p.retryAt = time.Time{}
	}
	b.unpark(r, time.Time{})
}

// parks reports whether a failed batch of a fetcher waits.
func (b *pendingBatches) parks(of fetcher) bool {
	return slices.ContainsFunc(b.parked, func(p *batch) bool { return p.of == of })
}

func (b *pendingBatches) runs(is func(*batch) bool) bool {
	for _, open := range b.open {
		if is(open) {
			return true
		}
	}
	return false
}

// all returns the open and the parked batches.
func (b *pendingBatches) all() []*batch {
	return slices.AppendSeq(slices.Clone(b.parked), maps.Values(b.open))
}

func (b *pendingBatches) without(it Item) {
	for _, pending := range b.all() {
		pending.items = slices.DeleteFunc(pending.items, func(o Item) bool { return o == it })
	}
}

func (b *pendingBatches) wakes(consider func(time.Time)) {
	for _, open := range b.open {
		consider(open.deadline)
	}
	for _, p := range b.parked {
		consider(p.retryAt)
	}
}

func lessFar(a, b Cursor) Cursor {
	switch {
	case a == CursorStart || b == CursorStart:
		return CursorStart
	case a == CursorDone:
		return b
	case b == CursorDone:
		return a
	}
	return max(a, b)
}

// batchProgress is the progress of an unfinished batch by role. Its items share one immutable
// value.
type batchProgress struct {
	daily bool
	at    map[filterRole]Cursor
}

// merge adds the progress of an attempt to that of earlier attempts. Of several filters with one
// role the least progress counts.
func merge(old *batchProgress, queries []Query, got []Cursor, daily bool) *batchProgress {
	at := make(map[filterRole]Cursor)
	for i, q := range queries {
		c := CursorStart
		if i < len(got) {
			c = got[i]
		}
		if before, ok := at[q.role]; ok {
			c = lessFar(before, c)
		}
		at[q.role] = c
	}
	if old != nil {
		for r, c := range old.at {
			if _, ok := at[r]; !ok {
				at[r] = c
			}
		}
	}
	progress := false
	for _, c := range at {
		progress = progress || c != CursorStart
	}
	if !progress && !daily {
		return nil
	}
	return &batchProgress{daily: daily, at: at}
}

// filterRole identifies filters of a batch by tag and kinds.
type filterRole struct {
	tag      string
	deletion bool
}

func roleOf(f nostr.Filter) (r filterRole) {
	for r.tag = range f.Tags {
	}
	r.deletion = len(f.Kinds) == 1 && f.Kinds[0] == graspsync.KindDeletion
	return r
}

func (r filterRole) compare(other filterRole) int {
	order := [...]filterRole{{tag: "a"}, {tag: "A"}, {tag: "q"}, {tag: "a", deletion: true}, {tag: "e"}, {tag: "E"}}
	return cmp.Compare(slices.Index(order[:], r), slices.Index(order[:], other))
}
