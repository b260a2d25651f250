// khatru goes through its subscriptions while others open and close theirs, where a loaded machine has it keep them: a race of its own.

//go:build !race

package gate_test

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/fiatjaf/eventstore"
	"github.com/fiatjaf/khatru"
	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/adapter/gate"
	"github.com/graspsync/graspsync/nip34"
)

// open opens subscriptions to all notes that come, and returns when they are open.
func (c *client) opens(n int) {
	c.t.Helper()
	for i := range n {
		c.says(fmt.Sprintf(`["REQ","%d",{"kinds":[1],"limit":0}]`, i))
	}
	for range n {
		require.Contains(c.t, c.hears(), `["EOSE","`)
	}
}

// NIP-11 announces 500 subscriptions of a connection. 1,500 that had their stored events were open.
func TestCaseH3_SubscriptionsOfAConnection(t *testing.T) {
	s := serve(t, gate.Config{})
	c := s.dial()
	c.publishes(note(1))
	for i := range 500 {
		c.says(fmt.Sprintf(`["REQ","%d",{"kinds":[1],"limit":1}]`, i))
		require.Equal(t, fmt.Sprintf(`["EOSE","%d"]`, i), c.hears(`["EVENT"`))
	}
	for range 2 {
		c.says(`["REQ","more",{"kinds":[1],"limit":1}]`)
		require.Equal(t, `["CLOSED","more","rate-limited: too many subscriptions are open"]`, c.hears(`["EVENT"`))
	}
	c.says(`["REQ","7",{"kinds":[1],"limit":1}]`)
	require.Equal(t, `["EOSE","7"]`, c.hears(`["EVENT"`), "in its place")
	c.says(`["CLOSE","8"]`)
	c.says(`["REQ","more",{"kinds":[1],"limit":1}]`)
	require.Equal(t, `["EOSE","more"]`, c.hears(`["EVENT"`))
	other := s.dial()
	other.opens(1)
}

// Each event was copied once for each subscription of a connection, and whoever published it waited for that.
func TestCaseH3_AnEventIsQueuedOncePerConnection(t *testing.T) {
	s := serve(t, gate.Config{Client: who})
	const conns, subs, size, events = 5, 300, 20_000, 5
	for range conns {
		s.dialAs("10.0.0.1").opens(subs)
	}
	honest := s.dialAs("10.9.0.1")
	for i := range events {
		ev := note(i)
		ev.Content = strings.Repeat("x", size)
		require.NoError(t, ev.Sign("0000000000000000000000000000000000000000000000000000000000000001"))
		honest.publishes(ev)
		require.LessOrEqual(t, s.metric("gate_queued_bytes", ""), (i+1)*conns*(size+subs*10+1000))
	}
	require.Zero(t, s.metric("gate_disconnects_total", "slow"))
}

// One client had each event written 24,000 times, and all others wait for that.
func TestCaseH3_EventsWrittenToOneClientAreBounded(t *testing.T) {
	s := serve(t, gate.Config{Client: who}.With(gate.Fixed{EventRate: 20}))
	honest := s.dialAs("10.9.0.1")
	honest.opens(1)
	for range 2 {
		s.dialAs("10.0.0.1").opens(150)
	}
	publisher := s.dialAs("10.8.0.1")
	for i := range 10 {
		ev := note(i)
		publisher.publishes(ev)
		require.Equal(t, ev.ID, eventOf(t, honest.hears()))
	}
	require.LessOrEqual(t, s.metric("gate_slots_in_use", "listening"), 250)
	require.NotZero(t, s.metric("gate_refused_total", "listening"))
}

