package purgatoryadapter_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	purgatoryadapter "github.com/graspsync/graspsync/adapter/purgatory"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/purgatory/fetchtest"
	"github.com/graspsync/graspsync/state"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/memstore"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// In a test file the function is called TestNothingBeforeItsData. Relay, store, repositories and
// git server are in memory, and in a synctest bubble an hour takes no time.
func testNothingBeforeItsData(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		identity, err := nip34.ParseIdentity("grasp.example")
		require.NoError(t, err)
		hub, err := graspsync.ParseRelayURL("wss://hub.example")
		require.NoError(t, err)
		alice, bob := relaytest.NewKey("alice"), relaytest.NewKey("bob")
		clone, err := graspsync.ParseCloneURL("https://hub.example/" + alice.Npub() + "/repo.git")
		require.NoError(t, err)
		commit, err := nip34.ParseObjectID(strings.Repeat("1", 40))
		require.NoError(t, err)

		// The other servers: a relay, and a git server that is empty at first.
		now, net, git := nostr.Now(), relaytest.NewNetwork(), fetchtest.New()
		net.Add(hub.String(), relaytest.Behavior{}).Publish(
			alice.Hosted(now, "repo", "grasp.example", "hub.example"),
			alice.State(now, "repo", map[string]string{"refs/heads/main": commit.String()}, "main"),
			bob.Issue(now, alice.Ref("repo"), "it works"),
		)
		git.Serve(clone, fetchtest.Server{})

		// The tested server: sync and purgatory.
		store := memstore.New(memstore.WithIdentity(identity))
		policy := purgatoryadapter.NewPolicy(relaysync.NewGRASPPolicy(identity))
		manager, err := relaysync.New(policy.Store(store), net, identity, policy.Configure(relaysync.Config{Bootstrap: []graspsync.RelayURL{hub}}))
		require.NoError(t, err)
		host := purgatoryadapter.Host{
			Store: store, Release: purgatoryadapter.Save(store, manager.NotifyStored), Lists: policy.Lists,
			Held: manager.NotifyHeld, Removed: manager.NotifyRemoved, Postponed: manager.NotifyDeferred,
		}
		waiting, err := purgatory.Open(t.Context(), host.Relay(), git, git, git, state.NewMemory(),
			purgatory.Config{Identity: identity, Observe: host.Observe})
		require.NoError(t, err)
		policy.Join(waiting)
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { _ = waiting.Run(ctx) })
		running.Go(func() { _ = manager.Run(ctx) })
		defer running.Wait()
		defer cancel()

		time.Sleep(time.Minute)
		synctest.Wait()
		require.Zero(t, store.Len(), "nothing is served whose data is not here")
		require.Equal(t, 1, waiting.Status().States)

		git.Serve(clone, fetchtest.Server{Objects: []nip34.ObjectID{commit}})
		time.Sleep(15 * time.Minute)
		synctest.Wait()
		var kinds []int
		for ev, err := range store.Events(ctx, nostr.Filter{}) {
			require.NoError(t, err)
			kinds = append(kinds, ev.Kind)
		}
		slices.Sort(kinds)
		require.Equal(t, []int{graspsync.KindIssue, graspsync.KindAnnouncement, graspsync.KindState}, kinds)
		require.Contains(t, git.Objects(alice.Ref("repo")), commit)
		require.Empty(t, git.Broken(), "no ref without its objects")
		require.Empty(t, net.Violations(), "what a real relay would take amiss")
	})
}

// A unit test of a server without network: an announcement, its state and an issue wait for late
// git data.
func Example_offline() {
	_ = testing.InternalTest{Name: "TestNothingBeforeItsData", F: testNothingBeforeItsData}
}
