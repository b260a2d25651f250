package sync

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/graspsync/graspsync"
)

const (
	// claimIDs is the number of ids that a query claims at a time.
	claimIDs = 1_000
	// claimPatience is the lifetime of a claim, and the maximum total time that one batch waits for
	// claims of other relays.
	claimPatience = 15 * time.Second
	claimPoll     = 10 * time.Millisecond // between two checks of a claim, mostly of another batch at the same relay

	// claimRoom is the maximum number of ids that all relays together may claim to have (NIP-77)
	// and that are not requested yet.
	claimRoom = 1 << 22
	// claimShare is the room of one reconciliation: twice the ids that it may find, because known
	// ids are removed late. Without room it gets claimFew, and the next reconciliation finds the
	// rest.
	claimShare = 1 << 17
	claimFew   = 1 << 12
)

// fetchClaims contains the ids that are requested after reconciliations. Each claim covers few ids
// for seconds, so that a slow relay delays others little. It is safe for concurrent use.
type fetchClaims struct {
	claimed atomic.Uint64 // ids
	room    atomic.Int64  // for ids that relays claim to have; may be negative, because each query gets at least claimFew

	mu sync.Mutex
	by map[graspsync.EventID]*relayBatch // guarded by mu: unsettled ids
}

func newFetchClaims() *fetchClaims {
	c := &fetchClaims{by: make(map[graspsync.EventID]*relayBatch)}
	c.room.Store(claimRoom)
	return c
}

// take claims ids for a batch. free are the ids that no other relay is asked for, busy the others.
func (c *fetchClaims) take(ids []graspsync.EventID, f *relayBatch, now time.Time) (free, busy []graspsync.EventID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f.over || f.waited >= claimPatience {
		return ids, nil
	}
	for _, id := range ids {
		if other := c.by[id]; len(free) >= claimIDs || other != nil && now.Before(other.until) {
			busy = append(busy, id)
			continue
		}
		free = append(free, id)
		c.by[id] = f
	}
	if len(free) > 0 {
		f.until = now.Add(claimPatience)
	}
	c.claimed.Add(uint64(len(free)))
	f.claimed = append(f.claimed, free...)
	return free, busy
}

func (c *fetchClaims) settled(id graspsync.EventID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.by, id)
}

func (c *fetchClaims) leave(f *relayBatch) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range f.claimed {
		if c.by[id] == f {
			delete(c.by, id)
		}
	}
	f.over, f.claimed = true, nil
}

// wait blocks until the claim on an id has ended, or the batch has waited for claimPatience.
func (c *fetchClaims) wait(ctx context.Context, id graspsync.EventID, f *relayBatch) error {
	for c.waits(id, f) {
		select {
		case <-time.After(claimPoll):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func (c *fetchClaims) waits(id graspsync.EventID, f *relayBatch) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	other := c.by[id]
	if other == nil || !time.Now().Before(other.until) || f.waited >= claimPatience {
		return false
	}
	f.waited += claimPoll
	return true
}

func (c *fetchClaims) takeRoom() int {
	if c.room.Add(-claimShare) >= 0 {
		return claimShare
	}
	c.room.Add(claimShare - claimFew)
	return claimFew
}

// giveRoom returns room. A negative n takes room.
func (c *fetchClaims) giveRoom(n int) { c.room.Add(int64(n)) }
