package nip34

import (
	"encoding/hex"
	"strings"
	"testing"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/eventtest"
)

func identity(t *testing.T, specs ...string) Identity {
	t.Helper()
	id, err := ParseIdentity(specs...)
	require.NoError(t, err)
	return id
}

func TestIdentityIsRelay(t *testing.T) {
	for _, c := range []struct {
		spec    string
		yes, no []string
	}{
		{
			"grasp.example.com",
			[]string{"grasp.example.com", "wss://GRASP.example.com:443/", "ws://grasp.example.com.", "wss://grasp.example.com:80", "wss://grasp.example.com/any/path"},
			[]string{"wss://example.com", "wss://grasp.example.com:7334", "wss://x.grasp.example.com", "wss://grasp.example.com.evil.org"},
		},
		{
			"host.example:7334",
			[]string{"ws://host.example:7334", "wss://host.example:7334/x"},
			[]string{"ws://host.example:7335", "wss://host.example", "ws://host.example"},
		},
		{
			"https://host.example/base/",
			[]string{"wss://host.example/base", "wss://host.example/base/", "wss://host.example/%62ase"},
			[]string{
				"ws://host.example/base", "wss://host.example:8443/base", "wss://host.example", "wss://host.example/other",
				"wss://host.example/base/below", "wss://host.example/base2", "wss://host.example/Base",
			},
		},
		{"wss://host.example:443", []string{"host.example"}, []string{"ws://host.example"}},
		{"[2001:db8::1]:7334", []string{"ws://[2001:DB8:0::1]:7334"}, []string{"ws://[2001:db8::2]:7334"}},
		{"bücher.example", []string{"wss://xn--bcher-kva.example"}, []string{"wss://bucher.example"}},
		{"127.0.0.1:7334", []string{"ws://127.0.0.1:7334"}, []string{"ws://localhost:7334"}},
	} {
		id := identity(t, c.spec)
		assert.False(t, id.IsZero())
		for _, s := range c.yes {
			assert.True(t, id.IsRelay(relayURL(t, s)), "%s is %s", s, c.spec)
		}
		for _, s := range c.no {
			assert.False(t, id.IsRelay(relayURL(t, s)), "%s is not %s", s, c.spec)
		}
	}
}

// Another server compared substrings. It took evil-x.org for x.org, and servers on one host with
// different ports refused each other.
func TestTrapD2_WholeAuthorities(t *testing.T) {
	us := identity(t, "x.org")
	for _, s := range []string{"evil-x.org", "x.org.evil.net", "evil.net/x.org", "evil.net/?x.org", "x.org:7334"} {
		assert.False(t, us.IsRelay(relayURL(t, "wss://"+s)), s)
		assert.False(t, us.IsClone(cloneURL(t, "https://"+s)), s)
	}
	assert.True(t, us.IsClone(cloneURL(t, "http://X.org/anything")))

	path := "/" + NPub(key(1)) + "/x.git"
	ports := []string{"127.0.0.1:7001", "127.0.0.1:7002", "127.0.0.1:7003"}
	for _, own := range ports {
		a := announcement(t, key(1), nostr.Tag{"d", "x"},
			nostr.Tag{"relays", "ws://" + own}, nostr.Tag{"clone", "http://" + own + path})
		for _, other := range ports {
			assert.Equal(t, own == other, identity(t, other).Lists(a), "%s %s", own, other)
		}
	}
}

// Two services under paths of one host took each other for themselves, and never synced.
func TestIdentityIsClone(t *testing.T) {
	for _, c := range []struct {
		spec    string
		yes, no []string
	}{
		{"host.example", []string{"https://host.example", "http://host.example/any/path"}, []string{"https://host.example:8443", "https://other.example"}},
		{
			"https://host.example/a/b",
			[]string{"https://host.example/a/b", "https://host.example/a/b/npub1x/x.git", "https://host.example/%61/b/x"},
			[]string{
				"https://host.example", "https://host.example/a", "https://host.example/a/c/x.git", "https://host.example/a/b2/x.git",
				"https://host.example/a%2Fb/x.git", "http://host.example/a/b/x.git", "https://host.example/x/a/b",
			},
		},
		{"https://host.example/a%2Fb", []string{"https://host.example/a%2fb/x.git"}, []string{"https://host.example/a/b/x.git"}},
	} {
		id := identity(t, c.spec)
		for _, s := range c.yes {
			assert.True(t, id.IsClone(cloneURL(t, s)), "%s is %s", s, c.spec)
		}
		for _, s := range c.no {
			assert.False(t, id.IsClone(cloneURL(t, s)), "%s is not %s", s, c.spec)
		}
	}
}

