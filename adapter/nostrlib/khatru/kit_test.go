package khatruadapter

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"fiatjaf.com/nostr"
	"fiatjaf.com/nostr/eventstore"
	"fiatjaf.com/nostr/eventstore/boltdb"
	"fiatjaf.com/nostr/eventstore/slicestore"
	"fiatjaf.com/nostr/khatru"
	"github.com/coder/websocket"
	gonostr "github.com/nbd-wtf/go-nostr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/adapter/internal/embedding"
	"github.com/graspsync/graspsync/adapter/nostrlib"
	relaysync "github.com/graspsync/graspsync/sync"
)

func TestMain(m *testing.M) {
	// khatru's goroutines of connections end only when their peers disconnect.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("fiatjaf.com/nostr/khatru.(*Relay).HandleWebsocket.func3"),
		goleak.IgnoreAnyFunction("fiatjaf.com/nostr/khatru.(*expirationManager).start"))
}

const start nostr.Timestamp = 1_700_000_000

var alice, bob = nostr.PubKey{0xa1}, nostr.PubKey{0xb0}

var serial int

// event returns a unique unsigned event.
func event(author nostr.PubKey, kind nostr.Kind, at nostr.Timestamp, tags ...nostr.Tag) nostr.Event {
	serial++
	e := nostr.Event{
		PubKey: author, Kind: kind, CreatedAt: at, Tags: append(nostr.Tags{}, tags...), Content: fmt.Sprint("event ", serial),
	}
	e.SetID()
	return e
}

func signed(t testing.TB, key nostr.SecretKey, kind nostr.Kind, tags ...nostr.Tag) nostr.Event {
	t.Helper()
	e := event(nostr.PubKey{}, kind, start, tags...)
	require.NoError(t, e.Sign(key))
	return e
}

func ours(t testing.TB, e nostr.Event) graspsync.Event {
	t.Helper()
	out, err := nostrlib.FromEvent(e)
	require.NoError(t, err)
	return out
}

func newSlice(t testing.TB) *slicestore.SliceStore {
	t.Helper()
	db := &slicestore.SliceStore{}
	require.NoError(t, db.Init())
	return db
}

func newBolt(t testing.TB) *boltdb.BoltBackend {
	t.Helper()
	db := &boltdb.BoltBackend{Path: filepath.Join(t.TempDir(), "events")}
	require.NoError(t, db.Init())
	db.DB.NoSync = true
	t.Cleanup(db.Close)
	return db
}

// fakeManager records calls of the hooks.
type fakeManager struct {
	mu      sync.Mutex
	stored  []graspsync.EventID
	removed []graspsync.EventID
	judged  int
	refused []string
	verdict graspsync.Verdict
	err     error
	source  graspsync.Source
}

func (m *fakeManager) Ready() <-chan struct{} { return nil }

func (m *fakeManager) Run(ctx context.Context) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

func (m *fakeManager) NotifyStored(e graspsync.Event) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stored = append(m.stored, e.ID)
}

func (m *fakeManager) NotifyRemoved(e graspsync.Event) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.removed = append(m.removed, e.ID)
}

func (m *fakeManager) NotifyRefused(e graspsync.Event, reason string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.refused = append(m.refused, reason+" "+e.ID.String())
}

func (m *fakeManager) gone() []graspsync.EventID {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]graspsync.EventID{}, m.removed...)
}

func (m *fakeManager) NotifySuperseded(graspsync.Event) {}

func (m *fakeManager) HeldFrom(graspsync.EventID) graspsync.Source { return m.source }

func (m *fakeManager) Judge(context.Context, graspsync.Event) (graspsync.Verdict, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.judged++
	return m.verdict, m.err
}

func (m *fakeManager) Collector(string) prometheus.Collector { return gauge }

var gauge = prometheus.NewGauge(prometheus.GaugeOpts{Name: "of_the_manager"})

// logbook records log lines of level Warn and above.
type logbook struct {
	mu    sync.Mutex
	lines strings.Builder
}

func (b *logbook) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.lines.Write(p)
}

func (b *logbook) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.lines.String()
}

// embed is New with a fake manager.
func embed(t testing.TB, relay *khatru.Relay, db eventstore.Store, cfg Config) (*Sync, *embedding.Imports, *fakeManager) {
	t.Helper()
	s, err := build(relay, db, cfg)
	require.NoError(t, err)
	m := &fakeManager{}
	s.core.Manager = m
	s.Embed()
	return s, s.core.Imports, m
}

// logging returns a configuration and its log.
func logging(cfg Config) (Config, *logbook) {
	b := &logbook{}
	cfg.Sync.Logger = slog.New(slog.NewTextHandler(b, &slog.HandlerOptions{Level: slog.LevelWarn}))
	return cfg, b
}

func importEvents(t testing.TB, store relaysync.Store, events ...nostr.Event) (results []graspsync.Result, outcomes []graspsync.Outcome) {
	t.Helper()
	in := make([]graspsync.Incoming, len(events))
	for i, e := range events {
		in[i] = graspsync.Incoming{Event: ours(t, e), Source: graspsync.Source{Kind: graspsync.Live}}
	}
	outcomes, err := store.Save(t.Context(), in)
	require.NoError(t, err)
	require.Len(t, outcomes, len(events))
	for _, o := range outcomes {
		results = append(results, o.Result)
	}
	return results, outcomes
}

func content(t testing.TB, s relaysync.Store) (ids []nostr.ID) {
	t.Helper()
	for e, err := range s.Events(context.Background(), gonostr.Filter{}) {
		require.NoError(t, err)
		ids = append(ids, nostr.ID(e.ID))
	}
	return ids
}

func in(t testing.TB, db eventstore.Store) (ids []nostr.ID) {
	t.Helper()
	for e := range db.QueryEvents(nostr.Filter{}, 1000) {
		ids = append(ids, e.ID)
	}
	return ids
}

// publish does the same as khatru after it has read an event of a client.
func publish(t testing.TB, relay *khatru.Relay, e nostr.Event) error {
	t.Helper()
	_, err := relay.AddEvent(t.Context(), e)
	return err
}

// client is a simple websocket client.
type client struct {
	t    testing.TB
	conn *websocket.Conn
}

func serve(t testing.TB, h http.Handler) string {
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return "ws" + strings.TrimPrefix(server.URL, "http")
}

func dial(t testing.TB, url string) *client {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	conn, _, err := websocket.Dial(ctx, url, nil)
	require.NoError(t, err)
	conn.SetReadLimit(1 << 20)
	t.Cleanup(func() { _ = conn.CloseNow() })
	return &client{t, conn}
}

// say sends a message and returns the next one received.
func (c *client) say(format string, args ...any) string {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), time.Minute)
	defer cancel()
	require.NoError(c.t, c.conn.Write(ctx, websocket.MessageText, fmt.Appendf(nil, format, args...)))
	return c.read()
}

func (c *client) read() string {
	c.t.Helper()
	data, err := c.next()
	require.NoError(c.t, err)
	return data
}

func (c *client) next() (string, error) {
	ctx, cancel := context.WithTimeout(c.t.Context(), time.Minute)
	defer cancel()
	_, data, err := c.conn.Read(ctx)
	return strings.TrimSpace(string(data)), err
}

func (c *client) publish(e nostr.Event) string {
	c.t.Helper()
	data, err := json.Marshal(e)
	require.NoError(c.t, err)
	return c.say(`["EVENT",%s]`, data)
}
