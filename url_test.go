package graspsync_test

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
)

func TestParseURLCanonical(t *testing.T) {
	for _, row := range []struct{ in, want string }{
		{"wss://relay.example.com", "wss://relay.example.com"},
		{"relay.example.com", "wss://relay.example.com"},
		{"relay.example.com:7334", "wss://relay.example.com:7334"},
		{"relay.example.com/path", "wss://relay.example.com/path"},
		{"relay.example.com/path?x=http://y", "wss://relay.example.com/path?x=http://y"},
		{"relay.example.com?x=a://b", "wss://relay.example.com?x=a://b"},
		{"relay.example.com#a://b", "wss://relay.example.com"},
		{" \t\r\nwss://relay.example.com\n", "wss://relay.example.com"},
		{"WSS://Relay.EXAMPLE.com/", "wss://relay.example.com"},
		{"wss://relay.example.com:443/", "wss://relay.example.com"},
		{"wss://relay.example.com:0443", "wss://relay.example.com"},
		{"wss://relay.example.com:80", "wss://relay.example.com:80"},
		{"ws://relay.example.com:80", "ws://relay.example.com"},
		{"ws://relay.example.com:443", "ws://relay.example.com:443"},
		{"wss://relay.example.com./", "wss://relay.example.com"},
		{"wss://relay.example.com///", "wss://relay.example.com"},
		{"wss://relay.example.com/a//b/", "wss://relay.example.com/a//b"},
		{"wss://relay.example.com//a", "wss://relay.example.com//a"},
		{"wss://relay.example.com/./a/../b/.", "wss://relay.example.com/b"},
		{"wss://relay.example.com/../../a", "wss://relay.example.com/a"},
		{"wss://relay.example.com/a/b/../c", "wss://relay.example.com/a/c"},
		{"wss://relay.example.com/a/..", "wss://relay.example.com"},
		{"wss://relay.example.com/a/%2e%2E/b", "wss://relay.example.com/b"},
		{"wss://relay.example.com/AZaz09-._~@%40", "wss://relay.example.com/AZaz09-._~@%40"},
		{"wss://relay.example.com/%41%5a%61%7a%30%39%2d%5f%7e%5B%60%7B%2f%3A", "wss://relay.example.com/AZaz09-_~%5B%60%7B%2F%3A"},
		{"wss://relay.example.com/%7ejoe/%c3%a9", "wss://relay.example.com/~joe/%C3%A9"},
		{"wss://relay.example.com/é", "wss://relay.example.com/%C3%A9"},
		{"wss://relay.example.com/a%2Fb%25", "wss://relay.example.com/a%2Fb%25"},
		{`wss://relay.example.com/"<>`, "wss://relay.example.com/%22%3C%3E"},
		{"wss://relay.example.com/?", "wss://relay.example.com"},
		{"wss://relay.example.com/?a=\u202eb", "wss://relay.example.com?a=%E2%80%AEb"},
		{"wss://relay.example.com/#frag", "wss://relay.example.com"},
		{"wss://relay.example.com#frag?x", "wss://relay.example.com"},
		{"wss://relay.example.com/a@b", "wss://relay.example.com/a@b"},
		{"wss://bücher.example", "wss://xn--bcher-kva.example"},
		{"wss://BÜCHER.example", "wss://xn--bcher-kva.example"},
		{"wss://xn--bcher-kva.example", "wss://xn--bcher-kva.example"},
		{"wss://relay。example。com。", "wss://relay.example.com"},
		{"wss://ｒelay.example.com", "wss://relay.example.com"},
		{"wss://localhost:7334", "wss://localhost:7334"},
		{"wss://192.0.2.7", "wss://192.0.2.7"},
		{"wss://192.0.2.7.", "wss://192.0.2.7"},
		{"wss://１９２.0.2.7", "wss://192.0.2.7"},
		{"wss://[2001:DB8:0::0:1]:443", "wss://[2001:db8::1]"},
		{"[2001:db8::1]:8080/x", "wss://[2001:db8::1]:8080/x"},
		{"wss://[::ffff:192.0.2.7]", "wss://192.0.2.7"},
		{"wss://[::ffff:c000:207]:8443", "wss://192.0.2.7:8443"},
	} {
		u, err := graspsync.ParseURL(row.in, graspsync.RelaySchemes)
		if assert.NoError(t, err, row.in) {
			assert.Equal(t, row.want, u.String(), row.in)
			checkCanonical(t, u, graspsync.RelaySchemes)
		}
	}
}

