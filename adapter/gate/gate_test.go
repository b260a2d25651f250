// khatru goes through its subscriptions while others open and close theirs: a race of its own.

//go:build !race

package gate_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/adapter/gate"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// What is no message of NIP-01 never reaches the relay; some of these ended the process.
func TestOddMessages(t *testing.T) {
	s := serve(t, gate.Config{})
	c, long := s.dial(), strings.Repeat("x", 251)
	for message, answer := range map[string]string{
		`,""`:           `["NOTICE","invalid: not JSON: invalid character ',' looking for beginning of value"]`,
		` ,"x"`:         `["NOTICE","invalid: not JSON: invalid character ',' looking for beginning of value"]`,
		`[]`:            `["NOTICE","invalid: this is no message of NIP-01"]`,
		`["REQ"`:        `["NOTICE","invalid: not JSON: unexpected end of JSON input"]`,
		`[1,2]`:         `["NOTICE","invalid: a message begins with its label"]`,
		`["HELLO","x"]`: `["NOTICE","invalid: unknown label of a message"]`,
		`["EVENT",[]]`:  `["NOTICE","invalid: expected {"]`,
		`["REQ",1,{}]`:  `["NOTICE","invalid: a subscription has a name, and no long one"]`,
		`["REQ","",{}]`: `["NOTICE","invalid: a subscription has a name, and no long one"]`,
		`["REQ","x"]`:   `["CLOSED","x","invalid: not as many filters as there must be"]`,
		`["REQ","x",1]`: `["CLOSED","x","invalid: a filter is an object, in UTF-8"]`,
		`["REQ","x"` + strings.Repeat(",{}", 101) + `]`:    `["CLOSED","x","invalid: too many filters"]`,
		`["REQ","` + long + `",{}]`:                        `["CLOSED","` + long + `","invalid: the subscription id is too long"]`,
		`["COUNT","x",{},{}]`:                              `["CLOSED","x","invalid: not as many filters as there must be"]`,
		`["NEG-OPEN","a",{}]`:                              `["NEG-ERR","a","invalid: NEG-OPEN has a filter and a message"]`,
		`["NEG-OPEN","a",{},1]`:                            `["NEG-ERR","a","invalid: a negentropy message is in hex"]`,
		`["NEG-OPEN","a",1,"61"]`:                          `["NEG-ERR","a","invalid: a filter is an object, in UTF-8"]`,
		`["REQ","x",{"since":1700000000.5}]`:               `["CLOSED","x","invalid: since is not a non-negative integer"]`,
		`["REQ","x",{"kinds":["x"]}]`:                      `["CLOSED","x","invalid: kinds is not a list of non-negative integers"]`,
		`["NEG-OPEN","b",{"limit":0},"61"]`:                `["NEG-ERR","b","invalid limit 0"]`,
		`["NEG-OPEN","a",{},"6"]`:                          `["NEG-ERR","a","error: invalid negentropy message"]`,
		`["NEG-OPEN","a",{},"610081ffffffffffffffff7f00"]`: `["NEG-ERR","a","error: invalid negentropy message"]`,
		`["NEG-OPEN","a",{},"61000002c0808000"]`:           `["NEG-ERR","a","error: invalid negentropy message"]`,
		`["NEG-MSG","a","61"]`:                             `["NEG-ERR","a","closed: no reconciliation has this name"]`,
		`["REQ","` + strings.Repeat("x", 5000) + `",{}]`:   `["NOTICE","invalid: a subscription has a name, and no long one"]`,
	} {
		c.says(message)
		require.Equal(t, answer, c.hears(), message)
	}
	require.NoError(t, c.Write(t.Context(), websocket.MessageBinary, []byte(`["CLOSE","x"]`)))
	require.Equal(t, `["NOTICE","invalid: messages are text"]`, c.hears())
	c.publishes(note(1))
}