// Many clients that each keep to their part had more events written than the server can. Those with most lose subscriptions, and
// clients with few do not.
func TestCaseH3_EventsWrittenToAllClientsAreBounded(t *testing.T) {
	s := serve(t, gate.Config{Client: who}.With(gate.Fixed{EventRate: 20}))
	var honest []*client
	for i := range 10 {
		c := s.dialAs(fmt.Sprintf("10.7.%d.1", i))
		c.opens(1)
		honest = append(honest, c)
	}
	for i := range 12 {
		s.dialAs(fmt.Sprintf("10.0.%d.1", i)).opens(90)
	}
	publisher := s.dialAs("10.8.0.1")
	for i := range 10 {
		ev := note(i)
		publisher.publishes(ev)
		for _, c := range honest {
			require.Equal(t, ev.ID, eventOf(t, c.hears()))
		}
	}
	require.LessOrEqual(t, s.metric("gate_slots_in_use", "listening"), 1000)
}

// Ten clients with large subscriptions had all room there is, and kept it: others, relays that sync among them, had none.
func TestCaseH2_SubscriptionsOfFewClients(t *testing.T) {
	s := serve(t, gate.Config{Client: who}.With(gate.Fixed{MaxListening: 5000}))
	var values []string
	for i := range 3900 {
		values = append(values, fmt.Sprint(i))
	}
	list, err := json.Marshal(values)
	require.NoError(t, err)
	filter := `{"limit":0,"#t":` + string(list) + `}`
	var all []*client
	for i := range 10 {
		all = append(all, s.dialAs(fmt.Sprintf("10.0.%d.1", i)))
	}
	for n := range 6 {
		for _, c := range all {
			c.says(fmt.Sprintf(`["REQ","%d",%s]`, n, filter))
			c.hears(`["CLOSED"`)
		}
	}
	for i := range 60 {
		all[i%len(all)].says(fmt.Sprintf(`["REQ","s%d",{"kinds":[1],"limit":0}]`, i))
	}
	for i := range 20 {
		c := s.dialAs(fmt.Sprintf("10.9.%d.1", i))
		c.opens(20)
		ev := note(i)
		all[0].says(string(must(json.Marshal([]any{"EVENT", ev}))))
		require.Equal(t, ev.ID, eventOf(t, c.hears()))
	}
	require.LessOrEqual(t, s.metric("gate_slots_in_use", "listening"), 5000)
}

func must(b []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return b
}

// As many clients as there may be connections, each with an idle one, kept everybody else out.
func TestCaseH2_IdleConnections(t *testing.T) {
	for name, address := range map[string]string{"of networks": "10.0.%d.1", "of one network": "10.0.0.%d", "of one /48": "2001:db8:0:%d::1"} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, gate.Config{MaxConnections: 16, Client: who})
			listener := s.dialAs("10.1.0.1")
			listener.opens(1)
			first := s.dialAs(fmt.Sprintf(address, 0))
			for i := range 40 {
				s.dialAs(fmt.Sprintf(address, i))
			}
			_, _, err := first.Read(t.Context())
			require.Contains(t, []websocket.StatusCode{websocket.StatusTryAgainLater, -1}, websocket.CloseStatus(err), "%v", err) // -1: cut before that was written
			for i := range 10 {
				c := s.dialAs(fmt.Sprintf("10.9.%d.1", i))
				ev := note(i)
				c.publishes(ev)
				require.Equal(t, ev.ID, eventOf(t, listener.hears()), "who listens stays, though it was first")
			}
			require.LessOrEqual(t, s.metric("gate_connections", ""), 16)
		})
	}
}

// A network that has most yields, and not its many single clients one by one.
func TestCaseH2_NetworkWithMostYields(t *testing.T) {
	s := serve(t, gate.Config{MaxConnections: 20, Client: who})
	var others []*client
	for i := range 8 {
		c := s.dialAs(fmt.Sprintf("10.1.%d.1", i))
		c.says(`["REQ","x",{"kinds":[1],"limit":0}]`)
		require.Equal(t, `["EOSE","x"]`, c.hears())
		others = append(others, c)
	}
	for i := range 50 {
		c := s.dialAs(fmt.Sprintf("10.2.3.%d", i))
		c.says(`["REQ","x",{"kinds":[1],"limit":0}]`)
	}
	require.Eventually(t, func() bool { return s.metric("gate_disconnects_total", "room") >= 38 }, patience, 10*time.Millisecond)
	ev := note(1)
	s.relay.BroadcastEvent(ev)
	for _, c := range others {
		require.Equal(t, ev.ID, eventOf(t, c.hears()))
	}
}

