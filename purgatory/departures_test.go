package purgatory_test

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// inService makes the repositories of n owners served.
func inService(w *world, n int) (owners []*relaytest.Key) {
	for i := range n {
		k := relaytest.NewCheapKey(fmt.Sprint("owner", i))
		w.relay.put(announce(k, now()-100), says(k, now()-100, "main", 1))
		w.git.Put(repoOf(k), object(1))
		w.git.Push(repoOf(k), map[nip34.RefName]nip34.ObjectID{branch("main"): object(1)})
		owners = append(owners, k)
	}
	wait(time.Second)
	require.NoError(w.t, w.p.Ready())
	return owners
}

// lose removes all events from the relay, except the last ones.
func (r *relay) lose(but int) (lost []*nostrEvent) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := len(r.events) - but
	lost, r.events = r.events[:n:n], r.events[n:]
	return lost
}

// countServed returns the number of repositories in service.
func countServed(w *world, owners []*relaytest.Key) (n int) {
	for _, k := range owners {
		if w.git.Has(repoOf(k)) {
			n++
		}
	}
	return n
}

// If most events are lost, for example because a volume is not mounted, no repository leaves
// service. Before, all left within two hours. The same holds if no announcement lists the service
// (not listed), because its name was mistyped.
func TestCaseC6_LostEventsTakeNoRepositoryAlong(t *testing.T) {
	for _, c := range []struct {
		count     int
		notListed bool
	}{{1, false}, {30, false}, {1, true}, {3, true}} {
		count := c.count
		for name, end := range map[string]func(t *testing.T, w *world, owners []*relaytest.Key, lost []*nostrEvent){
			"confirmed": func(t *testing.T, w *world, owners []*relaytest.Key, _ []*nostrEvent) {
				require.Equal(t, count, w.p.ConfirmDepartures())
				wait(10 * time.Second)
				require.Zero(t, countServed(w, owners))
				require.True(t, w.git.Kept(repoOf(owners[0])), "for a week")
				wait(2 * time.Hour)
			},
			"restored": func(t *testing.T, w *world, owners []*relaytest.Key, lost []*nostrEvent) {
				w.relay.mu.Lock()
				w.relay.notListing = nil
				w.relay.mu.Unlock()
				w.relay.put(lost...)
				wait(2 * time.Minute)
				require.NoError(t, w.p.Ready())
				wait(3 * time.Hour)
				require.Equal(t, count, countServed(w, owners))
				require.Zero(t, w.p.ConfirmDepartures())
			},
		} {
			t.Run(fmt.Sprint(c, name), func(t *testing.T) {
				run(t, purgatory.Config{}, func(t *testing.T, w *world) {
					owners := inService(w, count)
					w.stop()
					lost := w.relay.lose(0)
					if c.notListed {
						w.relay.notListing = lost
					}
					w.start()
					wait(time.Second)
					require.ErrorIs(t, w.p.Ready(), purgatory.ErrLost)
					require.Equal(t, count, w.p.Status().Unconfirmed)
					wait(26 * time.Hour)
					require.Equal(t, count, countServed(w, owners))
					require.ErrorIs(t, w.p.Ready(), purgatory.ErrLost)
					require.NoError(t, testutil.CollectAndCompare(w.p.Collector(""), strings.NewReader(fmt.Sprintf(
						"# HELP purgatory_departures_unconfirmed Number of repositories without an announcement that stay in service until the operator confirms that they leave.\n"+
							"# TYPE purgatory_departures_unconfirmed gauge\npurgatory_departures_unconfirmed %d\n", count)), "purgatory_departures_unconfirmed"))
					end(t, w, owners, lost)
					require.NoError(t, w.p.Ready())
					require.Zero(t, w.p.Status().Unconfirmed)
				})
			})
		}
	}
}

// A held announcement that does not list the service either changes nothing.
func TestCaseC6_HeldWithOtherName(t *testing.T) {
	run(t, purgatory.Config{}, func(t *testing.T, w *world) {
		owners, held := inService(w, 3), announce(carol, now())
		w.held(held)
		w.stop()
		w.relay.notListing = append(w.relay.lose(0), held)
		w.start()
		wait(2 * time.Hour)
		require.Equal(t, 3, countServed(w, owners))
	})
}

// unlisted is a relay that cannot list all announcements.
type unlisted struct{ *relay }

func (r unlisted) Events(ctx context.Context, f nostrFilter) iter.Seq2[graspsync.Event, error] {
	if asks(f) == "identifiers" {
		return func(yield func(graspsync.Event, error) bool) { yield(graspsync.Event{}, purgatory.ErrIncomplete) }
	}
	return r.relay.Events(ctx, f)
}

// If only the listing is incomplete, the operator is not asked.
func TestCaseC6_IncompleteListing(t *testing.T) {
	run(t, purgatory.Config{}, func(t *testing.T, w *world) {
		owners := inService(w, 3)
		w.stop()
		w.host = unlisted{w.relay}
		w.start()
		wait(2 * time.Hour)
		require.NoError(t, w.p.Ready())
		require.Equal(t, 3, countServed(w, owners))
	})
}

// The same holds if the store loses events while the server runs, at any time of a check.
func TestCaseC6_LostWhileRunning(t *testing.T) {
	for at, count := range map[time.Duration]int{time.Minute: 30, 20 * time.Minute: 2, 40 * time.Minute: 12} {
		run(t, purgatory.Config{}, func(t *testing.T, w *world) {
			owners := inService(w, count)
			wait(at)
			lost := w.relay.lose(0)
			wait(26 * time.Hour)
			require.Equal(t, count, countServed(w, owners), at)
			require.ErrorIs(t, w.p.Ready(), purgatory.ErrLost)
			w.relay.put(lost...)
			wait(2 * time.Hour)
			require.Equal(t, count, countServed(w, owners), at)
			require.NoError(t, w.p.Ready())
		})
	}
}

// If few announcements are gone, their repositories leave.
func TestCaseC6_FewLeave(t *testing.T) {
	run(t, purgatory.Config{}, func(t *testing.T, w *world) {
		owners := inService(w, 30)
		w.stop()
		w.relay.lose(2 * 20)
		w.start()
		wait(2 * time.Hour)
		require.NoError(t, w.p.Ready())
		require.Equal(t, 20, countServed(w, owners))
	})
}

// Most events come back after a loss, and the process restarts. The other repositories still stay
// until the operator confirms their removal.
func TestCaseC6_RestartAfterSomeEventsCameBack(t *testing.T) {
	run(t, purgatory.Config{}, func(t *testing.T, w *world) {
		owners := inService(w, 10)
		w.stop()
		lost := w.relay.lose(0)
		w.start()
		wait(time.Second)
		require.ErrorIs(t, w.p.Ready(), purgatory.ErrLost)
		w.relay.put(lost[:2*6]...)
		wait(2 * time.Minute)
		w.stop()
		w.start()
		wait(26 * time.Hour)
		require.ErrorIs(t, w.p.Ready(), purgatory.ErrLost)
		require.Equal(t, 10, countServed(w, owners))
		require.Equal(t, 4, w.p.ConfirmDepartures())
		wait(2 * time.Hour)
		require.NoError(t, w.p.Ready())
		require.Equal(t, 6, countServed(w, owners))
	})
}
