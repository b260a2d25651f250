package khatruadapter

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/fiatjaf/eventstore/slicestore"
	"github.com/fiatjaf/khatru"
	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"
)

// A relay published no limits, so that others took it for one with the fewest, and had none:
// one connection could open any number of subscriptions.
func TestLimitsThatArePublishedHold(t *testing.T) {
	db := &slicestore.SliceStore{}
	require.NoError(t, db.Init())
	relay := khatru.NewRelay()
	relay.Negentropy = true
	relay.QueryEvents = append(relay.QueryEvents, db.QueryEvents)
	said := limits{2, 5, 3}.enforce(relay)
	text, err := json.Marshal(said)
	require.NoError(t, err)
	require.JSONEq(t, `{"max_message_length": 512000, "max_subscriptions": 2, "max_subid_length": 5, "max_limit": 3, "default_limit": 3,
		"max_event_tags": 10000, "auth_required": false, "payment_required": false, "restricted_writes": true}`, string(text))
	key := nostr.GeneratePrivateKey()
	var ids []string
	for range 5 {
		e := signed(t, key, 1)
		ids = append(ids, e.ID)
		require.NoError(t, db.SaveEvent(t.Context(), e))
	}
	server := httptest.NewServer(relay)
	defer server.Close()
	count := func(filter string) (n int) {
		c := dial(t, server.URL)
		for m := c.say(`["REQ","n",%s]`, filter); !strings.HasPrefix(m, `["EOSE"`); m = c.read() {
			require.Contains(t, m, `["EVENT"`)
			n++
		}
		return n
	}
	require.Equal(t, 3, count(`{}`))
	require.Equal(t, 3, count(`{"limit":10}`))
	require.Equal(t, 2, count(`{"limit":2}`))
	require.Equal(t, 5, count(fmt.Sprintf(`{"ids":["%s"]}`, strings.Join(ids, `","`))), "who asks for these knows how many there are")

	c := dial(t, server.URL)
	opened := func(name, filter string) bool {
		return strings.HasPrefix(c.say(`["REQ","%s",%s]`, name, filter), `["EOSE"`)
	}
	require.Eventually(t, func() bool { return opened("a", `{"limit":0}`) }, 10*time.Second, time.Millisecond)
	require.Eventually(t, func() bool { return opened("b", `{"limit":0},{"kinds":[2],"limit":0}`) }, 10*time.Second, time.Millisecond)
	for _, filter := range []string{`{"limit":0}`, `{"kinds":[2]}`, `{"limit":0},{"limit":0}`} {
		require.Contains(t, c.say(`["REQ","c",%s]`, filter), `["CLOSED","c","rate-limited: too many subscriptions are open"]`)
	}
	require.Contains(t, c.say(`["NEG-OPEN","d",{},"6100000200"]`), `"NEG-MSG"`, "that is none")
	require.NoError(t, c.conn.Write(t.Context(), 1, []byte(`["CLOSE","a"]`)))
	require.Eventually(t, func() bool { return opened("c", `{"limit":0}`) }, 10*time.Second, time.Millisecond)

	other := dial(t, server.URL)
	require.Contains(t, other.say(`["REQ","abcdef",{"limit":0}]`), `["CLOSED","abcdef","invalid: the subscription id is too long"]`)
	require.Contains(t, other.say(`["REQ","abcde",{"limit":0}]`), `["EOSE"`)
}