// The goroutine that read what the relay wrote waited for the relay to read, which waited for it.
func TestCaseC5_ReconciliationThatIsClosedAtOnce(t *testing.T) {
	s := serve(t, gate.Config{})
	var delay atomic.Int64
	s.relay.QueryEvents = append(s.relay.QueryEvents, func(ctx context.Context, f nostr.Filter) (chan *nostr.Event, error) {
		for began := time.Now(); eventstore.IsNegentropySession(ctx) && time.Since(began) < time.Duration(delay.Load()); {
			runtime.Gosched()
		}
		none := make(chan *nostr.Event)
		close(none)
		return none, nil
	})
	for n := range 300 {
		delay.Store(int64(n%100) * int64(10*time.Microsecond))
		c := s.dial()
		for i := range 8 {
			c.says(fmt.Sprintf(`["NEG-OPEN","%d",{"kinds":[1]},"6100000200"]`, i))
			c.says(fmt.Sprintf(`["NEG-CLOSE","%d"]`, i))
		}
		c.says(fmt.Sprintf(`["REQ","%d",{"kinds":[1]}]`, n))
		require.Equal(t, fmt.Sprintf(`["EOSE","%d"]`, n), c.hears(`["NEG-MSG"`))
		require.NoError(t, c.CloseNow())
	}
}

// The same of subscriptions that are replaced and closed before they are answered, counts, and events between them.
func TestCaseC5_WhatIsClosedAtOnce(t *testing.T) {
	s := serve(t, gate.Config{})
	for n := range 50 {
		c := s.dial()
		for i := range 5 {
			c.says(`["NEG-OPEN","n",{"kinds":[1]},"6100000200"]`)
			c.says(fmt.Sprintf(`["REQ","r%d",{"kinds":[1]}]`, i))
			c.says(fmt.Sprintf(`["CLOSE","r%d"]`, i))
		}
		c.says(`["NEG-CLOSE","n"]`)
		ev := note(1000 + n)
		c.says(string(must(json.Marshal([]any{"EVENT", ev}))))
		require.Contains(t, c.hears(`["NEG-MSG"`, `["EOSE","r`, `["EVENT"`), ev.ID)
		c.says(`["REQ","last",{"kinds":[2]}]`)
		require.Equal(t, `["EOSE","last"]`, c.hears(`["NEG-MSG"`, `["EOSE","r`, `["EVENT"`))
		require.NoError(t, c.CloseNow())
	}
}

// Clients add members to events that the relay need not know. Sync ignored them, and the relay refused the message.
func TestCaseC2_MembersThatAreUnknown(t *testing.T) {
	s := serve(t, gate.Config{})
	c := s.dial()
	for i, more := range []string{`"seen_on":[]`, `"seen_on":["wss://a.example",{"b":null}],"relay":"x"`, `"ID":1`, `"":{}`} {
		ev := note(i)
		text := string(must(json.Marshal(ev)))
		c.says(`["EVENT",{` + more + `,` + text[1:] + `]`)
		require.Equal(t, fmt.Sprintf(`["OK",%q,true,""]`, ev.ID), c.hears(), more)
		c.says(`["REQ","x",{"ids":["` + ev.ID + `"]}]`)
		require.NotContains(t, c.hears(), "seen_on")
		c.hears()
	}
	ev := note(100)
	c.says(`["EVENT",` + string(must(json.Marshal(ev))) + `,"surplus"]`)
	require.Equal(t, fmt.Sprintf(`["OK",%q,true,""]`, ev.ID), c.hears())
}

