package nip34_test

import (
	"testing"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/eventtest"
	"github.com/graspsync/graspsync/nip34"
)

func announced(t *testing.T, identifier string, relays, clones []string) *nip34.Announcement {
	t.Helper()
	ev := &nostr.Event{
		ID: someID, PubKey: someKey, Kind: graspsync.KindAnnouncement,
		Tags: nostr.Tags{{"d", identifier}, append(nostr.Tag{"relays"}, relays...), append(nostr.Tag{"clone"}, clones...)},
	}
	a, err := nip34.ParseAnnouncement(eventtest.Of(ev))
	require.NoError(t, err)
	return a
}

// A URL with another port, path, owner or identifier is not the service.
func TestListedIn(t *testing.T) {
	us, err := nip34.ParseIdentity("grasp.example.com")
	require.NoError(t, err)
	owner, err := graspsync.ParsePubKey(someKey)
	require.NoError(t, err)
	npub, other := nip34.NPub(owner), nip34.NPub(graspsync.PubKey{1})
	const wss, https = "wss://grasp.example.com", "https://grasp.example.com/"
	for _, c := range []struct {
		relay, clone   string
		relays, clones bool
	}{
		{wss, https + npub + "/demo.git", true, true},
		{"wss://a.example", "https://a.example/" + npub + "/demo.git", false, false},
		{wss + ":8443", "https://grasp.example.com:8443/" + npub + "/demo.git", false, false},
		{wss + "/relay", https + npub + "/demo.git", false, true},
		{wss, https + other + "/demo.git", true, false},
		{wss, https + npub + "/demo2.git", true, false},
		{wss, https + npub + "/demo", true, false},
		{wss, https + "me/demo.git", true, false},
		{wss, https + "git/" + npub + "/demo.git", true, false},
		{wss, https + npub + "/demo.git?x=1", true, false},
	} {
		a := announced(t, "demo", []string{c.relay}, []string{c.clone})
		relays, clones := us.ListedIn(a)
		require.Equal(t, c.relays, relays, c.relay)
		require.Equal(t, c.clones, clones, c.clone)
		require.Equal(t, relays && clones, us.Lists(a))
	}
}
