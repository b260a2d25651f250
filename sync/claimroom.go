package sync

import "sync/atomic"

const (
	// claimRoom is how many ids all relays together may claim to have and we not, by NIP-77, until they were asked for them: 32 bytes
	// each, and as much again while a reconciliation ends.
	claimRoom = 1 << 22
	// claimShare is how many of these one reconciliation may come to, twice as many as it may find, since it is not known at once what was
	// claimed before; and claimFew when there is no room. What a relay has besides comes with the next one.
	claimShare = 1 << 17
	claimFew   = 1 << 12
)

// claimable is the room for ids that relays claim to have. It may be used by any goroutine.
type claimable struct {
	free atomic.Int64 // below 0 if each has taken claimFew at least
}

func newClaimable() *claimable {
	c := &claimable{}
	c.free.Store(claimRoom)
	return c
}

// take returns for how many ids there is room in one more reconciliation. They are to be given back.
func (c *claimable) take() int {
	if c.free.Add(-claimShare) >= 0 {
		return claimShare
	}
	c.free.Add(claimShare - claimFew)
	return claimFew
}

// give gives back, or takes more if it is below 0.
func (c *claimable) give(n int) { c.free.Add(int64(n)) }
