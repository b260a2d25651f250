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
type cursors struct {
	daily bool
	at    map[role]Cursor
}

// role tells the filters of a batch apart however its items are chunked.
type role struct {
	tag      string
	deletion bool
}

func roleOf(f nostr.Filter) role {
	r := role{deletion: len(f.Kinds) == 1 && f.Kinds[0] == graspsync.KindDeletion}
	for tag := range f.Tags {
		r.tag = tag
	}
	return r
}

// compare orders roles as filters are ordered: those of states, of repositories, of
// root events.
func (r role) compare(other role) int {
	order := [...]role{{tag: "d"}, {tag: "a"}, {tag: "A"}, {tag: "q"}, {tag: "a", deletion: true}, {tag: "e"}, {tag: "E"}}
	return cmp.Compare(slices.Index(order[:], r), slices.Index(order[:], other))
}

// batch is what the plan remembers of a Batch.
type batch struct {
	of       asker
	kind     Kind
	items    []Item
	roles    []role
	deadline time.Time

	// Deletions: how many authors are asked about, and where the rotation was.
	authors, authorsAt int

	begun time.Time
	named []wantedID  // NamedIDs
	poll  *pollGroup  // Recent: it is a poll, not part of a catch-up
	sweep *sweepChunk // History: of root events in rotation

	desc   *descGroup        // it is about descendants, which are no items of its relay
	behind map[Item]struct{} // and about those of them that are followed live

	// Recent: where an earlier attempt had got to, and since when it looks.
	resume *cursors
	since  nostr.Timestamp
}

// background reports whether a batch is one of those that come up again and again,
// without which a relay counts as fetched from all the same.
func (b *batch) background() bool {
	return b.poll != nil || b.sweep != nil || b.desc != nil || b.kind == Audit
}

// asker is a part of the plan that asks relays for something, in batches.
type asker interface {
	// due reports whether there is something to ask a relay for now.
	due(r *relay, now time.Time) bool
	// start starts a batch, or none if it turns out that nothing is left to ask for.
	start(r *relay, now time.Time)
	// done takes in that a batch was completed, with gaps or without.
	done(r *relay, b *batch, gaps bool)
	// failed takes in that a batch was not. What is left is asked for again, but not before
	// until.
	failed(r *relay, b *batch, in Done, until time.Time)
	// lost takes in that the connection ended, when the queries of a batch had got so far.
	lost(r *relay, b *batch, got []Cursor)
}

// batches makes batches of queries and starts them.
type batches struct {
	*common
	last     BatchID
	unsaving bool // nothing that comes can be saved here
}

// itemFilters returns the filters for items. A group was made of items of one
// kind, but while it waited the number of one may have come to stand for something
// else.
func (w *want) itemFilters(items []Item) (out []nostr.Filter) {
	var refs, states []graspsync.RepoRef
	var ids []graspsync.EventID
	var below []filters.Descendant
	for _, it := range items {
		switch in := &w.infos[it]; in.kind {
		case itemLayer1:
			if w.narrow {
				out = append(out, filters.Announcements())
			} else {
				out = append(out, filters.Layer1())
			}
		case itemStates:
			states = append(states, in.repo.ref)
		case itemRepo:
			refs = append(refs, in.repo.ref)
		case itemRoot:
			ids = append(ids, in.root)
		case itemDescendant:
			below = append(below, w.descendant(it))
		}
	}
	out = append(out, filters.States(states)...)
	out = append(out, filters.Repos(refs)...)
	out = append(out, filters.Roots(ids)...)
	return append(out, filters.Descendants(below)...)
}

// group is a chunk of items that one batch can cover.
type group struct {
	resume *cursors
	items  []Item
	// Of a catch-up: since when it looks; 0: since whatever may have been missed when it
	// starts.
	since nostr.Timestamp
}

// groups splits items into chunks for batches: by kind, by how far they got, and
// at most MaxValues each. The order is fixed: layer 1, states if it has none,
// repositories, root events, each sorted by what goes into the filters.
func (w *want) groups(items []Item, resume map[Item]*cursors) []group {
	sorted := slices.Clone(items)
	slices.SortFunc(sorted, w.compare)
	byCursor := make(map[*cursors]int) // -> index of the open group
	var out []group
	var kind itemKind
	for _, it := range sorted {
		if k := w.infos[it].kind; k != kind {
			kind = k
			clear(byCursor)
		}
		c := resume[it]
		i, ok := byCursor[c]
		if !ok || len(out[i].items) == filters.MaxValues {
			i = len(out)
			byCursor[c] = i
			out = append(out, group{resume: c})
		}
		out[i].items = append(out[i].items, it)
	}
	return out
}

// compare orders items as their values are ordered in filters.
func (w *want) compare(a, b Item) int {
	x, y := &w.infos[a], &w.infos[b]
	if c := cmp.Compare(x.kind, y.kind); c != 0 {
		return c
	}
	switch x.kind {
	case itemStates:
		return cmp.Or(cmp.Compare(x.repo.ref.Identifier, y.repo.ref.Identifier), x.repo.ref.Compare(y.repo.ref))
	case itemRepo:
		return x.repo.ref.Compare(y.repo.ref)
	case itemRoot:
		return x.root.Compare(y.root)
	case itemDescendant:
		return w.descendant(a).Compare(w.descendant(b))
	}
	return 0
}

// queries makes the queries of a batch. What an earlier attempt completed is left
// out. A filter takes at most half of a message: there must be room for since,
// until and limit, or for the first message of a reconciliation.
func (bs *batches) queries(r *relay, fs []nostr.Filter, since nostr.Timestamp, resume *cursors) ([]Query, []role) {
	var out []Query
	var roles []role
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

// merge returns how far a batch got in all, from what its start had and how far
// each query got now. Several filters of one role count as far as the worst.
func merge(old *cursors, roles []role, got []Cursor, daily bool) *cursors {
	at := make(map[role]Cursor)
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
	return &cursors{daily: daily, at: at}
}
