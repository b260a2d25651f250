package sync_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/internal/racetest"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// threadReply returns a note that tags only the event that it answers, and no root event or
// repository.
func threadReply(k *relaytest.Key, at nostr.Timestamp, to *nostr.Event, text string) *nostr.Event {
	return k.Event(at, 1, text, nostr.Tag{"e", to.ID})
}

// A reply three levels below an issue tags only the event that it answers. It arrives within
// seconds, even from a relay without the other events. A reply published while that relay was down,
// or while we were, arrives after reconnecting.
func TestAnswersThreeDeep(t *testing.T) {
	bubble(t, func(t *testing.T) {
		net := relaytest.NewNetwork()
		a, b := net.Add("wss://a.example", relaytest.Behavior{}), net.Add("wss://b.example", relaytest.Behavior{})
		r, owner := hosted(t, net, relaysync.Config{}, "a.example", "b.example")
		defer func() { r.stop() }()
		ann, bob := relaytest.NewCheapKey("ann"), relaytest.NewCheapKey("bob")
		issue := owner.Issue(at(10*time.Hour), owner.Ref("repo"), "x")
		comment := ann.Comment(at(9*time.Hour), issue, "a comment")
		reply := threadReply(bob, at(8*time.Hour), comment, "a reply")
		a.Publish(issue, comment, reply)
		after(time.Minute)
		require.True(t, r.has(reply))
		arrives := func(what string, publish func() *nostr.Event, within time.Duration) {
			t.Helper()
			ev := publish()
			after(within)
			require.True(t, r.has(ev), what)
		}
		arrives("live", func() *nostr.Event {
			ev := threadReply(ann, at(0), reply, "live")
			b.Publish(ev)
			return ev
		}, time.Second)
		arrives("below what came just now", func() *nostr.Event {
			first := threadReply(ann, at(0), reply, "first")
			second := threadReply(bob, at(0), first, "second")
			b.Publish(first, second)
			return second
		}, 10*time.Second)
		arrives("lost", func() *nostr.Event {
			b.Update(func(b *relaytest.Behavior) { b.Down = true })
			b.Cut()
			ev := threadReply(bob, at(0), reply, "lost")
			after(5 * time.Minute)
			b.Publish(ev)
			b.Update(func(b *relaytest.Behavior) { b.Down = false })
			return ev
		}, 20*time.Minute)
		arrives("off", func() *nostr.Event {
			r.stop()
			ev := threadReply(bob, at(0), reply, "off")
			b.Publish(ev)
			after(2 * time.Hour)
			r = r.again(relaysync.Config{})
			return ev
		}, time.Minute)
	})
}

// A relay accepts few values per filter, and later fewer subscriptions. Replies that were followed
// live in many small groups are requested in turn, 100 per minute.
func TestAnswersThatLoseTheirSubscriptions(t *testing.T) {
	bubble(t, func(t *testing.T) {
		few := relaytest.Behavior{MaxSubs: 60, MaxFilters: 5, RefuseTagValuesOver: 15}
		few.Info.MaxSubscriptions = few.MaxSubs
		m := crowded(t, few, relaysync.Config{}, 15)
		defer m.stop()
		ann := relaytest.NewCheapKey("ann")
		var replies []*nostr.Event
		for i := range 300 {
			replies = append(replies, threadReply(ann, at(0), m.issues[i%len(m.issues)], fmt.Sprint(i)))
		}
		m.relay.Publish(replies...)
		after(2 * time.Hour)
		require.Empty(t, m.lacks(replies))
		m.relay.Update(func(b *relaytest.Behavior) { b.MaxSubs, b.Info.MaxSubscriptions = 3, 3 })
		m.relay.Cut()
		after(2 * time.Hour)
		late := threadReply(ann, at(0), replies[0], "late")
		m.relay.Publish(late)
		after(10 * time.Minute)
		require.True(t, m.has(late))
	})
}

// A relay with few subscriptions serves layers 1 to 3 as before, regardless of the number of
// replies. The number of open subscriptions never exceeds its limit, and new events of layers 1 to
// 3 arrive immediately. Replies are requested in turn.
func TestAnswersTakeNobodysPlace(t *testing.T) {
	racetest.Amounts(t)
	for _, c := range []struct {
		name     string
		behavior relaytest.Behavior
		seconds  bool // layers 1 to 3 fit into live subscriptions
	}{
		{"few subscriptions", relaytest.Behavior{MaxSubs: 3}, true},
		{"few subscriptions and filters", relaytest.Behavior{MaxSubs: 10, MaxFilters: 10}, true},
		{"and few values", relaytest.Behavior{MaxSubs: 7, MaxFilters: 5, RefuseTagValuesOver: 15}, false},
		{"one subscription", relaytest.Behavior{MaxSubs: 2, MaxFilters: 10}, true},
		{"few bytes", relaytest.Behavior{MaxSubBytes: 40 << 10}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c.behavior.Info.MaxSubscriptions = c.behavior.MaxSubs // and nothing else
				m := crowded(t, c.behavior, relaysync.Config{}, 15)
				defer m.stop()
				after(10 * time.Minute)
				require.Empty(t, m.lacks(m.issues))
				ann := relaytest.NewCheapKey("ann")
				var replies []*nostr.Event
				for round := range 12 {
					for i := 1; i < len(m.issues); i += 2 { // comments
						replies = append(replies, threadReply(ann, at(0), m.issues[i], fmt.Sprint(round, i)))
					}
					name := fmt.Sprint("more", round)
					m.save(m.owner.Hosted(at(24*time.Hour), name, us, "a.example"))
					m.relay.Publish(replies[len(replies)-len(m.issues)/2:]...)
					after(30 * time.Second)
					issue := m.owner.Issue(at(0), m.owner.Ref(name), "new")
					m.relay.Publish(issue)
					if c.seconds {
						after(time.Second)
						require.True(t, m.has(issue), "round %d", round)
					}
				}
				after(time.Hour)
				require.Empty(t, m.lacks(replies))
				for _, v := range m.relay.Violations() {
					require.NotEqual(t, relaytest.ViolationManySubs, v.Kind, "%v", v)
				}
				late := threadReply(ann, at(0), replies[0], "late")
				m.relay.Publish(late)
				after(10 * time.Minute)
				require.True(t, m.has(late))
				require.Empty(t, m.violations())
			})
		})
	}
}
