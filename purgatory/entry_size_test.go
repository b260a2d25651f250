package purgatory_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// The size of a held event includes its overhead, most of all for thousands of empty tags.
func TestSizeOfWhatWaits(t *testing.T) {
	run(t, purgatory.Config{}, func(t *testing.T, w *world) {
		d := nostrTag{"d", "r"}
		w.held(alice.Event(now(), graspsync.KindAnnouncement, "", d))
		small := w.p.Status().Bytes
		require.Positive(t, small)
		tags := []nostrTag{d}
		for range 1_000 {
			tags = append(tags, nostrTag{"x", ""})
		}
		w.held(bob.Event(now(), graspsync.KindAnnouncement, "", tags...))
		empty := w.p.Status().Bytes
		require.Greater(t, empty-small, int64(1_000*2*16))
		w.held(carol.Event(now(), graspsync.KindAnnouncement, strings.Repeat("x", 10_000), d, nostrTag{"x", strings.Repeat("y", 10_000)}))
		full := w.p.Status().Bytes
		require.Greater(t, full-empty, int64(20_000))

		// The parsed form and its listed maintainers count.
		lists := nostrTag{"maintainers"}
		for i := range nip34.MaxMaintainers {
			lists = append(lists, fmt.Sprintf("%064x", i))
		}
		w.held(relaytest.NewCheapKey("dora").Event(now(), graspsync.KindAnnouncement, "", d, lists))
		require.Greater(t, w.p.Status().Bytes-full, int64(nip34.MaxMaintainers*(64+16+32+96)))
	})
}
