package relaytest_test

import (
	"testing"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/eventtest"
	"github.com/graspsync/graspsync/nip34"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/relaytest"
)

func TestKeysAreDeterministic(t *testing.T) {
	a, b := relaytest.NewKey("x"), relaytest.NewKey("x")
	assert.Equal(t, a.Event(1, 1, "x", nostr.Tag{"t", "y"}), b.Event(1, 1, "x", nostr.Tag{"t", "y"}))
	assert.NotEqual(t, a.Hex(), relaytest.NewKey("y").Hex())
	keys := relaytest.Keys("x", 3)
	require.Len(t, keys, 3)
	assert.NotEqual(t, keys[0].Hex(), keys[1].Hex())
	assert.Equal(t, a.Hex(), a.PubKey().String())
	assert.Equal(t, a.Hex(), relaytest.NewCheapKey("x").Hex())
}

func TestSignaturesAreReal(t *testing.T) {
	key := relaytest.NewKey("x")
	ev := key.Event(1, 1, "x")
	ok, err := ev.CheckSignature()
	require.NoError(t, err)
	assert.True(t, ok)
	assert.True(t, ev.CheckID())
	twin := &nostr.Event{CreatedAt: 1, Kind: 1, Content: "x"}
	require.NoError(t, twin.Sign(key.Secret()))
	assert.Equal(t, twin, ev, "the same as go-nostr signs")
}

func TestCheapVerifier(t *testing.T) {
	key := relaytest.NewCheapKey("x")
	genuine := key.Event(1, 1, "x")
	changed := *genuine
	changed.Content = "y"
	expensive := relaytest.NewKey("x").Event(1, 1, "x")
	verdicts := relaytest.CheapVerifier{}.Verify([]*nostr.Event{genuine, &changed, expensive})
	require.NoError(t, verdicts[0])
	require.ErrorIs(t, verdicts[1], relaysync.ErrSignature)
	require.ErrorIs(t, verdicts[2], relaysync.ErrSignature)
	ok, _ := genuine.CheckSignature()
	assert.False(t, ok, "a cheap signature is not real")
}

func TestEventsAreReadByTheLibrary(t *testing.T) {
	alice, bob := relaytest.NewKey("alice"), relaytest.NewKey("bob")
	a, err := nip34.ParseAnnouncement(eventtest.Of(alice.Announcement(5, "my:repo", []string{"wss://a.example", "b.example"}, []string{"https://a.example/x.git"}, bob)))
	require.NoError(t, err)
	assert.Equal(t, alice.Ref("my:repo"), a.Ref)
	assert.Len(t, a.Relays, 2)
	assert.Len(t, a.Clones, 1)
	assert.Equal(t, []graspsync.PubKey{bob.PubKey()}, a.Maintainers)

	ours, err := nip34.ParseIdentity("grasp.example", "127.0.0.1:7334")
	require.NoError(t, err)
	for host, want := range map[string]bool{"grasp.example": true, "other.example": false, "ws://127.0.0.1:7334": true} {
		a, err := nip34.ParseAnnouncement(eventtest.Of(alice.Hosted(5, "my repo", "far.example", host)))
		require.NoError(t, err)
		assert.Len(t, a.Relays, 2)
		assert.Equal(t, want, ours.Lists(a), "%s: %v", host, a.Event.Tags)
	}
	assert.Empty(t, alice.CloneURL("::", "x"))

	state, err := nip34.ParseState(eventtest.Of(alice.State(5, "x", map[string]string{"refs/heads/main": alice.Hex()[:40]}, "main")))
	require.NoError(t, err)
	assert.Len(t, state.Refs, 1)
	assert.NotEmpty(t, state.HEAD)

	repo := alice.Ref("x")
	pr := bob.PullRequest(5, repo, "pr", alice.Hex()[:40], "https://b.example/x.git")
	for kind, ev := range map[int]*nostr.Event{
		1617: bob.Patch(5, repo, "patch"),
		1618: pr,
		1621: bob.Issue(5, repo, "issue"),
	} {
		assert.Equal(t, kind, ev.Kind)
		assert.True(t, nip34.IsRoot(ev.Kind))
		assert.Equal(t, []graspsync.RepoRef{repo}, nip34.RepoRefs(ev))
	}
	id, err := graspsync.ParseEventID(pr.ID)
	require.NoError(t, err)
	for kind, ev := range map[int]*nostr.Event{
		1619: bob.PullRequestUpdate(6, pr, alice.Hex()[:40]),
		1111: alice.Comment(6, pr, "nice"),
		1632: alice.Status(6, 1632, pr),
	} {
		assert.Equal(t, kind, ev.Kind)
		assert.Equal(t, []graspsync.EventID{id}, nip34.EventRefs(ev))
	}
	ids, addresses := nip34.ParseDeletion(bob.Deletion(7, pr, bob.Hosted(5, "y", "grasp.example")))
	assert.Equal(t, []graspsync.EventID{id}, ids)
	require.Len(t, addresses, 1)
	assert.Equal(t, "y", addresses[0].Identifier)
}
