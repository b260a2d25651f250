package khatruadapter

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/fiatjaf/eventstore"
	"github.com/fiatjaf/eventstore/slicestore"
	"github.com/fiatjaf/khatru"
	"github.com/nbd-wtf/go-nostr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/adapter/internal/embedding"
	"github.com/graspsync/graspsync/internal/eventtest"
	"github.com/graspsync/graspsync/nip34"
	relaysync "github.com/graspsync/graspsync/sync"
)

const start nostr.Timestamp = 1_700_000_000

var alice, bob = strings.Repeat("a1", 32), strings.Repeat("b0", 32)

// fakeManager records calls of the hooks.
type fakeManager struct {
	mu      sync.Mutex
	stored  []string
	removed []string
	judged  int

	refused []string
	from    map[graspsync.EventID]graspsync.Source
	verdict graspsync.Verdict
	err     error
	ready   chan struct{}
}

// Ready is closed by the test.
func (m *fakeManager) Ready() <-chan struct{} { return m.ready }

func (m *fakeManager) Run(ctx context.Context) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

func (m *fakeManager) NotifyStored(e graspsync.Event) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stored = append(m.stored, e.ID.String())
}

func (m *fakeManager) NotifyRemoved(e graspsync.Event) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.removed = append(m.removed, e.ID.String())
}

func (m *fakeManager) NotifySuperseded(graspsync.Event) {}

func (m *fakeManager) NotifyRefused(e graspsync.Event, reason string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.refused = append(m.refused, reason+" "+e.ID.String())
}

func (m *fakeManager) HeldFrom(id graspsync.EventID) graspsync.Source { return m.from[id] }

func (m *fakeManager) gone() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.removed)
}

func (m *fakeManager) Judge(context.Context, graspsync.Event) (graspsync.Verdict, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.judged++
	return m.verdict, m.err
}

func (m *fakeManager) Collector(string) prometheus.Collector { return gauge }

var gauge = prometheus.NewGauge(prometheus.GaugeOpts{Name: "of_the_manager"})

var serial int

func event(author string, kind int, at nostr.Timestamp, tags ...nostr.Tag) *nostr.Event {
	serial++
	e := &nostr.Event{
		PubKey: author, Kind: kind, CreatedAt: at, Tags: append(nostr.Tags{}, tags...),
		Content: fmt.Sprint("event ", serial), Sig: strings.Repeat("0", 128),
	}
	e.ID = e.GetID()
	return e
}

func newSlice(t testing.TB) *slicestore.SliceStore {
	t.Helper()
	db := &slicestore.SliceStore{}
	require.NoError(t, db.Init())
	return db
}

// embed is New with a fake manager.
func embed(t testing.TB, relay *khatru.Relay, db eventstore.Store, cfg Config) (*Sync, *embedding.Imports, *fakeManager) {
	t.Helper()
	if cfg.Sync.Logger == nil {
		cfg.Sync.Logger = logged(t)
	}
	s, err := build(relay, db, cfg)
	require.NoError(t, err)
	m := &fakeManager{}
	s.core.Manager = m
	s.Embed()
	return s, s.core.Imports, m
}

// broadcasts returns the number of queued broadcasts.
func broadcasts(s *Sync) int { return s.core.Waiting() }

func importEvents(t testing.TB, store relaysync.Store, events ...*nostr.Event) []graspsync.Outcome {
	t.Helper()
	in := make([]graspsync.Incoming, len(events))
	for i, e := range events {
		in[i] = graspsync.Incoming{Event: eventtest.Of(e), Source: graspsync.Source{Kind: graspsync.Live}}
	}
	outcomes, err := store.Save(t.Context(), in)
	require.NoError(t, err)
	require.Len(t, outcomes, len(events))
	return outcomes
}

func results(outcomes []graspsync.Outcome) []graspsync.Result {
	r := make([]graspsync.Result, len(outcomes))
	for i, o := range outcomes {
		r[i] = o.Result
	}
	return r
}

func content(t testing.TB, s relaysync.Store) (ids []string) {
	t.Helper()
	for e, err := range s.Events(context.Background(), nostr.Filter{}) {
		require.NoError(t, err)
		ids = append(ids, e.ID.String())
	}
	return ids
}

func TestDirect(t *testing.T) {
	relay := khatru.NewRelay()
	s, _, m := embed(t, relay, newSlice(t), Config{})
	one := event(alice, 1, start)
	_, err := relay.AddEvent(t.Context(), one)
	require.NoError(t, err)
	repo := event(alice, 30617, start, nostr.Tag{"d", "repo"})
	_, err = relay.AddEvent(t.Context(), repo)
	require.NoError(t, err)
	assert.Equal(t, []string{one.ID, repo.ID}, m.stored)
	assert.ElementsMatch(t, []string{one.ID, repo.ID}, content(t, s.Store()))
	assert.Zero(t, broadcasts(s), "khatru does that itself")
	assert.Zero(t, m.judged)
	for _, del := range relay.DeleteEvent {
		require.NoError(t, del(t.Context(), one))
	}
	assert.Equal(t, []string{one.ID}, m.gone())
}

