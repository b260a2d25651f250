package sync_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/racetest"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// slowestLive follows a relay whose history is full of useless events, publishes an issue of a
// hosted repository every ten seconds, and returns the maximum time until an issue was stored.
func slowestLive(t *testing.T, behavior relaytest.Behavior, history []*nostr.Event) (slowest time.Duration, verified uint64) {
	t.Helper()
	net := relaytest.NewNetwork()
	a := net.Add("wss://a.example", behavior)
	a.Publish(history...)
	r, owner := hosted(t, net, relaysync.Config{}, "a.example")
	defer r.stop()
	after(10 * time.Second)
	for i := range 60 {
		issue := owner.Issue(at(0), owner.Ref("repo"), fmt.Sprint("live", i))
		a.Publish(issue)
		published := time.Now()
		for !r.has(issue) {
			require.Less(t, time.Since(published), time.Hour)
			after(100 * time.Millisecond)
		}
		slowest = max(slowest, time.Since(published))
		after(10 * time.Second)
	}
	s := r.manager.Status().Events
	assert.Zero(t, s.Dropped["unproductive"])
	return slowest, s.Verified
}

// A live event waited up to 50 s behind a page of history that was read at the pace for useless
// events, and for many minutes if those events were large.
func TestLiveEventsDoNotWaitBehindHistory(t *testing.T) {
	racetest.Amounts(t)
	stranger := relaytest.NewCheapKey("stranger")
	foreign := func(n int, ago func(i int) time.Duration, pad string) (events []*nostr.Event) {
		for i := range n {
			events = append(events, stranger.Event(at(time.Hour+ago(i)), graspsync.KindAnnouncement, "",
				nostr.Tag{"d", fmt.Sprint("r", i)}, nostr.Tag{"clone", "https://elsewhere.example/r.git"}, nostr.Tag{"description", pad}))
		}
		return events
	}
	apart := func(i int) time.Duration { return time.Duration(i) * time.Second }
	pages := relaytest.Behavior{Negentropy: relaytest.NegNotice}
	inOneSecond := func(int) time.Duration { return 0 }
	for name, c := range map[string]struct {
		behavior relaytest.Behavior
		n        int
		ago      func(i int) time.Duration
		pad      int
	}{
		"pages":         {behavior: pages, n: 8_000, ago: apart},
		"of one second": {behavior: pages, n: 3_000, ago: inOneSecond},
		"large":         {behavior: pages, n: 1_500, ago: apart, pad: 30 << 10},
		"by NIP-77":     {n: 8_000, ago: apart},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				slowest, verified := slowestLive(t, c.behavior, foreign(c.n, c.ago, strings.Repeat("x", c.pad)))
				t.Logf("the slowest live event took %v; %d verified in 10 min", slowest, verified)
				assert.Less(t, slowest, 2*time.Second)
				assert.LessOrEqual(t, verified, uint64(60+10), "foreign announcements are rejected before")
			})
		})
	}
}
