package relaytest_test

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/assert"

	"github.com/graspsync/graspsync/sync/relaytest"
	"github.com/graspsync/graspsync/sync/wire"
)

// TestAnswers sends one REQ to a relay with the events 1 to 5.
func TestAnswers(t *testing.T) {
	say := func(text string) func(wire.Request) string {
		return func(wire.Request) string { return text }
	}
	tagged := nostr.Filter{Tags: nostr.TagMap{"a": {"x", "yy"}, "e": {"z"}}}
	for _, test := range []struct {
		name string
		b    relaytest.Behavior
		f    []nostr.Filter
		want string
	}{
		{"honest", relaytest.Behavior{}, nil, "s1 5|s1 4|s1 3|s1 2|s1 1|s1 EOSE"},
		{"cap", relaytest.Behavior{Cap: 2}, nil, "s1 5|s1 4|s1 EOSE"},
		{"cap above limit", relaytest.Behavior{Cap: 2}, []nostr.Filter{limit(1)}, "s1 5|s1 EOSE"},
		{"cap below limit", relaytest.Behavior{Cap: 2}, []nostr.Filter{limit(4)}, "s1 5|s1 4|s1 EOSE"},
		{"cap of each filter", relaytest.Behavior{Cap: 1}, []nostr.Filter{limit(3), {Until: ts(3)}}, "s1 5|s1 3|s1 EOSE"},
		{"default limit", relaytest.Behavior{DefaultLimit: 1}, nil, "s1 5|s1 EOSE"},
		{"default limit overridden", relaytest.Behavior{DefaultLimit: 1}, []nostr.Filter{limit(2)}, "s1 5|s1 4|s1 EOSE"},
		{"ignores limit", relaytest.Behavior{IgnoreLimit: true, Cap: 3}, []nostr.Filter{limit(1)}, "s1 5|s1 4|s1 3|s1 EOSE"},
		{"ignores until", relaytest.Behavior{IgnoreUntil: true, Cap: 1}, []nostr.Filter{{Until: ts(2)}}, "s1 5|s1 EOSE"},
		{"wrong order", relaytest.Behavior{WrongOrder: true, Cap: 2}, nil, "s1 4|s1 5|s1 EOSE"},
		{"limit 0 returns stored", relaytest.Behavior{LimitZeroReturnsStored: true}, []nostr.Filter{limit(0)}, "s1 5|s1 4|s1 3|s1 2|s1 1|s1 EOSE"},
		{"never EOSE", relaytest.Behavior{NeverEOSE: true, Cap: 1}, nil, "s1 5"},
		{"hint finish", relaytest.Behavior{Hints: true}, []nostr.Filter{limit(5)}, "s1 5|s1 4|s1 3|s1 2|s1 1|s1 EOSE finish"},
		{"hint more", relaytest.Behavior{Hints: true}, []nostr.Filter{limit(1)}, "s1 5|s1 EOSE more"},
		{"hint live", relaytest.Behavior{Hints: true}, []nostr.Filter{limit(0)}, "s1 EOSE finish"},
		{"closed", relaytest.Behavior{ClosedReason: say("error: no")}, nil, "s1 CLOSED error: no"},
		{"not closed", relaytest.Behavior{ClosedReason: say(""), Cap: 1}, nil, "s1 5|s1 EOSE"},
		{"closed as notice", relaytest.Behavior{ClosedReason: say("error: no"), RefuseByNotice: true}, nil, "NOTICE ERROR: error: no"},
		{"max filters", relaytest.Behavior{MaxFilters: 1}, []nostr.Filter{kind1, kind1}, "s1 CLOSED bad req: too many filters"},
		{"kindless", relaytest.Behavior{RefuseKindless: true}, []nostr.Filter{kind1, tagged}, "s1 CLOSED blocked: an author must be specified to get their kind:1 notes"},
		{"not kindless", relaytest.Behavior{RefuseKindless: true, Cap: 1}, nil, "s1 5|s1 EOSE"},
		{"kindless with ids", relaytest.Behavior{RefuseKindless: true}, []nostr.Filter{{IDs: []string{alice.Event(3, 1, "3").ID}}}, "s1 3|s1 EOSE"},
		{"value too long", relaytest.Behavior{RefuseValueOver: 1}, []nostr.Filter{tagged}, "s1 CLOSED bad req: filter item too large"},
		{"value not too long", relaytest.Behavior{RefuseValueOver: 2}, []nostr.Filter{tagged}, "s1 EOSE"},
		{"tag names", relaytest.Behavior{RefuseTagNamesOver: 1}, []nostr.Filter{tagged}, "s1 CLOSED bad req: too many tags in filter"},
		{"tag values", relaytest.Behavior{RefuseTagValuesOver: 1}, []nostr.Filter{tagged}, "NOTICE too many tag values|s1 EOSE"},
		{"auth required", relaytest.Behavior{Auth: relaytest.AuthRequired}, nil, "AUTH challenge-1|s1 CLOSED auth-required: all requests must be authenticated"},
		{"auth offered", relaytest.Behavior{Auth: relaytest.AuthOffered, Cap: 1}, nil, "AUTH challenge-1|s1 5|s1 EOSE"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := relay(test.b)
				r.Publish(notes(alice, 1, 5)...)
				c := connect(t, r)
				if test.f == nil {
					test.f = []nostr.Filter{kind1}
				}
				c.req(test.f...)
				assert.Equal(t, strings.Split(test.want, "|"), c.rest())
			})
		})
	}
}
