package session

import (
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
	qChecking
	qFetching // continues by ids or by pages
)

type query struct {
	id     QueryID
	b      *batch
	index  int
	filter nostr.Filter
	match  *filters.Matcher
	state  queryState
	cursor plan.Cursor
	less   bool // values that the relay never accepts were left out
	pages  bool

	result plan.Result
	ids    wanted
	audit  *audit

	walk *filters.Walk
	full []nostr.Timestamp // seconds with more events than a page, newest first; pages are done

	// By reconciliation.
	set      *negentropy.Set
	neg      *negentropy.Session
	placed   bool
	room     int // maximum number of claimed ids, duplicates included; 0: not set
	granted  int
	last     []byte // payload of the last NEG-MSG
	repeats  int
	reopened bool
	limited  int                 // NEG-OPENs in a row that were rate limited
	unsure   bool                // pages must follow
	found    []graspsync.EventID // ids not yet compared with the stored events
	later    []graspsync.EventID

	// ids of which none was served, while pages are fetched
	noneServed map[graspsync.EventID]struct{}
}

// forget releases the memory of a query. Its batch still refers to it for the cursor.
func (q *query) forget() {
	q.set, q.neg, q.last = nil, nil, nil
	q.ids, q.found, q.later = wanted{}, nil, nil
}

func (q *query) compared() nostr.Filter {
	if n := len(q.full); n > 0 {
		return filters.Between(q.filter, &q.full[n-1], &q.full[0], 0)
	}
	return q.filter
}

func (q *query) unbegun() bool { return q.walk != nil && q.walk.Pages() == 0 }

// noteCursor records the second down to which everything was fetched, not below a full second.
func (q *query) noteCursor() {
	if q.walk == nil || q.walk.Until() == 0 {
		return
	}
	q.cursor = plan.Cursor(q.walk.Until())
	if gaps := q.walk.Gaps(); len(gaps) > 0 {
		q.cursor = max(q.cursor, plan.Cursor(gaps[0]))
	}
	q.b.sum(q.index)
}