// A relay behind a gate is the relay.
func TestARelayBehindAGate(t *testing.T) {
	s := serve(t, gate.Config{})
	a, b := s.dial(), s.dial()
	first := note(1)
	a.publishes(first)
	a.says(` [ "REQ" , "name \"é\"" , {"kinds":[1]} , {"ids":["` + first.ID + `"]}]`)
	name := `"name \"é\""`
	require.True(t, strings.HasPrefix(a.hears(), `["EVENT",`+name+`,{`))
	require.Equal(t, `["EOSE",`+name+`]`, a.hears())
	second := note(2)
	b.publishes(second)
	live := a.hears()
	require.True(t, strings.HasPrefix(live, `["EVENT",`+name+`,{`) && strings.Contains(live, second.ID), live)
	a.says(`["CLOSE","name \"é\""]`)
	a.says(`["CLOSE","never opened"]`)
	a.says(`["COUNT","n",{"kinds":[1]}]`)
	require.True(t, strings.HasPrefix(a.hears(), `["C`))
	b.publishes(note(3))
	a.says(`["REQ","again",{"kinds":[1],"limit":0}]`)
	require.Equal(t, `["EOSE","again"]`, a.hears(), "of what is closed nothing comes")
	a.says(`["NEG-OPEN","again",{"kinds":[1]},"6100000200"]`)
	require.True(t, strings.HasPrefix(a.hears(), `["NEG-MSG","again","61`))
	a.says(`["NEG-CLOSE","again"]`)
	a.says(`["NEG-MSG","again","6100000200"]`)
	require.Equal(t, `["NEG-ERR","again","closed: no reconciliation has this name"]`, a.hears())
}

// An event came once for each filter that it matches, so that a page of 500 was one of 60, and was
// fetched again and again by who asks with twenty filters.
func TestWhatSeveralFiltersFindComesOnce(t *testing.T) {
	s := serve(t, gate.Config{})
	a, b := s.dial(), s.dial()
	var ids []string
	for i := range 100 {
		ev := note(i)
		ev.Content = `"id":"` + strings.Repeat("0", 64) + `"`
		require.NoError(t, ev.Sign(nostr.GeneratePrivateKey()))
		a.publishes(ev)
		ids = append(ids, ev.ID)
	}
	a.says(`["REQ","x",{"kinds":[1]},{"since":0},{"kinds":[1],"limit":30}]`)
	var got []string
	for range ids {
		got = append(got, eventOf(t, a.hears()))
	}
	require.ElementsMatch(t, ids, got)
	require.Equal(t, `["EOSE","x"]`, a.hears())
	for i := range 50 {
		ev := note(1000 + i)
		b.publishes(ev)
		require.Equal(t, ev.ID, eventOf(t, a.hears()))
	}
	a.says(`["REQ","y",{"kinds":[1],"limit":0}]`)
	require.Equal(t, `["EOSE","y"]`, a.hears())
}

// A name that is used again stands for what came last: khatru kept each, until it refused more.
func TestNamesThatAreUsedAgain(t *testing.T) {
	s := serve(t, gate.Config{})
	a, b := s.dial(), s.dial()
	for range 700 {
		a.says(`["REQ","x",{"kinds":[1],"limit":0}]`)
		require.Equal(t, `["EOSE","x"]`, a.hears())
	}
	require.Eventually(t, func() bool { return s.metric("gate_slots_in_use", "listening") == 1 }, patience, 10*time.Millisecond)
	b.publishes(note(1))
	require.True(t, strings.HasPrefix(a.hears(), `["EVENT","x",`))
	a.says(`["REQ","y",{"kinds":[1],"limit":0}]`)
	require.Equal(t, `["EOSE","y"]`, a.hears(), "once")
}

// Whoever did not read had everybody else wait, and took memory without bound.
func TestWhoDoesNotRead(t *testing.T) {
	s := serve(t, gate.Config{}.With(gate.Fixed{MaxQueue: 4 << 20}))
	honest, other := s.dial(), s.dial()
	honest.says(`["REQ","live",{"kinds":[1],"limit":0}]`)
	require.Equal(t, `["EOSE","live"]`, honest.hears())
	long := relaytest.NewKey("somebody").Event(nostr.Now(), 2, strings.Repeat("x", 300_000))
	other.publishes(long)
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "ws://"))
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	require.NoError(t, conn.(*net.TCPConn).SetReadBuffer(4096))
	bad, _, err := websocket.Dial(t.Context(), s.url, &websocket.DialOptions{HTTPClient: &http.Client{Transport: &http.Transport{
		DialContext: func(context.Context, string, string) (net.Conn, error) { return conn, nil },
	}}})
	require.NoError(t, err)
	before := runtime.NumGoroutine()
	for i := range 2000 {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		err := bad.Write(ctx, websocket.MessageText, fmt.Appendf(nil, `["REQ","%d",{"kinds":[2]},{"kinds":[1]}]`, i))
		cancel()
		if err != nil {
			break // it is not read any more, or it is over
		}
	}
	require.Less(t, runtime.NumGoroutine(), before+100)
	for i := range 20 {
		ev := note(100 + i)
		other.publishes(ev)
		require.Contains(t, honest.hears(), ev.ID)
	}
}

