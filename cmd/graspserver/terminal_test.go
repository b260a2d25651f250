//go:build !race

package main

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/sync/relaytest"
	"github.com/graspsync/graspsync/sync/relaytest/relayserver"
	"github.com/graspsync/graspsync/sync/wire"
)

// What a command printed had strangers' text in it that turns lines around on a terminal.
func TestCaseC8_CommandsPrintWhatIsPrintable(t *testing.T) {
	const odd = "é\u202e\u2066\u009b\U000e0041\x1b\u3164\ufe0f\u2800"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		require.NoError(t, json.NewEncoder(w).Encode(map[string]any{"result": map[string]string{"name": odd}}))
	}))
	defer server.Close()
	var out bytes.Buffer
	key := strings.Repeat("1", 64)
	require.NoError(t, command(t.Context(), []string{"-url", server.URL, "explain", "x"}, key, &out))
	for _, r := range out.String() {
		require.True(t, r == '\n' || graspsync.IsPrintable(r), "%U", r)
	}
	status := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		require.NoError(t, json.NewEncoder(w).Encode(map[string]any{"answer": []string{odd}}))
	}))
	defer status.Close()
	for _, args := range [][]string{{"explain"}, {"explain", "-json"}} {
		var text bytes.Buffer
		require.Zero(t, execute(t.Context(), append(args, "-status-url", status.URL, "a.example"), nil, &text, t.Output()))
		for _, r := range text.String() {
			require.True(t, r == '\n' || graspsync.IsPrintable(r), "%U", r)
		}
		require.Contains(t, text.String(), "é")
	}
	bad := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		require.NoError(t, json.NewEncoder(w).Encode(map[string]string{"error": odd}))
	}))
	defer bad.Close()
	require.NotContains(t, command(t.Context(), []string{"-url", bad.URL, "rules"}, key, &out).Error(), "\x1b")
	var said struct{ Name string }
	require.NoError(t, json.Unmarshal(out.Bytes(), &said))
	require.Equal(t, odd, said.Name)
}

// /status.json had strangers' text as it is: names of repositories, and what relays said.
func TestCaseC8_StatusIsPrintable(t *testing.T) {
	const odd = "é\u202e\u2066\u3164\ufe0f"
	hub := relaytest.New("wss://hub.example", relaytest.Behavior{Info: wire.Info{Software: odd}})
	from, err := relayserver.Start(hub)
	require.NoError(t, err)
	defer from.Close()
	ours, owner := freeAddr(t), relaytest.NewKey("owner")
	_, stop := server(t, options{Listen: ours, Domain: ours, Bootstrap: []graspsync.RelayURL{from.URL()}})
	defer stop()
	hub.Publish(owner.Hosted(nostr.Now()-100, odd, from.URL().String(), "ws://"+ours))
	for _, query := range []string{"", "?repo=all", "?repo=" + url.QueryEscape(owner.Ref(odd).String()), "?relay=" + url.QueryEscape(from.URL().String())} {
		eventually(t, query, func() bool {
			text := get(t, "http://"+ours+"/status.json"+query)
			for _, r := range text {
				require.True(t, r == '\n' || graspsync.IsPrintable(r), "%s: %U", query, r)
			}
			return strings.HasPrefix(query, "?relay=") || strings.Contains(text, `é\u202e\u2066\u3164\ufe0f`) // the answer about a relay names no repository
		})
	}
}
