package wstransport

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/egress"
	relaysync "github.com/graspsync/graspsync/sync"
)

// pair returns both ends of a connection to a server.
func pair(t *testing.T, config Config) (*conn, *websocket.Conn) {
	t.Helper()
	servers := make(chan *websocket.Conn, 1)
	done := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if ws, err := websocket.Accept(w, r, nil); err == nil {
			servers <- ws
			<-done
		}
	}))
	d, err := egress.NewDialer(egress.Config{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, AllowPlaintext: true})
	require.NoError(t, err)
	config.Dialer = d
	transport, err := New(config)
	require.NoError(t, err)
	u, err := graspsync.ParseRelayURL(strings.Replace(s.URL, "http", "ws", 1))
	require.NoError(t, err)
	c, err := transport.Dial(t.Context(), u)
	require.NoError(t, err)
	server := <-servers
	t.Cleanup(func() {
		assert.NoError(t, c.Close())
		close(done)
		_ = server.CloseNow()
		s.Close()
	})
	return c.(*conn), server
}

// panics is a logger that panics when a message is dropped.
type panics struct{ slog.Handler }

func (panics) Handle(_ context.Context, r slog.Record) error {
	if r.Level == slog.LevelDebug && strings.Contains(r.Message, "dropped") {
		panic("a bug")
	}
	return nil
}

func (panics) Enabled(context.Context, slog.Level) bool { return true }

// A panic in the goroutine that handles a relay's bytes would end the process.
func TestPanicCostsOneConnection(t *testing.T) {
	c, server := pair(t, Config{Logger: slog.New(panics{slog.DiscardHandler})})
	require.NoError(t, server.Write(t.Context(), websocket.MessageText, []byte("{}")))
	_, err := c.Receive(t.Context())
	assert.ErrorIs(t, err, relaysync.ErrClosed)
	assert.ErrorContains(t, err, "a bug")
	assert.Equal(t, uint64(1), c.t.Panics())
}