func TestIdentityLists(t *testing.T) {
	np := NPub(key(1))
	for name, c := range map[string]struct {
		spec, identifier, relay, clone string
		want                           bool
	}{
		"plain":                {"h.example", "x", "wss://h.example", "https://h.example/" + np + "/x.git", true},
		"odd spelling":         {"H.example.", "x", "h.EXAMPLE:443/", "https://h.example:443/" + np + "/x.git/#f", true},
		"mixed schemes":        {"h.example", "x", "ws://h.example", "https://h.example/" + np + "/x.git", true},
		"relay only":           {"h.example", "x", "wss://h.example", "https://o.example/" + np + "/x.git", false},
		"clone only":           {"h.example", "x", "wss://o.example", "https://h.example/" + np + "/x.git", false},
		"no .git":              {"h.example", "x", "wss://h.example", "https://h.example/" + np + "/x", false},
		"another owner":        {"h.example", "x", "wss://h.example", "https://h.example/" + NPub(key(2)) + "/x.git", false},
		"another identifier":   {"h.example", "x", "wss://h.example", "https://h.example/" + np + "/y.git", false},
		"case of identifier":   {"h.example", "x", "wss://h.example", "https://h.example/" + np + "/X.git", false},
		"upper-case npub":      {"h.example", "x", "wss://h.example", "https://h.example/" + strings.ToUpper(np) + "/x.git", false},
		"hex owner":            {"h.example", "x", "wss://h.example", "https://h.example/" + key(1).String() + "/x.git", false},
		"query":                {"h.example", "x", "wss://h.example", "https://h.example/" + np + "/x.git?a", false},
		"deeper":               {"h.example", "x", "wss://h.example", "https://h.example/git/" + np + "/x.git", false},
		"too short":            {"h.example", "x", "wss://h.example", "https://h.example/x.git", false},
		"root":                 {"h.example", "x", "wss://h.example", "https://h.example", false},
		"double slash":         {"h.example", "x", "wss://h.example", "https://h.example//" + np + "/x.git", false},
		"relay under a path":   {"h.example", "x", "wss://h.example/sub", "https://h.example/" + np + "/x.git", false},
		"encoded":              {"h.example", "a b", "wss://h.example", "https://h.example/" + np + "/a%20b.git", true},
		"needlessly encoded":   {"h.example", "x", "wss://h.example", "https://h.example/" + np + "/%78%2egit", true},
		"encoded slash":        {"h.example", "a/b", "wss://h.example", "https://h.example/" + np + "/a%2Fb.git", true},
		"bare slash":           {"h.example", "a/b", "wss://h.example", "https://h.example/" + np + "/a/b.git", false},
		"encoded twice":        {"h.example", "a b", "wss://h.example", "https://h.example/" + np + "/a%2520b.git", false},
		"percent sign":         {"h.example", "a%20b", "wss://h.example", "https://h.example/" + np + "/a%2520b.git", true},
		"colon":                {"h.example", "a:b", "wss://h.example", "https://h.example/" + np + "/a:b.git", true},
		"plus is plus":         {"h.example", "a+b", "wss://h.example", "https://h.example/" + np + "/a+b.git", true},
		"unicode":              {"h.example", "ü", "wss://h.example", "https://h.example/" + np + "/ü.git", true},
		"unicode encoded":      {"h.example", "ü", "wss://h.example", "https://h.example/" + np + "/%C3%BC.git", true},
		"base":                 {"https://h.example/b/c", "x", "wss://h.example/b/c/", "https://h.example/b/c/" + np + "/x.git", true},
		"base encoded":         {"https://h.example/b%20c", "x", "wss://h.example/b%20c", "https://h.example/%62%20c/" + np + "/x.git", true},
		"base without in one":  {"https://h.example/b", "x", "wss://h.example", "https://h.example/b/" + np + "/x.git", false},
		"another base":         {"https://h.example/b", "x", "wss://h.example/c", "https://h.example/c/" + np + "/x.git", false},
		"bare host with base":  {"h.example/b", "x", "ws://h.example/b", "https://h.example/b/" + np + "/x.git", true},
		"port":                 {"h.example:7334", "x", "ws://h.example:7334", "http://h.example:7334/" + np + "/x.git", true},
		"another port":         {"h.example:7334", "x", "ws://h.example:7334", "http://h.example:7335/" + np + "/x.git", false},
		"plaintext not by URL": {"https://h.example", "x", "ws://h.example", "https://h.example/" + np + "/x.git", false},
	} {
		t.Run(name, func(t *testing.T) {
			a := announcement(t, key(1), nostr.Tag{"d", c.identifier}, nostr.Tag{"relays", "wss://first.example", c.relay},
				nostr.Tag{"clone", "https://first.example/x.git"}, nostr.Tag{"clone", c.clone})
			require.Len(t, a.Clones, 2)
			assert.Equal(t, c.want, identity(t, c.spec).Lists(a))
			assert.False(t, Identity{}.Lists(a))
		})
	}
}

