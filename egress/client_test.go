package egress_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/egress"
)

func get(ctx context.Context, client *http.Client, u string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u, nil)
	if err != nil {
		return "", fmt.Errorf("%w: %w", graspsync.ErrURL, err)
	}
	resp, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	return string(body), err
}

// chain redirects /n to /n-1, and answers /0.
func chain(w http.ResponseWriter, r *http.Request) {
	var n int
	if _, err := fmt.Sscanf(r.URL.Path, "/%d", &n); err == nil && n > 0 {
		http.Redirect(w, r, fmt.Sprintf("/%d", n-1), http.StatusMovedPermanently)
		return
	}
	_, _ = io.WriteString(w, "end "+r.Header.Get("Referer")+r.Header.Get("Cookie"))
}

func TestRedirectChain(t *testing.T) {
	var requests atomic.Int64
	s, _ := serve(t, "127.0.0.1:0", func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		http.SetCookie(w, &http.Cookie{Name: "a", Value: "b", Path: "/"})
		chain(w, r)
	})
	d := newDialer(t, egress.Config{Allow: prefixes("127.0.0.0/8"), AllowPlaintext: true})
	client := newClient(t, d)

	body, err := get(t.Context(), client, fmt.Sprintf("%s/%d", s.URL, 3))
	require.NoError(t, err)
	assert.Equal(t, "end ", body, "no referer and no cookie")
	assert.EqualValues(t, 4, requests.Swap(0))

	_, err = get(t.Context(), client, fmt.Sprintf("%s/%d", s.URL, 4))
	require.ErrorIs(t, err, egress.ErrRedirect)
	assert.EqualValues(t, 4, requests.Swap(0), "requests of a chain that is too long")

	_, err = get(t.Context(), client, s.URL+"/100000000")
	require.ErrorIs(t, err, egress.ErrRedirect)
	assert.EqualValues(t, 4, requests.Load(), "requests of an endless chain")
}

func TestRedirectOnlyForPlainGet(t *testing.T) {
	var requests atomic.Int64
	s, _ := serve(t, "127.0.0.1:0", func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		w.Header().Set("Location", "/other")
		status := http.StatusFound
		_, _ = fmt.Sscanf(r.URL.Path, "/%d", &status)
		w.WriteHeader(status)
	})
	client := newClient(t, newDialer(t, egress.Config{Allow: prefixes("127.0.0.0/8"), AllowPlaintext: true}))
	for _, status := range []int{301, 302, 303, 307, 308} {
		for _, method := range []string{http.MethodPost, http.MethodHead, http.MethodPut, http.MethodOptions} {
			req, err := http.NewRequestWithContext(t.Context(), method, fmt.Sprintf("%s/%d", s.URL, status), strings.NewReader("body"))
			require.NoError(t, err)
			_, err = client.Do(req)
			assert.ErrorIs(t, err, egress.ErrRedirect, "%s %d", method, status)
			assert.EqualValues(t, 1, requests.Swap(0))
		}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, fmt.Sprintf("%s/%d", s.URL, status), nil)
		require.NoError(t, err)
		req.Header.Set("Connection", "Upgrade")
		req.Header.Set("Upgrade", "websocket")
		_, err = client.Do(req)
		assert.ErrorIs(t, err, egress.ErrRedirect, "websocket upgrade, %d", status)
		assert.EqualValues(t, 1, requests.Swap(0))
	}
	for _, status := range []int{200, 300, 304, 305, 404} {
		resp, err := client.Post(fmt.Sprintf("%s/%d", s.URL, status), "text/plain", strings.NewReader("body"))
		require.NoError(t, err, "a Location that is no redirect, %d", status)
		assert.Equal(t, status, resp.StatusCode)
		require.NoError(t, resp.Body.Close())
		assert.EqualValues(t, 1, requests.Swap(0))
	}
}

