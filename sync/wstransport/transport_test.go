package wstransport_test

import (
	"context"
	"crypto/x509"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/egress"
	"github.com/graspsync/graspsync/internal/porttest"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/relaytest"
	"github.com/graspsync/graspsync/sync/relaytest/relayserver"
	"github.com/graspsync/graspsync/sync/wstransport"
)

// The suite that every Transport must pass.
func TestTransport(t *testing.T) {
	relaytest.RunTransport(t, func(t *testing.T) (relaysync.Transport, graspsync.RelayURL, *relaytest.Relay) {
		relay := relaytest.New("wss://relay.example", relaytest.Behavior{})
		server, err := relayserver.Start(relay)
		require.NoError(t, err)
		t.Cleanup(server.Close)
		return newTransport(t), server.URL(), relay
	})
}

func TestNewNamesEveryBadField(t *testing.T) {
	_, err := wstransport.New(wstransport.Config{ReadBudget: -1})
	assert.ErrorContains(t, err, "Dialer: required")
	assert.ErrorContains(t, err, "ReadBudget: ")
	_, err = wstransport.New(wstransport.Config{Dialer: newDialer(t, egress.Config{})})
	assert.NoError(t, err)
}

// Dial refuses forbidden addresses in URLs of strangers.
func TestDialForbidden(t *testing.T) {
	var mu sync.Mutex
	requests := 0
	u := httpServer(t, func(http.ResponseWriter, *http.Request) {
		mu.Lock()
		requests++
		mu.Unlock()
	})
	plaintext := loopback()
	plaintext.AllowPlaintext = false
	own := loopback()
	own.Own = []netip.AddrPort{netip.MustParseAddrPort(strings.TrimPrefix(u.String(), "ws://"))}
	byName := egress.Config{AllowPlaintext: true, Resolver: resolver{netip.MustParseAddr("127.0.0.1")}}
	tests := []struct {
		name   string
		config egress.Config
		url    graspsync.RelayURL
		want   error
	}{
		{"loopback", egress.Config{AllowPlaintext: true}, u, egress.ErrAddress},
		{"plaintext", plaintext, u, egress.ErrPlaintext},
		{"ourselves", own, u, egress.ErrOwn},
		{"name of a private address", byName, relayURL(t, strings.Replace(u.String(), "127.0.0.1", "relay.example.com", 1)), egress.ErrAddress},
	}
	for _, tt := range tests {
		transport := newTransport(t, func(c *wstransport.Config) { c.Dialer = newDialer(t, tt.config) })
		c, err := transport.Dial(testContext(t), tt.url)
		assert.Nil(t, c, tt.name)
		assert.ErrorIs(t, err, relaysync.ErrForbidden, tt.name)
		assert.ErrorIs(t, err, tt.want, tt.name)
	}
	mu.Lock()
	defer mu.Unlock()
	assert.Zero(t, requests, "the relay was reached")

	_, err := newTransport(t).Dial(testContext(t), graspsync.RelayURL{})
	assert.ErrorIs(t, err, graspsync.ErrURL)
	assert.NotErrorIs(t, err, relaysync.ErrForbidden)
}

type resolver struct{ addr netip.Addr }

func (r resolver) LookupNetIP(context.Context, string, string) ([]netip.Addr, error) {
	return []netip.Addr{r.addr}, nil
}

// A redirect of the upgrade is not followed, because it would bypass the checks of the URL.
func TestDialFollowsNoRedirect(t *testing.T) {
	reached := make(chan struct{}, 10)
	target := httpServer(t, func(http.ResponseWriter, *http.Request) { reached <- struct{}{} })
	for _, status := range []int{301, 302, 303, 307, 308} {
		u := httpServer(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Location", strings.Replace(target.String(), "ws:", "http:", 1))
			w.WriteHeader(status)
		})
		_, err := newTransport(t).Dial(testContext(t), u)
		assert.ErrorIs(t, err, egress.ErrRedirect)
		assert.NotErrorIs(t, err, relaysync.ErrForbidden)
	}
	assert.Empty(t, reached)
}

// The relay accepts the connection and never answers.
func TestDialNeverAnswered(t *testing.T) {
	release := make(chan struct{})
	u := httpServer(t, func(http.ResponseWriter, *http.Request) { <-release })
	defer close(release)
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	_, err := newTransport(t).Dial(ctx, u)
	assert.ErrorIs(t, err, context.DeadlineExceeded)
}

func TestTLS(t *testing.T) {
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") == "" {
			_, _ = io.WriteString(w, `{"name":"over TLS"}`)
			return
		}
		ws, err := websocket.Accept(w, r, nil)
		if err != nil {
			return
		}
		defer ws.CloseNow()
		_ = ws.Write(r.Context(), websocket.MessageText, []byte(`["NOTICE","over TLS"]`))
		_, _, _ = ws.Read(r.Context())
	}))
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // of the refused certificate
	s.StartTLS()
	defer s.Close()
	u := relayURL(t, strings.Replace(s.URL, "https", "wss", 1))

	_, err := newTransport(t).Dial(testContext(t), u)
	var unknown x509.UnknownAuthorityError
	require.ErrorAs(t, err, &unknown, "a certificate nobody signed")

	trusting := loopback()
	trusting.AllowPlaintext = false
	trusting.RootCAs = x509.NewCertPool()
	trusting.RootCAs.AddCert(s.Certificate())
	c := dial(t, newTransport(t, func(c *wstransport.Config) {
		c.Dialer = newDialer(t, trusting)
		c.Fixed().PingInterval = 5 * time.Millisecond // beneath TLS is where pings are written
	}), u)
	assert.Equal(t, "over TLS", receive(t, c).Text)
	require.Eventually(t, func() bool { return c.Info().Name == "over TLS" }, patience, time.Millisecond)
}

// The error of a busy relay had a field and no method with the time to wait, so the header was ignored.
func TestRetryAfterIsReported(t *testing.T) {
	u := httpServer(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "120")
		w.WriteHeader(http.StatusServiceUnavailable)
	})
	_, err := newTransport(t).Dial(testContext(t), u)
	var asks interface{ RetryAfter() time.Duration }
	require.ErrorAs(t, err, &asks)
	assert.Equal(t, 2*time.Minute, asks.RetryAfter())
}

// The error of a mistyped name had six layers: "failed to WebSocket dial: failed to send handshake
// request: ...".
func TestDialErrorIsShort(t *testing.T) {
	for url, want := range map[string]string{
		"ws://" + porttest.Address(t): "connect: connection refused",
		"wss://mistyped.invalid":      "lookup mistyped.invalid: ",
	} {
		u, err := graspsync.ParseRelayURL(url)
		require.NoError(t, err)
		_, err = newTransport(t).Dial(testContext(t), u)
		require.Error(t, err)
		require.True(t, strings.HasPrefix(err.Error(), want), err.Error())
	}
}
