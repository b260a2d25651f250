package relayserver_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/graspsync/graspsync/sync/relaytest"
	"github.com/graspsync/graspsync/sync/relaytest/relayserver"
	"github.com/graspsync/graspsync/sync/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func start(t *testing.T, b relaytest.Behavior) (*relaytest.Relay, *relayserver.Server) {
	t.Helper()
	r := relaytest.New("wss://a.example", b)
	s, err := relayserver.Start(r)
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return r, s
}

func dial(t *testing.T, s *relayserver.Server) *websocket.Conn {
	t.Helper()
	ws, _, err := websocket.Dial(t.Context(), s.URL().String(), nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = ws.CloseNow() })
	return ws
}

func exchange(t *testing.T, ws *websocket.Conn, in string) string {
	t.Helper()
	require.NoError(t, ws.Write(t.Context(), websocket.MessageText, []byte(in)))
	return read(t, ws)
}

func read(t *testing.T, ws *websocket.Conn) string {
	t.Helper()
	_, text, err := ws.Read(t.Context())
	require.NoError(t, err)
	return string(text)
}

func TestConversation(t *testing.T) {
	r, s := start(t, relaytest.Behavior{Negentropy: relaytest.NegError})
	ev := relaytest.NewKey("alice").Event(5, 1, "hello")
	r.Publish(ev)
	ws := dial(t, s)
	assert.Equal(t, `["EVENT","x",`+ev.String()+`]`, exchange(t, ws, `["REQ","x",{"kinds":[1]}]`))
	assert.Equal(t, `["EOSE","x"]`, read(t, ws))
	live := relaytest.NewKey("alice").Event(6, 1, "live")
	r.Publish(live)
	assert.Equal(t, `["EVENT","x",`+live.String()+`]`, read(t, ws))
	assert.Contains(t, exchange(t, ws, `["NEG-OPEN","n",{},"61"]`), `["NEG-ERROR","n",`)
	assert.Contains(t, exchange(t, ws, `{}`), `["NOTICE",`)
	require.Len(t, r.Violations(), 1)
}

func TestEnds(t *testing.T) {
	open := func(r *relaytest.Relay) func() bool {
		return func() bool { return r.Open() == 0 }
	}
	for name, end := range map[string]func(*relaytest.Relay, *relayserver.Server, *websocket.Conn){
		"client":  func(_ *relaytest.Relay, _ *relayserver.Server, ws *websocket.Conn) { _ = ws.CloseNow() },
		"relay":   func(r *relaytest.Relay, _ *relayserver.Server, _ *websocket.Conn) { r.Cut() },
		"down":    func(r *relaytest.Relay, _ *relayserver.Server, _ *websocket.Conn) { r.SetDown(true) },
		"server":  func(_ *relaytest.Relay, s *relayserver.Server, _ *websocket.Conn) { s.Close() },
		"stalled": func(r *relaytest.Relay, s *relayserver.Server, _ *websocket.Conn) { s.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			r, s := start(t, relaytest.Behavior{})
			ws := dial(t, s)
			exchange(t, ws, `["REQ","x",{}]`)
			if name == "stalled" {
				// If neither side reads, the server is blocked in both directions.
				r.Update(func(b *relaytest.Behavior) { b.StopReading = true })
				require.NoError(t, ws.Write(t.Context(), websocket.MessageText, []byte(`["CLOSE","y"]`)))
				big := wire.Message{Type: wire.TypeNotice, Text: strings.Repeat("x", 20<<20)}
				r.Broadcast(big)
				require.Eventually(t, func() bool { return r.Traffic().MessagesSent == 2 }, time.Minute, time.Millisecond)
			}
			end(r, s, ws)
			require.Eventually(t, open(r), time.Minute, time.Millisecond)
			if name == "relay" || name == "down" || name == "server" {
				_, _, err := ws.Read(t.Context())
				require.Error(t, err)
			}
		})
	}
}

func TestCloseEndsADialWithoutAnswer(t *testing.T) {
	r, s := start(t, relaytest.Behavior{NoAnswer: true})
	done := make(chan error)
	go func() {
		_, _, err := websocket.Dial(t.Context(), s.URL().String(), nil)
		done <- err
	}()
	require.Eventually(t, func() bool { s.Close(); return true }, time.Minute, time.Millisecond)
	require.Error(t, <-done)
	assert.Zero(t, r.Open())
}

func get(t *testing.T, url string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	req.Header.Set("Accept", "application/nostr+json")
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return string(body)
}

func TestInfo(t *testing.T) {
	info := wire.Info{
		Name: "a", Software: "b", NIPs: []int{1, 77}, MaxMessageLength: 65536, MaxSubscriptions: 2,
		MaxFilters: 3, MaxLimit: 4, MaxSubIDLength: 5, AuthRequired: true,
	}
	r, s := start(t, relaytest.Behavior{Info: info})
	url := strings.Replace(s.URL().String(), "ws", "http", 1)
	body := get(t, url)
	assert.Equal(t, info, wire.ParseInfo([]byte(body)), "%s", body)
	assert.Zero(t, r.Dials())
}

func TestOwnListener(t *testing.T) {
	r := relaytest.New("wss://a.example", relaytest.Behavior{})
	s := relayserver.New(r)
	assert.True(t, s.URL().IsZero())
	s.Close()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
	require.NoError(t, err)
	w := recorder{header: http.Header{}}
	s.ServeHTTP(&w, req)
	assert.Equal(t, http.StatusServiceUnavailable, w.code)
}

type recorder struct {
	header http.Header
	code   int
}

func (r *recorder) Header() http.Header         { return r.header }
func (r *recorder) Write(b []byte) (int, error) { return len(b), nil }
func (r *recorder) WriteHeader(code int)        { r.code = code }
