package sync_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// An event published by a client half a second before a comparison counted as lacking at the relay,
// with a warning, until the next day. Now it is reported in the next pass if the relay still lacks
// it, with the time.
func TestWhatIsNewIsNotLacking(t *testing.T) {
	bubble(t, func(t *testing.T) {
		net, logs := relaytest.NewNetwork(), newCapture()
		a := net.Add("wss://a.example", relaytest.Behavior{Down: true})
		r, owner := hosted(t, net, relaysync.Config{Logger: logs.logger()}, "a.example")
		defer r.stop()
		a.Publish(owner.Hosted(at(24*time.Hour), "repo", us, "a.example"))
		after(time.Minute)
		issue := owner.Issue(at(48*time.Hour), owner.Ref("repo"), "x")
		r.save(issue)
		a.SetDown(false)
		after(5 * time.Minute)
		require.NotZero(t, r.relay("wss://a.example").ComparedAt)
		require.Zero(t, r.relay("wss://a.example").Lacks)
		require.Empty(t, logs.find("relay lacks stored events"))
		after(26 * time.Hour)
		require.Equal(t, 1, r.relay("wss://a.example").Lacks)
		require.Len(t, logs.find("relay lacks stored events"), 1)
		x, err := r.manager.RepoFollowState(t.Context(), owner.Ref("repo"))
		require.NoError(t, err)
		require.Equal(t, 1, x.Status.Relays[0].Lacks)
		require.NotZero(t, x.Status.Relays[0].ComparedAt)
	})
}
