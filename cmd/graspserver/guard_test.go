package main

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Who asks on and on and reads nothing kept the connection for good.
func TestWhoReadsNothingIsCutOff(t *testing.T) {
	front := &http.Server{Handler: deadlined(http.HandlerFunc(healthy), 300*time.Millisecond), ReadHeaderTimeout: time.Minute}
	closed := make(chan struct{})
	front.ConnState = func(c net.Conn, s http.ConnState) {
		switch s {
		case http.StateNew: // else it is megabytes of answers that nobody has to wait for
			assert.NoError(t, c.(*net.TCPConn).SetWriteBuffer(4<<10))
		case http.StateClosed:
			close(closed)
		}
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	go func() { _ = front.Serve(listener) }()
	defer front.Close()
	conn, err := net.Dial("tcp", listener.Addr().String())
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, conn.(*net.TCPConn).SetReadBuffer(4<<10))
	require.NoError(t, conn.SetWriteDeadline(time.Now().Add(20*time.Second)))
	many := bytes.Repeat([]byte("GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"), 1000)
	for err == nil {
		_, err = conn.Write(many)
	}
	select {
	case <-closed:
	case <-time.After(20 * time.Second):
		require.Fail(t, "it is kept")
	}
}

// A page of another site, in a browser on this machine, could read the status: by a name of its own that
// points here, or straight away.
func TestAdminSiteIsNotForOtherSites(t *testing.T) {
	inner := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "secret") })
	for _, c := range []struct {
		host, site, mode string
		loopback         bool
		want             int
	}{
		{"127.0.0.1:7335", "", "", true, 200},
		{"[::1]:7335", "none", "navigate", true, 200},
		{"[::1]", "", "", true, 200},
		{"LOCALHOST:7335", "same-origin", "cors", true, 200},
		{"localhost", "", "", true, 200},
		{"evil.example:7335", "same-origin", "cors", true, 421},
		{"127.0.0.1.evil.example", "", "", true, 421},
		{"localhost.evil.example", "", "", true, 421},
		{"", "", "", true, 421},
		{"Grasp.example:7335", "", "", true, 200},
		{"grasp.example:7335", "", "", false, 200},
		{"127.0.0.1:7335", "cross-site", "no-cors", true, 403},
		{"grasp.example", "cross-site", "cors", false, 403},
		{"127.0.0.1:7335", "cross-site", "navigate", true, 200},
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil)
		r.Host = c.host
		r.Header.Set("Sec-Fetch-Site", c.site)
		r.Header.Set("Sec-Fetch-Mode", c.mode)
		w, at := httptest.NewRecorder(), "192.0.2.1"
		if c.loopback {
			at = "127.0.0.1"
		}
		r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, net.Addr(&net.TCPAddr{IP: net.ParseIP(at)})))
		guarded(inner, []string{"grasp.example"}).ServeHTTP(w, r)
		require.Equal(t, c.want, w.Code, "%+v", c)
		require.Equal(t, c.want == 200, w.Body.String() == "secret", "%+v", c)
	}
}

// A secret key in place of an npub was in what the flag said about it.
func TestSecretKeyIsNotPrinted(t *testing.T) {
	const secret = "nsec1vl029mgpspedva04g90vltkh6fvh240zqtv9k0t9af8935ke9laqsnlfe5"
	for _, args := range [][]string{{"-admin", secret}, {"-admin=" + secret}, {"-pubkey", strings.ToUpper(secret)}, {"-grace", secret}, {secret}} {
		_, err := read(args)
		require.ErrorIs(t, err, errSecret)
		require.NotContains(t, strings.ToLower(err.Error()), secret)
	}
	_, err := read(nil, "GRASPSERVER_GRACE="+secret)
	require.ErrorIs(t, err, errSecret)
	require.NotContains(t, err.Error(), secret)
	err = command(t.Context(), []string{"retry", secret}, "", io.Discard)
	require.ErrorContains(t, err, errSecret.Error())
}
