package purgatory_test

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/purgatory/fetchtest"
	"github.com/graspsync/graspsync/state"
)

var errDisk = errors.New("input/output error")

// After any number of failures of any kind, every event is released once, and no ref ever lacks its
// objects.
func TestEveryFailureIsRetried(t *testing.T) {
	for seed := range uint64(60) {
		run(t, purgatory.Config{Membership: unanswered()}, func(t *testing.T, w *world) {
			rng, mishaps := rand.New(rand.NewPCG(seed, 9)), rand.New(rand.NewPCG(seed, 10))
			failing, dice := true, make(chan int, 1)
			dice <- 0
			w.git.FailWith(func(string) error {
				n := <-dice
				defer func() { dice <- n }()
				if failing && mishaps.IntN(3) == 0 {
					return errDisk
				}
				return nil
			})
			w.git.Serve(clone("a.example/r.git"), serving(1, 2, 3))
			at := now()
			d := nostrTag{"d", "r"}
			events := []*nostrEvent{
				alice.Event(at, graspsync.KindAnnouncement, "", d, nostrTag{"clone", "https://a.example/r.git"}),
				listing(bob, at, alice),
				says(alice, at, "main", 1, "dev", 2),
				pull(carol, repoOf(alice), 3, graspsync.KindPullRequest),
			}
			for _, ev := range events {
				w.held(ev)
			}
			wait(time.Duration(rng.IntN(20)) * time.Minute)
			n := <-dice
			failing = false
			dice <- n
			wait(9 * time.Minute)
			for i, ev := range events {
				require.True(t, w.relay.has(ev), "seed %d event %d", seed, i)
			}
			require.Equal(t, w.git.RefsOf(repoOf(alice))[branch("dev")], w.git.RefsOf(repoOf(bob))[branch("dev")])
			require.Equal(t, uint64(4), w.p.Status().Ended[purgatory.Released])
		})
	}
}

// Data for an announcement whose state is served is fetched until the announcement expires. Before,
// there were three attempts and then none until the next check.
func TestAnnouncementWaitsForServedState(t *testing.T) {
	run(t, purgatory.Config{Membership: unanswered()}, func(t *testing.T, w *world) {
		w.relay.put(announce(alice, now()-500, "a.example/r.git"), says(alice, now()-400, "main", 1))
		w.git.Serve(clone("a.example/r.git"), fetchtest.Server{})
		a := listing(bob, now(), alice)
		w.held(a)
		wait(20 * time.Minute)
		w.git.Serve(clone("a.example/r.git"), serving(1))
		wait(9 * time.Minute)
		require.True(t, w.relay.has(a))
	})
}

// Foreign records on the disk are counted and left, and block nothing.
func TestUnreadable(t *testing.T) {
	store := state.NewMemory()
	for key, value := range map[string]string{
		"entry/xx": "{}", "entry/" + strings.Repeat("1", 64): `{"class":2}`, "entry/" + strings.Repeat("2", 64): "no",
		"expired/xx": "2000", "expired/" + strings.Repeat("4", 64): "1999-01-01T00:00:00Z",
		"aligning/x": "no", "aligning/y": `{"repo":"30617:` + alice.Hex() + `:r","changes":[{"ref":"x","old":"y","new":"z"}]}`,
	} {
		err := store.Put(t.Context(), state.Record{Key: "purgatory/" + key, Value: []byte(value)})
		require.NoError(t, err)
	}
	w := newWorld(t, purgatory.Config{})
	p, err := purgatory.Open(t.Context(), w.relay, w.git, w.git, w.git, store, purgatory.Config{})
	require.NoError(t, err)
	require.Equal(t, uint64(6), p.Status().Unreadable)
	require.Empty(t, p.Held(nostrFilter{}))
}
