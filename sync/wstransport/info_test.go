package wstransport_test

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/wire"
)

// infoServer upgrades connections, and passes requests for NIP-11 to document.
func infoServer(t *testing.T, document http.HandlerFunc) (c relaysync.Conn, closed func() error) {
	t.Helper()
	u := httpServer(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") == "" {
			document(w, r)
			return
		}
		ws, err := websocket.Accept(w, r, nil)
		if err != nil {
			return
		}
		defer ws.CloseNow()
		ws.SetReadLimit(-1)
		for {
			if _, _, err := ws.Read(r.Context()); err != nil {
				return
			}
		}
	})
	c = dial(t, newTransport(t), u)
	return c, c.Close
}

func TestInfoIsBounded(t *testing.T) {
	written := make(chan int, 1)
	_, closed := infoServer(t, func(w http.ResponseWriter, _ *http.Request) {
		n, _ := io.WriteString(w, `{"name":"endless","x":"`)
		chunk := bytes.Repeat([]byte("x"), 64<<10)
		for {
			m, err := w.Write(chunk)
			if n += m; err != nil {
				written <- n
				return
			}
		}
	})
	assert.Less(t, <-written, 32<<20, "more than sockets hold was read")
	require.NoError(t, closed())
}

// A late, wrong or missing document of a relay does not affect the connection.
func TestInfoNeverFailsTheConnection(t *testing.T) {
	for name, document := range map[string]http.HandlerFunc{
		"never comes": func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		"breaks off": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, "{")
		},
		"missing":       http.NotFound,
		"is a web page": func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>") },
		"is empty":      func(http.ResponseWriter, *http.Request) {},
		"is an error": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(500)
			_, _ = io.WriteString(w, `{"name":"no"}`)
		},
		"is elsewhere": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://169.254.169.254/latest/meta-data", http.StatusFound)
		},
		"goes in a ring": func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, r.URL.Path, http.StatusFound) },
	} {
		t.Run(name, func(t *testing.T) {
			c, closed := infoServer(t, document)
			require.NoError(t, c.Send(testContext(t), closeRequest))
			assert.Zero(t, c.Info())
			start := time.Now()
			require.NoError(t, closed(), "Close ends the fetch")
			assert.Less(t, time.Since(start), 4*time.Second)
		})
	}
}

func TestSendRespectsTheRelaysLimit(t *testing.T) {
	request := func(size int) wire.Request { // of exactly so many bytes
		r := wire.Request{Type: wire.TypePublish, Event: &nostr.Event{}}
		empty, err := wire.Append(nil, r)
		require.NoError(t, err)
		r.Event.Content = strings.Repeat("x", size-len(empty))
		return r
	}
	limit := `{"limitation":{"max_message_length":"4096"}}`
	release := make(chan struct{})
	c, _ := infoServer(t, func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
		case <-r.Context().Done():
		}
		_, _ = io.WriteString(w, limit)
	})
	require.NoError(t, c.Send(testContext(t), request(512_000)), "as long as nothing is known")
	require.ErrorIs(t, c.Send(testContext(t), request(512_000+1)), relaysync.ErrMessageTooLarge)
	close(release)
	require.Eventually(t, func() bool { return c.Info().MaxMessageLength == 4096 }, patience, time.Millisecond)
	require.NoError(t, c.Send(testContext(t), request(4096)))
	err := c.Send(testContext(t), request(4097))
	require.ErrorIs(t, err, relaysync.ErrMessageTooLarge)
	assert.NotErrorIs(t, err, relaysync.ErrClosed)
	err = c.Send(testContext(t), wire.Request{Type: wire.TypeReq, Sub: "x"})
	require.ErrorIs(t, err, wire.ErrRequest)
	assert.NotErrorIs(t, err, relaysync.ErrClosed)
	require.NoError(t, c.Send(testContext(t), request(4096)), "neither harms the connection")
}
