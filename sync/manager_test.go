package sync_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/memstore"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// The basic path: a stored announcement leads to a relay, whose events are fetched. Another
// announcement on that relay leads to a second relay. Events published later arrive live.
func TestCatchUpAndFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := relaytest.NewNetwork()
		first := net.Add("wss://first.example", relaytest.Behavior{})
		second := net.Add("wss://second.example", relaytest.Behavior{Negentropy: relaytest.NegNotice, Cap: 10})
		alice, bob := relaytest.NewCheapKey("alice"), relaytest.NewCheapKey("bob")

		known := alice.Hosted(at(time.Hour), "one", us, "first.example")
		other := bob.Hosted(at(time.Hour), "two", us, "first.example", "second.example")
		issue := bob.Issue(at(50*time.Minute), alice.Ref("one"), "broken")
		comment := alice.Comment(at(40*time.Minute), issue, "indeed")
		foreign := bob.Hosted(at(time.Hour), "three", "elsewhere.example", "first.example")
		first.Publish(known, other, issue, comment, foreign)
		var many []*nostr.Event
		for i := range 25 {
			many = append(many, alice.Issue(at(time.Duration(i)*time.Minute), bob.Ref("two"), "many"))
		}
		second.Publish(many...)

		r := &rig{t: t, store: memstore.New()}
		r.save(known)
		r = start(t, net, r.store, relaysync.Config{})
		time.Sleep(time.Minute)
		synctest.Wait()
		for _, ev := range append(many, other, issue, comment) {
			require.True(t, r.has(ev), ev.String())
		}
		require.False(t, r.has(foreign))
		require.True(t, r.manager.Status().Synced)

		late := bob.Comment(at(0), issue, "fixed")
		first.Publish(late)
		synctest.Wait()
		require.True(t, r.has(late))
		r.stop()
		require.Empty(t, net.Violations())
		require.Empty(t, net.Misdials())
	})
}
