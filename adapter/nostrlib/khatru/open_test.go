package khatruadapter

import (
	"context"
	"encoding/json"
	"net"
	"testing"
	"time"

	"fiatjaf.com/nostr"
	"fiatjaf.com/nostr/khatru"
	gonostr "github.com/nbd-wtf/go-nostr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/adapter/gate"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// opened is a relay started with Open.
type opened struct {
	url   string
	relay *khatru.Relay
	sync  *Sync
	stop  func()
}

func open(t *testing.T, folder string, bootstrap ...string) opened {
	t.Helper()
	return openWith(t, folder, func(*khatru.Relay) {}, bootstrap...)
}

// openWith opens a relay with hooks.
func openWith(t *testing.T, folder string, hooks func(*khatru.Relay), bootstrap ...string) opened {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	relay := khatru.NewRelay()
	hooks(relay)
	s, err := Open(relay, newSlice(t), listener.Addr().String(), folder, bootstrap...)
	require.NoError(t, err)
	door := gate.New(relay, gate.Config{})
	s.Pace(door.Wait)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- gate.Serve(ctx, listener, door, s.Run) }()
	return opened{"ws://" + listener.Addr().String(), relay, s, func() {
		cancel()
		require.NoError(t, <-ended)
		door.Close()
		require.NoError(t, s.Close())
	}}
}

// An event published on one relay is synced by another that knows only its URL, until its operator
// removes it there.
func TestOpen(t *testing.T) {
	first := open(t, t.TempDir())
	defer first.stop()
	second := open(t, t.TempDir(), first.url)
	defer second.stop()
	require.True(t, first.relay.Negentropy)
	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(first.sync.Collector("ngit")))
	families, err := registry.Gather()
	require.NoError(t, err)
	var names []string
	for _, f := range families {
		names = append(names, f.GetName())
	}
	require.Contains(t, names, "ngit_state_failures_total", "it has the metrics of its records as well")
	<-second.sync.Manager().Ready()

	alice := relaytest.NewKey("alice")
	announcement := alice.Hosted(gonostr.Now(), "repo", first.url, second.url)
	data, err := json.Marshal(announcement)
	require.NoError(t, err)
	require.Contains(t, dial(t, first.url).say(`["EVENT",%s]`, data), `true`)
	e, err := graspsync.ParseEvent(announcement)
	require.NoError(t, err)
	has := func() bool {
		has, err := second.sync.Store().Has(t.Context(), []graspsync.EventID{e.ID})
		return err == nil && has[0]
	}
	require.Eventually(t, has, time.Minute, 10*time.Millisecond)

	about, err := second.sync.Manager().EventState(t.Context(), e.ID)
	require.NoError(t, err)
	require.Equal(t, e.ID, about.ID)
	told := make(chan nostr.ID, 1)
	second.relay.OnEventDeleted = func(_ context.Context, e nostr.Event) { told <- e.ID }
	require.NoError(t, second.sync.Remove(t.Context(), e))
	require.False(t, has())
	require.Equal(t, nostr.ID(e.ID), <-told)
	require.NoError(t, second.sync.Remove(t.Context(), e), "again")
}
