package session

import (
	"math"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/filters"
	"github.com/graspsync/graspsync/sync/internal/negentropy"
	"github.com/graspsync/graspsync/sync/internal/plan"
)

type queryState uint8

const (
	qWaiting     queryState = iota // waits for a slot to reconcile
	qLoading                       // the set of stored events is being read
	qReconciling                   // NEG-OPEN is queued or open
	qChecking                      // ids are compared with the stored events
	qFetching                      // continues by ids, by pages or in parts
)

type query struct {
	id     QueryID
	b      *batch
	index  int
	filter nostr.Filter
	match  *filters.Matcher
	state  queryState
	cursor plan.Cursor // progress
	less   bool        // values that the relay never accepts were left out
	pages  bool        // fetched by pages, never reconciled

	result plan.Result // so far
	hold   int64       // newest second that may be incomplete, 0 if none
	ids    wanted      // events that are fetched by id

	audit  *audit      // set in a query of an audit
	parent *query      // query of which this is a part
	depth  int         // number of ancestors
	part   *query      // part that is being fetched
	full   *fullSecond // set if this part is one full second

	// By pages.
	walk    *filters.Walk
	gaps    int          // gaps of walk that were handled
	seconds []fullSecond // full seconds that wait

	// By reconciliation.
	set        *negentropy.Set
	neg        *negentropy.Session
	placed     bool   // has a slot in reconcileQueue
	room       int    // maximum number of claimed ids, duplicates included; 0: not set
	granted    int    // part of room that is reserved
	left       int    // number of ids when it left its slot
	last       []byte // payload of the last NEG-MSG
	repeats    int    // repetitions of last
	reopened   bool
	limited    int                 // NEG-OPENs in a row that were rate limited
	unsure     bool                // its set may have been cut
	rest       *rest               // window to fetch after the ids
	found      []graspsync.EventID // ids not yet compared with the stored events
	later      []graspsync.EventID // ids requested from another relay
	noneServed bool                // no id was served by id or by page

	// Reconciled in windows.
	window  []window // waiting windows, newest first
	windows int      // windows made for the whole, restarts included
	below   int64    // lower end of the finished windows
}

// whole returns the query of the batch of which q is a part, or q.
func (q *query) whole() *query {
	for q.parent != nil {
		q = q.parent
	}
	return q
}

// forget releases the memory of a query that ended. Its batch still refers to it for the cursor.
func (q *query) forget() {
	q.set, q.neg, q.last = nil, nil, nil
	q.ids, q.found, q.later = wanted{}, nil, nil
}

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

// unbegun reports whether the query is fetched by pages and has received no page.
func (q *query) unbegun() bool { return q.walk != nil && q.walk.Pages() == 0 }

func (q *query) noteCursor() {
	if at := q.reached(); at != 0 && q.parent == nil {
		q.cursor = plan.Cursor(at)
		q.b.sum(q.index)
	}
}

// reached returns the second down to which everything was fetched or counted as a gap, or 0 if
// unknown.
func (q *query) reached() (at int64) {
	switch c := q.part; {
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

func (q *query) saw(ev graspsync.Event) {
	if q.full != nil {
		q.full.split.Saw(ev.ID, ev.Event)
		return
	}
	q.walk.Saw(ev.ID, ev.CreatedAt)
}

func (q *query) heard(ev *nostr.Event) {
	if q.full != nil {
		q.full.split.Heard(ev)
	}
}

func (q *query) repeatPage() {
	if q.full != nil {
		q.full.split.Next()
		return
	}
	q.walk.Next()
}

// fullSecond is a part of a query: one second with more events than a page. It is reconciled
// (NIP-77), or else split.
type fullSecond struct {
	at    nostr.Timestamp
	page  int // an answer with fewer events is complete
	doubt int // number of events of a suspected second, 0 if known to be full
	split *filters.Split
}

// window is an inclusive range of seconds.
type window struct{ since, until int64 }

// noEnd is the until of a window without an upper bound.
const noEnd = math.MaxInt64

// rest is the window that a reconciliation did not reach.
type rest struct {
	window
	again bool // reconcile it
}
