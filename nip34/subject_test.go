package nip34_test

import (
	"strings"
	"testing"

	"github.com/nbd-wtf/go-nostr/nip19"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
)

const (
	someKey = "5c83da77af1dec6d7289834998ad7aafbd9e2191396d75ec3cc27f5a77226f36"
	someID  = "d7dd5eb3ab747e16f8d0212d53032ea2a7cadef53837e5a6c66d42849fcb9027"
)

func subjects(t testing.TB) (event, repo, relay map[string]string) {
	t.Helper()
	must := func(s string, err error) string {
		require.NoError(t, err)
		return s
	}
	note := must(nip19.EncodeNote(someID))
	nevent := must(nip19.EncodeEvent(someID, []string{"wss://a.example"}, someKey))
	npub := must(nip19.EncodePublicKey(someKey))
	naddr := must(nip19.EncodeEntity(someKey, 30617, "demo", []string{"wss://a.example"}))
	state := must(nip19.EncodeEntity(someKey, 30618, "demo", nil))
	event = map[string]string{
		"hex": someID, "upper case": strings.ToUpper(someID), "note": note, "nevent": nevent, "uri": "nostr:" + nevent,
		"page": "https://njump.example/" + note, "spaces": " " + someID + "\n", "upper note": strings.ToUpper(note),
	}
	repo = map[string]string{
		"address": "30617:" + someKey + ":demo", "address of a state": "30618:" + someKey + ":demo",
		"naddr": naddr, "naddr of a state": state, "uri": "nostr:" + naddr, "npub": npub + "/demo", "with .git": npub + "/demo.git",
		"hex": someKey + "/demo", "clone": "https://grasp.example.com/" + npub + "/demo.git",
		"below a path": "http://127.0.0.1:7334/git/" + npub + "/demo.git/", "of git": "https://grasp.example.com/" + npub + "/demo.git/info/refs?service=git-upload-pack",
		"ngit": "nostr://" + npub + "/demo", "ngit with a relay": "nostr://" + npub + "/relay.example.com/demo",
		"ngit naddr": "nostr://" + naddr, "page": "https://page.example/" + npub + "/demo",
		"ngit with a port": "nostr://" + npub + "/localhost:3334/demo", "ngit with a URL": "nostr://" + npub + "/wss://relay.example.com/demo",
		"ngit with an escaped URL": "nostr://" + npub + "/wss%3A%2F%2Frelay.example.com/demo",
		"clone without a scheme":   "relay.example.com/" + npub + "/demo.git", "page without a scheme": "page.example/" + npub + "/demo/issues",
		"upper hex": strings.ToUpper(someKey) + "/demo", "upper address": "30617:" + strings.ToUpper(someKey) + ":demo", "slash": npub + "/demo/",
		"page naddr": "https://page.example/repo/" + naddr,
	}
	relay = map[string]string{
		"wss": "wss://relay.example.com/", "host": "relay.example.com", "upper": "WSS://Relay.Example.com:443",
	}
	return event, repo, relay
}

// All spellings that people copy name the same event, repository or relay.
func TestSubject(t *testing.T) {
	event, repo, relay := subjects(t)
	for want, spellings := range map[string]map[string]string{
		someID: event, "30617:" + someKey + ":demo": repo, "wss://relay.example.com": relay,
	} {
		for name, s := range spellings {
			got, err := nip34.ParseSubject(s)
			require.NoError(t, err, name)
			require.Equal(t, want, got.String(), name)
			var author graspsync.PubKey
			if want == someID && strings.Contains(s, "nevent1") {
				author, err = graspsync.ParsePubKey(someKey)
				require.NoError(t, err)
			}
			require.Equal(t, author, got.Author, name)
		}
	}
	kind, err := nip34.ParseSubject("ws://127.0.0.1:7777")
	require.NoError(t, err)
	require.Equal(t, nip34.SubjectRelay, kind.Kind)
	require.Equal(t, "relay", string(kind.Kind))
	npub := nip34.NPub(graspsync.PubKey{1})
	for s, want := range map[string]string{
		npub + "/a%20b%2fc.git": "a b/c", npub + "/my.repo/": "my.repo", "nostr://" + npub + "/my.repo/": "my.repo", npub + "/100%": "100%",
		npub + "/my.repo.git/issues": "my.repo", "https://a.example/" + npub + "/100%25.git": "100%",
	} {
		got, err := nip34.ParseSubject(s)
		require.NoError(t, err, s)
		require.Equal(t, want, got.Repo.Identifier, s)
	}
	relayOf, err := nip34.ParseSubject("filter.example.com/" + npub)
	require.NoError(t, err)
	require.Equal(t, nip34.SubjectRelay, relayOf.Kind, "some have a key in their path")
}