func TestParseURLRefuses(t *testing.T) {
	for _, in := range []string{
		"", " ", "/", "//relay.example.com", "///", "?x", "#x", "wss://", "wss:///path", "://relay.example.com",
		"https://relay.example.com", "http://relay.example.com", "ftp://relay.example.com", "w s://x", "wss ://x",
		"ssh://git@host/x", "git://host/x", "file:///etc/passwd", "file:/etc/passwd", "ext::sh -c id", "ext::x",
		"git@github.com:owner/x.git", "host:owner/x.git", `C:\repo`, `\\host\share`, "unix:///run/x", "javascript:alert(1)",
		"mailto:a@example.com", "wss:relay.example.com", "wss:/relay.example.com", "gopher://h", "data:text/plain,x",
		"wss://user@relay.example.com", "wss://user:secret@relay.example.com", "wss://@relay.example.com", "user@relay.example.com",
		"wss://relay.example.com\\@evil.example", "wss://relay.example.com%40evil.example", "wss://relay.example.com:80@evil.example",
		"wss://relay.example.com/\x00", "wss://relay.example.com/\r\nHost: x", "wss://relay .example.com", "wss://relay.example.com/a b",
		"wss://relay.example.com/%0d%0aX", "wss://relay.example.com/%00", "wss://relay.example.com/?%7F", "wss://\x7f",
		"wss://relay.example.com/%", "wss://relay.example.com/%4", "wss://relay.example.com/%zz", "wss://relay.example.com/?%+1",
		"wss://relay.example.com:", "wss://relay.example.com:0", "wss://relay.example.com:22", "wss://relay.example.com:25",
		"wss://relay.example.com:1023", "wss://relay.example.com:65536", "wss://relay.example.com:-1", "wss://relay.example.com:+443",
		"wss://relay.example.com:4_43", "wss://relay.example.com:https", "wss://relay.example.com:443:443", "wss://relay.example.com:４４３",
		"wss://.", "wss://..", "wss://a..b", "wss://.a", "wss://a..", "wss://-a.example", "wss://a-.example", "wss://a_b.example",
		"wss://a*.example", "wss://[relay.example.com]", "wss://relay%2eexample.com", "wss://exa\u00admple\u200b.com:x",
		"wss://127.1", "wss://2130706433", "wss://0x7f000001", "wss://0x7f.1", "wss://0177.0.0.1", "wss://127.0.0.01", "wss://0x", "wss://host.0X7F",
		"wss://1.2.3", "wss://1.2.3.4.5", "wss://256.1.1.1", "wss://example.123", "wss://①②⑦.1", "wss://1.2.3.4..",
		"wss://[::1", "wss://::1", "wss://2001:db8::1", "wss://[::1]x", "wss://[::1]:", "wss://[::1]:x", "wss://[fe80::1%25eth0]", "wss://[fe80::1%eth0]",
		"wss://[1.2.3.4]", "wss://[]", "wss://[::1]]", "wss://[[::1]]", "wss://x[::1]",
		"wss://" + strings.Repeat("a", 64) + ".example", "wss://" + strings.Repeat("a.", 127) + "example",
		"wss://relay.example.com/" + strings.Repeat("a", graspsync.MaxURLLength), "wss://relay.example.com/" + strings.Repeat("\"", 900),
		"wss://relay.example.com/#" + strings.Repeat("a", graspsync.MaxURLLength), // a fragment is dropped, but read
		"wss://\xff\xfe", "wss://xn--", "wss://xn--a.example", "wss://ex\u2028ample.com",
	} {
		u, err := graspsync.ParseURL(in, graspsync.RelaySchemes)
		assert.ErrorIs(t, err, graspsync.ErrURL, "%q", in)
		assert.Zero(t, u, "%q", in)
		if err != nil {
			assert.Less(t, len(err.Error()), 500, "%q", in)
			assert.NotContains(t, err.Error(), "secret")
		}
	}
}

// Another server treated `wss://x`, `wss://x/`, `x` and `WSS://X:443` as four relays with four connections
// and four health records.
func TestTrapD1_OneRelayManySpellings(t *testing.T) {
	seen := map[graspsync.URL]string{}
	for _, in := range []string{
		"wss://x.org", "wss://x.org/", "x.org", "WSS://X.ORG:443", "wss://x.org.", "x.org:443", "X.org/./", "wss://x.org//",
		"wss://x.org/#a", "wss://x.org/?", "wss://x.org:00443", " wss://x.org ", "wss://x。org", "wss://x.org/a/..", "wss://x.org/%2E",
	} {
		u, err := graspsync.ParseURL(in, graspsync.RelaySchemes)
		require.NoError(t, err, in)
		seen[u] = in
	}
	assert.Len(t, seen, 1)

	for _, other := range []string{"ws://x.org", "wss://x.org:444", "wss://x.org/a", "wss://x.org?a", "wss://www.x.org", "wss://x.org:80"} {
		u, err := graspsync.ParseURL(strings.Replace(other, ":444", ":4443", 1), graspsync.RelaySchemes)
		require.NoError(t, err, other)
		assert.NotContains(t, seen, u, other)
	}
}

