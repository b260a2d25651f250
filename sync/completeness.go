package sync

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/sync/internal/lazy"
)

// Bounds of what is remembered per relay of what it lacks and what it had.
const (
	lackingIDs    = 2_048 // events that it lacks, in one pass
	coverageRepos = 1_024 // repositories counted apart
	lookupRefs    = 16    // repositories that one event counts for
)

// lackingAfter is how long we must have had an event for a relay to lack it: what is new is on its
// way everywhere.
const lackingAfter = 10 * time.Minute

// arrivals are the ids of what was stored here within lackingAfter, and of some that were before.
// The zero value is empty; it may be used by any goroutine.
type arrivals struct {
	mu sync.Mutex
	// guarded by mu
	young, old map[graspsync.EventID]struct{}
	since      time.Time // of young
}

// mostArrivals bounds the ids in each of the two; when more come, the older half is forgotten
// sooner, and may be said to be lacking.
const mostArrivals = 20_000

func (a *arrivals) add(id graspsync.EventID, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.age(now)
	if len(a.young) >= mostArrivals {
		a.old, a.young, a.since = a.young, nil, now
	}
	lazy.Put(&a.young, id, struct{}{})
}

func (a *arrivals) has(id graspsync.EventID, now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.age(now)
	_, young := a.young[id]
	_, old := a.old[id]
	return young || old
}

// age forgets what has been here for long enough. a.mu is held.
func (a *arrivals) age(now time.Time) {
	switch past := now.Sub(a.since); {
	case past >= 2*lackingAfter:
		a.young, a.old, a.since = nil, nil, now
	case past >= lackingAfter:
		a.old, a.young, a.since = a.young, nil, now
	}
}

// peerLacksEvery is the least time between two warnings about one relay.
const peerLacksEvery = 24 * time.Hour

// coverage is both counts of reconciliation with one relay, per repository. The zero
// value is empty.
type completeness struct {
	mu sync.Mutex
	// guarded by mu
	comparedAt time.Time                  // the last reconciliation ended, zero: none did
	seen       map[graspsync.EventID]bool // that it lacks, this pass
	lacks      map[graspsync.RepoRef]int  // events, this pass
	lacksAll   int                        // events that count for any repository
	had        map[graspsync.RepoRef]int  // that we missed, since the start
	looking    int                        // look-ups under way
	toldAt     time.Time                  // of the last warning
}

// begin starts a pass: what it lacks is counted anew.
func (c *completeness) begin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen, c.lacks, c.lacksAll = nil, nil, 0
}

// missed counts an event that the relay had and we missed.
func (c *completeness) missed(refs []graspsync.RepoRef) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, ref := range refs {
		countRepo(&c.had, ref)
	}
}

func countRepo(m *map[graspsync.RepoRef]int, ref graspsync.RepoRef) {
	if _, ok := (*m)[ref]; ok || len(*m) < coverageRepos {
		lazy.Put(m, ref, (*m)[ref]+1)
	}
}

// fresh notes a reconciliation and returns those of the ids that were not counted
// in this pass, as far as there is room, and did not arrive here just now.
func (c *completeness) fresh(ids []graspsync.EventID, here *arrivals, now time.Time) []graspsync.EventID {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.comparedAt = now
	var out []graspsync.EventID
	for _, id := range ids {
		if len(c.seen) >= lackingIDs {
			break
		}
		if !c.seen[id] && !here.has(id, now) {
			lazy.Put(&c.seen, id, true)
			out = append(out, id)
		}
	}
	if len(out) > 0 {
		c.looking++
	}
	return out
}

// counted takes in what a look-up found: for each event the repositories for which
// the relay should have it.
func (c *completeness) counted(events [][]graspsync.RepoRef) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.looking--
	for _, refs := range events {
		c.lacksAll++
		for _, ref := range refs {
			countRepo(&c.lacks, ref)
		}
	}
}

// worst returns the repository of which the relay lacks most, if it is time to say
// so and nothing is being looked up.
func (c *completeness) worst(now time.Time) (ref graspsync.RepoRef, count, repos int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.looking > 0 || len(c.lacks) == 0 || (!c.toldAt.IsZero() && now.Sub(c.toldAt) < peerLacksEvery) {
		return ref, 0, 0
	}
	c.toldAt = now
	for _, r := range slices.SortedFunc(maps.Keys(c.lacks), graspsync.RepoRef.Compare) {
		if c.lacks[r] > count {
			ref, count = r, c.lacks[r]
		}
	}
	return ref, count, len(c.lacks)
}

// of returns the counts of one repository.
func (c *completeness) of(ref graspsync.RepoRef) (lacks, had int, comparedAt time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lacks[ref], c.had[ref], c.comparedAt
}

func (c *completeness) fill(r *RelayStatus) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r.Lacks, r.ComparedAt = c.lacksAll, c.comparedAt
}
