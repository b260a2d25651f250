package relaytest_test

import (
	"testing"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/assert"

	"github.com/graspsync/graspsync/sync/relaytest"
	"github.com/graspsync/graspsync/sync/wire"
)

// Every limit can be set for every program.
func TestSoftwareTakesEveryLimit(t *testing.T) {
	kindless := nostr.Filter{Tags: nostr.TagMap{"a": {"x", "y"}}}
	tags := nostr.Filter{Kinds: []int{1, 2}, Tags: nostr.TagMap{"a": {"x"}, "A": {"x"}, "q": {"x"}}}
	long := nostr.Filter{Tags: nostr.TagMap{"a": {"12345"}}}
	for _, software := range []relaytest.Software{
		relaytest.SoftwareAny, relaytest.SoftwareRustNostr, relaytest.SoftwareStrfry, relaytest.SoftwareOldStrfry, relaytest.SoftwareKhatru,
	} {
		for name, test := range map[string]struct {
			limits relaytest.Behavior
			ask    []nostr.Filter
		}{
			"kindless":    {relaytest.Behavior{Refusals: relaytest.Refusals{RefuseKindless: true}}, []nostr.Filter{kindless}},
			"empty":       {relaytest.Behavior{Refusals: relaytest.Refusals{RefuseEmpty: true}}, []nostr.Filter{{}}},
			"complex":     {relaytest.Behavior{Refusals: relaytest.Refusals{RefuseComplex: true}}, []nostr.Filter{tags}},
			"tag names":   {relaytest.Behavior{Refusals: relaytest.Refusals{RefuseTagNamesOver: 2}}, []nostr.Filter{tags}},
			"value":       {relaytest.Behavior{Refusals: relaytest.Refusals{RefuseValueOver: 4}}, []nostr.Filter{long}},
			"tag values":  {relaytest.Behavior{Refusals: relaytest.Refusals{RefuseTagValuesOver: 1}}, []nostr.Filter{kindless}},
			"list":        {relaytest.Behavior{Refusals: relaytest.Refusals{RefuseSetOver: 4}}, []nostr.Filter{long}},
			"filters":     {relaytest.Behavior{MaxFilters: 1}, []nostr.Filter{kind1, kind1}},
			"bytes":       {relaytest.Behavior{Bounds: relaytest.Bounds{MaxSubBytes: 50}}, []nostr.Filter{tags}},
			"by a script": {relaytest.Behavior{ClosedReason: func(wire.Request) string { return "error: no" }}, []nostr.Filter{kind1}},
			"auth":        {relaytest.Behavior{Auth: relaytest.AuthRequired}, []nostr.Filter{kind1}},
		} {
			t.Run(software.String()+" "+name, func(t *testing.T) {
				test.limits.Software = software
				r := relay(test.limits)
				c := connect(t, r)
				c.req(test.ask...)
				m := c.receive()
				for m.Type == wire.TypeAuth {
					m = c.receive()
				}
				assert.Contains(t, []wire.Type{wire.TypeClosed, wire.TypeNotice}, m.Type, "%v", m)
				r.Update(func(b *relaytest.Behavior) { *b = relaytest.Behavior{Software: software} })
				c = connect(t, r)
				c.req(kind1)
				assert.Equal(t, "s1 EOSE", render(c.receive()))
			})
		}
	}
	assert.Equal(t, "software(99)", relaytest.Software(99).String())
}
