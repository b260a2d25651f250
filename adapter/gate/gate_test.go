// khatru goes through its subscriptions while others open and close theirs: a race of its own.

//go:build !race

package gate_test

import (
	"context"
	"encoding/json"
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
	"github.com/fiatjaf/eventstore/slicestore"
	"github.com/fiatjaf/khatru"
	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/adapter/gate"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// server is a khatru relay behind a gate.
type server struct {
	t     *testing.T
	url   string
	relay *khatru.Relay
	store *slicestore.SliceStore
}

func serve(t *testing.T, cfg gate.Config) *server {
	t.Helper()
	relay, store := khatru.NewRelay(), &slicestore.SliceStore{}
	require.NoError(t, store.Init())
	relay.Negentropy = true
	relay.StoreEvent = append(relay.StoreEvent, store.SaveEvent)
	relay.QueryEvents = append(relay.QueryEvents, store.QueryEvents)
	g := gate.New(relay, cfg)
	front := httptest.NewServer(g)
	t.Cleanup(func() {
		g.Close()
		front.Close()
	})
	return &server{t: t, url: "ws" + strings.TrimPrefix(front.URL, "http"), relay: relay, store: store}
}

type client struct {
	*websocket.Conn
	t *testing.T
}

func (s *server) dial() *client {
	s.t.Helper()
	c, _, err := websocket.Dial(s.t.Context(), s.url, nil)
	require.NoError(s.t, err)
	c.SetReadLimit(-1)
	s.t.Cleanup(func() { _ = c.CloseNow() })
	return &client{c, s.t}
}

func (c *client) says(text string) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), 20*time.Second)
	defer cancel()
	require.NoError(c.t, c.Write(ctx, websocket.MessageText, []byte(text)))
}

// hears returns the next message that is none of those to leave out.
func (c *client) hears(but ...string) string {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), 20*time.Second)
	defer cancel()
next:
	for {
		_, m, err := c.Read(ctx)
		require.NoError(c.t, err)
		for _, b := range append(but, `["AUTH"`) {
			if strings.HasPrefix(string(m), b) {
				continue next
			}
		}
		return strings.TrimSpace(string(m))
	}
}

func (c *client) publishes(ev *nostr.Event) {
	c.t.Helper()
	b, err := json.Marshal([]any{"EVENT", ev})
	require.NoError(c.t, err)
	c.says(string(b))
	require.Equal(c.t, fmt.Sprintf(`["OK",%q,true,""]`, ev.ID), c.hears(`["EVENT"`))
}

func note(n int) *nostr.Event {
	return relaytest.NewKey("somebody").Event(nostr.Now(), 1, fmt.Sprint("note ", n))
}

