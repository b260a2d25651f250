package sync_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/eventtest"
	"github.com/graspsync/graspsync/internal/racetest"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/memstore"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// capped returns at most 500 events of one second, those with the lowest ids, like slicestore and
// many relays, regardless of the query.
type capped struct {
	*memstore.Store
	broken atomic.Bool
	scans  atomic.Int64 // full scans
}

func (c *capped) Events(ctx context.Context, f nostr.Filter) iter.Seq2[graspsync.Event, error] {
	if f.Authors == nil && f.IDs == nil && f.Tags == nil {
		c.scans.Add(1)
	}
	return func(yield func(graspsync.Event, error) bool) {
		if c.broken.Load() {
			yield(graspsync.Event{}, errors.New("connection refused"))
			return
		}
		var all []graspsync.Event
		for ev, err := range c.Store.Events(ctx, f) {
			if err != nil {
				yield(graspsync.Event{}, err)
				return
			}
			all = append(all, ev)
		}
		slices.SortFunc(all, func(a, b graspsync.Event) int { return a.ID.Compare(b.ID) })
		same, cut := make(map[nostr.Timestamp]int), false
		for _, ev := range all {
			if same[ev.CreatedAt]++; same[ev.CreatedAt] > 500 {
				cut = true
			} else if !yield(ev, nil) {
				return
			}
		}
		if cut {
			yield(graspsync.Event{}, fmt.Errorf("reading: %w", relaysync.ErrIncomplete))
		}
	}
}

// With 501 events in one second, which anyone can publish, a scan of our own Store cannot prove
// that it is complete. No relay was followed any more, and the Store was scanned every ten seconds.
func TestFullSecondInOurStore(t *testing.T) {
	racetest.Amounts(t)
	bubble(t, func(t *testing.T) {
		net := relaytest.NewNetwork()
		a := net.Add("wss://a.example", relaytest.Behavior{})
		b := net.Add("wss://b.example", relaytest.Behavior{})
		owner, stranger := relaytest.NewCheapKey("owner"), relaytest.NewCheapKey("stranger")
		store := &capped{Store: memstore.New()}
		before := &rig{t: t, store: store}
		before.save(owner.Hosted(at(24*time.Hour), "repo", us, "a.example"))
		when := at(3 * time.Hour)
		var issues []*nostr.Event
		for i := range 600 {
			issues = append(issues, stranger.Issue(when, owner.Ref("repo"), fmt.Sprint(i)))
		}
		before.save(issues[:501]...)
		r := start(t, net, store, relaysync.Config{})
		defer r.stop()
		after(time.Minute)
		require.Equal(t, 1, a.Open())
		require.Equal(t, uint64(1), r.manager.Status().Events.Dropped["scans"], "it is counted")
		require.LessOrEqual(t, store.scans.Load(), int64(1))
		comment := owner.Comment(at(0), issues[0], "x")
		a.Publish(comment)
		after(time.Minute)
		require.True(t, r.has(comment))

		// Later events are known although no scan finds them, also after the next scans.
		r.save(issues[501:]...)
		late := owner.Hosted(when, "late", us, "b.example")
		for n := 0; late.ID < "f"; n++ { // after the first 500 of some 600
			late = owner.Hosted(when, fmt.Sprint("late", n), us, "b.example")
		}
		r.save(late)
		after(3 * 25 * time.Hour)
		require.LessOrEqual(t, store.scans.Load(), int64(5))
		require.Equal(t, 1, b.Open(), "its announcement was not among the 500 of its second")
		require.Equal(t, 599, r.manager.Status().Roots, "all but the one that no scan finds and nobody told of")

		// Removed events are not.
		require.NoError(t, store.Remove(t.Context(), eventtest.Of(late)))
		after(26 * time.Hour)
		require.Zero(t, b.Open(), "moderation reaches no feed, but the next scan")
	})
}

// slowTags blocks reads by tag until their context ends.
type slowTags struct {
	*memstore.Store
	running atomic.Int64
}

func (s *slowTags) Events(ctx context.Context, f nostr.Filter) iter.Seq2[graspsync.Event, error] {
	if f.Tags == nil {
		return s.Store.Events(ctx, f)
	}
	return func(yield func(graspsync.Event, error) bool) {
		s.running.Add(1)
		defer s.running.Add(-1)
		<-ctx.Done()
		yield(graspsync.Event{}, ctx.Err())
	}
}

// A search for replies may take longer than the time between two scans. A later search replaces it.
func TestOneSearchForReplies(t *testing.T) {
	bubble(t, func(t *testing.T) {
		net := relaytest.NewNetwork()
		net.Add("wss://a.example", relaytest.Behavior{})
		store := &slowTags{Store: memstore.New()}
		(&rig{t: t, store: store}).save(relaytest.NewCheapKey("owner").Hosted(at(24*time.Hour), "repo", us, "a.example"))
		r := start(t, net, store, relaysync.Config{})
		after(time.Minute)
		require.EqualValues(t, 1, store.running.Load())
		for range 3 {
			require.NoError(t, r.manager.RulesChanged(t.Context()))
			after(time.Minute)
		}
		require.EqualValues(t, 1, store.running.Load())
		require.True(t, r.manager.Status().Synced, "the search delays nothing")
		r.stop()
		require.Zero(t, store.running.Load())
	})
}
