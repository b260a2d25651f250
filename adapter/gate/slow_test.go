package gate_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/fiatjaf/khatru"
	"github.com/nbd-wtf/go-nostr"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/adapter/gate"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// stored has the relay keep n events of a kind and a size.
func (s *server) stored(kind, n, size int) (ids map[string]bool) {
	s.t.Helper()
	ids = make(map[string]bool)
	for i := range n {
		ev := relaytest.NewKey("somebody").Event(nostr.Now()-nostr.Timestamp(i), kind, fmt.Sprint(i, strings.Repeat("x", size)))
		require.NoError(s.t, s.relay.StoreEvent[0](s.t.Context(), ev))
		ids[ev.ID] = true
	}
	return ids
}

// eventOf is the id of what an EVENT has.
func eventOf(t *testing.T, message string) string {
	t.Helper()
	var parts []json.RawMessage
	require.NoError(t, json.Unmarshal([]byte(message), &parts))
	require.Equal(t, `"EVENT"`, string(parts[0]), "%.100s", message)
	var e struct{ ID string }
	require.NoError(t, json.Unmarshal(parts[2], &e))
	return e.ID
}

// ends is what a connection ends with that is read to its end.
func (c *client) ends() (why websocket.CloseError) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	for {
		if _, _, err := c.Read(ctx); err != nil {
			require.True(c.t, errors.As(err, &why), "%v", err)
			return why
		}
	}
}

// Who was slower than the database, and had asked for more than there is room for, was hung up each
// time. What is stored waits for them, and they for nothing; events as they come do not wait for it.
func TestAnAnswerWaitsForItsClient(t *testing.T) {
	s := serveApart(t, gate.Config{Client: who}.With(gate.Fixed{MaxQueue: 4 << 20}))
	ids := s.stored(2, 80, 200_000)
	slow, other := s.dialAs("slow"), s.dial()
	before := liveHeap()
	slow.says(`["REQ","live",{"kinds":[1],"limit":0}]`)
	require.Equal(t, `["EOSE","live"]`, slow.hears())
	slow.says(`["REQ","all",{"kinds":[2]}]`)
	live := 0
	var most int64
	for i := 0; ; i++ {
		m := slow.hears()
		if m == `["EOSE","all"]` {
			break
		}
		if strings.HasPrefix(m, `["EVENT","live"`) {
			live++
			continue
		}
		id := eventOf(t, m)
		require.True(t, ids[id], "once")
		delete(ids, id)
		if i%10 == 0 {
			other.publishes(note(i))
			most = max(most, liveHeap()-before)
		}
		require.LessOrEqual(t, s.metric("gate_queued_bytes", ""), 2<<20)
	}
	require.Empty(t, ids)
	require.Less(t, most, int64(8<<20), "the answer has 16 MB")
	for ; live < 8; live++ {
		require.True(t, strings.HasPrefix(slow.hears(), `["EVENT","live"`))
	}
	require.Zero(t, s.metric("gate_disconnects_total", "slow"))
}

// An answer that waits takes up none of what others need, and gives its place back when nobody wants
// it any more.
func TestAnswersThatWaitTakeNothingFromOthers(t *testing.T) {
	s := serveApart(t, gate.Config{Client: who}.With(gate.Fixed{MaxQueue: 4 << 20}))
	filters := ""
	for kind := 2000; kind < 2003; kind++ {
		s.stored(kind, 60, 20_000)
		filters += fmt.Sprintf(`,{"kinds":[%d]}`, kind)
	}
	var slow []*client
	for range 10 {
		c := s.dialAs("slow")
		c.says(`["REQ","x"` + filters + `]`)
		slow = append(slow, c)
	}
	listening := func() int { return s.metric("gate_slots_in_use", "listening") }
	require.Eventually(t, func() bool { return listening() == 30 && s.metric("gate_slots_in_use", "work") == 0 }, patience, 5*time.Millisecond)
	require.Less(t, s.metric("gate_queued_bytes", ""), 20<<20)
	other := s.dialAs("other")
	other.publishes(note(1))
	other.says(`["REQ","x",{"kinds":[1]}]`)
	require.Contains(t, other.hears(), `["EVENT"`)
	for _, c := range slow {
		c.says(`["CLOSE","x"]`)
	}
	require.Eventually(t, func() bool { return listening() == 1 }, patience, 10*time.Millisecond)
	gone := s.dialAs("gone")
	gone.says(`["REQ","x"` + filters + `]`)
	require.Eventually(t, func() bool { return listening() == 4 }, patience, 5*time.Millisecond)
	require.NoError(t, gone.CloseNow())
	require.Eventually(t, func() bool { return listening() == 1 }, patience, 5*time.Millisecond)
}

