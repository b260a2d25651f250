// Package peers tests the library's transport with relays of other authors.
package peers

import (
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"log"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/fiatjaf/eventstore/slicestore"
	"github.com/fiatjaf/khatru"
	"github.com/nbd-wtf/go-nostr"
	"github.com/nbd-wtf/go-nostr/nip11"
	"github.com/nbd-wtf/go-nostr/nip77/negentropy"
	"github.com/nbd-wtf/go-nostr/nip77/negentropy/storage/vector"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/egress"
	"github.com/graspsync/graspsync/internal/eventtest"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/wire"
	"github.com/graspsync/graspsync/sync/wstransport"
)

func TestMain(m *testing.M) {
	// khatru.NewRelay starts a goroutine that never ends.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/fiatjaf/khatru.(*expirationManager).start"))
}

// patience is the maximum time for an operation that should be immediate.
const patience = 20 * time.Second

// newTransport returns a Transport that can dial loopback addresses.
func newTransport(t testing.TB) *wstransport.Transport {
	t.Helper()
	dialer, err := egress.NewDialer(egress.Config{
		Allow:          []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")},
		AllowPlaintext: true,
	})
	require.NoError(t, err)
	transport, err := wstransport.New(wstransport.Config{Dialer: dialer})
	require.NoError(t, err)
	return transport
}

func testContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

func dial(t testing.TB, transport *wstransport.Transport, u graspsync.RelayURL) relaysync.Conn {
	t.Helper()
	c, err := transport.Dial(testContext(t), u)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Close()) })
	return c
}

func receive(t testing.TB, c relaysync.Conn) wire.Message {
	t.Helper()
	m, err := c.Receive(testContext(t))
	require.NoError(t, err)
	return m
}

// startKhatru serves a khatru relay with an empty store.
func startKhatru(t testing.TB, change func(*khatru.Relay)) graspsync.RelayURL {
	t.Helper()
	store := &slicestore.SliceStore{}
	require.NoError(t, store.Init())
	relay := khatru.NewRelay()
	relay.Log = log.New(io.Discard, "", 0)
	relay.Info.Name = "khatru under test"
	relay.Info.Limitation = &nip11.RelayLimitationDocument{MaxMessageLength: 512_000, MaxSubscriptions: 20}
	relay.StoreEvent = append(relay.StoreEvent, store.SaveEvent)
	relay.QueryEvents = append(relay.QueryEvents, store.QueryEvents)
	relay.Negentropy = true
	if change != nil {
		change(relay)
	}
	s := httptest.NewServer(relay)
	t.Cleanup(s.Close)
	u, err := graspsync.ParseRelayURL(strings.Replace(s.URL, "http", "ws", 1))
	require.NoError(t, err)
	return u
}

func signedNotes(t testing.TB, n int) []*nostr.Event {
	t.Helper()
	key := nostr.GeneratePrivateKey()
	events := make([]*nostr.Event, n)
	for i := range events {
		events[i] = &nostr.Event{Kind: 1, CreatedAt: nostr.Timestamp(1_700_000_000 + i), Content: fmt.Sprintf("note %d: \"ü\"\n\t\u2028", i), Tags: nostr.Tags{{"t", "x"}}}
		require.NoError(t, events[i].Sign(key))
	}
	return events
}

