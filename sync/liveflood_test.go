package sync_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/internal/racetest"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// flooded starts a manager that follows an honest relay. A stranger publishes announcements of
// other services there, followed by an honest issue.
func flooded(t *testing.T, ago time.Duration) (r *rig, issue *nostr.Event) {
	t.Helper()
	net := relaytest.NewNetwork()
	a := net.Add("wss://a.example", relaytest.Behavior{})
	r, owner := hosted(t, net, relaysync.Config{}, "a.example")
	after(5 * time.Minute)
	stranger := relaytest.NewCheapKey("stranger")
	events := make([]*nostr.Event, 30_000)
	for i := range events {
		events[i] = stranger.Hosted(at(time.Duration(i)*ago), fmt.Sprint("r", i), "elsewhere.example")
	}
	a.Publish(events...)
	issue = owner.Issue(at(0), owner.Ref("repo"), "honest")
	a.Publish(issue)
	return r, issue
}

// The pace for useless events stopped the reading of the connection: an honest live issue waited
// three quarters of an hour behind 30,000 announcements of other services.
func TestLiveEventsDoNotWaitBehindForeignOnes(t *testing.T) {
	racetest.Amounts(t)
	bubble(t, func(t *testing.T) {
		r, issue := flooded(t, time.Second)
		defer r.stop()
		after(30 * time.Second)
		require.True(t, r.has(issue))
		s := r.manager.Status().Events
		assert.Less(t, s.Verified, uint64(10), "they are dropped before their signature is checked")
		assert.Zero(t, s.Dropped["unproductive"])
	})
}
