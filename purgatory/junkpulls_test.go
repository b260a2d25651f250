package purgatory_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/purgatory/fetchtest"
)

// A server that sends unrequested objects does not count as delivering. It uses no session, is
// asked after delivering servers, and ever more rarely.
func TestPromiseP17_JunkFillsNoPlace(t *testing.T) {
	run(t, purgatory.Config{}, func(t *testing.T, w *world) {
		w.relay.put(announce(alice, now()-500, "a.example/r.git"))
		w.git.Serve(clone("a.example/r.git"), fetchtest.Server{Junk: true, Bytes: 1 << 20})
		w.held(says(alice, now(), "main", 1))
		wait(15 * time.Minute)
		calls := len(w.git.Calls())
		require.Greater(t, calls, 2)
		require.LessOrEqual(t, calls, 10)
		require.Positive(t, w.p.Status().Dropped["lacking"])
		require.Zero(t, w.git.Quarantines())
		require.Zero(t, w.p.Sizes()["places"])

		// Another repository at the same server, and at one that has never delivered.
		at := now()
		w.git.Serve(clone("a.example/s.git"), fetchtest.Server{Junk: true, Bytes: 1 << 20})
		w.git.Serve(clone("b.example/s.git"), serving(2))
		w.relay.put(bob.Event(at-500, 30617, "", nostrTag{"d", "s"}, nostrTag{"clone", "https://b.example/s.git", "https://a.example/s.git"}))
		w.held(bob.Event(at, 30618, "", nostrTag{"d", "s"}, nostrTag{"refs/heads/main", object(2).String()}))
		wait(time.Minute)
		require.Equal(t, clone("b.example/s.git"), w.git.Calls()[calls].URL, "a has delivered no more than b")
		require.Zero(t, w.git.Quarantines())
	})
}

// Useful data stays, whatever other servers send and whatever fails.
func TestPromiseP32_GatheredDespiteJunk(t *testing.T) {
	run(t, purgatory.Config{}, func(t *testing.T, w *world) {
		w.git.Needs(object(1), object(2), object(3))
		w.relay.put(announce(alice, now()-500, "a.example/r.git", "b.example/r.git", "c.example/r.git"))
		w.git.Serve(clone("a.example/r.git"), serving(1, 2))
		w.git.Serve(clone("b.example/r.git"), fetchtest.Server{Junk: true, Bytes: 1 << 20})
		w.git.Serve(clone("c.example/r.git"), fetchtest.Server{Err: errors.New("cut off"), Bytes: 10})
		s := says(alice, now(), "main", 1)
		w.held(s)
		wait(time.Minute)
		require.Equal(t, 1, w.git.Quarantines(), "what is wanted is there, and not complete")
		for _, name := range []string{"a", "b", "c"} {
			w.git.Serve(clone(fmt.Sprintf("%s.example/r.git", name)), serving(3))
		}
		wait(15 * time.Minute)
		require.True(t, w.relay.has(s))
		require.Zero(t, w.git.Quarantines())
	})
}
