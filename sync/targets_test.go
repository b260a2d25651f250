package sync_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/relaytest"
	"github.com/graspsync/graspsync/sync/wire"
)

// Spellings of one relay counted as several relays with one connection each (D1), and our own relay
// was one of them (D2).
func TestTrapD1D2_OneRelayAndNeverOurselves(t *testing.T) {
	bubble(t, func(t *testing.T) {
		net := relaytest.NewNetwork()
		net.Add("wss://a.example", relaytest.Behavior{})
		similar := net.Add("wss://evil-grasp.example", relaytest.Behavior{})
		r, _ := hosted(t, net, relaysync.Config{}, "a.example", "wss://A.example/", "WSS://a.EXAMPLE:443", "a.example.",
			"wss://grasp.example:443/", "GRASP.example.", "evil-grasp.example")
		defer r.stop()
		after(time.Minute)
		require.Len(t, r.manager.Status().Relays, 2)
		require.Empty(t, net.Misdials())
		require.Equal(t, 1, len(similar.Dials()))
	})
}

// Targets were never removed: relays that were no longer listed and deleted repositories stayed
// targets.
func TestTrapD3_NoLongerListed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		net := relaytest.NewNetwork()
		a := net.Add("wss://a.example", relaytest.Behavior{})
		b := net.Add("wss://b.example", relaytest.Behavior{})
		r, owner := hosted(t, net, relaysync.Config{}, "a.example")
		defer r.stop()
		after(time.Minute)
		require.Equal(t, 1, a.Open())
		moved := owner.Hosted(at(time.Hour), "repo", us, "b.example")
		a.Publish(moved)
		after(time.Minute)
		require.Zero(t, a.Open())
		require.Equal(t, 1, b.Open())
		b.Publish(owner.Deletion(at(0), moved))
		after(time.Minute)
		require.False(t, r.has(moved))
		require.Zero(t, b.Open())
		require.Empty(t, r.manager.Status().Relays)
	})
}

// holding is a policy that holds announcements.
type holding struct {
	relaysync.Policy
	on atomic.Bool
}

func (h *holding) Judge(ctx context.Context, ev graspsync.Event, src graspsync.Source, view relaysync.View) (graspsync.Verdict, error) {
	if h.on.Load() && ev.Kind == graspsync.KindAnnouncement {
		return graspsync.Verdict{Decision: graspsync.Hold}, nil
	}
	return h.Policy.Judge(ctx, ev, src, view)
}

// Layers 2 and 3 of a held repository were requested too early. Its pull requests were rejected as
// orphans and never came again.
func TestTrapD6_HeldAnnouncement(t *testing.T) {
	bubble(t, func(t *testing.T) {
		net := relaytest.NewNetwork()
		a := net.Add("wss://a.example", relaytest.Behavior{})
		b := net.Add("wss://b.example", relaytest.Behavior{})
		identity, err := nip34.ParseIdentity(us)
		require.NoError(t, err)
		policy := &holding{Policy: relaysync.NewGRASPPolicy(identity)}
		policy.on.Store(true)
		bob := relaytest.NewCheapKey("bob")
		ann := bob.Hosted(at(time.Hour), "held", us, "b.example")
		issue := bob.Issue(at(time.Hour), bob.Ref("held"), "x")
		a.Publish(ann)
		b.Publish(issue)
		r, _ := hosted(t, net, relaysync.Config{Policy: policy, Holder: holdsNothing{}}, "a.example")
		defer r.stop()
		after(time.Minute)
		require.Equal(t, 1, b.Open(), "its relays are asked for states")
		for _, req := range b.Requests(wire.TypeReq, wire.TypeNegOpen) {
			for _, f := range req.Request.Filters {
				require.Empty(t, f.Tags["a"], "not for what tags it")
			}
		}
		require.False(t, r.has(issue))
		r.save(ann) // its git data has arrived
		after(time.Minute)
		require.True(t, r.has(issue))
	})
}