func TestApplyPolicyToClients(t *testing.T) {
	relay := khatru.NewRelay()
	expectLog(t, "ERROR judging an event failed")
	s, store, m := embed(t, relay, newSlice(t), Config{ApplyPolicyToClients: true})
	for _, tt := range []struct {
		verdict graspsync.Verdict
		err     error
		want    string
	}{
		{verdict: graspsync.Verdict{Decision: graspsync.Accept}},
		{verdict: graspsync.Verdict{Decision: graspsync.Reject, Reason: "blocked: because"}, want: "blocked: because"},
		{verdict: graspsync.Verdict{Decision: graspsync.Reject}, want: embedding.MsgReject},
		{verdict: graspsync.Verdict{Decision: graspsync.Hold}, want: embedding.MsgHeld},
		{verdict: graspsync.Verdict{Decision: graspsync.Depend}, want: embedding.MsgDepends},
		{want: embedding.MsgReject}, // no verdict is no acceptance
		{verdict: graspsync.Verdict{Decision: graspsync.Accept}, err: errors.New("boom"), want: embedding.MsgJudge},
	} {
		m.verdict, m.err = tt.verdict, tt.err
		e := event(alice, 1, start)
		_, err := relay.AddEvent(t.Context(), e)
		if tt.want == "" {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, tt.want)
		}
	}
	_, err := relay.AddEvent(t.Context(), event(alice, 20001, start))
	require.ErrorContains(t, err, embedding.MsgJudge, "ephemeral events are judged too")
	judged := m.judged
	assert.Equal(t, 8, judged)
	m.verdict = graspsync.Verdict{}
	assert.Equal(t, []graspsync.Result{graspsync.Stored}, results(importEvents(t, store, event(alice, 1, start))))
	assert.Equal(t, judged, m.judged, "synced events were judged before")
	assert.Len(t, content(t, s.Store()), 2)
}

// run starts Run. stop ends it and waits.
func run(t testing.TB, s *Sync) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	return func() {
		cancel()
		assert.ErrorIs(t, <-done, context.Canceled)
	}
}

// khatru does not support requests to vanish (NIP-62).
func TestDirectVanishIsExecuted(t *testing.T) {
	identity, err := nip34.ParseIdentity("grasp.example.com")
	require.NoError(t, err)
	relay := khatru.NewRelay()
	synctest.Test(t, func(t *testing.T) {
		db := newSlice(t)
		var cfg Config
		cfg.Store.Identity = identity // as New does
		s, _, _ := embed(t, relay, db, cfg)
		gone, kept := event(alice, 1, start), event(alice, 1, start+1)
		require.NoError(t, db.SaveEvent(t.Context(), gone))
		require.NoError(t, db.SaveEvent(t.Context(), kept))
		stop := run(t, s)
		elsewhere := event(alice, 62, start, nostr.Tag{"relay", "wss://elsewhere.example.com"})
		request := event(alice, 62, start, nostr.Tag{"relay", "wss://grasp.example.com/"})
		for _, e := range []*nostr.Event{elsewhere, request} {
			_, err := relay.AddEvent(t.Context(), e)
			require.NoError(t, err)
			synctest.Wait()
		}
		assert.ElementsMatch(t, []string{kept.ID, elsewhere.ID, request.ID}, content(t, s.Store()))
		reject, _ := s.reject(t.Context(), gone)
		assert.True(t, reject, "it does not come back")
		stop()
	})
}

// A stored deletion or request to vanish that was not executed before the end is executed at the start.
func TestDeletionsAreFinishedAtTheStart(t *testing.T) {
	identity, err := nip34.ParseIdentity("grasp.example.com")
	require.NoError(t, err)
	relay := khatru.NewRelay()
	synctest.Test(t, func(t *testing.T) {
		db := newSlice(t)
		var cfg Config
		cfg.Store.Identity = identity
		s, _, _ := embed(t, relay, db, cfg)
		request := event(alice, 62, start, nostr.Tag{"relay", "wss://grasp.example.com/"})
		note, kept := event(bob, 1, start), event(bob, 1, start)
		deletion := event(bob, 5, start, nostr.Tag{"e", note.ID})
		for _, e := range []*nostr.Event{event(alice, 1, start), request, note, kept, deletion} {
			require.NoError(t, db.SaveEvent(t.Context(), e))
		}
		var told []string
		relay.DeleteEvent = append(relay.DeleteEvent, func(_ context.Context, e *nostr.Event) error {
			told = append(told, e.ID)
			return nil
		})
		stop := run(t, s)
		synctest.Wait()
		assert.ElementsMatch(t, []string{request.ID, kept.ID, deletion.ID}, content(t, s.Store()))
		assert.Len(t, told, 2)
		stop()
	})
}

func TestNewErrors(t *testing.T) {
	identity, err := nip34.ParseIdentity("grasp.example.com")
	require.NoError(t, err)
	relay := khatru.NewRelay()
	for name, try := range map[string]func() error{
		"relay": func() error { _, err := New(nil, newSlice(t), identity, Config{}); return err },
		"backend": func() error {
			_, err := New(relay, nil, identity, Config{})
			return err
		},
		"identity": func() error { _, err := New(relay, newSlice(t), nip34.Identity{}, Config{}); return err },
		"egress": func() error {
			c := Config{}
			c.Egress.Own = make([]netip.AddrPort, 1)
			_, err := New(relay, newSlice(t), identity, c)
			return err
		},
	} {
		require.Error(t, try(), name)
	}
	assert.Empty(t, relay.RejectEvent, "unchanged")
	assert.Empty(t, relay.StoreEvent)
}

// khatru accepts upper-case signatures, other relays do not. Such an event was never synced, and a
// relay that served it was disconnected as hostile.
func TestSignaturesInCapitals(t *testing.T) {
	identity, err := nip34.ParseIdentity("grasp.example.com")
	require.NoError(t, err)
	relay := khatru.NewRelay()
	_, err = New(relay, newSlice(t), identity, Config{})
	require.NoError(t, err)
	ev := signed(t, nostr.GeneratePrivateKey(), 1)
	capitals := *ev
	capitals.Sig = strings.ToUpper(ev.Sig)
	_, err = relay.AddEvent(t.Context(), &capitals)
	require.ErrorContains(t, err, "invalid: the sig is not lower-case hex")
	_, err = relay.AddEvent(t.Context(), ev)
	require.NoError(t, err)
}
