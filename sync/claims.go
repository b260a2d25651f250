package sync

import (
	"context"
	"sync"
	"time"

	"github.com/graspsync/graspsync"
)

const (
	// claimFor is how long what one relay is asked for is not asked of others, from the last
	// of it that came on: as long as a relay takes that is of use.
	claimFor = 5 * time.Second
	// claimMost is how long that may go on in all.
	claimMost = 30 * time.Second
	// unclaimed is how long others don't wait any more for a relay that they have waited for
	// in vain.
	unclaimed = time.Hour
)

// claims are the ids that relays are asked for after a reconciliation. Where several relays
// have the same, each is asked for other parts of it; one that is slow holds the others up
// once. It may be used by any goroutine.
type claims struct {
	mu sync.Mutex
	by map[graspsync.EventID]*claim // guarded by mu: those that have not come
}

// claim is what one relay is asked for.
type claim struct {
	stats *relayStats // of the relay

	// guarded by claims.mu
	ids   []graspsync.EventID
	left  int // ids that have not come
	since time.Time
	moved time.Time     // when one came last
	over  chan struct{} // closed when none is left, or nobody waits any longer
	ended bool
}

func newClaims() *claims { return &claims{by: make(map[graspsync.EventID]*claim)} }

// take divides ids: those that nobody is asked for are claimed for a batch, and of the others
// one claim is returned that holds some of them.
func (c *claims) take(ids []graspsync.EventID, f *fetching, stats *relayStats, now time.Time) (free, busy []graspsync.EventID, held *claim) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range ids {
		if other := c.by[id]; other != nil {
			busy, held = append(busy, id), other
			continue
		}
		free = append(free, id)
	}
	if len(free) == 0 || f.over || now.Before(stats.claimsFrom) {
		return free, busy, held
	}
	mine := &claim{stats: stats, ids: free, since: now, moved: now, over: make(chan struct{})}
	for _, id := range free {
		if c.by[id] == nil { // else the relay has announced it twice
			c.by[id] = mine
			mine.left++
		}
	}
	f.claims = append(f.claims, mine)
	return free, busy, held
}

// settled takes note that it is known what became of an event.
func (c *claims) settled(id graspsync.EventID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	mine := c.by[id]
	if mine == nil {
		return
	}
	delete(c.by, id)
	mine.moved = time.Now()
	if mine.left--; mine.left == 0 {
		mine.end()
	}
}

// leave gives up what a batch has claimed.
func (c *claims) leave(f *fetching) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f.over = true
	for _, mine := range f.claims {
		c.drop(mine)
	}
	f.claims = nil
}

// drop needs mu.
func (c *claims) drop(mine *claim) {
	for _, id := range mine.ids {
		if c.by[id] == mine {
			delete(c.by, id)
		}
	}
	mine.end()
}

// end needs claims.mu.
func (mine *claim) end() {
	if !mine.ended {
		mine.ended = true
		close(mine.over)
		mine.ids = nil
	}
}

// wait waits until a claim has come to its end, or the relay has not sent any of it for too
// long. Then nobody waits for that relay for some time.
func (c *claims) wait(ctx context.Context, held *claim) error {
	timer := time.NewTimer(c.lapses(held, time.Now()))
	defer timer.Stop()
	for {
		select {
		case <-held.over:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case now := <-timer.C:
			d := c.lapses(held, now)
			if d <= 0 {
				return nil
			}
			timer.Reset(d)
		}
	}
}

// lapses returns for how long a claim stands if nothing else comes; one whose time is over
// is dropped.
func (c *claims) lapses(held *claim, now time.Time) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	d := min(held.moved.Add(claimFor).Sub(now), held.since.Add(claimMost).Sub(now))
	if d <= 0 && !held.ended {
		held.stats.claimsFrom = now.Add(unclaimed)
		c.drop(held)
	}
	return d
}