// What is no message of NIP-01 never reaches the relay; some of these ended the process.
func TestOddMessages(t *testing.T) {
	s := serve(t, gate.Config{MaxName: 10, MaxFilters: 2})
	c := s.dial()
	for message, answer := range map[string]string{
		`,""`:                                `["NOTICE","invalid: this is no message of NIP-01"]`,
		` ,"x"`:                              `["NOTICE","invalid: this is no message of NIP-01"]`,
		`[]`:                                 `["NOTICE","invalid: this is no message of NIP-01"]`,
		`["REQ"`:                             `["NOTICE","invalid: this is no message of NIP-01"]`,
		`[1,2]`:                              `["NOTICE","invalid: a message begins with its label"]`,
		`["HELLO","x"]`:                      `["NOTICE","invalid: unknown label of a message"]`,
		`["EVENT",[]]`:                       `["NOTICE","invalid: EVENT has one event"]`,
		`["REQ",1,{}]`:                       `["NOTICE","invalid: a subscription has a name, and no long one"]`,
		`["REQ","",{}]`:                      `["NOTICE","invalid: a subscription has a name, and no long one"]`,
		`["REQ","x"]`:                        `["CLOSED","x","invalid: not as many filters as there must be"]`,
		`["REQ","x",1]`:                      `["CLOSED","x","invalid: this is no filter of NIP-01"]`,
		`["REQ","x",{},{},{}]`:               `["CLOSED","x","invalid: too many filters"]`,
		`["REQ","01234567890",{}]`:           `["CLOSED","01234567890","invalid: the subscription id is too long"]`,
		`["COUNT","x",{},{}]`:                `["CLOSED","x","invalid: not as many filters as there must be"]`,
		`["NEG-OPEN","a",{}]`:                `["NEG-ERR","a","invalid: NEG-OPEN has a filter and a message"]`,
		`["NEG-OPEN","a",{},1]`:              `["NEG-ERR","a","invalid: a negentropy message is in hex"]`,
		`["NEG-OPEN","a",1,"61"]`:            `["NEG-ERR","a","invalid: this is no filter of NIP-01"]`,
		`["REQ","x",{"since":1700000000.5}]`: `["CLOSED","x","invalid: this is no filter of NIP-01"]`,
		`["REQ","x",{"kinds":["x"]}]`:        `["CLOSED","x","invalid: this is no filter of NIP-01"]`,
		`["NEG-OPEN","b",{"limit":0},"61"]`:  `["NEG-ERR","b","invalid limit 0"]`,
		`["NEG-OPEN","a",{},"6"]`:            `["NEG-ERR","a","error: invalid negentropy message"]`,
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
	for range 2 { // once for each filter
		require.True(t, strings.HasPrefix(a.hears(), `["EVENT",`+name+`,{`))
	}
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

// A name that is used again stands for what came last: khatru kept each, until it refused more.
func TestNamesThatAreUsedAgain(t *testing.T) {
	s := serve(t, gate.Config{})
	a, b := s.dial(), s.dial()
	for range 700 {
		a.says(`["REQ","x",{"kinds":[1],"limit":0}]`)
		require.Equal(t, `["EOSE","x"]`, a.hears())
	}
	require.Eventually(t, func() bool { return len(s.relay.GetListeningFilters()) == 1 }, 5*time.Second, 10*time.Millisecond)
	b.publishes(note(1))
	require.True(t, strings.HasPrefix(a.hears(), `["EVENT","x",`))
	a.says(`["REQ","y",{"kinds":[1],"limit":0}]`)
	require.Equal(t, `["EOSE","y"]`, a.hears(), "once")
}

// Whoever did not read had everybody else wait, and took memory without bound.
func TestWhoDoesNotRead(t *testing.T) {
	s := serve(t, gate.Config{MaxQueue: 4 << 20})
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
		began := time.Now()
		ev := note(100 + i)
		other.publishes(ev)
		require.Contains(t, honest.hears(), ev.ID)
		require.Less(t, time.Since(began), 5*time.Second)
	}
}

// Who has all connections there are lets others in.
func TestRoomForOthers(t *testing.T) {
	s := serve(t, gate.Config{MaxConnections: 4, Client: func(r *http.Request) string { return r.Header.Get("Who") }})
	dial := func(who string) (*websocket.Conn, error) {
		c, resp, err := websocket.Dial(t.Context(), s.url, &websocket.DialOptions{HTTPHeader: http.Header{"Who": {who}}})
		if resp != nil && err != nil {
			require.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
		}
		return c, err
	}
	for range 4 {
		_, err := dial("a")
		require.NoError(t, err)
	}
	_, err := dial("a")
	require.Error(t, err)
	for range 2 {
		_, err := dial("b")
		require.NoError(t, err)
	}
	_, err = dial("b")
	require.Error(t, err, "they have half")
	_, err = dial("c")
	require.NoError(t, err)
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
	}), gate.Config{MaxBody: 1000})
	for kind, want := range map[string]string{"application/nostr+json+rpc": "1000 true", "application/octet-stream": "2000 false"} {
		answer, r := httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader(strings.Repeat("x", 2000)))
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
	require.Eventually(t, func() bool { return len(s.relay.GetListeningFilters()) == 0 }, 5*time.Second, 10*time.Millisecond)
}

// Filters that listen are bounded in all, and nobody has more of them than there are left.
func TestListening(t *testing.T) {
	s := serve(t, gate.Config{MaxListening: 10, MaxFilters: 5, Client: func(r *http.Request) string { return r.RemoteAddr }})
	a, b := s.dial(), s.dial()
	open := func(c *client, name string, n int) string {
		c.says(`["REQ","` + name + `"` + strings.Repeat(`,{"kinds":[1],"limit":0}`, n) + `]`)
		return c.hears()
	}
	require.Equal(t, `["EOSE","1"]`, open(a, "1", 5))
	require.Equal(t, `["CLOSED","2","rate-limited: too many subscriptions are open"]`, open(a, "2", 1))
	require.Equal(t, `["EOSE","1"]`, open(b, "1", 2))
	require.Equal(t, `["EOSE","1"]`, open(a, "1", 2), "in its place")
	require.Equal(t, `["EOSE","2"]`, open(a, "2", 1))
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
