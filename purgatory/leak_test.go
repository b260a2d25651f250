package purgatory_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/purgatory"
)

// After a release no memory is used.
func TestNothingIsLeftInMemory(t *testing.T) {
	run(t, purgatory.Config{}, func(t *testing.T, w *world) {
		w.git.Serve(clone("a.example/r.git"), serving(1))
		w.held(announce(alice, now(), "a.example/r.git"))
		w.held(says(alice, now(), "main", 1, "dev", 2))
		wait(time.Minute)
		require.NotZero(t, w.p.Sizes()["needs"])
		w.git.Serve(clone("a.example/r.git"), serving(2))
		wait(28 * time.Minute)
		for name, n := range w.p.Sizes() {
			require.Zero(t, n, name)
		}
	})
}
