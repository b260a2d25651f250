package session

import (
	"cmp"
	"math"
	"slices"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/filters"
	"github.com/graspsync/graspsync/sync/internal/negentropy"
	"github.com/graspsync/graspsync/sync/internal/plan"
)

type queryState uint8

const (
	qWaiting     queryState = iota // for a place to reconcile
	qLoading                       // our set is being read
	qReconciling                   // NEG-OPEN is waiting or under way
	qChecking                      // which of their ids we need is being found out
	qFetching                      // it goes on by ids, by pages or in parts
	qDating                        // how old is what others brought is being found out
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

	result plan.Result // so far
	hold   int64       // newest second that can't be counted as fetched, 0 if there is none
	ids    wanted      // that it fetches by id

	audit  *audit      // it is one
	parent *query      // what it is a part of
	depth  int         // how many parents there are
	part   *query      // its part that is being fetched
	full   *fullSecond // it is a part, one second that is full

	// By pages.
	walk    *filters.Walk
	gaps    int          // gaps of walk that were taken in
	seconds []fullSecond // full, to be looked into

	// By reconciliation.
	set      *negentropy.Set
	neg      *negentropy.Session
	placed   bool   // it has a place among those that reconcile
	room     int    // ids that it may be found to need, each perhaps claimed twice; 0: nobody has said
	granted  int    // of these, those that count by now
	left     int    // ids with which it has left its place
	last     []byte // payload of the last NEG-MSG
	repeats  int    // of last
	reopened bool
	limited  int                 // NEG-OPENs in a row that were refused as one of too many
	cut      *cut                // its set may have been cut
	rest     *rest               // to be fetched when the ids are
	found    []graspsync.EventID // ids of which nobody knows yet whether we need them
	later    []graspsync.EventID // ids that somebody else is asked for
	vain     bool                // nothing was served by id, nor has any of that come by pages so far

	// In windows, each reconciled.
	window  []window // to be fetched, newest first
	windows int      // made of the whole, restarts included
	below   int64    // end of what is above the windows that are left

	// Kind by kind.
	from  int64          // it is fetched kind by kind from this second on, 0 if it is not
	turns []nostr.Filter // of these kinds, those that wait
}

// whole returns the query of the batch that q is a part of, at any depth.
func (q *query) whole() *query {
	for q.parent != nil {
		q = q.parent
	}
	return q
}

// forget lets go of what one that has ended found: its batch keeps it to tell how far it got.
func (q *query) forget() {
	q.set, q.neg, q.last, q.cut = nil, nil, nil, nil
	q.ids, q.found, q.later = wanted{}, nil, nil
}

// span returns the seconds that a query is about.
func (q *query) span() window {
	w := window{0, noEnd}
	if f := q.filter; f.Since != nil {
		w.since = max(0, int64(*f.Since))
	}
	if f := q.filter; f.Until != nil {
		w.until = int64(*f.Until)
	}
	return w
}

// unbegun reports whether a query is fetched by pages and has not got any.
func (q *query) unbegun() bool { return q.walk != nil && q.walk.Pages() == 0 }

// noteCursor keeps how far the query got.
func (q *query) noteCursor() {
	if at := q.reached(); at != 0 && q.parent == nil {
		q.cursor = plan.Cursor(at)
		q.b.sum(q.index)
	}
}

// reached returns the second down to which everything was fetched or counted, 0 if
// nothing can be said.
func (q *query) reached() (at int64) {
	switch c := q.part; {
	case q.from != 0:
		at = q.from
		if c != nil && len(q.turns) == 0 { // of all kinds before it everything is here
			at = cmp.Or(c.reached(), at)
		}
	case q.walk != nil:
		if at = q.walk.Until(); at != 0 && c != nil {
			at = max(at, int64(c.full.at))
		}
	case c != nil:
		if at = c.reached(); at == 0 {
			at = q.below
		}
	default:
		at = q.below
	}
	switch {
	case at == 0, q.hold == noEnd:
		return 0
	}
	return max(at, q.hold)
}

// saw counts an event of a page.
func (q *query) saw(ev graspsync.Event) {
	if q.full != nil {
		q.full.split.Saw(ev.ID, ev.Event)
		return
	}
	q.walk.Saw(ev.ID, ev.CreatedAt)
}

// heard takes in an event that was asked for by its id.
func (q *query) heard(ev *nostr.Event) {
	if q.full != nil {
		q.full.split.Heard(ev)
	}
	if q.cut != nil {
		q.cut.oldest = min(q.cut.oldest, int64(ev.CreatedAt))
	}
}

// repeatPage forgets what was counted of the page under way.
func (q *query) repeatPage() {
	if q.full != nil {
		q.full.split.Next()
		return
	}
	q.walk.Next()
}

// fullSecond is the part of a query that is one second with more events than a page
// holds. It is reconciled (NIP-77), or else split.
type fullSecond struct {
	at    nostr.Timestamp
	page  int // answers smaller than this are whole
	doubt int // > 0: it gave so many, and it is only suspected that there are more
	split *filters.Split
	// unsure: the relay reconciled no more events than a page holds. It may have a
	// cap there, too.
	unsure bool
}

// window is a part of a query: the seconds from since to until, both inclusive.
type window struct{ since, until int64 }

// noEnd is the until of a window without an upper bound.
const noEnd = math.MaxInt64

// rest is what a reconciliation did not come to.
type rest struct {
	window
	again bool // reconcile it
}

// Some relays reconcile no more events than their database gives at once, the
// newest ones, and do not say so: whatever is older would never be asked for. Their
// caps are round numbers. So where a relay showed to have such a number of events, a
// page below the oldest of them is asked for. It is empty if the set was whole.

// cut says what is known of a reconciliation whose set may have been cut.
type cut struct {
	oldest int64               // created_at of the oldest event that the relay showed, as far as it is known
	below  bool                // the page below it was asked for
	asked  []graspsync.EventID // of which it is being found out whether we need them
	others []graspsync.EventID // that somebody else brought: their created_at is to be looked up
}

// checked takes out what the relay itself is asked for, now or later.
func (c *cut) checked(ids, later []graspsync.EventID) {
	own := make(map[graspsync.EventID]struct{}, len(ids)+len(later))
	for _, id := range slices.Concat(ids, later) {
		own[id] = struct{}{}
	}
	for _, id := range c.asked {
		if _, ok := own[id]; !ok {
			c.others = append(c.others, id)
		}
	}
	c.asked = nil
}
