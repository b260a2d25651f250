package wstransport

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/egress"
	relaysync "github.com/graspsync/graspsync/sync"
)

// Fails for a field of Config that has no default and no reason for it.
func TestConfigDefaults(t *testing.T) {
	c := reflect.ValueOf(Config{}.withDefaults())
	for f := range c.Type().Fields() {
		switch f.Name {
		case "Dialer", "NoCompression": // required; false
		default:
			assert.False(t, c.FieldByIndex(f.Index).IsZero(), f.Name)
		}
	}
	assert.Equal(t, int64(2<<20+4<<10), Config{}.withDefaults().fixed.ReadLimit)
	assert.Equal(t, 7, Config{fixed: constants{MaxMalformed: 7}}.withDefaults().fixed.MaxMalformed)
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 9, 1, 12, 0, 0, 0, time.UTC)
	for value, want := range map[string]time.Duration{
		"":                              0,
		"0":                             0,
		"120":                           2 * time.Minute,
		" 120 ":                         2 * time.Minute,
		"86400":                         24 * time.Hour,
		"86401":                         24 * time.Hour,
		"18446744073709551615":          24 * time.Hour,
		"99999999999999999999":          0,
		"-5":                            0,
		"1.5":                           0,
		"soon":                          0,
		"Tue, 01 Sep 2026 12:01:00 GMT": time.Minute,
		"Tue, 01 Sep 2026 11:00:00 GMT": 0,
		"Fri, 01 Jan 2100 00:00:00 GMT": 24 * time.Hour,
	} {
		assert.Equal(t, want, retryAfter(value, now), value)
	}
}

func TestInBounds(t *testing.T) {
	inner := io.ErrUnexpectedEOF
	err := inBounds(inner)
	assert.ErrorIs(t, err, inner)
	assert.Equal(t, inner.Error(), err.Error())
	long := inBounds(&boundedError{text: strings.Repeat("é\x1b", 1000)})
	assert.LessOrEqual(t, len(long.Error()), 3*300)
	assert.NotContains(t, long.Error(), "\x1b")
	assert.Len(t, inBounds(&boundedError{text: strings.Repeat("x", 301)}).Error(), 300)
}

// pair dials a server whose end is returned as well.
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
	assert.Equal(t, uint64(1), c.Stats().Panics)
	assert.Equal(t, uint64(1), c.t.Stats().Panics)
}

// One message of 2 MiB must not make every connection keep 2 MiB.
func TestBuffersAreGivenBack(t *testing.T) {
	c, server := pair(t, Config{})
	for _, size := range []int{100, 10_000, 1 << 20, 50, 70_000, 3} {
		text := `["NOTICE","` + strings.Repeat("x", size) + `"]`
		require.NoError(t, server.Write(t.Context(), websocket.MessageText, []byte(text)))
		m, err := c.Receive(t.Context())
		require.NoError(t, err)
		assert.Equal(t, len(text), m.Size)
	}
	require.NoError(t, c.Close()) // so that in is ours
	assert.LessOrEqual(t, cap(c.in), keptBuffer)
	assert.Nil(t, c.in, "who reads nothing has no buffer")
	require.NotEmpty(t, c.t.buffers)
	for len(c.t.buffers) > 0 {
		assert.LessOrEqual(t, cap(<-c.t.buffers), keptBuffer)
	}
}

// Each connection kept the buffers that it had once needed, up to 128 KiB, for as long as it
// stood: of hundreds nearly all are idle at any time.
func TestBuffersAreOfAll(t *testing.T) {
	b := make(buffers, 2)
	require.Nil(t, b.take())
	for _, size := range []int{0, 10, 20, 30, keptBuffer + 1} {
		b.give(make([]byte, size/2, size))
	}
	require.Len(t, b, 2, "no more are kept than are of use")
	require.Equal(t, 10, cap(b.take()))
	next := b.take()
	require.Empty(t, next)
	require.Equal(t, 20, cap(next))
	b.give(make([]byte, 0, keptBuffer+1))
	require.Nil(t, b.take(), "and none that came out of the read budget")
}
