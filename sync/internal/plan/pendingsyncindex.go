package plan

import (
	"cmp"
	"slices"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/filters"
)

// BatchID names a batch; it is never used twice.
type BatchID uint64

// Kind says what a batch is for.
type Kind uint8

const (
	// History fetches the past of its items once.
	History Kind = iota
	// DailyHistory does so again, to find what was missed.
	DailyHistory
	// Recent fetches what may have been missed while the connection was gone.
	Recent
	// Deletions fetches kind 5 events by author. It covers no items.
	Deletions
	// NamedIDs fetches events by their ids. It covers no items.
	NamedIDs
	// Audit fetches a window of the past again, to find out whether NIP-77 kept
	// something back: what it finds was missed. It covers no items.
	Audit
)

// Batch is an order to fetch some history: all its queries must be complete
// before its items are confirmed.
type Batch struct {
	ID      BatchID
	Kind    Kind
	Items   int // how many items it covers
	Queries []Query
	// Deadline is when the batch must have ended, one way or the other.
	Deadline time.Time
}

// Query is one filter to fetch to its end.
type Query struct {
	Filter nostr.Filter // without limit; since only in Recent and Audit batches
	// Until is where an earlier attempt had got to: everything newer was fetched.
	// 0: from the start.
	Until int64
	// NoNegentropy: it must be fetched by pages.
	NoNegentropy bool
}

// Cursor says how far a query got.
type Cursor int64

const (
	// CursorStart: nothing that can be built on.
	CursorStart Cursor = 0
	// CursorDone: it is complete. Any other value is the time (Unix, seconds) down
	// to which everything was fetched.
	CursorDone Cursor = -1
)

// batches makes batches of queries and starts them.
type pendingSyncIndex struct {
	*core
	last     BatchID
	unsaving bool // nothing that comes can be saved here
}

// asker is a part of the plan that asks relays for something, in batches.
type fetcher interface {
	// due reports whether there is something to ask a relay for now.
	due(r *relayState, now time.Time) bool
	// start starts a batch, or none if it turns out that nothing is left to ask for.
	start(r *relayState, now time.Time)
	// done takes in that a batch was completed, with gaps or without.
	done(r *relayState, b *batch, gaps bool)
	// failed takes in that a batch was not. What is left is asked for again, but not before
	// until.
	failed(r *relayState, b *batch, in Done, until time.Time)
	// lost takes in that the connection ended, when the queries of a batch had got so far.
	lost(r *relayState, b *batch, got []Cursor)
}

// batch is what the plan remembers of a Batch.
type batch struct {
	of       fetcher
	kind     Kind
	items    []Item
	roles    []filterRole
	deadline time.Time

	// Deletions: how many authors are asked about, and where the rotation was.
	authors, authorsAt int

	begun time.Time
	named []wantedID // NamedIDs
	poll  *pollGroup // Recent: it is a poll, not part of a catch-up
	chunk *rootChunk // History: of root events in rotation

	desc   *threadGroup      // it is about descendants, which are no items of its relay
	behind map[Item]struct{} // and about those of them that are followed live

	// Recent: where an earlier attempt had got to, and since when it looks.
	resume *batchProgress
	since  nostr.Timestamp
}

// background reports whether a batch is one of those that come up again and again,
// without which a relay counts as fetched from all the same.
func (b *batch) background() bool {
	return b.poll != nil || b.chunk != nil || b.desc != nil || b.kind == Audit
}

// batchesState is what a relay is being asked for.
type pendingBatches struct {
	open       map[BatchID]*batch
	background int  // of them, those without which a relay counts as fetched from
	failures   int  // batches that failed in a row
	unsaved    int  // the same, for what they brought could not be saved here
	late       bool // something waits for a while since it could not be
	gaps       int  // batches of this pass that were completed with gaps
}

// queries makes the queries of a batch. What an earlier attempt completed is left
// out. A filter takes at most half of a message: there must be room for since,
// until and limit, or for the first message of a reconciliation.
func (bs *pendingSyncIndex) queries(r *relayState, fs []nostr.Filter, since nostr.Timestamp, resume *batchProgress) ([]Query, []filterRole) {
	var out []Query
	var roles []filterRole
	each, tooLarge := filters.Pack(fs, r.limits.MaxMessage/2, 1)
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
		out = append(out, Query{Filter: f, Until: int64(at)})
		roles = append(roles, as)
	}
	return out, roles
}

