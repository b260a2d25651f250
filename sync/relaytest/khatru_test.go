package relaytest_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/sync/relaytest"
	"github.com/graspsync/graspsync/sync/wire"
)

func TestKhatruPolicies(t *testing.T) {
	tags := func(n int, kinds ...int) nostr.Filter {
		f := nostr.Filter{Tags: nostr.TagMap{}, Kinds: kinds}
		for i := range n {
			f.Tags[string(rune('a'+i))] = []string{"x"}
		}
		return f
	}
	for _, test := range []struct {
		name     string
		behavior relaytest.Behavior
		good     []nostr.Filter
		bad      nostr.Filter
		words    string
	}{
		{"sync bots", relaytest.Behavior{Software: relaytest.SoftwareKhatru, RefuseKindless: true},
			[]nostr.Filter{tags(1, 30617), {Authors: ids(1)}, {Kinds: []int{1}, Authors: ids(1)}},
			tags(1), "blocked: an author must be specified to get their kind:1 notes"},
		{"sync bots, ids", relaytest.Behavior{Software: relaytest.SoftwareKhatru, RefuseKindless: true}, nil,
			nostr.Filter{IDs: ids(1)}, "blocked: an author must be specified to get their kind:1 notes"},
		{"sync bots, notes", relaytest.Behavior{Software: relaytest.SoftwareKhatru, RefuseKindless: true}, nil,
			tags(1, 1, 2), "blocked: an author must be specified to get their kind:1 notes"},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.behavior.Negentropy = relaytest.NegOn
			c := connect(t, relay(test.behavior))
			for _, f := range test.good {
				id := c.req(f)
				assert.Equal(t, id+" EOSE", render(c.receive()))
			}
			id := c.req(test.bad)
			assert.Equal(t, id+" CLOSED "+test.words, render(c.receive()))
			live := test.bad
			live.LimitZero = true
			id = c.req(live)
			assert.Equal(t, id+" EOSE", render(c.receive()), "what is only live is not judged")
			c.send(wire.Request{Type: wire.TypeNegOpen, Sub: "n", Filters: []nostr.Filter{test.bad}, Payload: []byte{0x61}})
			assert.Equal(t, "n NEG-ERR "+test.words+" 0", render(c.receive()))
		})
	}
}

func TestKhatruNegentropy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := relay(relaytest.Khatru())
		c := connect(t, r)
		c.neg("n")
		assert.Equal(t, "NOTICE failed to parse envelope: unknown envelope label", render(c.receive()), "off unless asked for")
		r.Update(func(b *relaytest.Behavior) { b.Negentropy = relaytest.NegOn })
		c.neg("n")
		assert.Contains(t, render(c.receive()), "n NEG-MSG")
		step := wire.Request{Type: wire.TypeNegSend, Sub: "n", Payload: []byte{0x61}}
		time.Sleep(7 * time.Second)
		c.send(step)
		assert.Contains(t, render(c.receive()), "n NEG-MSG")
		time.Sleep(7*time.Second + 1)
		c.send(step)
		text, err := c.ReceiveText(t.Context())
		require.NoError(t, err)
		assert.Equal(t, `["NEG-ERROR","n","CLOSED"]`, string(text))
	})
}
