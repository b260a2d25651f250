package sync_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/memstore"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// Both counts of a reconciliation, per repository and relay: events of the relay that we missed,
// and stored events that the relay lacks.
func TestRepoStatusCoverage(t *testing.T) {
	bubble(t, func(t *testing.T) {
		net := relaytest.NewNetwork()
		a := net.Add("wss://a.example", relaytest.Behavior{})
		b := net.Add("wss://b.example", relaytest.Behavior{Negentropy: relaytest.NegNotice})
		owner := relaytest.NewCheapKey("owner")
		ann := owner.Hosted(at(24*time.Hour), "repo", us, "a.example", "b.example")
		unrelated := owner.Hosted(at(24*time.Hour), "unrelated", us, "b.example") // relay a need not have it
		r := &rig{t: t, store: memstore.New()}
		r.save(ann, unrelated)
		var issues []*nostr.Event
		for i := range 10 {
			issues = append(issues, owner.Issue(at(time.Duration(i+1)*time.Hour), owner.Ref("repo"), fmt.Sprint(i)))
			comment := owner.Comment(at(30*time.Minute), issues[i], "c")
			r.save(issues[i], comment)
			a.Publish(ann)
			if i < 6 {
				a.Publish(issues[i], comment)
			}
		}
		r = start(t, net, r.store, relaysync.Config{})
		defer r.stop()
		after(5 * time.Minute)
		silently(a, owner.Issue(at(time.Minute), owner.Ref("repo"), "missed"))

		status := func() relaysync.RepoStatus {
			all, err := r.manager.RepoStatus(t.Context(), owner.Ref("repo"), owner.Ref("none"))
			require.NoError(t, err)
			require.Len(t, all, 1)
			return all[0]
		}
		s := status()
		require.Equal(t, "full", s.Level)
		require.Equal(t, 10, s.Roots)
		require.Equal(t, 22, s.Wanted, "the repository and its roots, of two relays")
		require.Equal(t, 22, s.Confirmed)
		require.Zero(t, s.InFlight)
		require.Len(t, s.Relays, 2)
		onA, onB := s.Relays[0], s.Relays[1]
		if onA.URL != a.URL() {
			onA, onB = onB, onA
		}
		require.True(t, onA.Live)
		require.Equal(t, 11, onA.Confirmed)
		require.Equal(t, b.URL(), onB.URL)

		a.Publish(issues[9]) // someone publishes a missing event there
		after(26 * time.Hour)
		relay := r.relay("wss://a.example")
		require.Equal(t, uint64(1), relay.Gaps)
		require.Equal(t, uint64(1), relay.Lasting)

		refs, err := r.manager.RepoRefs(t.Context())
		require.NoError(t, err)
		require.ElementsMatch(t, []graspsync.RepoRef{owner.Ref("repo"), owner.Ref("unrelated")}, refs)
	})
}

// The status of a relay shows why and how it is followed, and its results.
func TestRelayStatus(t *testing.T) {
	bubble(t, func(t *testing.T) {
		net := relaytest.NewNetwork()
		a := net.Add("wss://a.example", relaytest.Behavior{Negentropy: relaytest.NegNotice, Cap: 20})
		boot := net.Add("wss://boot.example", relaytest.Behavior{})
		owner := relaytest.NewCheapKey("owner")
		r := &rig{t: t, store: memstore.New()}
		for i := range 5 {
			r.save(owner.Hosted(at(24*time.Hour), fmt.Sprint("repo", i), us, "a.example"))
		}
		for i := range 30 {
			a.Publish(owner.Issue(at(time.Duration(i+1)*time.Hour), owner.Ref("repo1"), fmt.Sprint(i)))
		}
		r = start(t, net, r.store, relaysync.Config{Bootstrap: []graspsync.RelayURL{boot.URL()}})
		defer r.stop()
		after(10 * time.Minute)
		a.Cut()
		after(10 * time.Minute)
		s := r.relay("wss://a.example")
		require.Equal(t, 5, s.Repos)
		require.False(t, s.Bootstrap)
		require.Equal(t, "live", s.Following)
		require.Equal(t, map[string]int{"no_negentropy": 1, "page_size": 20}, s.Learned)
		require.Equal(t, "REQ", s.Method)
		require.Equal(t, uint64(2), s.Connects)
		require.Equal(t, uint64(1), s.Disconnects)
		require.Equal(t, uint64(1), s.Reconnects)
		require.Greater(t, s.UptimeShare, 0.99)
		require.LessOrEqual(t, s.UptimeShare, 1.0)
		require.Equal(t, s.Wanted, s.Confirmed)
		require.True(t, r.relay("wss://boot.example").Bootstrap)

		for i := range 4 {
			r.save(owner.Hosted(at(time.Hour), fmt.Sprint("repo", i), us))
			after(time.Minute)
			s = r.relay("wss://a.example")
			require.Equal(t, 4-i, s.Repos)
		}
		text, err := json.Marshal(r.manager.Status())
		require.NoError(t, err)
		var back relaysync.Status
		require.NoError(t, json.Unmarshal(text, &back))
		require.Equal(t, s.URL, back.Relays[0].URL)
	})
}