// A relay that refuses a connection says so to the client.
func TestARelayThatRefuses(t *testing.T) {
	s := serve(t, gate.Config{})
	s.relay.RejectConnection = append(s.relay.RejectConnection, func(r *http.Request) bool { return r.Header.Get("Who") == "a" })
	_, resp, err := websocket.Dial(t.Context(), s.url, &websocket.DialOptions{HTTPHeader: http.Header{"Who": {"a"}}})
	require.Error(t, err)
	require.Equal(t, http.StatusTooManyRequests, resp.StatusCode)
	s.dial().publishes(note(1))
}

// The body of a request that manages the relay was read whole before it was seen whose it is.
func TestBodies(t *testing.T) {
	var most *http.MaxBytesError
	g := gate.New(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		_, _ = fmt.Fprint(w, len(body), errors.As(err, &most))
	}), gate.Config{})
	for kind, want := range map[string]string{"application/nostr+json+rpc": "1048576 true", "application/octet-stream": "2000000 false"} {
		answer, r := httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader(strings.Repeat("x", 2_000_000)))
		r.Header.Set("Content-Type", kind)
		g.ServeHTTP(answer, r)
		require.Equal(t, want, answer.Body.String())
	}
}

// Of a subscription that is refused khatru kept the filters before the one that it did not want.
func TestNothingIsLeftOfWhatIsRefused(t *testing.T) {
	s := serve(t, gate.Config{})
	s.relay.RejectFilter = append(s.relay.RejectFilter, func(_ context.Context, f nostr.Filter) (bool, string) {
		return slices.Contains(f.Kinds, 7), "blocked: no reactions"
	})
	c := s.dial()
	c.says(`["REQ","x",{"kinds":[1]},{"kinds":[7]}]`)
	require.Equal(t, `["CLOSED","x","blocked: no reactions"]`, c.hears(`["E`))
	require.Eventually(t, func() bool { return s.metric("gate_slots_in_use", "listening") == 0 }, patience, 10*time.Millisecond)
	require.Len(t, s.relay.GetListeningFilters(), 1, "that is the gate's")
}

// A backend may make a query for each author with each kind: one message of 400 kB ended the process.
func TestWhatAFilterMayName(t *testing.T) {
	s := serve(t, gate.Config{})
	c := s.dial()
	many := func(n int, one string) string { return "[" + strings.TrimSuffix(strings.Repeat(one+",", n), ",") + "]" }
	key := `"` + strings.Repeat("a", 64) + `"`
	for filter, reason := range map[string]string{
		`{"authors":` + many(101, key) + `,"kinds":` + many(100, "1") + `}`: "invalid: too many authors",
		`{"kinds":` + many(10_001, "1") + `}`:                               "invalid: too many authors",
		`{"ids":` + many(4001, key) + `}`:                                   "invalid: too many ids",
		`{"#e":` + many(2001, key) + `,"#E":` + many(2000, key) + `}`:       "invalid: too many tag values",
	} {
		c.says(`["REQ","x",` + filter + `]`)
		require.Equal(t, `["CLOSED","x","`+reason+`"]`, c.hears())
		c.says(`["NEG-OPEN","x",` + filter + `,"6100000200"]`)
		require.Equal(t, `["NEG-ERR","x","`+reason+`"]`, c.hears())
	}
	c.says(`["REQ","x",{"authors":` + many(100, key) + `,"kinds":` + many(100, "1") + `}]`)
	require.Equal(t, `["EOSE","x"]`, c.hears())
}

// What the relay refuses takes up no room for reconciliations of others.
func TestReconciliationsThatAreRefused(t *testing.T) {
	s := serve(t, gate.Config{Client: func(r *http.Request) string { return r.RemoteAddr }})
	for range 12 {
		c := s.dial()
		for i := range 10 {
			c.says(fmt.Sprintf(`["NEG-OPEN","%d",{"limit":0},"6100000200"]`, i))
			require.Equal(t, fmt.Sprintf(`["NEG-ERR","%d","invalid limit 0"]`, i), c.hears())
		}
	}
	c := s.dial()
	c.says(`["NEG-OPEN","x",{},"6100000200"]`)
	require.True(t, strings.HasPrefix(c.hears(), `["NEG-MSG","x",`))
}

