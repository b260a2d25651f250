package gate_test

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fiatjaf/khatru"
	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/adapter/gate"
)

// What a hook refuses to show somebody they heard of as it was published, until it had refused.
func TestNobodyHearsBeforeTheHooksHaveJudged(t *testing.T) {
	s := serve(t, gate.Config{})
	judging, judged := make(chan struct{}), make(chan struct{})
	s.relay.RejectFilter = append(s.relay.RejectFilter, func(_ context.Context, f nostr.Filter) (bool, string) {
		if f.Kinds[0] != 4 {
			return false, ""
		}
		close(judging)
		<-judged
		return true, "restricted: not yours"
	})
	c := s.dial()
	c.says(`["REQ","x",{"kinds":[1]},{"kinds":[4]}]`)
	<-judging
	secret := note(1)
	secret.Kind = 4
	require.Zero(t, s.relay.BroadcastEvent(secret))
	require.Zero(t, s.relay.BroadcastEvent(note(2)))
	close(judged)
	require.Equal(t, `["CLOSED","x","restricted: not yours"]`, c.hears())
	require.Zero(t, s.relay.BroadcastEvent(note(3)))
	c.says(`["REQ","x",{"kinds":[1]}]`) // another one may have the name
	require.Equal(t, `["EOSE","x"]`, c.hears())
}

// Who has to say who they are is told what to sign before they hear why.
func TestChallengeComesBeforeCLOSED(t *testing.T) {
	s := serve(t, gate.Config{})
	s.relay.RejectFilter = append(s.relay.RejectFilter, func(context.Context, nostr.Filter) (bool, string) {
		return true, "auth-required: say who you are"
	})
	c := s.dial()
	for n := range 100 {
		c.says(fmt.Sprintf(`["REQ","%d",{"kinds":[1]}]`, n))
		for _, want := range []string{`["AUTH"`, `["CLOSED"`} {
			_, m, err := c.Read(t.Context())
			require.NoError(t, err)
			require.Contains(t, string(m), want)
		}
	}
}

// Hooks for new connections that an embedder adds after the gate were still at it when their subscriptions were judged.
func TestHooksOfAConnectionAreOver(t *testing.T) {
	s := serve(t, gate.Config{})
	var over atomic.Bool
	s.relay.OnConnect = append(s.relay.OnConnect, func(context.Context) {
		time.Sleep(100 * time.Millisecond)
		over.Store(true)
	})
	s.relay.RejectFilter = append(s.relay.RejectFilter, func(context.Context, nostr.Filter) (bool, string) {
		return !over.Load(), "error: too early"
	})
	c := s.dial()
	c.says(`["REQ","x",{"kinds":[1]}]`)
	require.Equal(t, `["EOSE","x"]`, c.hears())
}

// A relay that routes knows which one is to be asked, and a gate that does not found nothing.
func TestRelayOfARouter(t *testing.T) {
	router, notes := khatru.NewRouter(), khatru.NewRelay()
	keep(t, newStore(t), notes)
	router.Route().Req(func(nostr.Filter) bool { return true }).Event(func(*nostr.Event) bool { return true }).Relay(notes)
	s := front(t, router.Relay, gate.Config{})
	c := s.dial()
	c.publishes(note(1))
	c.says(`["REQ","x",{"kinds":[1]}]`)
	require.Contains(t, c.hears(), `["EVENT","x"`)
	require.Equal(t, `["EOSE","x"]`, c.hears())
}

// Of a router's one relay that is paced no connection is told: each subscription waited for that for five seconds.
func TestOneRelayOfARouter(t *testing.T) {
	router, notes := khatru.NewRouter(), khatru.NewRelay()
	keep(t, newStore(t), notes)
	router.Route().Req(func(nostr.Filter) bool { return true }).Event(func(*nostr.Event) bool { return true }).Relay(notes)
	g := gate.New(router, gate.Config{})
	g.Pace(notes)
	h := httptest.NewServer(g)
	t.Cleanup(func() {
		g.Close()
		h.Close()
	})
	s := &server{t: t, url: "ws" + strings.TrimPrefix(h.URL, "http"), relay: notes, gate: g}
	for n := range 2 {
		c := s.dial()
		began := time.Now()
		for name := range 2 {
			c.says(fmt.Sprintf(`["REQ","%d",{"kinds":[1]}]`, name))
			require.Equal(t, fmt.Sprintf(`["EOSE","%d"]`, name), c.hears())
		}
		if n > 0 {
			require.Less(t, time.Since(began), 9*time.Second)
		}
	}
}