// A client that waits for the relay and goes away kept its turn until that came.
func TestWhoWaitsAndGoesAway(t *testing.T) {
	relay := khatru.NewRelay()
	never := make(chan *nostr.Event)
	relay.QueryEvents = append(relay.QueryEvents, func(context.Context, nostr.Filter) (chan *nostr.Event, error) { return never, nil })
	s := front(t, relay, gate.Config{Client: who})
	a, b := s.dialAs("a"), s.dialAs("a")
	const filters = `,{"kinds":[1]},{"kinds":[2]},{"kinds":[3]},{"kinds":[4]}`
	for i := range 16 {
		a.says(fmt.Sprintf(`["REQ","x%d"%s]`, i, filters))
	}
	require.Eventually(t, func() bool { return s.metric("gate_slots_in_use", "work") == 16 }, patience, 5*time.Millisecond)
	b.says(`["REQ","x"` + filters + `]`)
	b.says(`["REQ","y"` + filters + `]`)
	waiting := func() int { return s.metric("gate_waiting", "work") }
	require.Eventually(t, func() bool { return waiting() == 1 }, patience, 5*time.Millisecond)
	require.NoError(t, b.CloseNow())
	require.Eventually(t, func() bool { return waiting() == 0 }, patience, 5*time.Millisecond)
	require.Eventually(t, func() bool { return s.metric("gate_slots_in_use", "listening") == 64 }, patience, 5*time.Millisecond)

	// What the relay is at takes up its places until it is done, and no longer.
	require.NoError(t, a.CloseNow())
	require.Eventually(t, func() bool { return s.metric("gate_connections", "") == 0 }, patience, 5*time.Millisecond)
	require.Never(t, func() bool { return s.metric("gate_slots_in_use", "work") != 16 }, 100*time.Millisecond, 10*time.Millisecond)
	close(never)
	require.Eventually(t, func() bool { return s.metric("gate_slots_in_use", "work") == 0 }, patience, 5*time.Millisecond)
	require.Eventually(t, func() bool { return s.metric("gate_slots_in_use", "listening") == 0 }, patience, 5*time.Millisecond)
}

// Queries that take long hold up no events: both have slots of their own.
func TestEventsDoNotWaitForQueries(t *testing.T) {
	relay := khatru.NewRelay()
	never := make(chan *nostr.Event)
	defer close(never)
	none := make(chan *nostr.Event)
	close(none)
	relay.QueryEvents = append(relay.QueryEvents, func(_ context.Context, f nostr.Filter) (chan *nostr.Event, error) {
		if slices.Equal(f.Kinds, []int{1}) {
			return never, nil
		}
		return none, nil // khatru looks for duplicates and deletions
	})
	relay.StoreEvent = append(relay.StoreEvent, func(context.Context, *nostr.Event) error { return nil })
	s := front(t, relay, gate.Config{Client: who})
	for client := range 8 {
		c := s.dialAs(fmt.Sprint("slow", client))
		for i := range 16 {
			c.says(fmt.Sprintf(`["REQ","x%d",{"kinds":[1]}]`, i))
		}
	}
	require.Eventually(t, func() bool { return s.metric("gate_slots_in_use", "work") == 128 }, patience, 5*time.Millisecond)
	author := s.dialAs("author")
	ev := relaytest.NewKey("author").Event(nostr.Now(), 1, "")
	message, err := json.Marshal([]any{"EVENT", ev})
	require.NoError(t, err)
	author.says(string(message))
	require.Equal(t, `["OK","`+ev.ID+`",true,""]`, author.hears())
}

func TestMetrics(t *testing.T) {
	g := gate.New(nil, gate.Config{})
	problems, err := testutil.CollectAndLint(g.Collector("ngit"))
	require.NoError(t, err)
	require.Empty(t, problems)
	require.Equal(t, 3+5+3+2+3, testutil.CollectAndCount(g.Collector("ngit")))
}
