package khatruadapter

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/fiatjaf/eventstore/slicestore"
	"github.com/fiatjaf/khatru"
	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"
)

// A relay published no limits, so that other relays assumed the lowest ones.
func TestLimitsThatArePublishedHold(t *testing.T) {
	db := &slicestore.SliceStore{}
	require.NoError(t, db.Init())
	relay := khatru.NewRelay()
	relay.Negentropy = true
	relay.QueryEvents = append(relay.QueryEvents, db.QueryEvents)
	said := Limit(relay, 3)
	text, err := json.Marshal(said)
	require.NoError(t, err)
	require.JSONEq(t, `{"max_limit": 3, "default_limit": 3, "created_at_upper_limit": 900,
		"auth_required": false, "payment_required": false, "restricted_writes": true}`, string(text))
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
}
