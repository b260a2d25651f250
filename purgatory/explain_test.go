package purgatory_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/internal/eventtest"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/purgatory/fetchtest"
)

func (w *world) explained(ev *nostrEvent) purgatory.EventState {
	w.t.Helper()
	x := w.p.EventState(eventtest.Of(ev).ID)
	return x
}

// EventState of a held event names the missing object, the servers with their replies, and the next
// attempt. Afterwards it has the end of the hold.
func TestExplainWaiting(t *testing.T) {
	run(t, purgatory.Config{}, func(t *testing.T, w *world) {
		w.git.Serve(clone("a.example/r.git"), fetchtest.Server{Objects: []nip34.ObjectID{object(7)}})
		w.git.Serve(clone("b.example/r.git"), fetchtest.Server{Err: purgatory.ErrServerUnusable})
		a, s := announce(alice, now(), "a.example/r.git", "b.example/r.git"), says(alice, now(), "main", 1)
		w.held(a)
		w.held(s)
		wait(2 * time.Second)

		x := w.explained(s)
		require.Equal(t, purgatory.IsWaiting, x.Is)
		require.Equal(t, "state", x.Class)
		require.Len(t, x.Data, 1)
		data := x.Data[0]
		require.Equal(t, []purgatory.MissingObject{{ID: object(1).String(), For: []string{"refs/heads/main"}}}, data.Missing)
		require.Len(t, data.Servers, 2)
		require.Equal(t, []int{1, 1}, []int{data.Servers[0].Wanted, data.Servers[0].Missing})
		require.Empty(t, data.Servers[0].Error)
		require.WithinDuration(t, time.Now(), data.Servers[0].Asked, 3*time.Second)
		require.Contains(t, data.Servers[1].Error, "unusable")
		require.Greater(t, time.Until(data.Servers[1].Until), 30*time.Second, "it is left alone")
		require.Greater(t, time.Until(data.Next), time.Second)
		require.Equal(t, 1, data.Attempts)
		r := w.p.DataState(repoOf(alice))
		require.Len(t, r.Waiting, 2)

		wait(31 * time.Minute)
		x = w.explained(s)
		require.EqualValues(t, "expired", x.Is)
		require.Equal(t, purgatory.Refused, w.submit(s, false))
		wait(time.Second)
		x = w.explained(s)
		require.Equal(t, purgatory.IsNotHeld, x.Is)
		require.Contains(t, x.Reason, "its git data never came")
		r = w.p.DataState(repoOf(alice))
		require.NotEmpty(t, r.Ended)
		require.Len(t, r.GivenUp, 1)

		never := says(bob, now(), "main", 3)
		x = w.explained(never)
		require.Equal(t, purgatory.IsUnknown, x.Is)
	})
}
