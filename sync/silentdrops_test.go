package sync_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// Known facts about a relay are kept if it accepts a connection and drops it within a minute
// without a message.
func TestDroppedWithoutAWord(t *testing.T) {
	bubble(t, func(t *testing.T) {
		net := relaytest.NewNetwork()
		a := net.Add("wss://a.example", relaytest.Behavior{})
		r, owner := hosted(t, net, relaysync.Config{}, "a.example")
		defer r.stop()
		a.Publish(owner.Issue(at(time.Hour), owner.Ref("repo"), "x"))
		after(5 * time.Minute)
		pass := r.relay("wss://a.example").NextPass
		require.NotZero(t, pass)
		a.Update(func(b *relaytest.Behavior) { b.Latency = time.Hour })
		a.Cut()
		after(30 * time.Second)
		require.Equal(t, 1, a.Connections().Open)
		a.Cut()
		a.Update(func(b *relaytest.Behavior) { b.Latency = 0 })
		after(2 * time.Minute)
		s := r.relay("wss://a.example")
		assert.Equal(t, "live", s.Phase)
		assert.Equal(t, pass, s.NextPass, "no new pass over all history")
		assert.Equal(t, s.Wanted, s.Confirmed)
	})
}
