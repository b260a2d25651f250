package sync_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/memstore"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// slowStore is a Store with slow calls.
type slowStore struct {
	relaysync.Store
	delay time.Duration
}

func (s slowStore) Save(ctx context.Context, events []graspsync.Incoming) ([]graspsync.Outcome, error) {
	time.Sleep(s.delay)
	return s.Store.Save(ctx, events)
}

// "Wait 6 s and check again" decided that sync was complete. With a slow store that is wrong.
func TestTrapT12_SyncedIsCounted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		net := relaytest.NewNetwork()
		a := net.Add("wss://a.example", relaytest.Behavior{})
		owner := relaytest.NewCheapKey("owner")
		r := &rig{t: t, store: memstore.New()}
		r.save(owner.Hosted(at(24*time.Hour), "repo", us, "a.example"))
		issue := owner.Issue(at(time.Hour), owner.Ref("repo"), "x")
		comment := owner.Comment(at(time.Hour), issue, "y")
		a.Publish(issue, comment)
		r = start(t, net, slowStore{r.store, 20 * time.Second}, relaysync.Config{})
		defer r.stop()
		for range 300 {
			after(time.Second)
			if r.manager.Status().Synced {
				break
			}
		}
		require.True(t, r.manager.Status().Synced)
		require.True(t, r.has(comment))
	})
}

// A Store that ignores the end of its context delays Run. Nothing logged the reason.
func TestRunSaysThatItIsKeptWaiting(t *testing.T) {
	const kept = "Run waits for a call of Store, Policy or observer that ignores its ended context"
	for delay, want := range map[time.Duration]int{0: 0, time.Minute: 1} {
		bubble(t, func(t *testing.T) {
			net, logs := relaytest.NewNetwork(), newCapture()
			owner := relaytest.NewCheapKey("owner")
			r := &rig{t: t, store: memstore.New()}
			r.save(owner.Hosted(at(24*time.Hour), "repo", us, "a.example"))
			net.Add("wss://a.example", relaytest.Behavior{}).Publish(owner.Issue(at(time.Hour), owner.Ref("repo"), "x"))
			r = start(t, net, slowStore{r.store, delay}, relaysync.Config{Logger: logs.logger()})
			after(30 * time.Second)
			began := time.Now()
			r.stop()
			require.Equal(t, delay > 0, time.Since(began) > 5*time.Second)
			require.Len(t, logs.find(kept), want)
		})
	}
}

// failing is a store that fails while enabled.
type failing struct {
	relaysync.Store
	broken atomic.Bool
}

var errBroken = errors.New("disk full")

func (s *failing) Save(ctx context.Context, events []graspsync.Incoming) ([]graspsync.Outcome, error) {
	if s.broken.Load() {
		return nil, errBroken
	}
	return s.Store.Save(ctx, events)
}

// A failure of the store is not a refusal: unsaved events are fetched again.
func TestFailingStore(t *testing.T) {
	bubble(t, func(t *testing.T) {
		net := relaytest.NewNetwork()
		a := net.Add("wss://a.example", relaytest.Behavior{})
		owner := relaytest.NewCheapKey("owner")
		store := &failing{Store: memstore.New()}
		r := &rig{t: t, store: store}
		r.save(owner.Hosted(at(24*time.Hour), "repo", us, "a.example"))
		store.broken.Store(true)
		var issues []*nostr.Event
		for i := range 30 {
			issues = append(issues, owner.Issue(at(time.Duration(i)*time.Minute), owner.Ref("repo"), fmt.Sprint(i)))
		}
		a.Publish(issues...)
		r = start(t, net, store, relaysync.Config{})
		defer r.stop()
		after(10 * time.Minute)
		require.NotZero(t, r.manager.Status().Events.Failed)
		require.False(t, r.manager.Status().Synced)
		store.broken.Store(false)
		after(5 * time.Minute)
		for _, ev := range issues {
			require.True(t, r.has(ev))
		}
		require.Equal(t, uint64(1), r.relay("wss://a.example").Connects)
	})
}

// once fails the next Save, before or after the events are stored.
type once struct {
	relaysync.Store
	before, after atomic.Int32
}

func (s *once) Save(ctx context.Context, events []graspsync.Incoming) ([]graspsync.Outcome, error) {
	if s.before.Add(-1) >= 0 {
		return nil, errBroken
	}
	out, err := s.Store.Save(ctx, events)
	if s.after.Add(-1) >= 0 {
		return nil, errBroken
	}
	return out, err
}

// A short failure of the store lost live or waiting events until the next day, or permanently. An
// announcement that was stored although Save returned an error was never followed.
func TestStoreHiccup(t *testing.T) {
	for name, arm := range map[string]func(*once){
		"before": func(s *once) { s.before.Store(1) },
		"after":  func(s *once) { s.after.Store(1) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				net := relaytest.NewNetwork()
				a := net.Add("wss://a.example", relaytest.Behavior{})
				b := net.Add("wss://b.example", relaytest.Behavior{})
				owner, bob := relaytest.NewCheapKey("owner"), relaytest.NewCheapKey("bob")
				store := &once{Store: memstore.New()}
				r := &rig{t: t, store: store}
				r.save(owner.Hosted(at(24*time.Hour), "repo", us, "a.example"))
				r = start(t, net, store, relaysync.Config{})
				defer r.stop()
				waiting := bob.State(at(time.Hour), "bobs", nil, "")
				a.Publish(waiting)
				after(time.Minute)

				arm(store)
				live := owner.Issue(at(0), owner.Ref("repo"), "live")
				a.Publish(live)
				after(time.Minute)
				require.True(t, r.has(live))

				arm(store)
				a.Publish(bob.Hosted(at(2*time.Hour), "bobs", us, "b.example"))
				after(time.Minute)
				require.Equal(t, 1, b.Open(), "it is followed")
				require.True(t, r.has(waiting))
			})
		})
	}
}

// While the store hung, a relay seemed alive until its loss was noticed, so the catch-up began too
// late.
func TestTrapT7_LostWhileWeWereStuck(t *testing.T) {
	bubble(t, func(t *testing.T) {
		net := relaytest.NewNetwork()
		a := net.Add("wss://a.example", relaytest.Behavior{})
		owner := relaytest.NewCheapKey("owner")
		inner := memstore.New()
		stuck := &stuckStore{Store: inner}
		r := &rig{t: t, store: stuck}
		r.save(owner.Hosted(at(24*time.Hour), "repo", us, "a.example"))
		r = start(t, net, stuck, relaysync.Config{InFlight: 4 << 20}.With(relaysync.Fixed{StoreTimeout: time.Hour}))
		defer r.stop()
		after(5 * time.Minute)
		stuck.hang.Store(int64(40 * time.Minute))
		for i := range 2000 {
			a.Publish(owner.Issue(at(0), owner.Ref("repo"), fmt.Sprint(i)))
		}
		after(time.Minute)
		a.SetDown(true)
		after(4 * time.Minute)
		missed := owner.Issue(at(0), owner.Ref("repo"), "made while it was down")
		a.Publish(missed)
		after(time.Minute)
		a.SetDown(false)
		after(2 * time.Hour)
		require.True(t, r.has(missed))
	})
}

// stuckStore hangs once.
type stuckStore struct {
	relaysync.Store
	hang atomic.Int64
}

func (s *stuckStore) Save(ctx context.Context, events []graspsync.Incoming) ([]graspsync.Outcome, error) {
	time.Sleep(time.Duration(s.hang.Swap(0)))
	return s.Store.Save(ctx, events)
}
