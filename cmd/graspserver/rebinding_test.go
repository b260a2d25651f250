//go:build !race

// As in servers_test.go.

package main

import (
	"context"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/adapter/admin"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// pointing is a browser for which names point at a server on this machine.
func pointing(t *testing.T, addr string) *http.Client {
	t.Helper()
	transport := &http.Transport{DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, addr)
	}}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: time.Minute, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// A page that has its own name point at 127.0.0.1 could read the status where that is served at the address
// that everybody reaches, and where that is every address of the machine.
func TestNameThatPointsHereReadsAndCommandsNothing(t *testing.T) {
	owner := relaytest.NewKey("owner")
	for name, c := range map[string]struct{ listen, admin string }{
		"of its own":                   {freeAddr(t), freeAddr(t)},
		"of its own, at all addresses": {freeAddr(t), atAll(freeAddr(t))},
		"everybody's":                  {freeAddr(t), ""},
		"everybody's, all addresses":   {atAll(freeAddr(t)), ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, stop := server(t, options{
				Listen: c.listen, AdminListen: c.admin, Domain: "grasp.example/git", AlsoDomain: []string{"https://other.example"},
				Admin: []graspsync.PubKey{owner.PubKey()},
			})
			defer stop()
			at, _ := strings.CutPrefix(c.admin, "0.0.0.0")
			paths := []string{"/", "/readyz"}
			if c.admin == "" {
				at, _ = strings.CutPrefix(c.listen, "0.0.0.0")
				paths = nil // these are for everybody
			}
			if strings.HasPrefix(at, ":") {
				at = "127.0.0.1" + at
			}
			paths = append(paths, "/metrics", "/status.json", "/status.json?repo=all", "/status/", "/status/relays")
			_, port, err := net.SplitHostPort(at)
			require.NoError(t, err)
			client := pointing(t, at)
			for _, path := range paths {
				for host, may := range map[string]bool{
					"evil.example:" + port: false, "evil.example": false, "127.0.0.1.evil.example:" + port: false,
					"localhost:" + port: true, at: true, "grasp.example": true, "GRASP.example:" + port: true, "other.example": true, "xgrasp.example": false,
				} {
					ctx, cancel := context.WithCancel(t.Context())
					req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+host+path, nil)
					require.NoError(t, err)
					req.Header.Set("Sec-Fetch-Site", "same-origin")
					resp, err := client.Do(req)
					require.NoError(t, err)
					cancel() // of what goes on and on
					require.NoError(t, resp.Body.Close())
					require.Equal(t, may, resp.StatusCode != http.StatusMisdirectedRequest, "%s at %s: %s", path, host, resp.Status)
				}
			}

			// Commands: without a signature, and with one that was had for the name of the page.
			evil := "http://evil.example:" + port
			ordered, err := http.NewRequestWithContext(t.Context(), http.MethodPost, evil, strings.NewReader(`{"method":"rules","params":[]}`))
			require.NoError(t, err)
			ordered.Header.Set("Content-Type", admin.ContentType)
			there := pointing(t, strings.Replace(c.listen, "0.0.0.0", "127.0.0.1", 1))
			resp, err := there.Do(ordered)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			require.Equal(t, http.StatusUnauthorized, resp.StatusCode)
			_, err = admin.Client{URL: evil, Key: owner.Secret(), HTTP: there}.Do(t.Context(), "rules")
			require.ErrorIs(t, err, admin.ErrAnswer)
			require.NotContains(t, err.Error(), "signed before")
		})
	}
}

// atAll is the port of an address, at all addresses of the machine.
func atAll(addr string) string {
	_, port, _ := net.SplitHostPort(addr)
	return "0.0.0.0:" + port
}
