package khatruadapter_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"fiatjaf.com/nostr"
	"fiatjaf.com/nostr/eventstore/slicestore"
	"fiatjaf.com/nostr/khatru"
	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	khatruadapter "github.com/graspsync/graspsync/adapter/nostrlib/khatru"
	"github.com/graspsync/graspsync/nip34"
)

// The relay took its name from the Host header of the client.
func TestCaseC4_SignedForOurName(t *testing.T) {
	relay, db := khatru.NewRelay(), &slicestore.SliceStore{}
	require.NoError(t, db.Init())
	relay.OnConnect = khatru.RequestAuth
	identity, err := nip34.ParseIdentity("grasp.example.com")
	require.NoError(t, err)
	_, err = khatruadapter.New(relay, db, identity, khatruadapter.Config{})
	require.NoError(t, err)
	server := httptest.NewServer(relay)
	t.Cleanup(server.Close)
	for _, host := range []string{"", "evil.example", "grasp.example.com"} {
		for name, ours := range map[string]bool{"wss://grasp.example.com": true, "wss://evil.example": false} {
			c, _, err := websocket.Dial(t.Context(), "ws"+strings.TrimPrefix(server.URL, "http"), &websocket.DialOptions{
				Host: host, HTTPHeader: http.Header{"X-Forwarded-Host": {"evil.example"}},
			})
			require.NoError(t, err)
			var challenge []string
			_, text, err := c.Read(t.Context())
			require.NoError(t, err)
			require.NoError(t, json.Unmarshal(text, &challenge))
			e := nostr.Event{
				Kind: nostr.KindClientAuthentication, CreatedAt: nostr.Now(),
				Tags: nostr.Tags{{"relay", name}, {"challenge", challenge[1]}},
			}
			require.NoError(t, e.Sign(nostr.Generate()))
			text, err = json.Marshal([]any{"AUTH", e})
			require.NoError(t, err)
			require.NoError(t, c.Write(t.Context(), websocket.MessageText, text))
			_, text, err = c.Read(t.Context())
			require.NoError(t, err)
			require.Equal(t, ours, strings.Contains(string(text), "true"), "%s for %s: %s", host, name, text)
			require.NoError(t, c.CloseNow())
		}
	}
}
