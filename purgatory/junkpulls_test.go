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
