package sync

import (
	"fmt"
	"testing"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/assert"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/sync/internal/allowance"
	"github.com/graspsync/graspsync/sync/wire"
)

// A relay that had used up its allowance got another one from whoever listed it anew.
func TestAllowanceSurvivesBeingListedAnew(t *testing.T) {
	now := time.Now()
	const most = 1 << 20
	fresh := func() *relayStats { return &relayStats{allowance: allowance.New(most, 1<<10), work: newWork(most)} }
	r := &remember{cfg: &Config{fixed: constants{Unproductive: most, Refill: 1 << 10}}}
	u, err := graspsync.ParseRelayURL("wss://a.example")
	assert.NoError(t, err)
	s := fresh()
	assert.False(t, s.spend(now, 2<<20))
	r.setAllowances(u, s, now)
	again := r.stats(u)
	assert.Zero(t, again.allowance.Left(now))
	assert.Same(t, s.work, again.work)
	// Nothing was spent, or it has come back: there is nothing to keep.
	r.setAllowances(u, fresh(), now)
	assert.Empty(t, r.spent)
	for i := range mostSpent + 10 {
		u, err := graspsync.ParseRelayURL(fmt.Sprintf("wss://r%d.example", i))
		assert.NoError(t, err)
		r.setAllowances(u, s, now)
	}
	assert.LessOrEqual(t, len(r.spent), mostSpent)
	now = now.Add(48 * time.Hour)
	last := fresh()
	assert.False(t, last.spend(now, 2<<20))
	r.setAllowances(u, last, now)
	assert.Len(t, r.spent, 1, "the others are full again")
}

// The size that a request is taken to have is that which it has, but for its envelope and
// what must be escaped.
func TestSizeOfARequest(t *testing.T) {
	ids := make([]string, 500)
	for i := range ids {
		ids[i] = fmt.Sprintf("%064d", i)
	}
	for _, n := range []int{1, 10, 500} {
		f := nostr.Filter{IDs: ids[:n], Kinds: []int{1}, Tags: nostr.TagMap{"e": ids[:n]}}
		for _, r := range []wire.Request{
			{Type: wire.TypeReq, Sub: "sub", Filters: []nostr.Filter{f}},
			{Type: wire.TypeReq, Sub: "sub", Filters: []nostr.Filter{f, f, f}},
			{Type: wire.TypeNegOpen, Sub: "sub", Filters: []nostr.Filter{f}, Payload: make([]byte, 100*n)},
		} {
			sent, err := wire.Append(nil, r)
			assert.NoError(t, err)
			assert.InDelta(t, len(sent), sizeOf(r), 150+float64(len(sent))/20, "%v of %d", r.Type, n)
		}
	}
}
