package relaytest_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/sync/relaytest"
	"github.com/graspsync/graspsync/sync/wire"
)

func ids(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("%064x", i)
	}
	return all
}

// TestViolations contains a client that just keeps a rule and a client that breaks it, for each
// rule.
func TestViolations(t *testing.T) {
	req := func(id string, fs ...nostr.Filter) wire.Request {
		return wire.Request{Type: wire.TypeReq, Sub: id, Filters: fs}
	}
	neg := func(id string, fs ...nostr.Filter) wire.Request {
		return wire.Request{Type: wire.TypeNegOpen, Sub: id, Filters: fs, Payload: []byte{0x61}}
	}
	step := func(id string) wire.Request {
		return wire.Request{Type: wire.TypeNegSend, Sub: id, Payload: []byte{0x61}}
	}
	closing := func(id string) wire.Request { return wire.Request{Type: wire.TypeClose, Sub: id} }
	tag := func(name string, values ...string) nostr.Filter {
		return nostr.Filter{Kinds: []int{1}, Tags: nostr.TagMap{name: values}}
	}
	// many opens n subscriptions and waits for each answer.
	many := func(n int, make func(id string, fs ...nostr.Filter) wire.Request) []wire.Request {
		var all []wire.Request
		for i := range n {
			all = append(all, make(fmt.Sprint(i), limit(0)))
		}
		return all
	}
	repeat := func(n int, f nostr.Filter) []nostr.Filter {
		fs := make([]nostr.Filter, n)
		for i := range fs {
			fs[i] = f
		}
		return fs
	}
	four := nostr.Filter{Tags: nostr.TagMap{"a": {"x"}, "A": {"x"}, "q": {"x"}, "t": {"x"}}}
	three := nostr.Filter{Tags: nostr.TagMap{"a": {"x"}, "A": {"x"}, "q": {"x"}}}
	large := func(n int) nostr.Filter { return nostr.Filter{Search: strings.Repeat("x", n)} }
	announced := wire.Info{MaxSubscriptions: 2, MaxFilters: 2, MaxSubIDLength: 3}
	type list = []wire.Request
	for _, test := range []struct {
		kind      relaytest.ViolationKind
		info      wire.Info
		good, bad list
	}{
		{relaytest.ViolationReusedID, wire.Info{}, list{req("a", kind1), neg("a", kind1)}, list{req("a", kind1), closing("a"), req("a", kind1)}},
		{relaytest.ViolationReusedID, wire.Info{}, nil, list{neg("a", kind1), neg("a", kind1)}},
		{relaytest.ViolationSubID, wire.Info{}, list{req(strings.Repeat("x", 64), kind1)}, list{req("", kind1)}},
		{relaytest.ViolationSubID, announced, nil, list{neg("abcd", kind1)}},
		{relaytest.ViolationSubID, announced, list{req("abc", kind1)}, list{req("abcd", kind1)}},
		{relaytest.ViolationNoFilters, wire.Info{}, list{req("a", nostr.Filter{})}, list{req("a")}},
		{relaytest.ViolationManyFilters, wire.Info{}, list{req("a", repeat(20, limit(0))...)}, list{req("a", repeat(21, limit(0))...)}},
		{relaytest.ViolationManyFilters, announced, list{req("a", repeat(2, limit(0))...)}, list{req("a", repeat(3, limit(0))...)}},
		{relaytest.ViolationManyFilters, wire.Info{}, nil, list{neg("a", kind1, kind1)}},
		{relaytest.ViolationHistoric, wire.Info{}, list{req("a", kind1)}, list{req("a", kind1, limit(0))}},
		{relaytest.ViolationEmptyList, wire.Info{}, list{req("a", tag("a", "x"))}, list{req("a", tag("a"))}},
		{relaytest.ViolationEmptyList, wire.Info{}, nil, list{req("a", nostr.Filter{Tags: nostr.TagMap{"a": {}}})}},
		{relaytest.ViolationEmptyList, wire.Info{}, nil, list{req("a", nostr.Filter{Kinds: []int{}})}},
		{relaytest.ViolationEmptyList, wire.Info{}, nil, list{neg("a", nostr.Filter{IDs: []string{}})}},
		{relaytest.ViolationEmptyList, wire.Info{}, nil, list{req("a", nostr.Filter{Authors: []string{}})}},
		{relaytest.ViolationManyValues, wire.Info{}, list{req("a", tag("e", ids(100)...))}, list{req("a", tag("e", ids(101)...))}},
		{relaytest.ViolationManyValues, wire.Info{}, list{req("a", nostr.Filter{IDs: ids(500)})}, list{req("a", nostr.Filter{IDs: ids(501)})}},
		{relaytest.ViolationManyValues, wire.Info{}, nil, list{req("a", nostr.Filter{Authors: ids(101)})}},
		{relaytest.ViolationManyTagNames, wire.Info{}, list{req("a", three)}, list{req("a", four)}},
		{relaytest.ViolationValue, wire.Info{}, list{req("a", tag("a", strings.Repeat("x", 255)))}, list{req("a", tag("a", strings.Repeat("x", 256)))}},
		{relaytest.ViolationValue, wire.Info{}, list{req("a", tag("q", "x"))}, list{req("a", tag("E", strings.Repeat("A", 64)))}},
		{relaytest.ViolationValue, wire.Info{}, nil, list{req("a", nostr.Filter{IDs: []string{"x"}})}},
		{relaytest.ViolationMessageSize, wire.Info{}, list{req("a", large(60_000))}, list{req("a", large(1<<16))}},
		{relaytest.ViolationMessageSize, wire.Info{MaxMessageLength: 100_000}, list{req("a", large(1<<16))}, nil},
		{relaytest.ViolationManySubs, wire.Info{}, append(many(20, req), many(20, neg)...), many(21, req)},
		{relaytest.ViolationManySubs, wire.Info{}, nil, many(21, neg)},
		{relaytest.ViolationManySubs, announced, append(many(2, req), closing("0"), req("9", kind1)), many(3, req)},
		{relaytest.ViolationNegUnknown, wire.Info{}, list{neg("a", kind1), step("a")}, list{step("a")}},
		{relaytest.ViolationAuth, wire.Info{}, nil, list{{Type: wire.TypeAnswer, Event: alice.Event(1, 22242, "")}}},
	} {
		run := func(t *testing.T, requests list) []relaytest.Violation {
			var got []relaytest.Violation
			synctest.Test(t, func(t *testing.T) {
				r := relay(relaytest.Behavior{Info: test.info})
				c := connect(t, r)
				for _, req := range requests {
					c.send(req)
					if req.Type != wire.TypeClose {
						c.receive()
					}
				}
				got = r.Violations()
			})
			return got
		}
		t.Run(string(test.kind), func(t *testing.T) {
			if test.good != nil {
				assert.Empty(t, run(t, test.good), "good")
			}
			if test.bad != nil {
				got := run(t, test.bad)
				require.NotEmpty(t, got, "bad")
				for _, v := range got {
					assert.Equal(t, test.kind, v.Kind, "%v", v)
				}
			}
		})
	}
}