// checkCanonical checks properties of all results of ParseURL. Parsing the result again changes nothing,
// and net/url, which parses it for the request, reads the same parts.
func checkCanonical(t *testing.T, u graspsync.URL, schemes []string) {
	t.Helper()
	s := u.String()
	again, err := graspsync.ParseURL(s, schemes)
	require.NoError(t, err, "%q", s)
	require.Equal(t, u, again, "%q", s)
	require.LessOrEqual(t, len(s), graspsync.MaxURLLength)
	for i := range len(s) {
		require.True(t, s[i] > ' ' && s[i] < 0x7f, "%q", s)
	}

	std, err := url.Parse(s)
	require.NoError(t, err, "%q", s)
	require.Equal(t, u.Scheme, std.Scheme)
	require.Equal(t, u.HostPort.Host, std.Hostname())
	require.Equal(t, u.Path, std.EscapedPath())
	require.Equal(t, u.Query, std.RawQuery)
	require.Nil(t, std.User)
	require.Empty(t, std.Opaque+std.Fragment)

	a, err := graspsync.ParseURL(u.Scheme+"://"+u.HostPort.String(), schemes)
	require.NoError(t, err)
	require.Equal(t, u.HostPort, a.HostPort)
}

// A URL may have 2,048 bytes, both as written and in canonical spelling.
func TestURLBounds(t *testing.T) {
	const host = "wss://relay.example/"
	for in, ok := range map[string]bool{
		host + strings.Repeat("a", 2048-len(host)):       true,
		host + strings.Repeat("a", 2049-len(host)):       false,
		host + strings.Repeat(`"`, 676):                  true, // 20 + 3 * 676 = 2048
		host + strings.Repeat(`"`, 676) + "a":            false,
		host + "?" + strings.Repeat("a", 2048-len(host)): false, // read, it has one more
	} {
		_, err := graspsync.ParseURL(in, graspsync.RelaySchemes)
		assert.Equal(t, ok, err == nil, "%d bytes: %v", len(in), err)
	}
	for n := range 256 {
		c := byte(n)
		u, err := graspsync.ParseURL(host+"%"+fmt.Sprintf("%02x", c), graspsync.RelaySchemes)
		require.Equal(t, c >= ' ' && c != 0x7f, err == nil, "%%%02x", c)
		if err != nil {
			continue
		}
		plain := c != '.' && strings.IndexByte("-_~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz", c) >= 0
		switch {
		case c == '.':
			require.Empty(t, u.Path)
		case plain:
			require.Equal(t, "/"+string(c), u.Path)
		default:
			require.Equal(t, fmt.Sprintf("/%%%02X", c), u.Path)
		}
	}
	const kept = "!$&'()*+,;=:@"
	u, err := graspsync.ParseURL(host+kept+"?"+kept+"/?", graspsync.RelaySchemes)
	require.NoError(t, err)
	assert.Equal(t, "/"+kept, u.Path)
	assert.Equal(t, kept+"/?", u.Query)
}

func FuzzParseURL(f *testing.F) {
	for _, s := range []string{
		"wss://x", "x", "WSS://X:443/", "http://user:pw@host", "https://[::ffff:1.2.3.4]:8080/a/../b?q#f", "wss://bücher.example。",
		"https://host/%2e%2e/%zz", "0x7f.1", "wss://xn--a", "wss://[fe80::1%25eth0]", "ext::sh", `\\x`, "a://b://c", "wss://xn--55qx5d.1",
		"WSS://Relay.Example.com.:443//a%2Fb/?q=1#f", "wss://ß.example", "wss://x\u3002org", "wss://x.org?a#b?c", "wss://x.org/a//b/../c",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for _, schemes := range [][]string{graspsync.RelaySchemes, graspsync.HTTPSchemes} {
			u, err := graspsync.ParseURL(s, schemes)
			if err != nil {
				require.ErrorIs(t, err, graspsync.ErrURL)
				require.Zero(t, u)
				require.Less(t, len(err.Error()), 600)
				continue
			}
			checkCanonical(t, u, schemes)
		}
	})
}
