package gate_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/fiatjaf/eventstore/slicestore"
	"github.com/fiatjaf/khatru"
	"github.com/nbd-wtf/go-nostr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/graspsync/graspsync"
	eventstoreadapter "github.com/graspsync/graspsync/adapter/eventstore"
	"github.com/graspsync/graspsync/adapter/gate"
	"github.com/graspsync/graspsync/internal/eventtest"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// khatru starts a goroutine for each relay that it never ends.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/fiatjaf/khatru.(*expirationManager).start"))
}

// server is a khatru relay behind a gate.
type server struct {
	t     *testing.T
	url   string
	relay *khatru.Relay
	gate  *gate.Gate
}

func serve(t *testing.T, cfg gate.Config) *server {
	t.Helper()
	relay := khatru.NewRelay()
	keep(t, newStore(t), relay)
	return front(t, relay, cfg)
}

// newStore is one that several may use at once.
func newStore(t *testing.T) backend {
	t.Helper()
	slice := &slicestore.SliceStore{MaxLimit: 5000}
	require.NoError(t, slice.Init())
	store, err := eventstoreadapter.New(slice, eventstoreadapter.Config{})
	require.NoError(t, err)
	return stored{store}
}

type stored struct{ *eventstoreadapter.Store }

func (s stored) SaveEvent(ctx context.Context, e *nostr.Event) error {
	_, err := s.Save(ctx, []graspsync.Incoming{{Event: eventtest.Of(e)}})
	return err
}

func (s stored) QueryEvents(ctx context.Context, f nostr.Filter) (chan *nostr.Event, error) {
	return s.Query(ctx, f)
}

type backend interface {
	SaveEvent(ctx context.Context, e *nostr.Event) error
	QueryEvents(ctx context.Context, f nostr.Filter) (chan *nostr.Event, error)
}

func keep(t *testing.T, store backend, relay *khatru.Relay) {
	t.Helper()
	relay.Negentropy = true
	relay.StoreEvent = append(relay.StoreEvent, store.SaveEvent)
	relay.QueryEvents = append(relay.QueryEvents, store.QueryEvents)
}

// front has a relay served behind a gate. What is written to clients soon has to wait for them.
func front(t *testing.T, relay *khatru.Relay, cfg gate.Config) *server {
	t.Helper()
	g := gate.New(relay, cfg)
	s := httptest.NewUnstartedServer(g)
	s.Listener = narrow{s.Listener}
	s.Start()
	t.Cleanup(func() {
		g.Close()
		s.Close()
	})
	return &server{t: t, url: "ws" + strings.TrimPrefix(s.URL, "http"), relay: relay, gate: g}
}

// narrow has connections with small buffers.
type narrow struct{ net.Listener }

func (n narrow) Accept() (net.Conn, error) {
	c, err := n.Listener.Accept()
	if err == nil {
		err = c.(*net.TCPConn).SetWriteBuffer(64 << 10)
	}
	return c, err
}

// metric is the value of one of the gate's.
func (s *server) metric(name string, label string) int {
	s.t.Helper()
	registry := prometheus.NewRegistry()
	require.NoError(s.t, registry.Register(s.gate.Collector("")))
	families, err := registry.Gather()
	require.NoError(s.t, err)
	for _, f := range families {
		for _, m := range f.Metric {
			if f.GetName() == name && (label == "" || m.Label[0].GetValue() == label) {
				return int(m.GetGauge().GetValue() + m.GetCounter().GetValue())
			}
		}
	}
	s.t.Fatal("no such metric", name, label)
	return 0
}

// patience is the limit of waits that end at once on any machine that has time. The gate gives up after a minute.
const patience = 40 * time.Second

type client struct {
	*websocket.Conn
	t *testing.T
}

func (s *server) dial() *client { return s.dialAs("") }

// dialAs is somebody in particular, whose connection holds little that they have not read.
func (s *server) dialAs(who string) *client {
	s.t.Helper()
	c, _, err := websocket.Dial(s.t.Context(), s.url, &websocket.DialOptions{
		HTTPHeader: http.Header{"Who": {who}},
		HTTPClient: &http.Client{Transport: &http.Transport{
			DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
				c, err := new(net.Dialer).DialContext(ctx, network, address)
				if err == nil && who != "" {
					err = c.(*net.TCPConn).SetReadBuffer(64 << 10)
				}
				return c, err
			},
		}},
	})
	require.NoError(s.t, err)
	c.SetReadLimit(-1)
	s.t.Cleanup(func() { _ = c.CloseNow() })
	return &client{c, s.t}
}

func who(r *http.Request) string { return r.Header.Get("Who") }

func (c *client) says(text string) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	require.NoError(c.t, c.Write(ctx, websocket.MessageText, []byte(text)))
}

// hears returns the next message that is none of those to leave out.
func (c *client) hears(but ...string) string {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
next:
	for {
		_, m, err := c.Read(ctx)
		require.NoError(c.t, err)
		for _, b := range append(but, `["AUTH"`) {
			if strings.HasPrefix(string(m), b) {
				continue next
			}
		}
		return strings.TrimSpace(string(m))
	}
}

func (c *client) publishes(ev *nostr.Event) {
	c.t.Helper()
	b, err := json.Marshal([]any{"EVENT", ev})
	require.NoError(c.t, err)
	c.says(string(b))
	require.Equal(c.t, fmt.Sprintf(`["OK",%q,true,""]`, ev.ID), c.hears(`["EVENT"`))
}

func note(n int) *nostr.Event {
	return relaytest.NewKey("somebody").Event(nostr.Now(), 1, fmt.Sprint("note ", n))
}

// The kinds of events that everybody follows, and that are asked for only.
const (
	liveKind   = 1
	storedKind = 2
)

// memory keeps events, and has several look at them at once.
type memory struct {
	mu     sync.RWMutex
	events []*nostr.Event
}

func (m *memory) SaveEvent(_ context.Context, e *nostr.Event) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.events = append(m.events, e)
	return nil
}

func (m *memory) QueryEvents(_ context.Context, f nostr.Filter) (chan *nostr.Event, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	found := make(chan *nostr.Event, len(m.events))
	for _, e := range m.events {
		if f.Matches(e) && (f.Limit == 0 || len(found) < f.Limit) {
			found <- e
		}
	}
	close(found)
	return found, nil
}

// serveApart serves a khatru relay that goes through no subscriptions while some are opened and closed,
// which would be a data race of its own: those of what is asked for are of a relay that nothing is
// published at.
func serveApart(t *testing.T, cfg gate.Config) *server {
	t.Helper()
	router, store := khatru.NewRouter(), &memory{}
	live, asked, published := khatru.NewRelay(), khatru.NewRelay(), khatru.NewRelay()
	of := func(kind int) func(nostr.Filter) bool {
		return func(f nostr.Filter) bool { return slices.Contains(f.Kinds, kind) }
	}
	router.Route().Req(of(liveKind)).Event(func(e *nostr.Event) bool { return e.Kind == liveKind }).Relay(live)
	router.Route().Req(of(storedKind)).Relay(asked)
	router.Route().Event(func(e *nostr.Event) bool { return e.Kind == storedKind }).Relay(published)
	s := front(t, router.Relay, cfg)
	for _, r := range []*khatru.Relay{live, asked, published, router.Relay} {
		keep(t, store, r)
		if r != router.Relay {
			s.gate.Pace(r)
		}
	}
	return s
}
