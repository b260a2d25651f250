package relaytest_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/assert"

	"github.com/graspsync/graspsync/sync/relaytest"
)

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
