package graspsync_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
)

// relay parses a URL that must be good.
func relay(t testing.TB, s string) graspsync.RelayURL {
	t.Helper()
	u, err := graspsync.ParseRelayURL(s)
	require.NoError(t, err, "%q", s)
	return u
}

// Elsewhere the spellings of one relay were several relays, each with its own
// connection and health record.
func TestTrapD1_SpellingsOfOneRelay(t *testing.T) {
	for want, spellings := range map[string][]string{
		"wss://relay.example.com": {
			"relay.example.com", "relay.example.com/", "wss://relay.example.com/", "WSS://RELAY.Example.COM",
			"wss://relay.example.com:443", "wss://relay.example.com:443/", "WSS://relay.example.com.:443//",
			"wss://relay.example.com/#fragment", " wss://relay.example.com\n", "relay.example.com:443",
			"wss://relay.example.com:0443", "wss://relay.example.com?", "wss://relay.example.com#",
		},
		"ws://relay.example.com": {
			"ws://relay.example.com", "WS://relay.example.com.:80/", "ws://RELAY.EXAMPLE.COM/",
		},
		"wss://relay.example.com:7334": {
			"relay.example.com:7334", "wss://relay.example.com.:7334/", "WSS://Relay.Example.com:07334",
		},
		"wss://relay.example.com/Git/Relay": {
			"relay.example.com/Git/Relay/", "wss://RELAY.example.com:443/Git/Relay#x",
		},
		"wss://xn--bcher-kva.example": {
			"bücher.example", "wss://BÜCHER.example/", "XN--BCHER-KVA.example.", "wss://bu\u0308cher.example:443",
		},
		"wss://[2001:db8::1]": {
			"wss://[2001:db8::1]:443/", "[2001:DB8:0:0:0:0:0:1]", "WSS://[2001:0db8::0001]",
		},
		"wss://192.0.2.1": {"192.0.2.1", "wss://192.0.2.1:443/"},
	} {
		t.Run(want, func(t *testing.T) {
			all := map[graspsync.RelayURL]string{}
			for _, s := range spellings {
				u := relay(t, s)
				assert.Equal(t, want, u.String(), "%q", s)
				all[u] = s
			}
			assert.Len(t, all, 1, "one key")
		})
	}
}

func TestRelayURLRefused(t *testing.T) {
	for name, s := range map[string]string{
		"empty":             "",
		"https":             "https://relay.example.com",
		"no host":           "wss://",
		"user-info":         "wss://user@relay.example.com",
		"port zero":         "wss://relay.example.com:0",
		"low port":          "wss://relay.example.com:22",
		"high port":         "wss://relay.example.com:65536",
		"no port":           "wss://relay.example.com:",
		"space":             "wss://relay example.com",
		"newline inside":    "wss://relay.exa\nmple.com",
		"backslash":         `wss:\\relay.example.com`,
		"decimal address":   "wss://2130706433",
		"hex address":       "wss://0x7f.1",
		"too long":          "wss://relay.example.com/" + strings.Repeat("a", graspsync.MaxURLLength),
		"too long, escaped": "wss://relay.example.com/" + strings.Repeat("é", 900),
	} {
		t.Run(name, func(t *testing.T) {
			u, err := graspsync.ParseRelayURL(s)
			require.ErrorIs(t, err, graspsync.ErrURL)
			assert.True(t, u.IsZero())
		})
	}
}

func FuzzParseRelayURL(f *testing.F) {
	for _, s := range []string{
		"relay.example.com", "WSS://Relay.Example.com.:443//a%2Fb/?q=1#f", "ws://[::1]:8080", "wss://bücher.example/é",
		"wss://0x7f.1", "wss://user@x.org", "wss://x.org/%zz", "x.org/a@@b", "wss://xn--bcher-kva.example", "//x.org", "x://y://z",
		"wss://x.org/a//b/../c", "wss://ß.example", "wss://x\u3002org", "wss://x.org?a#b?c", "wss://１２７.0.0.1",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		u, err := graspsync.ParseRelayURL(s)
		if err != nil {
			require.ErrorIs(t, err, graspsync.ErrURL)
			require.True(t, u.IsZero())
			return
		}
		require.False(t, u.IsZero())
		again, err := graspsync.ParseRelayURL(u.String())
		require.NoError(t, err, "%q from %q", u, s)
		require.Equal(t, u, again, "%q from %q", u, s)
		require.LessOrEqual(t, len(u.String()), graspsync.MaxURLLength)
		require.True(t, strings.HasPrefix(u.String(), "wss://") || strings.HasPrefix(u.String(), "ws://"))
		require.NotContains(t, u.String(), "#")
		require.NotContains(t, u.HostPort().Host, "@", "user-info")
	})
}