// Another server logged user names and passwords of URLs, and took the wrong host from
// `https://real/x@other`.
func TestTrapG9_CredentialsStayOut(t *testing.T) {
	for _, s := range []string{
		"https://user:secret@host/x", "user:secret@host", "https://user:secret@host:99999/", "https://user:sec\x00ret@host", "https://secret@[::1",
		"https://user:secret\\@host", "https://:secret@host", "https://user:secret", "https://user:secret/@host", "https://user:secret#@host",
		"https://user:secret?@host/x", "https://user:secret%zz@host", "ssh://user:secret@host/x", "user:secret@host://x",
	} {
		_, err := graspsync.ParseURL(s, graspsync.HTTPSchemes)
		if assert.ErrorIs(t, err, graspsync.ErrURL, "%q", s) {
			assert.NotContains(t, err.Error(), "secret", "%q", s)
		}
	}
	for in, host := range map[string]string{
		"https://real.test/x@other.test": "real.test", "https://real.test?@other.test": "real.test", "https://real.test#@other.test": "real.test",
		"https://real.test/:80@other.test/": "real.test", "https://real.test/%40other.test": "real.test",
	} {
		u, err := graspsync.ParseURL(in, graspsync.HTTPSchemes)
		require.NoError(t, err, in)
		assert.Equal(t, host, u.HostPort.Host, in)
	}

	ctx, begun := attempted(t)
	client := newClient(t, newDialer(t, egress.Config{Allow: prefixes("127.0.0.0/8"), AllowPlaintext: true}))
	_, err := get(ctx, client, "http://user:secret@127.0.0.1:8080/")
	require.ErrorIs(t, err, graspsync.ErrURL)
	assert.NotContains(t, err.Error(), "secret")
	assert.Zero(t, begun.Load())
}

// With a proxy, the dialer would check the address of the proxy instead of the destination.
func TestProxiesOfTheEnvironmentAreIgnored(t *testing.T) {
	t.Setenv("NO_PROXY", "")
	require.NotEmpty(t, os.Getenv("HTTPS_PROXY"))
	_, port := serve(t, "127.0.0.2:0", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "direct") })
	resolver := &answers{names: map[string][]string{"relay.test": {"127.0.0.2"}, "private.test": {"10.0.0.1"}}}
	client := newClient(t, newDialer(t, egress.Config{
		// The proxy may be dialed, so that only its absence can stop a request.
		Allow: prefixes("127.0.0.2/31"), AllowPlaintext: true, Resolver: resolver,
	}))
	body, err := get(t.Context(), client, "http://relay.test:"+port)
	require.NoError(t, err)
	assert.Equal(t, "direct", body)
	_, err = get(t.Context(), client, "https://private.test/")
	assert.ErrorIs(t, err, egress.ErrAddress)
	assert.Zero(t, proxied.Load())
}

func TestClientBoundsHeadersAndTime(t *testing.T) {
	release := make(chan struct{})
	s, _ := serve(t, "127.0.0.1:0", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/big" {
			w.Header().Set("X-Big", strings.Repeat("a", 128<<10))
			return
		}
		<-release
	})
	defer close(release)
	d := newDialer(t, egress.Config{Allow: prefixes("127.0.0.0/8"), AllowPlaintext: true})
	_, err := get(t.Context(), newClient(t, d), s.URL+"/big")
	assert.ErrorContains(t, err, "exceeded")

	hasty := d.HTTPClient(20 * time.Millisecond)
	defer hasty.CloseIdleConnections()
	_, err = get(t.Context(), hasty, s.URL+"/slow")
	var timeout net.Error
	require.ErrorAs(t, err, &timeout)
	assert.True(t, timeout.Timeout())
}

func TestCertificatesAreChecked(t *testing.T) {
	s := httptest.NewUnstartedServer(http.NotFoundHandler())
	s.Config.ErrorLog = discard()
	s.StartTLS()
	defer s.Close()
	_, err := get(t.Context(), newClient(t, newDialer(t, egress.Config{Allow: prefixes("127.0.0.0/8")})), s.URL)
	assert.ErrorContains(t, err, "certificate")
}