// What is in front of a relay paces it, and a program that had it paced as well, or another relay besides, ended with the first client.
func TestPacedTwice(t *testing.T) {
	for name, besides := range map[string]func(relay *khatru.Relay) *khatru.Relay{
		"itself": func(relay *khatru.Relay) *khatru.Relay { return relay }, "another": func(*khatru.Relay) *khatru.Relay { return khatru.NewRelay() },
	} {
		t.Run(name, func(t *testing.T) {
			relay := khatru.NewRelay()
			keep(t, newStore(t), relay)
			s := front(t, relay, gate.Config{})
			s.gate.Pace(besides(relay))
			c := s.dial()
			c.publishes(note(1))
			c.says(`["REQ","x",{"kinds":[1]}]`)
			require.Contains(t, c.hears(), `["EVENT","x"`)
			require.Equal(t, `["EOSE","x"]`, c.hears())
		})
	}
}

// A subscription whose name was taken by one that is invalid went on, though its client had heard that it is closed.
func TestInvalidTakesTheNameOver(t *testing.T) {
	s := serve(t, gate.Config{})
	c := s.dial()
	c.says(`["REQ","x",{"kinds":[1],"limit":0}]`)
	require.Equal(t, `["EOSE","x"]`, c.hears())
	c.says(`["REQ","x",{"kinds":"1"}]`)
	require.Contains(t, c.hears(), `["CLOSED","x","invalid:`)
	require.Zero(t, s.relay.BroadcastEvent(note(1)))
}

// A filter with an empty list is one of nothing. Its text had none of that: the filter of everything beside it was taken for the
// same, and nothing came; a count and a reconciliation were of everything.
func TestFiltersOfNothing(t *testing.T) {
	s := serve(t, gate.Config{})
	c := s.dial()
	ev := note(1)
	c.publishes(ev)
	for i, nothing := range []string{`{"kinds":[]}`, `{"authors":[]}`, `{"ids":[],"kinds":[1]}`, `{"#t":[]}`} {
		name := fmt.Sprint(i)
		c.says(`["REQ","` + name + `",` + nothing + `,{}]`)
		require.Equal(t, ev.ID, eventOf(t, c.hears()), nothing)
		require.Equal(t, `["EOSE","`+name+`"]`, c.hears())
		c.says(`["CLOSE","` + name + `"]`)
		c.says(`["NEG-OPEN","neg",` + nothing + `,"6100000200"]`)
		require.Equal(t, `["NEG-MSG","neg","6100000200"]`, c.hears(), nothing)
		c.says(`["NEG-CLOSE","neg"]`)
	}
}

// A relay whose hook asks everybody who they are kept its gate waiting for five seconds with each connection.
func TestRelayThatAsksEverybodyWhoTheyAre(t *testing.T) {
	s := serve(t, gate.Config{})
	s.relay.OnConnect = append(s.relay.OnConnect, khatru.RequestAuth)
	began := time.Now()
	s.gate.TapBroadcasts()
	for range 3 {
		c := s.dial()
		c.says(`["REQ","x",{"kinds":[1],"limit":0}]`)
		require.Equal(t, `["EOSE","x"]`, c.hears())
	}
	require.Less(t, time.Since(began), 14*time.Second)
	require.Equal(t, 1, s.relay.BroadcastEvent(note(1)))
}

// Names of tags counted for nothing, and took what memory there was.
func TestFiltersOfManyTags(t *testing.T) {
	s := serve(t, gate.Config{})
	c := s.dial()
	names := func(n int) string {
		text := `{"limit":0`
		for i := range n {
			text += fmt.Sprintf(`,"#n%d":[]`, i)
		}
		return text + "}"
	}
	c.says(`["REQ","x",` + names(64) + `]`)
	require.Equal(t, `["EOSE","x"]`, c.hears())
	require.Equal(t, 2, s.metric("gate_slots_in_use", "listening"))
	c.says(`["REQ","y",` + names(65) + `]`)
	require.Equal(t, `["CLOSED","y","invalid: too many tags"]`, c.hears())
}

// Who is told EOSE takes what came for all there is: a store that failed had a peer believe that it has nothing.
func TestWhatCouldNotBeReadIsNoAnswer(t *testing.T) {
	relay := khatru.NewRelay()
	store := newStore(t)
	keep(t, store, relay)
	relay.QueryEvents = append(relay.QueryEvents, func(_ context.Context, f nostr.Filter) (chan *nostr.Event, error) {
		if slices.Contains(f.Kinds, 7) {
			return nil, errors.New("the disk is gone")
		}
		none := make(chan *nostr.Event)
		close(none)
		return none, nil
	})
	s := front(t, relay, gate.Config{})
	a := s.dial()
	ev := note(1)
	a.publishes(ev)
	a.says(`["REQ","x",{"kinds":[1,7]}]`)
	require.Equal(t, ev.ID, eventOf(t, a.hears()))
	require.Equal(t, `["CLOSED","x","error: the disk is gone"]`, a.hears())
	a.says(`["REQ","x",{"kinds":[1]}]`)
	require.Equal(t, ev.ID, eventOf(t, a.hears()))
	require.Equal(t, `["EOSE","x"]`, a.hears())
}
