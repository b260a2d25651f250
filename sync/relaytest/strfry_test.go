package relaytest_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/relaytest"
	"github.com/graspsync/graspsync/sync/wire"
)

// With too many subscriptions, a REQ gets stored events and no live events.
func TestStrfrySubscriptions(t *testing.T) {
	for name, test := range map[string]struct {
		behavior relaytest.Behavior
		most     int
	}{
		"1.1.1":   {relaytest.Strfry(), 200},
		"nos.lol": {relaytest.StrfryNosLol(), 20},
		"damus":   {relaytest.StrfryDamus(), 200},
		"primal":  {relaytest.StrfryPrimal(), 20},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, test.most, test.behavior.Info.MaxSubscriptions)
			r := relay(test.behavior)
			r.Publish(notes(alice, 1, 1)...)
			c := connect(t, r)
			c.open(test.most)
			id := c.req(kind1)
			assert.Equal(t, []string{id + " 1", id + " EOSE", "NOTICE ERROR: too many concurrent REQs"}, c.script(3))
			assert.Len(t, r.Subscriptions(), test.most)
			c.send(wire.Request{Type: wire.TypeClose, Sub: "s1"})
			id = c.req(kind1)
			assert.Equal(t, []string{id + " 1", id + " EOSE"}, c.script(2))
			assert.Len(t, r.Subscriptions(), test.most)
		})
	}
}

// More concurrent queries than subscriptions get no answer.
func TestStrfryQueries(t *testing.T) {
	c := connect(t, relay(relaytest.StrfryNosLol()))
	for range 21 {
		c.req(kind1)
	}
	got := c.script(21)
	assert.Equal(t, "s20 EOSE", got[19])
	assert.Equal(t, "NOTICE ERROR: too many concurrent REQs", got[20])
}

func TestStrfryRequests(t *testing.T) {
	same := func(n int, f nostr.Filter) []nostr.Filter {
		fs := make([]nostr.Filter, n)
		for i := range fs {
			fs[i] = f
		}
		return fs
	}
	tag := func(name string, values ...string) nostr.Filter {
		return nostr.Filter{Tags: nostr.TagMap{name: values}, LimitZero: true}
	}
	// long returns values of 255 bytes with n bytes in total.
	long := func(n int) []string {
		var all []string
		for i := 0; n > 0; i++ {
			size := min(255, n)
			all = append(all, (fmt.Sprintf("%03d", i) + strings.Repeat("x", 255))[:size])
			n -= size
		}
		return all
	}
	three := nostr.Filter{Tags: nostr.TagMap{"a": {"x"}, "A": {"x"}, "q": {"x"}}, LimitZero: true}
	four := nostr.Filter{Tags: nostr.TagMap{"a": {"x"}, "A": {"x"}, "q": {"x"}, "t": {"x"}}, LimitZero: true}
	for _, test := range []struct {
		name       string
		good, bad  []nostr.Filter
		words, old string
	}{
		{"filters", same(200, limit(0)), same(201, limit(0)), "arr too big", "arr too big"},
		{"no filter", same(1, limit(0)), nil, "arr too small", "arr too small"},
		{"tag names", []nostr.Filter{three}, []nostr.Filter{limit(0), four}, "too many tags in filter", "too many tags in filter"},
		{
			"value",
			[]nostr.Filter{tag("a", strings.Repeat("x", 255))},
			[]nostr.Filter{tag("a", "x", strings.Repeat("x", 256))},
			"error parsing #a: filter item too large", "filter item too large",
		},
		{
			"long id",
			[]nostr.Filter{tag("e", strings.Repeat("a", 64))},
			[]nostr.Filter{tag("e", strings.Repeat("a", 66))},
			"error parsing #e: filter item too large", "filter item too large",
		},
		{
			"short id", []nostr.Filter{tag("E", "aa")},
			[]nostr.Filter{{IDs: []string{"aa"}}},
			"error parsing ids: filter item too small", "filter item too small",
		},
		{"list", []nostr.Filter{tag("q", long(65_535)...)}, []nostr.Filter{tag("q", long(65_536)...)},
			"error parsing #q: total filter items too large", "total filter items too large"},
		{"list of ids", []nostr.Filter{tag("e", ids(2047)...)}, []nostr.Filter{tag("e", ids(2048)...)},
			"error parsing #e: total filter items too large", "total filter items too large"},
		{"list of raw ids", []nostr.Filter{tag("E", ids(1023)...)}, []nostr.Filter{tag("E", ids(1024)...)},
			"error parsing #E: total filter items too large", "total filter items too large"},
		{"search", []nostr.Filter{limit(0)}, []nostr.Filter{{Search: "x"}}, "unrecognised filter item: search", "unrecognised filter item"},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := relaytest.StrfryDamus() // accepts messages of this size
			c := connect(t, relay(b))
			c.req(test.good...)
			c.req(test.bad...)
			assert.Equal(t, []string{"s1 EOSE", "s2 CLOSED ERROR: bad req: " + test.words}, c.script(2))
			old := relaytest.StrfryPrimal()
			old.MaxFilters = 200
			c = connect(t, relay(old))
			c.req(test.good...)
			c.req(test.bad...)
			assert.Equal(t, []string{"s1 EOSE", "NOTICE ERROR: bad req: " + test.old}, c.script(2))
		})
	}
	// 1.0.3 has no setting for it.
	c := connect(t, relay(relaytest.StrfryPrimal()))
	c.req(same(20, limit(0))...)
	c.req(same(21, limit(0))...)
	assert.Equal(t, []string{"s1 EOSE", "NOTICE ERROR: bad req: arr too big"}, c.script(2))
}

