package purgatory_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/filters"
	"github.com/graspsync/graspsync/purgatory"
)

// All announcements that wait under an identifier were parsed for each event that was judged.
func TestWhatWaitsIsParsedOnce(t *testing.T) {
	run(t, purgatory.Config{}, func(t *testing.T, w *world) {
		named := func(name string, more ...nostr.Tag) *nostr.Event {
			return alice.Event(now(), filters.KindAnnouncement, "", append(nostr.Tags{{"d", name}}, more...)...)
		}
		w.held(named("r"))
		before, generation := w.p.Parses(), w.p.Generation("r")
		for range 1000 {
			require.Len(t, w.p.Announcements("r"), 1)
			require.Len(t, w.p.Remembered("r"), 1)
		}
		require.LessOrEqual(t, w.p.Parses()-before, 1)
		require.Equal(t, generation, w.p.Generation("r"))
		wait(time.Second)
		w.held(named("r", nostr.Tag{"name", "newer"}))
		require.NotSame(t, generation, w.p.Generation("r"))
		require.Equal(t, "newer", w.p.Announcements("r")[0].Name)

		for n := range 80 { // more than are kept
			w.p.Announcements(fmt.Sprint("none", n))
		}
		require.Nil(t, w.p.Generation("none1"))
		wait(31 * time.Minute)
		require.Empty(t, w.p.Announcements("r"), "it has expired softly")
		require.Len(t, w.p.Remembered("r"), 1)
		wait(25 * time.Hour)
		require.Empty(t, w.p.Remembered("r"))
		require.Nil(t, w.p.Generation("r"))
	})
}
