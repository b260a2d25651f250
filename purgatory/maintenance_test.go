package purgatory_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/racetest"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// Objects of a deleted branch are deleted after their grace. Objects that a held event names stay
// as long as it is held.
func TestUnnamedObjectsGo(t *testing.T) {
	racetest.Amounts(t)
	run(t, purgatory.Config{Times: purgatory.Times{Hold: 40 * day}}, func(t *testing.T, w *world) {
		alice, bob := relaytest.NewCheapKey("alice"), relaytest.NewCheapKey("bob")
		a := announce(alice, now())
		w.relay.put(a)
		w.git.Put(repoOf(alice), object(1), object(2), object(3))
		w.git.Push(repoOf(alice), map[nip34.RefName]nip34.ObjectID{branch("main"): object(1)})
		w.relay.put(says(alice, now(), "main", 1))
		w.git.Needs(object(3), object(9)) // so that the pull request is held
		w.held(pull(bob, repoOf(alice), 3, graspsync.KindPullRequest))
		wait(13 * day)
		require.Equal(t, []nip34.ObjectID{object(1), object(2), object(3)}, w.git.Objects(repoOf(alice)), "within the grace")
		wait(4 * day)
		require.Equal(t, []nip34.ObjectID{object(1), object(3)}, w.git.Objects(repoOf(alice)))
		st := w.p.Status().Maintenance
		require.InDelta(t, 16, st.Runs, 1.1, "once a day, and up to a tenth later")
		require.EqualValues(t, 1, st.Freed)
		require.Zero(t, st.Failed)
		wait(45 * day) // the pull request has expired, and its grace is over
		require.Equal(t, []nip34.ObjectID{object(1)}, w.git.Objects(repoOf(alice)))
	})
}

const day = 24 * time.Hour

// An operator can maintain one repository immediately. After any failure the call can be repeated.
// It is refused if the repository is missing or maintenance is off.
func TestMaintainByAnOperator(t *testing.T) {
	run(t, purgatory.Config{NoMaintenance: true}, func(t *testing.T, w *world) {
		alice := relaytest.NewCheapKey("alice")
		w.relay.put(announce(alice, now()))
		w.git.Put(repoOf(alice), object(1))
		wait(60 * day)
		require.Len(t, w.git.Objects(repoOf(alice)), 1)
		done, err := w.p.Maintain(t.Context(), repoOf(alice))
		require.NoError(t, err)
		require.EqualValues(t, 1, done.Freed)
		require.Empty(t, w.git.Objects(repoOf(alice)))
		boom := errors.New("boom")
		w.git.FailWith(func(op string) error {
			if op == "maintain" {
				panic(boom)
			}
			return nil
		})
		_, err = w.p.Maintain(t.Context(), repoOf(alice))
		require.ErrorContains(t, err, "boom")
		require.EqualValues(t, 1, w.p.Status().Panics["git"])
		w.git.FailWith(nil)
	})
}