func TestParseIdentityRefuses(t *testing.T) {
	// With a colon missing it was taken for a path on a host called https, and nothing
	// ever listed us.
	_, err := ParseIdentity("good.example", "ftp://bad.example", "user@bad.example", "h.example?q", "", "https//bad.example", "wss:/bad.example")
	require.ErrorIs(t, err, ErrIdentity)
	for _, bad := range []string{`"ftp://bad.example"`, `"user@bad.example"`, `"h.example?q"`, `""`, `"https//bad.example"`, `"wss:/bad.example"`} {
		assert.Contains(t, err.Error(), bad, "every bad address is named")
	}
	assert.NotContains(t, err.Error(), "good.example")
	id, err := ParseIdentity()
	require.NoError(t, err)
	assert.True(t, id.IsZero())
	assert.Equal(t, Identity{}, id)
	assert.False(t, id.IsRelay(relayURL(t, "wss://h.example")))
}

// naiveDecode reads bech32 as BIP-173 describes it, without a checksum.
func naiveDecode(s string) string {
	var bits []byte
	for _, c := range s[len("npub1") : len(s)-6] {
		v := strings.IndexRune("qpzry9x8gf2tvdw0s3jn54khce6mua7l", c)
		for i := 4; i >= 0; i-- {
			bits = append(bits, byte(v>>i&1))
		}
	}
	out := make([]byte, 32)
	for i := range 256 {
		out[i/8] = out[i/8]<<1 | bits[i]
	}
	return hex.EncodeToString(out)
}

func FuzzIdentity(f *testing.F) {
	f.Add("h.example", "wss://h.example", "https://h.example/npub1/x.git", "x", []byte{1})
	f.Add("https://h.example:7334/b%2f", "h.example:7334/b%2F", "http://h.example:7334/b%2F/x", "%", []byte{})
	f.Add("h.example:7334", "ws://h.example:7334", "http://h.example:7334", "a/b", []byte("0123456789012345678901234567890123"))
	f.Fuzz(func(t *testing.T, spec, relay, clone, identifier string, k []byte) {
		var owner graspsync.PubKey
		copy(owner[:], k)
		require.Equal(t, owner.String(), naiveDecode(NPub(owner)))
		id, err := ParseIdentity(spec)
		if err != nil {
			require.ErrorIs(t, err, ErrIdentity)
			require.True(t, id.IsZero())
			return
		}
		ev := event(graspsync.KindAnnouncement, owner, nostr.Tag{"d", identifier},
			nostr.Tag{"relays", relay}, nostr.Tag{"clone", clone})
		a, err := ParseAnnouncement(eventtest.Of(ev))
		if err != nil || !id.Lists(a) {
			return
		}
		require.True(t, id.IsRelay(a.Relays[0]))
		require.True(t, id.IsClone(a.Clones[0]))
		require.Contains(t, a.Clones[0].Path, "npub1")
	})
}
