package relaytest_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/assert"

	"github.com/graspsync/graspsync/sync/relaytest"
)

// Each limit of a REQ is kept by one request and exceeded by another.
func TestStrfryRequests(t *testing.T) {
	tag := func(values ...string) nostr.Filter {
		return nostr.Filter{Tags: nostr.TagMap{"q": values}, LimitZero: true}
	}
	names := func(n int) nostr.Filter {
		f := nostr.Filter{Tags: nostr.TagMap{}, LimitZero: true}
		for i := range n {
			f.Tags[string(rune('a'+i))] = []string{"x"}
		}
		return f
	}
	filters := func(n int) (fs []nostr.Filter) {
		for range n {
			fs = append(fs, limit(0))
		}
		return fs
	}
	one := func(f nostr.Filter) []nostr.Filter { return []nostr.Filter{f} }
	for words, test := range map[string]struct{ good, bad []nostr.Filter }{
		"arr too big":                  {filters(200), filters(201)},
		"too many tags in filter":      {one(names(3)), append(filters(1), names(4))},
		"filter item too large":        {one(tag(strings.Repeat("x", 255))), one(tag("x", strings.Repeat("x", 256)))},
		"total filter items too large": {one(tag(ids(1023)...)), one(tag(ids(1024)...))},
		"filter validation failed: too many kinds in filter: 4": {
			one(nostr.Filter{Kinds: []int{1, 2, 3}, LimitZero: true}), one(nostr.Filter{Kinds: []int{1, 2, 3, 4}}),
		},
	} {
		for old, b := range map[bool]relaytest.Behavior{false: relaytest.StrfryDamus(), true: relaytest.StrfryPrimal()} {
			t.Run(fmt.Sprint(words, old), func(t *testing.T) {
				b.MaxFilters, b.RefuseKindsOver = 200, 3
				c := connect(t, relay(b))
				c.req(test.good...)
				c.req(test.bad...)
				refused := "s2 CLOSED ERROR: bad req: "
				if old {
					refused = "NOTICE ERROR: bad req: "
				}
				assert.Equal(t, []string{"s1 EOSE", refused + words}, c.script(2))
			})
		}
	}
}
