package sync

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/graspsync/graspsync"
)

const (
	// claimIDs is how many ids a query claims at a time: the others are for other relays.
	claimIDs = 1_000
	// claimFor is how long what one relay is asked for is not asked of others, unless
	// claimLeast of it come meanwhile, or all that is left.
	claimFor   = 5 * time.Second
	claimLeast = 50
	// claimPatience is how long one batch waits for claims of others in all, whoever they are.
	claimPatience = 15 * time.Second
	// unclaimed is how long nobody waits any more for a relay that was waited for in vain. It
	// doubles each time, up to unclaimedMost.
	unclaimed     = time.Hour
	unclaimedMost = 24 * time.Hour
)

// claims are the ids that relays are asked for after a reconciliation. What several relays
// have is asked of one of them, each a part at a time; one that is slow holds up others for
// moments, and then no more. It may be used by any goroutine.
type fetchClaims struct {
	claimed, lapsed atomic.Uint64 // ids; and claims of which too little came
	room            atomic.Int64  // for ids that relays claim to have; below 0 if each has taken claimFew at least

	mu sync.Mutex
	by map[graspsync.EventID]claimedID // guarded by mu: of which it is not known what became
}

// claimed is one id.
type claimedID struct {
	of   *fetchClaim
	came bool
}

// claim is what one relay is asked for.
type fetchClaim struct {
	stats *relayStats // of the relay

	// guarded by claims.mu
	ids     []graspsync.EventID
	left    int       // of which it is not known what became
	missing int       // of these, what has not come
	since   time.Time // when the time began in which some have to come
	then    int       // how many were missing
	over    chan struct{}
	ended   bool
}

// credit is whether a relay's claims count. It belongs to claims.
type claimCredit struct {
	from    time.Time // before it they don't
	penalty time.Duration
}

func newFetchClaims() *fetchClaims {
	c := &fetchClaims{by: make(map[graspsync.EventID]claimedID)}
	c.room.Store(claimRoom)
	return c
}

// take divides ids: some that nobody is asked for are claimed for a batch, if it may wait for
// the others. Of those one claim is returned that holds some, nil if nobody is asked for any.
func (c *fetchClaims) take(ids []graspsync.EventID, f *relayBatch, stats *relayStats, now time.Time) (free, busy []graspsync.EventID, held *fetchClaim) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f.waited >= claimPatience {
		return ids, nil, nil
	}
	for i, id := range ids {
		other := c.by[id].of
		if other == nil && len(free) < claimIDs {
			if free == nil {
				free = make([]graspsync.EventID, 0, min(len(ids)-i, claimIDs))
			}
			free = append(free, id)
			continue
		}
		if busy = append(busy, id); other != nil {
			held = other
		}
	}
	if len(free) == 0 || f.over || now.Before(stats.credit.from) {
		return free, busy, held
	}
	mine := &fetchClaim{stats: stats, ids: free, since: now, over: make(chan struct{})}
	for _, id := range free {
		if c.by[id].of == nil { // else the relay has announced it twice
			c.by[id] = claimedID{of: mine}
			mine.left++
		}
	}
	mine.missing, mine.then = mine.left, mine.left
	c.claimed.Add(uint64(mine.left))
	f.claims = append(f.claims, mine)
	return free, busy, held
}

// arrived takes note that an event has come.
func (c *fetchClaims) arrived(id graspsync.EventID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if at := c.by[id]; at.of != nil && !at.came {
		c.by[id] = claimedID{of: at.of, came: true}
		if at.of.missing--; at.of.missing == 0 {
			at.of.stats.credit.penalty = 0 // it served all that it had claimed
		}
	}
}

// settled takes note that it is known what became of an event.
func (c *fetchClaims) settled(id graspsync.EventID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := c.by[id]
	if at.of == nil {
		return
	}
	delete(c.by, id)
	if !at.came { // or not by this way
		at.of.missing--
	}
	if at.of.left--; at.of.left == 0 {
		at.of.end()
	}
}

// leave gives up what a batch has claimed.
func (c *fetchClaims) leave(f *relayBatch) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f.over = true
	for _, mine := range f.claims {
		c.drop(mine)
	}
	f.claims = nil
}

// drop needs mu.
func (c *fetchClaims) drop(mine *fetchClaim) {
	for _, id := range mine.ids {
		if c.by[id].of == mine {
			delete(c.by, id)
		}
	}
	mine.end()
}

// end needs claims.mu.
func (mine *fetchClaim) end() {
	if !mine.ended {
		mine.ended = true
		close(mine.over)
		mine.ids = nil
	}
}

// wait has a batch wait until a claim has come to its end, too little of it comes, or the
// batch has waited long enough.
func (c *fetchClaims) wait(ctx context.Context, held *fetchClaim, f *relayBatch) error {
	began := time.Now()
	defer func() { c.waited(f, time.Since(began)) }()
	for {
		timer := time.NewTimer(c.stands(held, f, began, time.Now()))
		select {
		case <-held.over:
			timer.Stop()
			return nil
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case now := <-timer.C:
			if c.stands(held, f, began, now) <= 0 {
				return nil
			}
		}
	}
}

func (c *fetchClaims) waited(f *relayBatch, d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f.waited += d
}

// stands returns until when a claim need not be looked at again by a batch that waits since
// began. One of which too little has come is dropped, and its relay loses credit. What came and
// waits for us is not its fault.
func (c *fetchClaims) stands(held *fetchClaim, f *relayBatch, began, now time.Time) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !held.ended && now.Sub(held.since) >= claimFor {
		if held.missing > 0 && held.then-held.missing < claimLeast {
			held.stats.credit.lose(now)
			c.lapsed.Add(1)
			c.drop(held)
			return 0
		}
		held.since, held.then = now, held.missing
	}
	return min(held.since.Add(claimFor).Sub(now), claimPatience-f.waited-now.Sub(began))
}

// lose has nobody wait for a relay for some time.
func (x *claimCredit) lose(now time.Time) {
	x.penalty = min(max(2*x.penalty, unclaimed), unclaimedMost)
	x.from = now.Add(x.penalty)
}

const (
	// claimRoom is how many ids all relays together may claim to have and we not, by NIP-77, until they were asked for them: 32 bytes
	// each, and as much again while a reconciliation ends.
	claimRoom = 1 << 22
	// claimShare is how many of these one reconciliation may come to, twice as many as it may find, since it is not known at once what was
	// claimed before; and claimFew when there is no room. What a relay has besides comes with the next one.
	claimShare = 1 << 17
	claimFew   = 1 << 12
)

// takeRoom returns for how many ids there is room in one more reconciliation. They are to be given back.
func (c *fetchClaims) takeRoom() int {
	if c.room.Add(-claimShare) >= 0 {
		return claimShare
	}
	c.room.Add(claimShare - claimFew)
	return claimFew
}

// giveRoom gives back, or takes more if it is below 0.
func (c *fetchClaims) giveRoom(n int) { c.room.Add(int64(n)) }
