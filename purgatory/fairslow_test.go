package purgatory_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/purgatory/fetchtest"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// Sixty keys that nobody knew, with git servers that drip, came before a newcomer: for each ten of them that had to wait for ten
// minutes, and who was served already as well.
func TestFreshSlowServersKeepNobodyOut(t *testing.T) {
	run(t, purgatory.Config{}, func(t *testing.T, w *world) {
		strangers := 0
		come := func(n int) {
			for range n {
				strangers++
				mallory := relaytest.NewCheapKey(fmt.Sprint("mallory", strangers))
				at := fmt.Sprintf("slow.example:%d/r.git", 2000+strangers)
				w.git.Serve(clone(at), fetchtest.Server{Err: errors.New("too slow"), Delay: 10 * time.Minute})
				w.held(announce(mallory, now(), at))
				w.held(says(mallory, now(), "main", 100_000+strangers))
			}
		}
		come(60)
		wait(10 * time.Second)
		w.git.Serve(clone("good.example/r.git"), fetchtest.Server{Objects: []nip34.ObjectID{object(1)}})
		w.held(announce(alice, now(), "good.example/r.git"))
		first := says(alice, now(), "main", 1)
		w.held(first)
		wait(2 * time.Minute)
		require.True(t, w.relay.has(first), "a newcomer waits for strangers")
		require.Positive(t, w.p.Status().Dropped["gave_way"])

		come(20)
		wait(10 * time.Minute)
		w.git.Serve(clone("good.example/r.git"), fetchtest.Server{Objects: []nip34.ObjectID{object(1), object(2)}})
		second := says(alice, now(), "main", 2)
		w.held(second)
		wait(10 * time.Second)
		require.True(t, w.relay.has(second), "who is served waits for strangers")
	})
}
