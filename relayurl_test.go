package graspsync_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
)

// relay parses a URL, which must be valid.
func relay(t testing.TB, s string) graspsync.RelayURL {
	t.Helper()
	u, err := graspsync.ParseRelayURL(s)
	require.NoError(t, err, "%q", s)
	return u
}

// Another server treated the spellings of one relay as several relays, each with its own connection and
// health record.
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
