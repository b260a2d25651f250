package khatruadapter

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	"fiatjaf.com/nostr"
	"fiatjaf.com/nostr/khatru"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/adapter/nostrlib"
)

// withholding hides the deletions of an author, at first alice.
func withholding(by *atomic.Pointer[nostr.PubKey]) Config {
	by.Store(&alice)
	return Config{Store: nostrlib.Config{Hides: func(e graspsync.Event) bool { return nostr.PubKey(e.PubKey) == *by.Load() }}}
}

// served returns the ids that a relay serves.
func served(ctx context.Context, relay *khatru.Relay, f nostr.Filter) (ids []nostr.ID) {
	for e := range relay.QueryStored(ctx, f) {
		ids = append(ids, e.ID)
	}
	return ids
}

// A hidden deletion is missing in answers, reconciliations and broadcasts. It stays in force,
// and it is served again when it is no longer hidden.
func TestWithheld(t *testing.T) {
	relay, by := khatru.NewRelay(), &atomic.Pointer[nostr.PubKey]{}
	s, _, _ := embed(t, relay, newBolt(t), withholding(by))
	require.Equal(t, s.embedded, pointers(relay))
	gone, note := event(alice, 1, start-9), event(bob, 1, start-8)
	theirs, slander := event(bob, 5, start-7, nostr.Tag{"e", strings.Repeat("1", 64)}), event(alice, 5, start, nostr.Tag{"e", gone.ID.Hex()})
	vanish := event(alice, 62, start-1_000, nostr.Tag{"relay", "ALL_RELAYS"})
	importEvents(t, s.core.Imports, gone, note, theirs, slander, vanish)
	ctx := t.Context()

	all := []nostr.ID{theirs.ID, note.ID}
	require.Equal(t, all, served(ctx, relay, nostr.Filter{}))
	require.Equal(t, []nostr.ID{theirs.ID}, served(ctx, relay, nostr.Filter{Kinds: []nostr.Kind{5, 62}}))
	require.Equal(t, []nostr.ID{theirs.ID}, served(ctx, relay, nostr.Filter{Limit: 1}), "who asks for one gets the next one")
	require.Equal(t, []nostr.ID{note.ID}, served(ctx, relay, nostr.Filter{Kinds: []nostr.Kind{1}}))
	require.Empty(t, served(ctx, relay, nostr.Filter{IDs: []nostr.ID{slander.ID, vanish.ID}}))
	require.Empty(t, served(ctx, relay, nostr.Filter{Authors: []nostr.PubKey{alice}}))
	require.ElementsMatch(t, all, served(khatru.SetNegentropy(ctx), relay, nostr.Filter{}))
	require.Empty(t, served(khatru.SetNegentropy(ctx), relay, nostr.Filter{Kinds: []nostr.Kind{62}}))
	require.ErrorContains(t, publish(t, relay, gone), "deleted", "it stays in force")

	c := dial(t, serve(t, relay))
	require.Equal(t, `["EOSE","x"]`, c.say(`["REQ","x",{"since":%d}]`, start+1))
	key := nostr.SecretKey{31: 2}
	author := key.Public()
	by.Store(&author)
	speak := dial(t, serve(t, relay))
	for _, kind := range []nostr.Kind{5, 1} { // published by a client
		e := nostr.Event{Kind: kind, CreatedAt: nostr.Now(), Tags: nostr.Tags{{"e", strings.Repeat("2", 64)}}}
		require.NoError(t, e.Sign(key))
		require.Contains(t, speak.publish(e), "true")
	}
	require.Contains(t, c.read(), `"kind":1,`, "and nobody heard of what was said by deleting")
	require.Contains(t, served(ctx, relay, nostr.Filter{IDs: []nostr.ID{slander.ID}}), slander.ID)
}

// The PreventBroadcast hook of the embedder is called too.
func TestHooksThatWithhold(t *testing.T) {
	relay := khatru.NewRelay()
	relay.PreventBroadcast = func(_ *khatru.WebSocket, _ nostr.Filter, e nostr.Event) bool { return e.Kind == 1 }
	s, _, _ := embed(t, relay, newBolt(t), withholding(&atomic.Pointer[nostr.PubKey]{}))
	require.Equal(t, s.embedded, pointers(relay))
	for kind, is := range map[nostr.Kind]bool{1: true, 5: true, 62: true, 1621: false} {
		require.Equal(t, is, relay.PreventBroadcast(nil, nostr.Filter{}, event(alice, kind, start)), "%d", kind)
		require.Equal(t, kind == 1, relay.PreventBroadcast(nil, nostr.Filter{}, event(bob, kind, start)), "%d", kind)
	}
	relay = khatru.NewRelay()
	_, _, _ = embed(t, relay, newBolt(t), Config{})
	require.Nil(t, relay.PreventBroadcast, "without anything to withhold it is the relay's")
}
