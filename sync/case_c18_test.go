package sync_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// A relay that ends each live subscription counted as synced although its new events were not
// received.
func TestCaseC18_RelayWithoutSubscriptions(t *testing.T) {
	bubble(t, func(t *testing.T) {
		net := relaytest.NewNetwork()
		net.Add("wss://a.example", closesLive(time.Second, "error: no subscriptions"))
		r, _ := hosted(t, net, relaysync.Config{}, "a.example")
		defer r.stop()
		after(time.Hour)
		alone := 0
		for range 600 {
			after(time.Second)
			if s := r.manager.Status(); s.Relays[0].LiveSubscriptions == 0 {
				alone++
				require.False(t, s.Relays[0].Synced)
				require.False(t, s.Synced)
			}
		}
		require.Greater(t, alone, 300)
	})
}

// The status of one repository did not include its git data.
func TestCaseC18_GitDataOfOneRepository(t *testing.T) {
	for want, lacking := range map[string]map[string]bool{
		"complete": {}, "missing": {"repo": true}, "unobtainable": {"repo": false},
	} {
		t.Run(want, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				net := relaytest.NewNetwork()
				net.Add("wss://a.example", relaytest.Behavior{})
				owner := relaytest.NewKey("owner").PubKey()
				r, key := hosted(t, net, relaysync.Config{Lacking: func() map[graspsync.RepoRef]bool {
					out := make(map[graspsync.RepoRef]bool)
					for name, may := range lacking {
						out[graspsync.RepoRef{Owner: owner, Identifier: name}] = may
					}
					return out
				}}, "a.example")
				defer r.stop()
				require.Equal(t, owner, key.PubKey())
				after(time.Minute)
				require.Equal(t, want != "missing", r.manager.Status().Synced)
				ref := graspsync.RepoRef{Owner: owner, Identifier: "repo"}
				require.Equal(t, want, r.repo(ref).Git)
				x, err := r.manager.RepoFollowState(t.Context(), ref)
				require.NoError(t, err)
				require.Equal(t, want, x.Status.Git)
			})
		})
	}
}
