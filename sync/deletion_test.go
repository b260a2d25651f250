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

// deletionOf returns a deletion with n ids. The last id is that of an event.
func deletionOf(by *relaytest.Key, ago time.Duration, n int, last string, tags ...nostr.Tag) *nostr.Event {
	for i := range n - 1 {
		tags = append(tags, nostr.Tag{"e", fmt.Sprintf("%064x", i+1)})
	}
	return by.Event(at(ago), nostr.KindDeletion, "", append(tags, nostr.Tag{"e", last})...)
}

// A deletion with more than fifteen ids had no effect if it came before its target, and one with
// more than a hundred ids never had.
func TestDeletionOfManyIDs(t *testing.T) {
	racetest.Amounts(t)
	bubble(t, func(t *testing.T) {
		net := relaytest.NewNetwork()
		a := net.Add("wss://a.example", relaytest.Behavior{})
		late := net.Add("wss://late.example", relaytest.Behavior{Down: true})
		bob := relaytest.NewCheapKey("bob")
		r, owner := hosted(t, net, relaysync.Config{}, "a.example", "late.example")
		defer r.stop()
		issue := bob.Issue(at(3*time.Hour), owner.Ref("repo"), "x")
		r.save(issue)
		here, coming := make(map[int]*nostr.Event), make(map[int]*nostr.Event) // by number of ids
		for _, n := range []int{1, 15, 16, 100, 101, 3_000} {
			here[n] = bob.Comment(at(2*time.Hour), issue, fmt.Sprint("here already", n))
			coming[n] = bob.Comment(at(2*time.Hour), issue, fmt.Sprint("comes after its deletion", n))
			r.save(here[n])
			a.Publish(deletionOf(bob, time.Hour, n, here[n].ID), deletionOf(bob, time.Hour, n, coming[n].ID))
		}
		after(time.Hour) // they tag no event of the repository, so only a pass over authors finds them
		for n, ev := range here {
			require.False(t, r.has(ev), n)
			late.Publish(coming[n])
		}
		late.SetDown(false)
		after(25 * time.Hour)
		require.Equal(t, 1, late.Open())
		for n, ev := range coming {
			require.False(t, r.has(ev), n)
		}
		require.True(t, r.has(issue))
	})
}
