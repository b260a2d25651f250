package wstransport_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
)

// A relay behind nginx with "location /nostr/" was dialed as /nostr, answered with a redirect, and was
// never reached. Both spellings are one relay all the same.
func TestCaseC7_PathIsDialedAsWritten(t *testing.T) {
	redirects := func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, r.URL.Path+"/", http.StatusMovedPermanently)
	}
	for _, c := range []struct {
		name, serves, written string
		otherwise             http.HandlerFunc
		asked                 []string // paths, in order
	}{
		{"location /nostr/", "/nostr/", "/nostr/", redirects, []string{"/nostr/"}},
		{"nothing but /nostr/", "/nostr/", "/nostr/", http.NotFound, []string{"/nostr/"}},
		{"several segments", "/a/b/", "/a/b/", http.NotFound, []string{"/a/b/"}},
		{"without the slash", "/nostr", "/nostr", http.NotFound, []string{"/nostr"}},
		{"written without", "/nostr/", "/nostr", redirects, []string{"/nostr", "/nostr/"}},
		{"written with", "/nostr", "/nostr/", http.NotFound, []string{"/nostr/", "/nostr"}},
		{"the root", "/", "/", http.NotFound, []string{"/"}},
		{"the root without", "/", "", http.NotFound, []string{"/"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var mu sync.Mutex
			var asked []string
			named := make(chan struct{})
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				switch {
				case r.Header.Get("Upgrade") != "":
					mu.Lock()
					asked = append(asked, r.URL.Path)
					mu.Unlock()
					fallthrough
				case r.URL.Path != c.serves:
					if r.URL.Path != c.serves {
						c.otherwise(w, r)
						return
					}
					ws, err := websocket.Accept(w, r, nil)
					if err == nil {
						_, _, _ = ws.Read(r.Context())
						_ = ws.CloseNow()
					}
				default:
					w.Header().Set("Content-Type", "application/nostr+json")
					_, _ = w.Write([]byte(`{"name":"by its path"}`))
					close(named)
				}
			}))
			t.Cleanup(server.Close)
			base := strings.Replace(server.URL, "http://", "ws://", 1)
			u, err := graspsync.ParseRelayURL(base + c.written)
			require.NoError(t, err)
			conn := dial(t, newTransport(t), u)
			mu.Lock()
			assert.Equal(t, c.asked, asked)
			mu.Unlock()
			select {
			case <-named:
			case <-time.After(patience):
				t.Fatal("NIP-11 is asked for over the same URL")
			}
			require.Eventually(t, func() bool { return conn.Info().Name == "by its path" }, patience, time.Millisecond)

			one, err := graspsync.ParseRelayURL(base + strings.TrimSuffix(c.serves, "/"))
			require.NoError(t, err)
			require.True(t, one == u)
			require.Len(t, map[graspsync.RelayURL]int{one: 1, u: 2}, 1)
			require.Equal(t, one.String(), u.String(), "metrics and records have one name")
		})
	}
}
