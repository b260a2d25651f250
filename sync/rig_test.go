package sync_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/eventtest"
	"github.com/graspsync/graspsync/nip34"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/memstore"
	"github.com/graspsync/graspsync/sync/relaytest"
)

const us = "grasp.example"

// rig is a manager with relays and a store in memory. All of it is in one synctest bubble.
type rig struct {
	t       *testing.T
	net     *relaytest.Network
	store   relaysync.Store
	manager *relaysync.SyncManager
	stop    func()
	end     func() // stop without the check for panics, for tests that break connections
}

func start(t *testing.T, net *relaytest.Network, store relaysync.Store, cfg relaysync.Config) *rig {
	t.Helper()
	return startOver(t, net, net, store, cfg)
}

func startOver(t *testing.T, net *relaytest.Network, transport relaysync.Transport, store relaysync.Store, cfg relaysync.Config) *rig {
	t.Helper()
	return startAs(t, us, net, transport, store, cfg)
}

// startAs is startOver with the service addresses in who.
func startAs(t *testing.T, who string, net *relaytest.Network, transport relaysync.Transport, store relaysync.Store, cfg relaysync.Config) *rig {
	t.Helper()
	identity, err := nip34.ParseIdentity(strings.Split(who, ",")...)
	require.NoError(t, err)
	if cfg.Verifier == nil {
		cfg.Verifier = relaytest.CheapVerifier{}
	}
	m, err := relaysync.New(store, transport, identity, cfg)
	require.NoError(t, err)
	r := &rig{t: t, net: net, store: store, manager: m}
	r.run()
	r.end = r.stop
	r.stop = func() {
		r.end()
		require.Zero(t, m.Status().Events.Panics["connection"], "a panic is contained, but always a bug")
	}
	return r
}

// run runs the manager until stop. Then it checks all counts, and that no resource is left.
func (r *rig) run() {
	t, m := r.t, r.manager
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = m.Run(ctx)
	}()
	r.stop = func() {
		synctest.Wait()
		if ctx.Err() == nil {
			m.Audit(t)
		}
		cancel()
		<-ended
		m.LeftOver(t)
		synctest.Wait()
		for _, rel := range r.net.Relays() {
			require.Zero(t, rel.Open(), "%s: each connection is closed", rel.URL())
		}
	}
}

// save stores events like a relay does for its clients.
func (r *rig) save(events ...*nostr.Event) {
	r.t.Helper()
	for _, ev := range events {
		out, err := r.store.Save(r.t.Context(), []graspsync.Incoming{{Event: eventtest.Of(ev)}})
		require.NoError(r.t, err)
		require.Equal(r.t, graspsync.Stored, out[0].Result)
		if r.manager != nil {
			r.manager.NotifyStored(eventtest.Of(ev))
		}
	}
}

func (r *rig) has(ev *nostr.Event) bool {
	r.t.Helper()
	id, err := graspsync.ParseEventID(ev.ID)
	require.NoError(r.t, err)
	has, err := r.store.Has(r.t.Context(), []graspsync.EventID{id})
	require.NoError(r.t, err)
	return has[0]
}

func relayURL(t *testing.T, s string) graspsync.RelayURL {
	t.Helper()
	u, err := graspsync.ParseRelayURL(s)
	require.NoError(t, err)
	return u
}

func at(ago time.Duration) nostr.Timestamp { return nostr.Timestamp(time.Now().Add(-ago).Unix()) }

// bubble runs f in a synctest bubble.
func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, f)
}

// hosted starts a manager with one repository on the given relays, and returns it with the
// repository's owner.
func hosted(t *testing.T, net *relaytest.Network, cfg relaysync.Config, hosts ...string) (*rig, *relaytest.Key) {
	t.Helper()
	return hostedOver(t, net, net, cfg, hosts...)
}

// following runs f in a bubble with a manager that follows one repository on relay a.
func following(t *testing.T, b relaytest.Behavior, f func(t *testing.T, r *rig, a *relaytest.Relay, owner *relaytest.Key)) {
	t.Helper()
	bubble(t, func(t *testing.T) {
		net := relaytest.NewNetwork()
		a := net.Add("wss://a.example", b)
		r, owner := hosted(t, net, relaysync.Config{}, "a.example")
		defer r.stop()
		f(t, r, a, owner)
	})
}

// hostedOver is hosted with another transport.
func hostedOver(t *testing.T, net *relaytest.Network, transport relaysync.Transport, cfg relaysync.Config, hosts ...string) (*rig, *relaytest.Key) {
	t.Helper()
	owner := relaytest.NewCheapKey("owner")
	r := &rig{t: t, store: memstore.New()}
	r.save(owner.Hosted(at(24*time.Hour), "repo", append([]string{us}, hosts...)...))
	return startOver(t, net, transport, r.store, cfg), owner
}

func after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// repo returns the state of a followed repository.
func (r *rig) repo(ref graspsync.RepoRef) relaysync.RepoStatus {
	r.t.Helper()
	all, err := r.manager.RepoStatus(r.t.Context(), ref)
	require.NoError(r.t, err)
	require.Len(r.t, all, 1)
	return all[0]
}

func (r *rig) relay(url string) relaysync.RelayStatus {
	r.t.Helper()
	for _, s := range r.manager.Status().Relays {
		if s.URL == relayURL(r.t, url) {
			return s
		}
	}
	r.t.Fatalf("%s is not known", url)
	return relaysync.RelayStatus{}
}
