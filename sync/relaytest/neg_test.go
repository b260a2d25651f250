package relaytest_test

import (
	"encoding/hex"
	"slices"
	"testing"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/sync/internal/negentropy"
	"github.com/graspsync/graspsync/sync/relaytest"
	"github.com/graspsync/graspsync/sync/wire"
)

func items(events ...*nostr.Event) []negentropy.Item {
	var all []negentropy.Item
	for _, ev := range events {
		item := negentropy.Item{CreatedAt: uint64(ev.CreatedAt)}
		_, _ = hex.Decode(item.ID[:], []byte(ev.ID))
		all = append(all, item)
	}
	return all
}

// reconcile runs a session to its end and returns the ids that only the relay has.
func reconcile(c *client, sub string, f nostr.Filter, ours []negentropy.Item) []string {
	c.Helper()
	s := negentropy.NewSession(negentropy.NewSet(ours), negentropy.Limits{FrameSize: 4096})
	msg, err := s.Open()
	require.NoError(c, err)
	req := wire.Request{Type: wire.TypeNegOpen, Sub: sub, Filters: []nostr.Filter{f}, Payload: msg}
	for {
		c.send(req)
		m := c.receive()
		require.Equal(c, wire.TypeNegMsg, m.Type, "%v", m)
		require.Equal(c, sub, m.Sub)
		reply, done, err := s.Step(m.Payload)
		require.NoError(c, err)
		if done {
			break
		}
		req = wire.Request{Type: wire.TypeNegSend, Sub: sub, Payload: reply}
	}
	c.send(wire.Request{Type: wire.TypeNegClose, Sub: sub})
	var need []string
	for _, id := range s.Need() {
		need = append(need, hex.EncodeToString(id[:]))
	}
	slices.Sort(need)
	return need
}

func TestNegentropy(t *testing.T) {
	r := relay(relaytest.Behavior{NegFrame: 4096})
	theirs := notes(alice, 1, 2000)
	r.Publish(theirs...)
	r.Publish(alice.Event(1, 2, "other kind"))
	c := connect(t, r)
	var want []string
	var ours []*nostr.Event
	for i, ev := range theirs {
		if i%10 == 3 {
			want = append(want, ev.ID)
		} else {
			ours = append(ours, ev)
		}
	}
	slices.Sort(want)
	// The limit has no effect.
	assert.Equal(t, want, reconcile(c, "a", limit(5), items(ours...)))
	assert.Equal(t, []string{theirs[3].ID}, reconcile(c, "b", nostr.Filter{Kinds: []int{1}, Since: ts(4), Until: ts(5)}, items(theirs[4])))
	assert.Empty(t, reconcile(c, "c", kind1, items(theirs...)))
	assert.Empty(t, r.Violations())
}

// The client side must detect the answers of a hostile relay.
func TestNegentropyHostileAnswers(t *testing.T) {
	for mode, want := range map[relaytest.NegMode]error{
		relaytest.NegGarbage:  negentropy.ErrProtocol,
		relaytest.NegHugeList: negentropy.ErrProtocol,
		relaytest.NegEndless:  negentropy.ErrRounds,
	} {
		t.Run(mode.String(), func(t *testing.T) {
			r := relay(relaytest.Behavior{Negentropy: mode})
			c := connect(t, r)
			s := negentropy.NewSession(negentropy.NewSet(items(notes(alice, 1, 100)...)), negentropy.Limits{})
			msg, err := s.Open()
			require.NoError(t, err)
			c.send(wire.Request{Type: wire.TypeNegOpen, Sub: "n", Filters: []nostr.Filter{kind1}, Payload: msg})
			for range 200 {
				reply, done, err := s.Step(c.receive().Payload)
				if err != nil {
					require.ErrorIs(t, err, want)
					return
				}
				require.False(t, done)
				c.send(wire.Request{Type: wire.TypeNegSend, Sub: "n", Payload: reply})
			}
			require.Fail(t, "the session went on for ever")
		})
	}
}