// badEvents are events with an id that can be read, by the field that is wrong.
func badEvents(t *testing.T) map[string]map[string]string {
	t.Helper()
	members := func() map[string]string {
		out := make(map[string]string)
		var raw map[string]json.RawMessage
		require.NoError(t, json.Unmarshal(must(json.Marshal(note(1))), &raw))
		for k, v := range raw {
			out[k] = string(v)
		}
		return out
	}
	bad := make(map[string]map[string]string)
	for i, c := range [][2]string{
		{"created_at", `"1700000000"`}, {"created_at", `1.5`}, {"created_at", `-1`}, {"created_at", `null`}, {"kind", `70000`}, {"kind", `"1"`},
		{"tags", `[[1,2]]`}, {"tags", `{}`}, {"tags", `null`}, {"content", `7`}, {"content", `"\ud800"`}, {"pubkey", `"ab"`}, {"sig", `1`}, {"sig", `"zz"`},
		{"sig", ""}, {"content", ""}, {"pubkey", ""}, {"kind", ""}, {"tags", ""}, {"created_at", ""}, {"id", `"abc"`},
	} {
		m := members()
		if m[c[0]] = c[1]; c[1] == "" {
			delete(m, c[0])
		}
		bad[fmt.Sprint(c[0], " ", i)] = m
	}
	return bad
}

// An event that could not be read was answered by a NOTICE, and its client waited for OK.
func TestCaseC3_EventsThatCannotBeRead(t *testing.T) {
	s := serve(t, gate.Config{})
	c := s.dial()
	for name, members := range badEvents(t) {
		raw := make(map[string]json.RawMessage)
		for k, v := range members {
			raw[k] = json.RawMessage(v)
		}
		field, _, _ := strings.Cut(name, " ")
		for _, label := range []string{"EVENT", "AUTH"} {
			c.says(`["` + label + `",` + string(must(json.Marshal(raw))) + `]`)
			answer := c.hears()
			require.True(t, strings.HasPrefix(answer, `["OK",`+members["id"]+`,false,"invalid: `), "%s: %s", name, answer)
			require.Contains(t, answer, field, name)
		}
	}
	c.says(`["EVENT",{"id":7,"kind":1}]`)
	require.Contains(t, c.hears(), `["NOTICE","invalid: id`)
	c.publishes(note(2))
}

// A message that was not JSON was answered by a NOTICE, although it had the id of its event or the name of its subscription.
func TestCaseC3_MessagesThatAreNotJSON(t *testing.T) {
	s := serve(t, gate.Config{})
	c := s.dial()
	ev := note(1)
	deep := strings.Repeat("[", 20_000)
	text := string(must(json.Marshal(ev)))
	for name, broken := range map[string]string{
		"cut off": text[:len(text)-5], "a control byte": strings.Replace(text, "note 1", "note \x01", 1), "an escape": strings.Replace(text, "note 1", `note \x`, 1),
		"no UTF-8": strings.Replace(text, "note 1", "note \xff", 1), "a quote": strings.Replace(text, "note 1", `5" note`, 1), "a comma": text[:len(text)-1] + ",}",
		"nested deep": text[:len(text)-1] + `,"x":` + deep, "nested deep and closed": text[:len(text)-1] + `,"x":` + deep + strings.Repeat("]", len(deep)) + "}",
		"a number": strings.Replace(text, `"kind":1`, `"kind":1e`, 1), "a huge number": strings.Replace(text, `"kind":1`, `"kind":1e999`, 1), "no value": strings.Replace(text, `"kind":1`, `"kind":`, 1),
		"a subscription": `"x",` + text, "twice": text[:len(text)-1] + `,"content":"x"}`, "two ids": text[:len(text)-1] + `,"id":"` + ev.ID + `"}`,
	} {
		for _, label := range []string{"EVENT", "AUTH"} {
			c.says(` [ "` + label + `" , ` + broken + `]`)
			require.Contains(t, c.hears(), fmt.Sprintf(`["OK",%q,false,"invalid: `, ev.ID), name)
		}
	}
	for label, answer := range map[string]string{"REQ": "CLOSED", "COUNT": "CLOSED", "NEG-OPEN": "NEG-ERR", "NEG-MSG": "NEG-ERR"} {
		for _, broken := range []string{`{"kinds":[1]`, `{"kinds":[1,]}`, deep, `{"#t":["` + "\x01" + `"]}`, `{`, ``, `{"kinds":01}`} {
			c.says(`["` + label + `","a\"b",` + broken + `]`)
			require.Contains(t, c.hears(), `["`+answer+`","a\"b","invalid: `, broken)
		}
	}
	c.says(`["REQ","x",{"#t":["` + "\xff" + `"]}]`)
	require.Contains(t, c.hears(), `["CLOSED","x","invalid: `)
	other := s.dial()
	c.says(`["REQ","x",{"kinds":[1],"limit":0}]`)
	require.Equal(t, `["EOSE","x"]`, c.hears())
	c.says(`["REQ","x",{"kinds":[1]`)
	require.Contains(t, c.hears(), `["CLOSED","x","invalid: `)
	other.publishes(ev)
	c.says(`["REQ","y",{"kinds":[2]}]`)
	require.Equal(t, `["EOSE","y"]`, c.hears(), "what was to be replaced is closed")
	for _, nothing := range []string{``, `[`, `["EVENT"`, `["EVENT",{"id":"` + ev.ID[:63] + `"`, `{"id":"` + ev.ID + `"`, `["REQ",`, `["REQ",7,`, `["OTHER","x",`} {
		c.says(nothing)
		require.Contains(t, c.hears(), `["NOTICE","invalid: `, nothing)
	}
}

