package gate_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/fiatjaf/khatru"
	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/adapter/gate"
)

// What is published comes once to a subscription, under each name that asks for it, unless a hook holds it back.
func TestPublished(t *testing.T) {
	s := serve(t, gate.Config{})
	var held string
	s.relay.PreventBroadcast = append(s.relay.PreventBroadcast, func(ws *khatru.WebSocket, _ *nostr.Event) bool {
		return ws.Request.Header.Get("Who") == held
	})
	a, b := s.dialAs("a"), s.dialAs("b")
	for name, filters := range map[string]string{
		"two":  `{"kinds":[1],"limit":0},{"#t":["q"],"limit":0}`,
		"tag":  `{"#t":["p","q","q"],"limit":0}`,
		"none": `{"kinds":[2],"limit":0},{"#t":[],"limit":0},{"kinds":[1],"until":1,"limit":0}`,
	} {
		for _, c := range []*client{a, b} {
			c.says(fmt.Sprintf(`["REQ","%s",%s]`, name, filters))
			require.Equal(t, `["EOSE","`+name+`"]`, c.hears())
		}
	}
	ev := note(1)
	ev.Tags = nostr.Tags{{"t", "q"}, {"t", "q"}, {"t"}, {"e", "z"}}
	held = "b"
	require.Equal(t, 1, s.relay.BroadcastEvent(ev))
	names := []string{a.hears(), a.hears()}
	for i, n := range names {
		names[i], _, _ = strings.Cut(n, ",{")
	}
	require.ElementsMatch(t, []string{`["EVENT","two"`, `["EVENT","tag"`}, names)
	held = "nobody"
	closed := func(name string) {
		a.says(`["REQ","` + name + `",{"kinds":[2],"limit":0}]`)
		require.Equal(t, `["EOSE","`+name+`"]`, a.hears())
	}
	a.says(`["CLOSE","two"]`)
	closed("first")
	other := note(2)
	require.Equal(t, 1, s.relay.BroadcastEvent(other))
	require.Equal(t, other.ID, eventOf(t, b.hears()), "the one before was held back")
	closed("then")
}

// Hooks know whose subscription they are asked about, by which name, and who has authenticated.
func TestHooksOfASubscription(t *testing.T) {
	s := serve(t, gate.Config{})
	s.relay.RejectFilter = append(s.relay.RejectFilter, func(ctx context.Context, f nostr.Filter) (bool, string) {
		require.NotEmpty(t, khatru.GetSubscriptionID(ctx))
		require.Equal(t, "a", khatru.GetConnection(ctx).Request.Header.Get("Who"))
		return f.Limit == 7, "auth-required: say who you are"
	})
	c := s.dialAs("a")
	c.publishes(note(1))
	c.says(`["REQ","x",{"kinds":[1],"limit":5}]`)
	require.True(t, strings.HasPrefix(c.hears(), `["EVENT","x",`))
	require.Equal(t, `["EOSE","x"]`, c.hears())
	c.says(`["REQ","y",{"kinds":[1],"limit":7}]`)
	require.Equal(t, `["CLOSED","y","auth-required: say who you are"]`, c.hears())
}

// A relay that lets nobody in but clients has the subscriptions itself.
func TestRelayThatRefusesTheTap(t *testing.T) {
	s := serve(t, gate.Config{})
	s.relay.RejectConnection = append(s.relay.RejectConnection, func(r *http.Request) bool { return r.Header.Get("Who") == "" })
	c := s.dialAs("a")
	c.says(`["REQ","x",{"kinds":[1]}]`)
	require.Equal(t, `["EOSE","x"]`, c.hears())
	require.Len(t, s.relay.GetListeningFilters(), 1)
	ev := note(1)
	require.Equal(t, 1, s.relay.BroadcastEvent(ev))
	require.Equal(t, ev.ID, eventOf(t, c.hears()))
}
