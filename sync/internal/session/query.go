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
	ids    wanted      // events that are fetched by id
	audit  *audit      // set in a query of an audit

	walk *filters.Walk
	full []nostr.Timestamp // seconds with more events than a page, newest first; pages are done

	// By reconciliation.
	set      *negentropy.Set
	neg      *negentropy.Session
	placed   bool   // has a slot in reconcileQueue
	room     int    // maximum number of claimed ids, duplicates included; 0: not set
	granted  int    // part of room that is reserved
	left     int    // number of ids when it left its slot
	last     []byte // payload of the last NEG-MSG
	repeats  int    // repetitions of last
	reopened bool
	limited  int                 // NEG-OPENs in a row that were rate limited
	unsure   bool                // pages must follow
	found    []graspsync.EventID // ids not yet compared with the stored events
	later    []graspsync.EventID // ids requested from another relay

	// Ids of which none was served, while pages are fetched instead.
	noneServed map[graspsync.EventID]struct{}
}

// forget releases the memory of a query that ended. Its batch still refers to it for the cursor.
func (q *query) forget() {
	q.set, q.neg, q.last = nil, nil, nil
	q.ids, q.found, q.later = wanted{}, nil, nil
}

// compared returns the filter to reconcile.
func (q *query) compared() nostr.Filter {
	if n := len(q.full); n > 0 {
		return filters.Between(q.filter, &q.full[n-1], &q.full[0], 0)
	}
	return q.filter
}

// unbegun reports whether the query is fetched by pages and has received no page.
func (q *query) unbegun() bool { return q.walk != nil && q.walk.Pages() == 0 }

// noteCursor records the second down to which everything was fetched. It is not below a full
// second.
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