func TestStrfrySubID(t *testing.T) {
	req := func(c *client, id string) string {
		c.send(wire.Request{Type: wire.TypeReq, Sub: id, Filters: []nostr.Filter{limit(0)}})
		return strings.TrimPrefix(render(c.receive()), id)
	}
	c := connect(t, relay(relaytest.Strfry()))
	assert.Equal(t, " EOSE", req(c, strings.Repeat("x", 64)))
	assert.Equal(t, " CLOSED ERROR: bad req: invalid subscription id length", req(c, strings.Repeat("x", 65)))
	assert.Equal(t, " CLOSED ERROR: bad req: invalid character in subscription id", req(c, "\x7f"))
	c = connect(t, relay(relaytest.StrfryPrimal()))
	assert.Equal(t, " EOSE", req(c, strings.Repeat("x", 71)))
	assert.Equal(t, "NOTICE ERROR: bad req: subscription id too long", req(c, strings.Repeat("x", 72)))
}

func TestStrfryResultsAndMessages(t *testing.T) {
	for name, test := range map[string]struct {
		behavior relaytest.Behavior
		message  int
	}{
		"1.1.1":   {relaytest.Strfry(), 131_072},
		"nos.lol": {relaytest.StrfryNosLol(), 131_072},
		"damus":   {relaytest.StrfryDamus(), 1_000_000},
		"primal":  {relaytest.StrfryPrimal(), 1_000_000},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, test.message, test.behavior.Info.MaxMessageLength)
			assert.Equal(t, 500, test.behavior.Info.MaxLimit)
			assert.Zero(t, test.behavior.Info.MaxFilters)
			assert.Zero(t, test.behavior.Info.MaxSubIDLength)
			b := test.behavior
			b.Info.MaxMessageLength = 0
			r := relay(b)
			r.Publish(notes(alice, 1, 501)...)
			c := connect(t, r)
			for _, f := range []nostr.Filter{limit(501), kind1} {
				id := c.req(f)
				assert.Equal(t, id+" EOSE", c.last(501))
			}
			c.req(sized(t, "s3", test.message))
			assert.Contains(t, render(c.receive()), "unrecognised filter item", "it was read")
			c.req(sized(t, "s4", test.message+1))
			_, err := c.Receive(t.Context())
			assert.ErrorIs(t, err, relaysync.ErrClosed)
		})
	}
}

