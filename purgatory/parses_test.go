package purgatory_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// Held announcements are parsed once. Before, all announcements with an identifier were parsed for
// each event, page and push.
func TestWhatWaitsIsParsedOnce(t *testing.T) {
	run(t, purgatory.Config{}, func(t *testing.T, w *world) {
		named := func(name string, more ...nostr.Tag) *nostr.Event {
			return alice.Event(now(), graspsync.KindAnnouncement, "", append(nostr.Tags{{"d", name}}, more...)...)
		}
		w.held(named("r"))
		generation, parsed := w.p.Generation("r"), w.p.Announcements("r")[0]
		for range 80 { // more than the cache holds
			require.Same(t, parsed, w.p.Announcements("r")[0])
			require.Same(t, parsed, w.p.Remembered("r")[0])
			require.Same(t, parsed, w.p.AllAnnouncements()[0])
			stands, _, err := w.p.Announced(t.Context(), alice.Ref("r"))
			require.NoError(t, err)
			require.Same(t, parsed, stands)
		}
		require.Equal(t, generation, w.p.Generation("r"))
		for n := range 80 {
			w.held(relaytest.NewCheapKey(fmt.Sprint("free", n)).Event(now(), graspsync.KindAnnouncement, "", nostr.Tag{"d", "r"}))
			require.NotSame(t, generation, w.p.Generation("r"))
			generation = w.p.Generation("r")
			require.Len(t, w.p.Announcements("r"), n+2)
			require.True(t, slices.ContainsFunc(w.p.Announcements("r"), func(a *nip34.Announcement) bool { return a == parsed }))
		}
		wait(time.Second)
		w.held(named("r", nostr.Tag{"name", "newer"}))
		require.NotSame(t, generation, w.p.Generation("r"))
		require.True(t, slices.ContainsFunc(w.p.Announcements("r"), func(a *nip34.Announcement) bool { return a.Name == "newer" }))

		for n := range 80 { // more than the cache holds
			w.p.Announcements(fmt.Sprint("none", n))
		}
		require.Nil(t, w.p.Generation("none1"))
		wait(31 * time.Minute)
		require.Empty(t, w.p.Announcements("r"), "it has expired softly")
		require.Len(t, w.p.Remembered("r"), 81)
		wait(25 * time.Hour)
		require.Empty(t, w.p.Remembered("r"))
		require.Nil(t, w.p.Generation("r"))
	})
}

// Knows answers from memory which keys held announcements concern.
func TestKnowsWhoHasToDoWithWhatWaits(t *testing.T) {
	run(t, purgatory.Config{}, func(t *testing.T, w *world) {
		knows := func(keys ...*relaytest.Key) (out []bool) {
			for _, k := range keys {
				out = append(out, w.p.Knows("r", k.PubKey()))
			}
			return out
		}
		require.Equal(t, []bool{false, false, false}, knows(alice, bob, carol))
		lists := func(k *relaytest.Key) nostr.Tag { return nostr.Tag{"maintainers", k.PubKey().String()} }
		w.held(alice.Event(now(), graspsync.KindAnnouncement, "", nostr.Tag{"d", "r"}, lists(bob)))
		require.Equal(t, []bool{true, true, false}, knows(alice, bob, carol))
		require.False(t, w.p.Knows("s", alice.PubKey()))
		wait(time.Second)
		w.held(alice.Event(now(), graspsync.KindAnnouncement, "", nostr.Tag{"d", "r"}, lists(carol)))
		require.Equal(t, []bool{true, false, true}, knows(alice, bob, carol))
		wait(31 * time.Minute)
		require.Equal(t, []bool{true, false, true}, knows(alice, bob, carol), "it has expired softly")
		wait(25 * time.Hour)
		require.Equal(t, []bool{false, false, false}, knows(alice, bob, carol))
	})
}
