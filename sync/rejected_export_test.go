package sync

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/egress"
	"github.com/graspsync/graspsync/filters"
)

// Each time the oldest entry went, every chunk was another one and was written anew.
func TestRejectedChunksAreStable(t *testing.T) {
	const most = 3 * chunkEntries
	r := testRejected(most, 10, 1<<20)
	for i := range most {
		r.add(testNote(i))
	}
	before := r.export()
	for round := range 40 {
		for i := range 300 {
			r.add(testNote(most + 300*round + i))
		}
		after := r.export()
		changed := 0
		for i := range max(len(before), len(after)) {
			var a, b []byte
			if i < len(before) {
				a = before[i]
			}
			if i < len(after) {
				b = after[i]
			}
			if !bytes.Equal(a, b) {
				changed++
			}
		}
		require.LessOrEqual(t, changed, 4, "those where something came or went")
		before = after
	}
	require.LessOrEqual(t, len(before), 2*(most/chunkEntries+2))
	back := testRejected(most, 10, 1<<20)
	_, err := back.restoreAll(before)
	require.NoError(t, err)
	require.Equal(t, r.order.Len(), back.order.Len())
	require.Equal(t, entryOf(r.order.Front()).id, entryOf(back.order.Front()).id)
	require.Equal(t, entryOf(r.order.Back()).id, entryOf(back.order.Back()).id)
}

// Entries that are met again leave holes behind, until the ring would not close.
func TestRejectedRingCloses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := testRejected(2*chunkEntries, 10, 1<<20)
		r.add(testNote(0)) // stays the oldest
		for i := range 30 * chunkEntries {
			r.add(testNote(1 + i%100))
			if i%chunkEntries == 0 {
				time.Sleep(time.Second)
				require.LessOrEqual(t, len(r.export()), 2*(2+2))
			}
		}
		back := testRejected(2*chunkEntries, 10, 1<<20)
		_, err := back.restoreAll(r.export())
		require.NoError(t, err)
		require.Equal(t, 101, back.order.Len())
		require.Equal(t, testID(0), entryOf(back.order.Front()).id)
	})
}

// An event that was being judged again when we ended was remembered as one that needs
// no second look, and so lost for a week.
func TestRejectedWhileJudgedIsWantedAfterARestart(t *testing.T) {
	r := testRejected(100, 10, 1<<20)
	dep := OnRepo(testRepo(1, "x"))
	r.add(waits(testNote(1, dep)))
	accepted := waits(testNote(2, dep))
	accepted.flags = fateAccepted
	r.add(accepted)
	whole, _ := r.arrived(keysOf([]Dependency{dep}))
	require.Len(t, whole, 2)
	require.True(t, r.has(testID(1)), "it is being judged")
	require.Empty(t, r.wanted())

	back := testRejected(100, 10, 1<<20)
	_, err := back.restoreAll(r.export())
	require.NoError(t, err)
	require.False(t, back.has(testID(1)) || back.has(testID(2)))
	require.NotNil(t, back.get(testID(2)))
	require.Equal(t, map[filters.RelayURL][]filters.EventID{
		back.relays.url(1): {testID(1)}, back.relays.url(2): {testID(2)},
	}, back.wanted())

	r.stored(testID(1))
	r.add(accepted)
	back = testRejected(100, 10, 1<<20)
	_, err = back.restoreAll(r.export())
	require.NoError(t, err)
	require.Empty(t, back.wanted(), "judged")
}

// Strangers choose how long the URLs of their relays are, and may bring an event from
// each of many.
func TestRejectedChunkOfLongURLs(t *testing.T) {
	r := testRejected(chunkEntries, 10, 1<<20)
	for i := range chunkEntries {
		n := testNote(i)
		path := fmt.Sprintf("wss://relay.example/%04d/", i)
		u, err := filters.ParseRelayURL(path + strings.Repeat("x", egress.MaxURLLength-len(path)))
		require.NoError(t, err)
		n.incoming.Source.Relay = u
		for k := range manyDependencies {
			n.deps = append(n.deps, depKey(1+i*manyDependencies+k))
		}
		r.add(n)
	}
	back := testRejected(chunkEntries, 10, 1<<20)
	_, err := back.restoreAll(r.export())
	require.NoError(t, err)
	require.Equal(t, chunkEntries, back.order.Len())
}
