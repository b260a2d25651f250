package purgatory_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/eventtest"
	"github.com/graspsync/graspsync/purgatory"
)

// Stored announcements of repositories that are not hosted or have no state use no memory, because
// there may be any number.
func TestStoredAnnouncementsLeaveNothing(t *testing.T) {
	run(t, purgatory.Config{}, func(t *testing.T, w *world) {
		for i := range 100 {
			ev := alice.Event(now(), graspsync.KindAnnouncement, "", nostrTag{"d", fmt.Sprint(i)})
			if i%2 == 0 { // else it is not hosted
				w.relay.put(ev)
			}
			w.p.NotifyStored(eventtest.Of(ev))
		}
		wait(time.Minute)
		require.Zero(t, w.p.Sizes()["touched"])
	})
}

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