func TestStrfryValidation(t *testing.T) {
	three := []nostr.Filter{limit(0), limit(0), limit(0)}
	kinds := func(n int) nostr.Filter {
		f := nostr.Filter{LimitZero: true}
		for k := range n {
			f.Kinds = append(f.Kinds, k+1)
		}
		return f
	}
	empty := nostr.Filter{IDs: []string{}}
	author := nostr.Filter{Authors: ids(1), LimitZero: true}
	for _, test := range []struct {
		name      string
		change    func(v *relaytest.FilterValidation)
		good, bad []nostr.Filter
		words     string
	}{
		{"filters", nil, append(three, empty), append(three, limit(0)), "invalid number of filters: 4"},
		{"nothing", nil, three, []nostr.Filter{empty}, "invalid number of filters: 0"},
		{"kinds", nil, []nostr.Filter{kinds(3)}, []nostr.Filter{kinds(4)}, "too many kinds in filter: 4"},
		{"kind", func(v *relaytest.FilterValidation) { v.AllowedKinds = []int{1} }, three, []nostr.Filter{kinds(2)}, "kind not allowed: 2"},
		{"author", func(v *relaytest.FilterValidation) { v.RequireAuthorOrTag = true },
			[]nostr.Filter{author}, []nostr.Filter{{Authors: ids(2)}}, "filter must have exactly one author, p tag, or e tag"},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := relaytest.StrfryValidating()
			v := *b.Validation
			b.Validation = &v
			if test.change != nil {
				test.change(b.Validation)
			}
			c := connect(t, relay(b))
			c.req(test.good...)
			c.req(test.bad...)
			assert.Equal(t, []string{"s1 EOSE", "s2 CLOSED ERROR: bad req: filter validation failed: " + test.words}, c.script(2))
		})
	}
	c := connect(t, relay(relaytest.StrfryValidating()))
	c.send(wire.Request{Type: wire.TypeNegOpen, Sub: "n", Filters: []nostr.Filter{kinds(4)}, Payload: []byte{0x61}})
	assert.Contains(t, render(c.receive()), "NEG-MSG", "NIP-77 is not validated")
}

func TestStrfryNegentropy(t *testing.T) {
	r := relay(relaytest.StrfryNosLol())
	r.Publish(notes(alice, 1, 3)...)
	c := connect(t, r)
	c.open(20)
	for i := range 20 {
		c.neg(fmt.Sprint(i))
		require.Contains(t, render(c.receive()), "NEG-MSG", "counted apart from subscriptions")
	}
	c.neg("20")
	assert.Equal(t, "NOTICE ERROR: too many concurrent NEG requests", render(c.receive()))
	c.send(wire.Request{Type: wire.TypeNegSend, Sub: "x", Payload: []byte{0x61}})
	assert.Equal(t, "x NEG-ERR closed: unknown subscription handle 0", render(c.receive()))
	c.send(wire.Request{Type: wire.TypeNegSend, Sub: "1", Payload: []byte{0x61, 0xff}})
	assert.Equal(t, "1 NEG-ERR PROTOCOL-ERROR 0", render(c.receive()))
	bad := nostr.Filter{Tags: nostr.TagMap{"a": {strings.Repeat("x", 256)}}}
	c.send(wire.Request{Type: wire.TypeNegOpen, Sub: "b", Filters: []nostr.Filter{bad}, Payload: []byte{0x61}})
	assert.Equal(t, "NOTICE ERROR: negentropy error: error parsing #a: filter item too large", render(c.receive()))

	assert.Equal(t, 1_000_000, relaytest.Strfry().NegMax)
	r.Update(func(b *relaytest.Behavior) { b.NegMax = 3 })
	c.neg("1")
	assert.Contains(t, render(c.receive()), "1 NEG-MSG")
	r.Publish(notes(alice, 4, 1)...)
	c.send(wire.Request{Type: wire.TypeNegClose, Sub: "2"})
	c.neg("30")
	assert.Equal(t, "30 NEG-ERR blocked: too many query results 3", c.last(21), "behind the live events")

	c = connect(t, relay(relaytest.StrfryPrimal()))
	c.neg("n")
	assert.Equal(t, "NOTICE ERROR: bad msg: negentropy disabled", render(c.receive()))
}

func TestStrfryPublish(t *testing.T) {
	c := connect(t, relay(relaytest.Strfry()))
	empty := len(alice.Event(1, 1, "").String())
	ev := alice.Event(1, 1, strings.Repeat("x", 65_536-empty))
	large := alice.Event(1, 1, ev.Content+"x")
	unsigned := *ev
	unsigned.Sig = strings.Repeat("ab", 64)
	for _, ev := range []*nostr.Event{ev, ev, large, &unsigned, alice.Deletion(2, ev), ev, alice.Event(2, 0, ""), alice.Event(1, 0, "")} {
		c.send(wire.Request{Type: wire.TypePublish, Event: ev})
	}
	assert.Equal(t, []string{
		"OK true ",
		"OK true duplicate: have this event",
		"OK false invalid: event too large: 65537",
		"OK false invalid: bad signature",
		"OK true ",
		"OK false deleted: user requested deletion",
		"OK true ",
		"OK false replaced: have newer event",
	}, c.script(8))
	require.NoError(t, c.SendText(t.Context(), []byte("nonsense")))
	assert.Equal(t, "NOTICE ERROR: bad msg: unparseable message", render(c.receive()))
}
