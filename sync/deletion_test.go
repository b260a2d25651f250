package sync_test

import (
	"context"
	"fmt"
	"iter"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/racetest"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/memstore"
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
	for _, n := range []int{1, 15, 16, 100, 101, 3_000} {
		t.Run(fmt.Sprint(n, " ids"), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				net := relaytest.NewNetwork()
				a := net.Add("wss://a.example", relaytest.Behavior{})
				late := net.Add("wss://late.example", relaytest.Behavior{Down: true})
				bob := relaytest.NewCheapKey("bob")
				r, owner := hosted(t, net, relaysync.Config{}, "a.example", "late.example")
				defer r.stop()
				issue := bob.Issue(at(3*time.Hour), owner.Ref("repo"), "x")
				here := bob.Comment(at(2*time.Hour), issue, "here already")
				coming := bob.Comment(at(2*time.Hour), issue, "comes after its deletion")
				r.save(issue, here)
				a.Publish(deletionOf(bob, time.Hour, n, here.ID), deletionOf(bob, time.Hour, n, coming.ID))
				after(25 * time.Hour) // they tag no event of the repository, so only a pass over authors finds them
				require.False(t, r.has(here))
				late.Publish(coming)
				late.SetDown(false)
				after(25 * time.Hour)
				require.False(t, r.has(coming))
				require.True(t, r.has(issue))
			})
		})
	}
}

// asked counts and slows queries of a store.
type asked struct {
	*memstore.Store
	questions atomic.Int64
}

const question = 50 * time.Microsecond

func (a *asked) Events(ctx context.Context, f nostr.Filter) iter.Seq2[graspsync.Event, error] {
	a.questions.Add(1)
	time.Sleep(question)
	return a.Store.Events(ctx, f)
}

func (a *asked) Keys(ctx context.Context, f nostr.Filter) iter.Seq2[graspsync.EventKey, error] {
	a.questions.Add(1)
	time.Sleep(question)
	return a.Store.Keys(ctx, f)
}

func (a *asked) Has(ctx context.Context, ids []graspsync.EventID) ([]bool, error) {
	a.questions.Add(1)
	time.Sleep(question)
	return a.Store.Has(ctx, ids)
}

func (a *asked) Deleted(ctx context.Context, ev graspsync.Event) (bool, error) {
	a.questions.Add(1)
	time.Sleep(question)
	return a.Store.Deleted(ctx, ev)
}

// A deletion of a hundred unknown events by a stranger caused two hundred queries of the store. A
// thousand such deletions delayed an honest event by ten seconds.
func TestDeletionsOfWhatIsNowhere(t *testing.T) {
	racetest.Amounts(t)
	bubble(t, func(t *testing.T) {
		const deletions = 1_000
		net := relaytest.NewNetwork()
		evil := net.Add("wss://evil.example", relaytest.Behavior{})
		honest := net.Add("wss://honest.example", relaytest.Behavior{})
		store := &asked{Store: memstore.New()}
		owner, stranger := relaytest.NewCheapKey("owner"), relaytest.NewCheapKey("stranger")
		(&rig{t: t, store: store}).save(owner.Hosted(at(24*time.Hour), "repo", us, "evil.example", "honest.example"))
		r := start(t, net, store, relaysync.Config{})
		defer r.stop()
		after(5 * time.Minute)
		before := store.questions.Load()
		for i := range deletions {
			evil.Publish(deletionOf(stranger, time.Duration(i)*time.Second, 100, fmt.Sprintf("%064x", 1_000+i),
				nostr.Tag{"a", owner.Ref("repo").String()}))
		}
		issue := owner.Issue(at(0), owner.Ref("repo"), "honest")
		began := time.Now()
		honest.Publish(issue)
		for !r.has(issue) && time.Since(began) < time.Minute {
			after(10 * time.Millisecond)
		}
		took := time.Since(began)
		after(time.Minute)
		each := float64(store.questions.Load()-before) / deletions
		t.Logf("%d deletions: %.1f questions to the store each, an honest event beside them stored after %s", deletions, each, took)
		require.Less(t, each, 5.0)
		require.Less(t, took, time.Second)
	})
}
