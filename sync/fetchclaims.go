package sync

import (
	"context"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/graspsync/graspsync"
)

const (
	// claimIDs is the number of ids that a query claims at a time.
	claimIDs = 1_000
	// claimFor is the lifetime of a claim, and the maximum total time that one batch waits for
	// claims of other relays.
	claimFor  = 15 * time.Second
	claimPoll = 10 * time.Millisecond // between two checks of a claim, mostly of another batch at the same relay

	// claimRoom is the maximum number of ids that all relays together may claim to have (NIP-77)
	// and that are not requested yet.
	claimRoom = 1 << 22
	// claimShare is the room of one reconciliation: twice the ids that it may find, because known
	// ids are removed late. Without room it gets claimFew, and the next reconciliation finds the
	// rest.
	claimShare = 1 << 17
	claimFew   = 1 << 12
)

// fetchClaims contains the ids that are requested after reconciliations. Each query claims few ids at
// a time for seconds, so that a slow relay delays others little. It is safe for concurrent use.
type fetchClaims struct {
	room atomic.Int64 // for ids that relays claim to have; may be negative, because each query gets at least claimFew

	mu sync.Mutex
	// guarded by mu
	until   map[graspsync.EventID]time.Time // ends of the claims of unsettled ids
	sweepAt time.Time                       // next removal of ended claims
}

func newFetchClaims() *fetchClaims {
	c := &fetchClaims{until: make(map[graspsync.EventID]time.Time)}
	c.room.Store(claimRoom)
	return c
}

// take claims ids for a batch. free are the ids to request now, busy the other ids.
func (c *fetchClaims) take(ids []graspsync.EventID, b *relayBatch, now time.Time) (free, busy []graspsync.EventID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if b.waited >= claimFor {
		return ids, nil
	}
	if now.After(c.sweepAt) {
		c.sweepAt = now.Add(claimFor)
		maps.DeleteFunc(c.until, func(_ graspsync.EventID, until time.Time) bool { return until.Before(now) })
	}
	for _, id := range ids {
		if len(free) >= claimIDs || now.Before(c.until[id]) {
			busy = append(busy, id)
			continue
		}
		free = append(free, id)
		c.until[id] = now.Add(claimFor)
	}
	return free, busy
}

func (c *fetchClaims) settled(id graspsync.EventID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.until, id)
}

// wait blocks until the claim on an id has ended, or the batch has waited for claimFor.
func (c *fetchClaims) wait(ctx context.Context, id graspsync.EventID, b *relayBatch) error {
	for c.mustWait(id, b) {
		select {
		case <-time.After(claimPoll):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func (c *fetchClaims) mustWait(id graspsync.EventID, b *relayBatch) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	b.waited += claimPoll
	return b.waited < claimFor && time.Now().Before(c.until[id])
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