// graceAfterDeadline is for whoever fetches a batch to say at its deadline how far
// it got, before it is given up here.
const graceAfterDeadline = time.Minute

func (bs *pendingSyncIndex) start(r *relayState, b *batch, qs []Query, now time.Time) {
	bs.last++
	deadline := now.Add(bs.cfg.BatchTimeout)
	b.begun = now
	if b.background() {
		r.pending.background++
	}
	b.deadline = deadline.Add(graceAfterDeadline)
	r.pending.open[bs.last] = b
	bs.emit(Start{Relay: r.url, Epoch: r.dial.epoch, Batch: Batch{
		ID: bs.last, Kind: b.kind, Items: len(b.items), Queries: qs, Deadline: deadline,
	}})
}

// failed tells the asker of a failed batch when to ask again: after a wait that grows with
// each failure, or after the longest wait at once if the relay refuses to answer.
func (bs *pendingSyncIndex) failed(r *relayState, b *batch, in Done, now time.Time) {
	failures := &r.pending.failures
	if b.desc != nil {
		failures = &r.threads.failures
	}
	if in.Unsaved = in.Unsaved || bs.unsaving; in.Unsaved {
		failures, r.pending.late = &r.pending.unsaved, true
	}
	if !in.Late { // else there is just more than fits into the time of a batch
		*failures++
	}
	until := now.Add(bs.retryAfter(max(1, *failures)))
	if in.Result == Refused {
		until = now.Add(bs.longer(bs.cfg.RetryMax))
	}
	b.of.failed(r, b, in, until)
}

// without removes an item from the batches that are fetching it.
func (b *pendingBatches) without(it Item) {
	for _, open := range b.open {
		open.items = slices.DeleteFunc(open.items, func(o Item) bool { return o == it })
	}
}

// forget ends all batches, and forgets how those before them ended.
func (b *pendingBatches) forget() {
	clear(b.open)
	b.background, b.gaps, b.failures = 0, 0, 0
}

// wakes names what becomes due on a connection.
func (b *pendingBatches) wakes(consider func(time.Time)) {
	for _, open := range b.open {
		consider(open.deadline)
	}
}

// jumped sets back what depends on a clock that was set back.
func (b *pendingBatches) jumped(back time.Duration) {
	for _, open := range b.open {
		setBack(back, &open.begun)
	}
}

// lessFar returns the one of two cursors of the same filter that got less far.
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

// cursors remembers how far the queries of an unfinished batch got, by role. It
// is shared by the items of that batch and never changed, so that items with the
// same cursors can be asked for together again.
type batchProgress struct {
	daily bool
	at    map[filterRole]Cursor
}

// merge returns how far a batch got in all, from what its start had and how far
// each query got now. Several filters of one role count as far as the worst.
func merge(old *batchProgress, roles []filterRole, got []Cursor, daily bool) *batchProgress {
	at := make(map[filterRole]Cursor)
	for i, r := range roles {
		c := CursorStart
		if i < len(got) {
			c = got[i]
		}
		if before, ok := at[r]; ok {
			c = lessFar(before, c)
		}
		at[r] = c
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

// role tells the filters of a batch apart however its items are chunked.
type filterRole struct {
	tag      string
	deletion bool
}

func roleOf(f nostr.Filter) filterRole {
	of := ""
	for tag := range f.Tags {
		of = tag
	}
	return roleAt(of, f.Kinds)
}

// roleAt is the role of a filter with values of a tag, "" for none, and these kinds.
func roleAt(tag string, kinds []int) filterRole {
	return filterRole{tag: tag, deletion: len(kinds) == 1 && kinds[0] == graspsync.KindDeletion}
}

// compare orders roles as filters are ordered: those of states, of repositories, of
// root events.
func (r filterRole) compare(other filterRole) int {
	order := [...]filterRole{{tag: "d"}, {tag: "a"}, {tag: "A"}, {tag: "q"}, {tag: "a", deletion: true}, {tag: "e"}, {tag: "E"}}
	return cmp.Compare(slices.Index(order[:], r), slices.Index(order[:], other))
}
