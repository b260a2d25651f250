package sync

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/graspsync/graspsync"
)

const (
	// claimIDs is the number of ids that a query claims at a time. Other relays may claim the rest.
	claimIDs = 1_000
	// claimFor is the time for which claimed ids are not requested from other relays. It is
	// extended if claimLeast of the events, or all, arrive in that time.
	claimFor   = 5 * time.Second
	claimLeast = 50
	// claimPatience is the maximum total time that one batch waits for claims of other relays.
	claimPatience = 15 * time.Second
	// unclaimed is the time for which a relay cannot claim ids after one of its claims was too
	// slow. It doubles up to unclaimedMost.
	unclaimed     = time.Hour
	unclaimedMost = 24 * time.Hour
)

// fetchClaims contains the ids that are requested after reconciliations. If several relays have an
// event, only one is asked for it. Each claim covers a part of the ids, so that a slow relay delays
// others for seconds only. It is safe for concurrent use.
type fetchClaims struct {
	claimed, lapsed atomic.Uint64 // ids; claims that were too slow
	room            atomic.Int64  // for ids that relays claim to have; may be negative, because each query gets at least claimFew

	mu sync.Mutex
	by map[graspsync.EventID]claimedID // guarded by mu: unsettled ids
}

type claimedID struct {
	of   *fetchClaim
	came bool
}

type fetchClaim struct {
	stats *relayStats // of the relay

	// guarded by fetchClaims.mu
	ids     []graspsync.EventID
	left    int       // number of unsettled ids
	missing int       // number of these that have not arrived
	since   time.Time // start of the current claimFor
	then    int       // missing at that time
	over    chan struct{}
	ended   bool
}

func newFetchClaims() *fetchClaims {
	c := &fetchClaims{by: make(map[graspsync.EventID]claimedID)}
	c.room.Store(claimRoom)
	return c
}

// take claims ids for a batch. free are the ids that no other relay is asked for, busy the others.
// held is a claim on one of the busy ids.
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
	if len(free) == 0 || f.over || stats.lapses.Waits(now) {
		return free, busy, held
	}
	mine := &fetchClaim{stats: stats, ids: free, since: now, over: make(chan struct{})}
	for _, id := range free {
		if c.by[id].of == nil { // false if the relay has sent the id twice
			c.by[id] = claimedID{of: mine}
			mine.left++
		}
	}
	mine.missing, mine.then = mine.left, mine.left
	c.claimed.Add(uint64(mine.left))
	f.claims = append(f.claims, mine)
	return free, busy, held
}

func (c *fetchClaims) arrived(id graspsync.EventID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if at := c.by[id]; at.of != nil && !at.came {
		c.by[id] = claimedID{of: at.of, came: true}
		if at.of.missing--; at.of.missing == 0 {
			at.of.stats.lapses.Times = 0 // the relay served its whole claim
		}
	}
}

// settled records that an event is stored or rejected.
func (c *fetchClaims) settled(id graspsync.EventID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := c.by[id]
	if at.of == nil {
		return
	}
	delete(c.by, id)
	if !at.came { // or the event came another way
		at.of.missing--
	}
	if at.of.left--; at.of.left == 0 {
		at.of.end()
	}
}

func (c *fetchClaims) leave(f *relayBatch) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f.over = true
	for _, mine := range f.claims {
		c.drop(mine)
	}
	f.claims = nil
}

// drop ends a claim early. mu is held.
func (c *fetchClaims) drop(mine *fetchClaim) {
	for _, id := range mine.ids {
		if c.by[id].of == mine {
			delete(c.by, id)
		}
	}
	mine.end()
}

// end wakes the batches that wait for a claim. fetchClaims.mu is held.
func (mine *fetchClaim) end() {
	if !mine.ended {
		mine.ended = true
		close(mine.over)
		mine.ids = nil
	}
}

// wait blocks until a claim has ended or was too slow, or the batch has waited for claimPatience.
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

// stands returns the time until a claim must be checked again. A claim is dropped if too few of its
// events have arrived, and its relay loses credit. Arrived events count even if our pipeline is
// slow.
func (c *fetchClaims) stands(held *fetchClaim, f *relayBatch, began, now time.Time) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !held.ended && now.Sub(held.since) >= claimFor {
		if held.missing > 0 && held.then-held.missing < claimLeast {
			held.stats.lapses.Again(now, unclaimed, unclaimedMost)
			c.lapsed.Add(1)
			c.drop(held)
			return 0
		}
		held.since, held.then = now, held.missing
	}
	return min(held.since.Add(claimFor).Sub(now), claimPatience-f.waited-now.Sub(began))
}

const (
	// claimRoom is the maximum number of ids that all relays together may claim to have (NIP-77)
	// and that are not requested yet. An id takes 32 bytes, and twice that at the end of a
	// reconciliation.
	claimRoom = 1 << 22
	// claimShare is the room of one reconciliation: twice the ids that it may find, because known
	// ids are removed late. If no room is left, a reconciliation gets claimFew, and the next
	// reconciliation finds the rest.
	claimShare = 1 << 17
	claimFew   = 1 << 12
)

func (c *fetchClaims) takeRoom() int {
	if c.room.Add(-claimShare) >= 0 {
		return claimShare
	}
	c.room.Add(claimShare - claimFew)
	return claimFew
}

// giveRoom returns room. A negative n takes room.
func (c *fetchClaims) giveRoom(n int) { c.room.Add(int64(n)) }