// Whatever was wrong with an AUTH, the client heard the same words. One for another relay on our host counted as ours.
func TestCaseC14_WhyAuthIsRefused(t *testing.T) {
	identity, err := nip34.ParseIdentity("wss://grasp.example", "wss://shared.example/git")
	require.NoError(t, err)
	s := serve(t, gate.Config{Identity: identity})
	s.relay.OnConnect = append(s.relay.OnConnect, khatru.RequestAuth)
	c := s.dial()
	_, text, err := c.Read(t.Context())
	require.NoError(t, err)
	challenge := strings.Split(string(text), `"`)[3]
	auth := func(change func(*nostr.Event)) *nostr.Event {
		tags := nostr.Tags{{"relay", "wss://grasp.example"}, {"challenge", challenge}}
		e := &nostr.Event{Kind: nostr.KindClientAuthentication, CreatedAt: nostr.Now(), Tags: tags}
		change(e)
		require.NoError(t, e.Sign("0000000000000000000000000000000000000000000000000000000000000001"))
		return e
	}
	hears := func(e *nostr.Event) string {
		c.says(string(must(json.Marshal([]any{"AUTH", e}))))
		return c.hears()
	}
	signedFor := func(relay string) *nostr.Event { return auth(func(e *nostr.Event) { e.Tags[0][1] = relay }) }
	good := auth(func(*nostr.Event) {})
	otherID, otherSig := *good, *good
	otherID.Content = "x"
	otherSig.Sig = strings.Repeat("ab", 64)
	refused := map[*nostr.Event]string{
		auth(func(e *nostr.Event) { e.Kind = 1 }):             "kind: 1 is not 22242",
		auth(func(e *nostr.Event) { e.Tags = e.Tags[1:] }):    "the relay tag is missing",
		auth(func(e *nostr.Event) { e.Tags = e.Tags[:1] }):    "the challenge tag is missing",
		auth(func(e *nostr.Event) { e.Tags[1][1] = "other" }): "challenge: not the challenge of this connection",
		auth(func(e *nostr.Event) { e.CreatedAt -= 3610 }):    "created_at: 1h0m",
		auth(func(e *nostr.Event) { e.CreatedAt = 1 << 53 }):  "created_at: ",
		auth(func(e *nostr.Event) { e.CreatedAt += 700 }):     "created_at: ",
		&otherID:                             "id: not the hash of the event",
		&otherSig:                            "sig: not a signature of the event by its pubkey",
		signedFor(""):                        "relay: unusable URL",
		signedFor("https://grasp.example"):   "relay: unusable URL",
		signedFor("wss://other.example"):     "relay: not an address of this relay, which is grasp.example:443 shared.example:443/git",
		signedFor("wss://grasp.example/x"):   "relay: not an address of this relay",
		signedFor("wss://shared.example"):    "relay: not an address of this relay",
		signedFor("wss://shared.example/gi"): "relay: not an address of this relay",
	}
	for e, reason := range refused {
		require.Contains(t, hears(e), fmt.Sprintf(`["OK",%q,false,"invalid: %s`, e.ID, reason))
	}
	for _, ours := range []string{"wss://grasp.example", "WSS://Grasp.Example:443/", "wss://shared.example/git/"} {
		e := signedFor(ours)
		require.Equal(t, fmt.Sprintf(`["OK",%q,true,""]`, e.ID), hears(e), ours)
	}
}

