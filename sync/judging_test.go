package sync_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/eventtest"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// An older version of a replaceable event was counted as stored, and broadcast.
func TestTrapH9_OlderVersion(t *testing.T) {
	following(t, relaytest.Behavior{}, func(t *testing.T, r *rig, a *relaytest.Relay, owner *relaytest.Key) {
		newer := owner.State(at(time.Hour), "repo", map[string]string{"refs/heads/main": strings.Repeat("a", 40)}, "")
		older := owner.State(at(2*time.Hour), "repo", nil, "")
		r.save(newer)
		after(time.Minute)
		stored := r.manager.Status().Events.Stored
		a.Publish(older)
		after(time.Minute)
		require.False(t, r.has(older))
		require.True(t, r.has(newer))
		require.Equal(t, stored, r.manager.Status().Events.Stored)
		require.Equal(t, uint64(1), r.manager.Status().Events.Superseded)
	})
}

// countingVerifier counts the signatures it checks.
type countingVerifier struct{ n atomic.Int64 }

func (v *countingVerifier) Verify(events []*nostr.Event) []error {
	v.n.Add(int64(len(events)))
	return relaytest.CheapVerifier{}.Verify(events)
}

// The signature of one event from n relays was checked n times.
func TestTrapH10_OneCheckPerEvent(t *testing.T) {
	bubble(t, func(t *testing.T) {
		net := relaytest.NewNetwork()
		var hosts []string
		var relays []*relaytest.Relay
		for i := range 8 {
			hosts = append(hosts, fmt.Sprintf("r%d.example", i))
			relays = append(relays, net.Add("wss://"+hosts[i], relaytest.Behavior{Negentropy: relaytest.NegNotice}))
		}
		verifier := &countingVerifier{}
		r, owner := hosted(t, net, relaysync.Config{Verifier: verifier}, hosts...)
		defer r.stop()
		for i := range 50 {
			issue := owner.Issue(at(time.Duration(i)*time.Minute), owner.Ref("repo"), fmt.Sprint(i))
			for _, rel := range relays {
				rel.Publish(issue)
			}
		}
		foreign := owner.Hosted(at(time.Hour), "foreign", "elsewhere.example")
		for _, rel := range relays {
			rel.Publish(foreign)
		}
		after(5 * time.Minute)
		status := r.manager.Status()
		require.Equal(t, uint64(50), status.Events.Stored)
		for i, rel := range status.Relays {
			sent := relays[i].Traffic()
			require.Equal(t, "wss://"+hosts[i], rel.URL.String())
			require.Equal(t, sent.BytesSent, int64(rel.Bytes)) //nolint:gosec // small
			// An event on a subscription that was just closed is not an answer.
			require.LessOrEqual(t, int(rel.Events), sent.EventsSent) //nolint:gosec // small
			require.GreaterOrEqual(t, rel.Events, uint64(51))
		}
		require.Equal(t, int64(50), verifier.n.Load(), "a foreign announcement is rejected without")
	})
}

// A forged copy that comes first must not exclude the real event, and counts against its relay.
func TestForgedCopyComesFirst(t *testing.T) {
	for _, f := range []relaytest.Forgery{relaytest.ForgeSignature, relaytest.ForgeContent, relaytest.ForgeID} {
		bubble(t, func(t *testing.T) {
			net := relaytest.NewNetwork()
			liar := net.Add("wss://liar.example", relaytest.Behavior{Forge: f, Negentropy: relaytest.NegNotice})
			honest := net.Add("wss://honest.example", relaytest.Behavior{Latency: time.Second, Negentropy: relaytest.NegNotice})
			r, owner := hosted(t, net, relaysync.Config{}, "liar.example", "honest.example")
			defer r.stop()
			var issues []*nostr.Event
			for i := range 20 {
				issues = append(issues, owner.Issue(at(time.Duration(i)*time.Minute), owner.Ref("repo"), fmt.Sprint(i)))
			}
			liar.Publish(issues...)
			honest.Publish(issues...)
			after(5 * time.Minute)
			for _, ev := range issues {
				require.True(t, r.has(ev))
			}
			require.NotZero(t, r.manager.Status().Events.Forged)
			require.Equal(t, "disconnected", r.relay("wss://liar.example").Phase)
			require.Greater(t, time.Until(r.relay("wss://liar.example").NextAttempt), 50*time.Minute)
			require.Equal(t, "live", r.relay("wss://honest.example").Phase)
		})
	}
}

// Events removed by moderation came back with the next pass.
func TestRemovedStaysAway(t *testing.T) {
	following(t, relaytest.Behavior{}, func(t *testing.T, r *rig, a *relaytest.Relay, owner *relaytest.Key) {
		after(time.Minute)
		spam := owner.Issue(at(time.Hour), owner.Ref("repo"), "spam")
		r.manager.NotifyRemoved(eventtest.Of(spam)) // it was stored before and not received since
		a.Publish(spam)
		after(30 * time.Hour)
		require.False(t, r.has(spam))
	})
}

// A submitted event that the Policy accepts is rejected if it has expired, like events from relays.
// If the Policy does not accept it, the reason of the Policy is used.
func TestSubmittedWhenExpired(t *testing.T) {
	following(t, relaytest.Behavior{}, func(t *testing.T, r *rig, _ *relaytest.Relay, owner *relaytest.Key) {
		after(time.Minute)
		decide := func(repo string, tags ...nostr.Tag) graspsync.Verdict {
			tags = append(tags, nostr.Tag{"a", owner.Ref(repo).String()})
			v, err := r.manager.Judge(t.Context(), eventtest.Of(owner.Event(at(time.Hour), 1621, "x", tags...)))
			require.NoError(t, err)
			return v
		}
		over, ahead := nostr.Tag{"expiration", fmt.Sprint(at(time.Minute))}, nostr.Tag{"expiration", fmt.Sprint(at(-time.Minute))}
		require.Equal(t, graspsync.Accept, decide("repo").Decision)
		require.Equal(t, graspsync.Accept, decide("repo", ahead).Decision)
		v := decide("repo", over)
		require.Equal(t, graspsync.Reject, v.Decision)
		require.Contains(t, v.Reason, "expired")
		require.Equal(t, graspsync.Reject, decide("other", over).Decision, "whatever it belongs to")
	})
}