// Who does not read events as they come is hung up, and did not learn why.
func TestWhoIsHungUpHearsWhy(t *testing.T) {
	s := serve(t, gate.Config{Client: who}.With(gate.Fixed{MaxQueue: 1 << 20}))
	slow, other := s.dialAs("slow"), s.dial()
	slow.says(`["REQ","live",{"kinds":[1],"limit":0}]`)
	require.Equal(t, `["EOSE","live"]`, slow.hears())
	for i := 0; i < 40 && s.metric("gate_disconnects_total", "slow") == 0; i++ {
		other.publishes(relaytest.NewKey("somebody").Event(nostr.Now(), 1, fmt.Sprint(i, strings.Repeat("x", 50_000))))
	}
	const reason = "too slow: there is no more room for what you have asked for"
	require.Equal(t, websocket.CloseError{Code: websocket.StatusTryAgainLater, Reason: reason}, slow.ends())
	require.Equal(t, 1, s.metric("gate_disconnects_total", "slow"))
}

// A bound for all that is smaller than what one connection must be able to have had everybody hung up
// who heard an event.
func TestSmallRoomForAllQueues(t *testing.T) {
	s := serve(t, gate.Config{MaxQueues: 1, Client: who})
	other := s.dial()
	var all []*client
	for i := range 4 {
		c := s.dialAs(fmt.Sprint("honest", i))
		c.says(`["REQ","live",{"kinds":[1],"limit":0}]`)
		require.Equal(t, `["EOSE","live"]`, c.hears())
		all = append(all, c)
	}
	for i := range 3 {
		ev := relaytest.NewKey("somebody").Event(nostr.Now(), 1, fmt.Sprint(i, strings.Repeat("x", 500_000)))
		other.publishes(ev)
		for _, c := range all {
			require.Equal(t, ev.ID, eventOf(t, c.hears()))
		}
	}
	require.Zero(t, s.metric("gate_disconnects_total", "slow"))
}

// Room for what waits is bounded in all; a MiB of each client's was not. Who has most gives way.
func TestRoomForAllQueues(t *testing.T) {
	const room = 3 << 20
	s := serve(t, gate.Config{MaxQueues: room, MaxMessage: 64 << 10, Client: who})
	var slow []*client
	for i := range 12 {
		c := s.dialAs(fmt.Sprint("slow", i%6))
		c.says(`["REQ","live",{"kinds":[1],"limit":0}]`)
		require.Equal(t, `["EOSE","live"]`, c.hears())
		slow = append(slow, c)
	}
	most := s.dialAs("slow0")
	most.says(`["REQ","live",{"kinds":[1],"limit":0}]`)
	require.Equal(t, `["EOSE","live"]`, most.hears())
	honest, other := s.dialAs("honest"), s.dial()
	honest.says(`["REQ","live",{"kinds":[1],"limit":0}]`)
	require.Equal(t, `["EOSE","live"]`, honest.hears())
	first, last := 0, ""
	for i := range 60 {
		ev := relaytest.NewKey("somebody").Event(nostr.Now(), 1, fmt.Sprint(i, strings.Repeat("x", 20_000)))
		other.publishes(ev)
		id := eventOf(t, honest.hears())
		for id == last { // khatru may come to a listener again that it moves
			id = eventOf(t, honest.hears())
		}
		require.Equal(t, ev.ID, id)
		last = id
		require.LessOrEqual(t, s.metric("gate_queued_bytes", ""), room+1<<16)
		if s.metric("gate_disconnects_total", "slow") > 0 && first == 0 {
			first = i
			require.Eventually(t, func() bool { return s.metric("gate_clients", "") == 8 }, patience, 5*time.Millisecond, "of three")
		}
	}
	require.NotZero(t, first)
	require.NotEmpty(t, slow)
}

// 60 connections of one client with invalid messages delayed the answers to others by 15 s.
func TestMessagesOfOneClientHaveARate(t *testing.T) {
	s := serve(t, gate.Config{Client: who})
	const each = 600 // of 4 connections: 400 more than may come together, at 500 a second
	began := time.Now()
	var flood []*client
	for range 4 {
		c := s.dialAs("flood")
		for range each {
			c.says(`["NEG-OPEN","n",{},"nonsense"]`)
		}
		flood = append(flood, c)
	}
	other := s.dialAs("other")
	other.says(`["REQ","x",{"kinds":[1],"limit":1}]`)
	require.Equal(t, `["EOSE","x"]`, other.hears())
	for _, c := range flood {
		for range each {
			require.Contains(t, c.hears(), `["NEG-ERR","n"`)
		}
	}
	require.Greater(t, time.Since(began), 700*time.Millisecond)
}
