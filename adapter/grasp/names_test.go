package grasp_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/coder/websocket"
	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// authenticates connects with headers, submits a protected event, and authenticates for relay. It
// returns whether the OK is true, and whether the event no longer requires AUTH.
func (r *rig) authenticates(host string, header http.Header, relay string) (ok, known bool) {
	r.t.Helper()
	c, _, err := websocket.Dial(r.t.Context(), "ws://"+r.addr, &websocket.DialOptions{Host: host, HTTPHeader: header})
	require.NoError(r.t, err)
	defer func() { _ = c.CloseNow() }()
	say := func(label string, e *nostr.Event) {
		text, err := json.Marshal([]any{label, e})
		require.NoError(r.t, err)
		require.NoError(r.t, c.Write(r.t.Context(), websocket.MessageText, text))
	}
	challenge := ""
	hear := func() (answer []json.RawMessage) {
		for {
			_, text, err := c.Read(r.t.Context())
			require.NoError(r.t, err)
			require.NoError(r.t, json.Unmarshal(text, &answer))
			if string(answer[0]) == `"OK"` {
				return answer
			}
			if string(answer[0]) == `"AUTH"` {
				require.NoError(r.t, json.Unmarshal(answer[1], &challenge))
			}
		}
	}
	key := relaytest.NewKey("somebody")
	protected := key.Event(nostr.Now(), graspsync.KindIssue, "", nostr.Tag{"-"})
	say("EVENT", protected)
	require.Contains(r.t, string(hear()[3]), "auth-required:")
	say("AUTH", key.Event(nostr.Now(), nostr.KindClientAuthentication, "", nostr.Tag{"relay", relay}, nostr.Tag{"challenge", challenge}))
	ok = string(hear()[2]) == "true"
	say("EVENT", protected)
	return ok, !strings.Contains(string(hear()[3]), "auth-required:")
}

// The server took its name from the Host header. An AUTH for another relay was accepted, and behind
// a proxy that rewrites Host no valid AUTH was.
func TestCaseC4_SignedForOneOfOurNames(t *testing.T) {
	r := unstarted(t)
	r.names = []string{"grasp.example.com", "second.example:8443", "wss://third.example/git"}
	r.start()
	defer r.stop()
	for _, host := range []string{"", "evil.example", "grasp.example.com", "second.example:8443", "third.example"} {
		for _, header := range []http.Header{nil, {"X-Forwarded-Host": {"evil.example"}, "X-Forwarded-Proto": {"https"}}} {
			for relay, ours := range map[string]bool{
				"wss://grasp.example.com": true, "wss://grasp.example.com/": true, "ws://second.example:8443": true, "wss://second.example:8443": true,
				"wss://third.example/git": true, "wss://third.example": false, "wss://grasp.example.com/other": false, "wss://evil.example": false, "ws://evil.example": false, "": false,
				"wss://grasp.example.com.evil.example": false, "ws://" + r.addr: false,
			} {
				ok, known := r.authenticates(host, header, relay)
				require.Equal(t, []bool{ours, ours}, []bool{ok, known}, "Host %q, %v, signed for %q", host, header, relay)
			}
		}
	}
}
