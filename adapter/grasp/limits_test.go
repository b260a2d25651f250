package grasp_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/fiatjaf/eventstore"
	"github.com/fiatjaf/eventstore/badger"
	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/sync/relaytest"
)

// The server had limits that the NIP-11 document did not name. A value just below each published
// limit must be accepted, and a value above it refused.
func TestCaseC10_LimitsThatArePublishedHold(t *testing.T) {
	t.Run("slicestore", func(t *testing.T) { limitsHold(t, nil) })
	t.Run("badger", func(t *testing.T) { // stores at most 65,535 bytes of content
		db := &badger.BadgerBackend{Path: t.TempDir()}
		require.NoError(t, db.Init())
		defer db.Close()
		limitsHold(t, db)
	})
}

// limitsHold publishes values below and above each limit in NIP-11.
func limitsHold(t *testing.T, backend eventstore.Store) {
	r := unstarted(t)
	r.other = backend
	r.start()
	defer r.stop()
	_, text := r.ask(http.MethodGet, "/", "Accept", "application/nostr+json")
	var said struct{ Limitation map[string]any }
	require.NoError(t, json.Unmarshal([]byte(text), &said))
	limit := func(name string) int {
		n, is := said.Limitation[name].(float64)
		require.True(t, is, name)
		return int(n)
	}
	dial := func() *websocket.Conn {
		c, _, err := websocket.Dial(t.Context(), "ws://"+r.addr, nil)
		require.NoError(t, err)
		c.SetReadLimit(-1)
		t.Cleanup(func() { _ = c.CloseNow() })
		return c
	}
	c := dial()
	say := func(text string) { require.NoError(t, c.Write(t.Context(), websocket.MessageText, []byte(text))) }
	hear := func(label string) []any {
		for {
			_, text, err := c.Read(t.Context())
			require.NoError(t, err)
			var m []any
			require.NoError(t, json.Unmarshal(text, &m))
			if label == "" || m[0] == label {
				return m
			}
		}
	}
	owner := relaytest.NewKey("owner")
	work, commit := r.work()
	r.serve(work, commit, owner)
	publish := func(e *nostr.Event) (ok bool, reason string) {
		text, err := json.Marshal(e)
		require.NoError(t, err)
		say(`["EVENT",` + strings.ReplaceAll(string(text), `\u003c`, "<") + `]`)
		m := hear("OK")
		return m[2].(bool), m[3].(string)
	}
	issue := func(content string, at nostr.Timestamp, more ...nostr.Tag) *nostr.Event {
		return owner.Event(at, 1621, content, append(nostr.Tags{{"a", owner.Ref("repo").String()}}, more...)...)
	}
	holds := func(name string, below, above *nostr.Event, why string) {
		t.Helper()
		ok, reason := publish(below)
		require.True(t, ok, "%s: %s", name, reason)
		ok, reason = publish(above)
		require.False(t, ok, name)
		require.Contains(t, reason, why, name)
	}

	long := limit("max_content_length")
	holds("max_content_length", issue(strings.Repeat("<", long), nostr.Now()), issue(strings.Repeat("<", long+1), nostr.Now()), "content")
	tags := func(n int) (out []nostr.Tag) {
		for range n {
			out = append(out, nostr.Tag{"t", "x"})
		}
		return out
	}
	most := limit("max_event_tags")
	holds("max_event_tags", issue("", nostr.Now(), tags(most-1)...), issue("", nostr.Now(), tags(most)...), "tags")
	ahead := time.Duration(limit("created_at_upper_limit")) * time.Second
	at := func(d time.Duration) nostr.Timestamp { return nostr.Timestamp(time.Now().Add(d).Unix()) }
	holds("created_at_upper_limit", issue("", at(ahead-time.Minute)), issue("", at(ahead+time.Minute)), "invalid: ")

	name := limit("max_subid_length")
	for n, label := range map[int]string{name: "EOSE", name + 1: "CLOSED"} {
		id := strings.Repeat("x", n)
		say(`["REQ","` + id + `",{"limit":0}]`)
		require.Equal(t, label, hear("")[0], "max_subid_length")
		if label == "EOSE" {
			say(`["CLOSE","` + id + `"]`)
		}
	}
	filters := limit("max_filters")
	for n, label := range map[int]string{filters: "EOSE", filters + 1: "CLOSED"} {
		text := ""
		for kind := range n {
			text += fmt.Sprintf(`,{"kinds":[%d],"limit":0}`, kind)
		}
		say(`["REQ","x"` + text + `]`)
		m := hear("")
		require.Equal(t, label, m[0], "max_filters: %v", m)
		say(`["CLOSE","x"]`)
	}
	for i := range limit("max_subscriptions") {
		say(fmt.Sprintf(`["REQ","%d",{"kinds":[2],"limit":1}]`, i))
		require.Equal(t, "EOSE", hear("")[0], "max_subscriptions")
	}
	say(`["REQ","more",{"kinds":[2],"limit":1}]`)
	require.Equal(t, "CLOSED", hear("")[0], "max_subscriptions")

	c = dial()
	size := limit("max_message_length")
	message := `["CLOSE","x"]`
	say(message + strings.Repeat(" ", size-len(message)))
	say(`["REQ","x",{"kinds":[2]}]`)
	require.Equal(t, "EOSE", hear("")[0], "max_message_length")
	say(message + strings.Repeat(" ", size+1-len(message)))
	_, _, err := c.Read(t.Context())
	require.Equal(t, websocket.StatusMessageTooBig, websocket.CloseStatus(err), "max_message_length")

	c = dial()
	several := limit("default_limit") + 20
	for i := range several {
		ok, reason := publish(issue(fmt.Sprint(i), nostr.Now()))
		require.True(t, ok, reason)
	}
	for filter, n := range map[string]int{
		`{"kinds":[1621]}`: limit("default_limit"), fmt.Sprintf(`{"kinds":[1621],"limit":%d}`, limit("max_limit")): min(several+3, limit("max_limit")),
		fmt.Sprintf(`{"kinds":[1621],"limit":%d}`, limit("max_limit")+1): min(several+3, limit("max_limit")),
	} {
		say(`["REQ","x",` + filter + `]`)
		got := 0
		for hear("")[0] == "EVENT" {
			got++
		}
		require.Equal(t, n, got, filter)
	}
}