// A conversation with a real relay: publish, query, subscribe, reconcile.
func TestKhatru(t *testing.T) {
	u := startKhatru(t, nil)
	transport := newTransport(t)
	c := dial(t, transport, u)
	send := func(r wire.Request) { t.Helper(); require.NoError(t, c.Send(testContext(t), r)) }

	events := signedNotes(t, 20)
	for _, ev := range events[:19] {
		send(wire.Request{Type: wire.TypePublish, Event: ev})
		m := receive(t, c)
		assert.Equal(t, wire.TypeOK, m.Type)
		assert.True(t, m.Accepted, m.Text)
		assert.Equal(t, ev.ID, m.ID.String())
	}
	require.Eventually(t, func() bool { return c.Info().Name == "khatru under test" }, patience, time.Millisecond)
	assert.Equal(t, 512_000, c.Info().MaxMessageLength)
	assert.Equal(t, 20, c.Info().MaxSubscriptions)

	// Stored events, newest first.
	send(wire.Request{Type: wire.TypeReq, Sub: "history", Filters: []nostr.Filter{{Kinds: []int{1}, Limit: 100}}})
	for i := 18; i >= 0; i-- {
		m := receive(t, c)
		require.Equal(t, wire.TypeEvent, m.Type)
		assert.Equal(t, "history", m.Sub)
		assert.Equal(t, events[i], m.Event.Event)
		assert.True(t, m.Event.CheckID())
	}
	m := receive(t, c)
	assert.Equal(t, wire.Message{Type: wire.TypeEOSE, Sub: "history", Size: m.Size}, m)
	send(wire.Request{Type: wire.TypeClose, Sub: "history"})

	// Live events. khatru handles each message in its own goroutine, so the CLOSE can take effect
	// after the publication. The test skips such an EVENT.
	send(wire.Request{Type: wire.TypeReq, Sub: "live", Filters: []nostr.Filter{{Kinds: []int{1}, LimitZero: true}}})
	assert.Equal(t, wire.TypeEOSE, receive(t, c).Type)
	other := dial(t, transport, u)
	require.NoError(t, other.Send(testContext(t), wire.Request{Type: wire.TypePublish, Event: events[19]}))
	for m = receive(t, c); m.Sub == "history"; m = receive(t, c) {
	}
	assert.Equal(t, wire.Message{Type: wire.TypeEvent, Sub: "live", Event: eventtest.Of(events[19]), Size: m.Size}, m)

	// NIP-77: the relay has all events, the client has none.
	neg := negentropy.New(emptySet(), 60_000)
	first, err := hex.DecodeString(neg.Start())
	require.NoError(t, err)
	send(wire.Request{Type: wire.TypeNegOpen, Sub: "neg", Filters: []nostr.Filter{{Kinds: []int{1}}}, Payload: first})
	m = receive(t, c)
	require.Equal(t, wire.TypeNegMsg, m.Type, m.Text)
	assert.Equal(t, "neg", m.Sub)
	ids := hex.EncodeToString(m.Payload)
	for _, ev := range events {
		assert.Contains(t, ids, ev.ID)
	}
	send(wire.Request{Type: wire.TypeNegSend, Sub: "never opened", Payload: []byte{0x61}})
	m = receive(t, c)
	assert.Equal(t, wire.TypeNegErr, m.Type)
	assert.Equal(t, wire.RefusalSessionLost, wire.ClassifyNegErr(m.Text, m.Max))
	send(wire.Request{Type: wire.TypeNegClose, Sub: "neg"})
}

func emptySet() *vector.Vector {
	v := vector.New()
	v.Seal()
	return v
}

// khatru's refusals are understood.
func TestKhatruRefusals(t *testing.T) {
	u := startKhatru(t, func(r *khatru.Relay) {
		r.Negentropy = false
		// The message of its policies.FilterIPRateLimiter, which leaves a goroutine.
		r.RejectFilter = append(r.RejectFilter, func(context.Context, nostr.Filter) (bool, string) {
			return true, "rate-limited: there is a bug in the client, no one should be making so many requests"
		})
	})
	c := dial(t, newTransport(t), u)
	negOpen := wire.Request{Type: wire.TypeNegOpen, Sub: "n", Filters: []nostr.Filter{{Kinds: []int{1}}}, Payload: []byte{0x61}}
	require.NoError(t, c.Send(testContext(t), negOpen))
	m := receive(t, c)
	assert.Equal(t, wire.TypeNotice, m.Type)
	assert.Equal(t, wire.RefusalNoNegentropy, wire.Classify(m.Text), m.Text)
	assert.True(t, wire.RefusesNegentropy(m.Text), m.Text)

	require.NoError(t, c.Send(testContext(t), wire.Request{Type: wire.TypeReq, Sub: "x", Filters: []nostr.Filter{{Kinds: []int{1}}}}))
	m = receive(t, c)
	assert.Equal(t, wire.TypeClosed, m.Type)
	assert.Equal(t, wire.RefusalRateLimited, wire.Classify(m.Text), m.Text)
}
