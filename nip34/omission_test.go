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

// Each way of not listing a service is told from the others, with the URL that comes closest.
func TestOmits(t *testing.T) {
	us, err := nip34.ParseIdentity("grasp.example.com")
	require.NoError(t, err)
	owner, err := graspsync.ParsePubKey(someKey)
	require.NoError(t, err)
	npub, other := nip34.NPub(owner), nip34.NPub(graspsync.PubKey{1})
	const wss, https = "wss://grasp.example.com", "https://grasp.example.com/"
	for _, c := range []struct {
		name   string
		relay  string
		clone  string
		why    nip34.ListingProblem
		found  string
		listed bool
	}{
		{"all", wss, https + npub + "/demo.git", nip34.OmitsNothing, "", true},
		{"somebody else's", "wss://a.example", "https://a.example/" + npub + "/demo.git", nip34.OmitsService, "https://a.example/" + npub + "/demo.git", false},
		{"other port", wss + ":8443", "https://a.example/x.git", nip34.OmitsService, wss + ":8443", false},
		{"other port of both", "wss://a.example", "https://grasp.example.com:8443/" + npub + "/demo.git", nip34.OmitsService, "https://grasp.example.com:8443/" + npub + "/demo.git", false},
		{"no relay", "wss://a.example", https + npub + "/demo.git", nip34.OmitsRelay, "wss://a.example", false},
		{"relay with a path", wss + "/relay", https + npub + "/demo.git", nip34.OmitsRelay, wss + "/relay", false},
		{"no clone", wss, "https://a.example/x.git", nip34.OmitsClone, "https://a.example/x.git", false},
		{"other owner", wss, https + other + "/demo.git", nip34.OmitsOwner, https + other + "/demo.git", false},
		{"other identifier", wss, https + npub + "/demo2.git", nip34.OmitsIdentifier, https + npub + "/demo2.git", false},
		{"no .git", wss, https + npub + "/demo", nip34.OmitsPath, https + npub + "/demo", false},
		{"no npub", wss, https + "me/demo.git", nip34.OmitsPath, https + "me/demo.git", false},
		{"too deep", wss, https + "git/" + npub + "/demo.git", nip34.OmitsPath, https + "git/" + npub + "/demo.git", false},
		{"query", wss, https + npub + "/demo.git?x=1", nip34.OmitsPath, https + npub + "/demo.git?x=1", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := announced(t, "demo", []string{c.relay}, []string{c.clone})
			why, found := us.Omits(a)
			require.Equal(t, c.why, why)
			require.Equal(t, c.found, found)
			require.Equal(t, c.listed, us.Lists(a), "both agree")
			require.Equal(t, us.Lists(a), why == nip34.OmitsNothing)
		})
	}
}
