package khatruadapter

import (
	"context"
	"encoding/json"
	"io"
	"iter"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/fiatjaf/khatru"
	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/eventtest"
	"github.com/graspsync/graspsync/nip34"
	relaysync "github.com/graspsync/graspsync/sync"
)

// holder is a Holder without events.
type holder struct{}

func (holder) Held(context.Context, nostr.Filter) ([]graspsync.EventKey, error) { return nil, nil }

func (holder) HeldForUser(graspsync.EventID) (byUser, held bool) { return false, false }

func (holder) HeldAnnouncements(context.Context) iter.Seq2[*nip34.Announcement, error] {
	return func(func(*nip34.Announcement, error) bool) {}
}

const held = "purgatory: won't be served until git data arrives"

// The client of a held event was told that it was refused. It receives OK and the reason, and
// nothing is stored or broadcast until the release.
func TestHeldDirectEvent(t *testing.T) {
	relay := khatru.NewRelay()
	s, _, m := embed(t, relay, newSlice(t), Config{ApplyPolicyToClients: true, Sync: relaysync.Config{Holder: holder{}}})
	server := httptest.NewServer(relay)
	defer server.Close()
	defer run(t, s)()
	key := nostr.GeneratePrivateKey()
	c := dial(t, server.URL)
	require.Contains(t, c.say(`["REQ","live",{"kinds":[1,30618],"limit":0}]`), "EOSE")
	publish := func(e *nostr.Event) {
		data, err := json.Marshal(e)
		require.NoError(t, err)
		require.NoError(t, c.conn.Write(t.Context(), websocket.MessageText, []byte(`["EVENT",`+string(data)+`]`)))
	}
	for _, e := range []*nostr.Event{signed(t, key, 1), signed(t, key, 30618, nostr.Tag{"d", "repo"})} {
		m.verdict = graspsync.Verdict{Decision: graspsync.Hold, Reason: held}
		publish(e)
		require.Equal(t, `["NOTICE","`+held+`"]`, strings.TrimSpace(c.read()))
		require.Contains(t, c.read(), `["OK","`+e.ID+`",true`)
		require.Empty(t, content(t, s.Store()))
		require.Empty(t, m.stored)

		o, err := s.Release(t.Context(), eventtest.Of(e))
		require.NoError(t, err)
		require.Equal(t, graspsync.Stored, o.Result)
		require.Contains(t, c.read(), e.ID, "subscribers get it now, and only now")
		require.Equal(t, []string{e.ID}, content(t, s.Store()))
		require.Equal(t, []string{e.ID}, m.stored)
		o, err = s.Release(t.Context(), eventtest.Of(e))
		require.NoError(t, err)
		require.Equal(t, graspsync.Duplicate, o.Result)

		require.NoError(t, s.Store().Remove(t.Context(), eventtest.Of(e)))
		m.mu.Lock()
		m.stored = nil
		m.mu.Unlock()
	}
	m.verdict = graspsync.Verdict{Decision: graspsync.Reject, Reason: "blocked: because"}
	publish(signed(t, key, 1))
	require.Contains(t, c.read(), "false,\"blocked: because")
}

// An event that the Store or a hook refused on release was not counted.
func TestHeldEventThatIsRefusedWhenReleased(t *testing.T) {
	relay := khatru.NewRelay()
	refused := signed(t, nostr.GeneratePrivateKey(), 1)
	relay.RejectEvent = append(relay.RejectEvent, func(_ context.Context, e *nostr.Event) (bool, string) {
		return e.ID == refused.ID, "blocked: not any more"
	})
	expectLog(t, "WARN hook refused a synced event, khatruadapter.IsSynced lets it accept such events")
	s, _, m := embed(t, relay, newSlice(t), Config{ApplyPolicyToClients: true, Sync: relaysync.Config{Holder: holder{}}})
	defer run(t, s)()
	unstorable := signed(t, nostr.GeneratePrivateKey(), 1)
	unstorable.Sig = "none"
	stored := signed(t, nostr.GeneratePrivateKey(), 1)
	for _, e := range []*nostr.Event{refused, unstorable, stored} {
		o, err := s.Release(t.Context(), eventtest.Of(e))
		require.NoError(t, err)
		require.Equal(t, e == stored, o.Result == graspsync.Stored, "%v", o)
	}
	require.Equal(t, []string{stored.ID}, m.stored)
}

// A relay with hooks of its own database would store events twice, or the wrong ones.
func TestHooksOfADatabase(t *testing.T) {
	db := newSlice(t)
	for _, set := range []func(*khatru.Relay){
		func(r *khatru.Relay) { r.StoreEvent = append(r.StoreEvent, db.SaveEvent) },
		func(r *khatru.Relay) { r.ReplaceEvent = append(r.ReplaceEvent, db.ReplaceEvent) },
		func(r *khatru.Relay) { r.QueryEvents = append(r.QueryEvents, db.QueryEvents) },
	} {
		relay := khatru.NewRelay()
		set(relay)
		_, err := build(relay, db, Config{})
		require.ErrorIs(t, err, ErrHooks)
	}
}

func TestInformation(t *testing.T) {
	relay := khatru.NewRelay()
	relay.Info.Name = "x"
	server := httptest.NewServer(Information(relay, map[string]any{"supported_grasps": []string{"GRASP-01"}, "name": "y"}))
	defer server.Close()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, nil)
	require.NoError(t, err)
	req.Header.Set("Accept", "application/nostr+json")
	client := http.Client{Timeout: time.Minute}
	defer client.CloseIdleConnections()
	resp, err := client.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Equal(t, "application/nostr+json", resp.Header.Get("Content-Type"))
	require.Contains(t, string(body), `"supported_grasps":["GRASP-01"]`)
	require.Contains(t, string(body), `"name":"y"`)
	require.Contains(t, string(body), `"supported_nips"`)
	require.Contains(t, dial(t, server.URL).say(`["REQ","x",{"limit":0}]`), "EOSE", "it is still a relay")
}
