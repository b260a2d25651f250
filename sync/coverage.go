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

// peerLacksEvery is the least time between two warnings about one relay.
const peerLacksEvery = 24 * time.Hour

// coverage is both counts of reconciliation with one relay, per repository. The zero
// value is empty.
type coverage struct {
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
func (c *coverage) begin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen, c.lacks, c.lacksAll = nil, nil, 0
}

// missed counts an event that the relay had and we missed.
func (c *coverage) missed(refs []graspsync.RepoRef) {
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
// in this pass, as far as there is room.
func (c *coverage) fresh(ids []graspsync.EventID, now time.Time) []graspsync.EventID {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.comparedAt = now
	var out []graspsync.EventID
	for _, id := range ids {
		if len(c.seen) >= lackingIDs {
			break
		}
		if !c.seen[id] {
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
func (c *coverage) counted(events [][]graspsync.RepoRef) {
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
func (c *coverage) worst(now time.Time) (ref graspsync.RepoRef, count, repos int) {
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
func (c *coverage) of(ref graspsync.RepoRef) (lacks, had int, comparedAt time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lacks[ref], c.had[ref], c.comparedAt
}

func (c *coverage) fill(r *RelayStatus) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r.Lacks, r.ComparedAt = c.lacksAll, c.comparedAt
}