// Other text is refused with a sentence that does not repeat it, because it may be a secret.
func TestNoSubject(t *testing.T) {
	secret, err := nip19.EncodePrivateKey(someKey)
	require.NoError(t, err)
	npub := nip34.NPub(graspsync.PubKey{1})
	profile, err := nip19.EncodeProfile(someKey, nil)
	require.NoError(t, err)
	other, err := nip19.EncodeEntity(someKey, 30023, "post", nil)
	require.NoError(t, err)
	for s, want := range map[string]string{
		"": "want an event's id", "what": "want an event's id", secret: "secret key", "nostr:" + secret: "secret key",
		npub: "key alone", npub + "/": "key alone", profile: "key alone", other: "kind 30023", "https://example.com/x": "want an event's id",
		"nostr://user@example.com/demo": "want an event's id", "note1qqqq": "checksum",
		// go-nostr panics, because the kind has one byte, and the key ends early.
		"naddr1qvqsqtqngst": "malformed", "nprofile1qqsqzqsw785du": "malformed", npub[:62] + "q/demo": "checksum",
		npub + "/my.repo/issues": "may be a relay", "https://page.example/" + npub + "/relay.example.com/demo": "may be a relay",
		"ws": "want an event's id", "wss": "want an event's id", "https": "want an event's id",
		"wss://user:pw@example.com": "user-info", strings.Repeat("x", 3000): "more than", "1:" + someKey + ":x": "kind 1",
	} {
		_, err := nip34.ParseSubject(s)
		require.ErrorIs(t, err, nip34.ErrSubject)
		require.ErrorContains(t, err, want)
		if s != "" && len(s) > 8 {
			require.NotContains(t, err.Error(), s)
		}
	}
}

// The key of an npub is that of its bytes.
func TestParsePubKey(t *testing.T) {
	k, err := graspsync.ParsePubKey(someKey)
	require.NoError(t, err)
	got, err := nip34.ParsePubKey(nip34.NPub(k))
	require.NoError(t, err)
	require.Equal(t, k, got)
	note, err := nip19.EncodeNote(someID)
	require.NoError(t, err)
	for _, s := range []string{"", "npub1", note, nip34.NPub(k) + "q", "nPub1" + nip34.NPub(k)[5:]} {
		_, err := nip34.ParsePubKey(s)
		require.Error(t, err, s)
	}
}

func FuzzParseSubject(f *testing.F) {
	event, repo, relay := subjects(f)
	for _, of := range []map[string]string{event, repo, relay} {
		for _, s := range of {
			f.Add(s)
		}
	}
	f.Add("naddr1qvqs") // shorter than what it says
	f.Fuzz(func(t *testing.T, s string) {
		got, err := nip34.ParseSubject(s)
		if err != nil {
			require.ErrorIs(t, err, nip34.ErrSubject)
			require.Less(t, len(err.Error()), 500)
			return
		}
		if strings.TrimSpace(got.String()) != got.String() {
			return // an identifier that only an naddr can hold: at the end of a line nobody sees a space
		}
		again, err := nip34.ParseSubject(got.String())
		require.NoError(t, err)
		if again.Author = got.Author; got.Kind != nip34.SubjectEvent { // an id does not say it
			require.Zero(t, got.Author)
		}
		require.Equal(t, got, again)
	})
}