// A relay that counts nothing says so (NIP-45), and the subscription that has the name of the count stays open.
func TestCaseC3_CountIsNotServed(t *testing.T) {
	s := serve(t, gate.Config{})
	c := s.dial()
	c.says(`["REQ","x",{"kinds":[1],"limit":0}]`)
	require.Equal(t, `["EOSE","x"]`, c.hears())
	c.says(`["COUNT","x",{"kinds":[1]}]`)
	require.Equal(t, `["CLOSED","x","unsupported: this relay does not support NIP-45"]`, c.hears())
	ev := note(1)
	s.dial().publishes(ev)
	require.Equal(t, ev.ID, eventOf(t, c.hears()))
}

// Which member of a filter is wrong was not said.
func TestCaseC3_FiltersThatCannotBeRead(t *testing.T) {
	s := serve(t, gate.Config{})
	c := s.dial()
	for member, values := range map[string][]string{
		"since": {`"1"`, `1.5`, `null`, `-1`, `1e999`}, "until": {`[]`, `null`, `18446744073709551616`}, "limit": {`"5"`, `-1`, `null`, `7,"limit":8`},
		"kinds": {`1`, `["1"]`, `{}`, `null`, `[null]`, `[1,-1]`, `[1],"kinds":[2]`}, "ids": {`"x"`, `[1]`, `null`, `[null]`}, "authors": {`{}`, `null`},
		"#e": {`"x"`, `[null,1]`, `["a",null]`, `null`}, "search": {`1`, `null`},
	} {
		for _, v := range values {
			filter := fmt.Sprintf(`{"kinds":[1],"unknown":7,%q:%s}`, member, v)
			if member == "kinds" {
				filter = fmt.Sprintf(`{%q:%s}`, member, v)
			}
			for label, answer := range map[string]string{"REQ": "CLOSED", "COUNT": "CLOSED", "NEG-OPEN": "NEG-ERR"} {
				message := fmt.Sprintf(`[%q,"x",%s]`, label, filter)
				if label == "NEG-OPEN" {
					message = fmt.Sprintf(`[%q,"x",%s,"6100000200"]`, label, filter)
				}
				c.says(message)
				require.Contains(t, c.hears(), fmt.Sprintf(`[%q,"x","invalid: %s `, answer, member), message)
			}
		}
	}
}

// A client with another version of the protocol is told ours (NIP-77), and heard that its message is invalid.
func TestCaseC9_OtherVersionsOfTheProtocol(t *testing.T) {
	s := serve(t, gate.Config{})
	c := s.dial()
	for _, message := range []string{"60", "62", "6f", "62000002ff", "6200"} {
		c.says(`["NEG-OPEN","n",{},"` + message + `"]`)
		require.Equal(t, `["NEG-MSG","n","61"]`, c.hears(), message)
		c.says(`["NEG-OPEN","n",{},"6100000200"]`)
		require.Contains(t, c.hears(), `["NEG-MSG","n","61`)
		c.says(`["NEG-CLOSE","n"]`)
	}
	for _, message := range []string{"", "00", "51", "71"} {
		c.says(`["NEG-OPEN","n",{},"` + message + `"]`)
		require.Contains(t, c.hears(), `["NEG-ERR","n","`, message)
	}
}
