package sync

import (
	"sync"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/sync/internal/lazy"
)

// Limits per relay.
const (
	lackingIDs    = 2_048 // lacking events of one pass
	coverageRepos = 1_024 // repositories with their own counts
)

// lackingAfter is the minimum age of an event that counts as lacking at a relay, because newer
// events may still arrive.
const lackingAfter = 10 * time.Minute

// completeness counts, per repository, the events that a relay lacks and the events that only its
// history delivered. The zero value is empty.
type completeness struct {
	mu sync.Mutex
	// guarded by mu
	comparedAt time.Time                  // end of the last reconciliation, zero: none
	seen       map[graspsync.EventID]bool // lacking events of this pass
	lacks      map[graspsync.RepoRef]int  // number of these by repository
	lacksAll   int                        // number of these of any repository
	had        map[graspsync.RepoRef]int  // events that we missed since the start
}

func (c *completeness) begin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen, c.lacks, c.lacksAll = nil, nil, 0
}

// missed counts an event that should have arrived earlier.
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

// fresh records a reconciliation. It returns the ids that were not yet counted in this pass, up to
// lackingIDs in total.
func (c *completeness) fresh(ids []graspsync.EventID, now time.Time) []graspsync.EventID {
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
	return out
}

// counted adds the result of a lookup. events has the repositories of each lacking event.
func (c *completeness) counted(events [][]graspsync.RepoRef) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, refs := range events {
		c.lacksAll++
		for _, ref := range refs {
			countRepo(&c.lacks, ref)
		}
	}
}

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
