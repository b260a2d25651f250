package absent

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
)

// Each time the oldest entry went, every chunk was another one and was written anew.
func TestRejectedChunksAreStable(t *testing.T) {
	const most = 3 * chunkEntries
	r := testTable(most, 10, 1<<20)
	for i := range most {
		r.Add(testNote(i))
	}
	before := r.Export()
	for round := range 40 {
		for i := range 300 {
			r.Add(testNote(most + 300*round + i))
		}
		after := r.Export()
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
	back := testTable(most, 10, 1<<20)
	_, err := back.Restore(before)
	require.NoError(t, err)
	require.Equal(t, r.order.Len(), back.order.Len())
	require.Equal(t, entryOf(r.order.Front()).id, entryOf(back.order.Front()).id)
	require.Equal(t, entryOf(r.order.Back()).id, entryOf(back.order.Back()).id)
}

// Entries that are met again leave holes behind, until the ring would not close.
func TestRejectedRingCloses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := testTable(2*chunkEntries, 10, 1<<20)
		r.Add(testNote(0)) // stays the oldest
		for i := range 30 * chunkEntries {
			r.Add(testNote(1 + i%100))
			if i%chunkEntries == 0 {
				time.Sleep(time.Second)
				require.LessOrEqual(t, len(r.Export()), 2*(2+2))
			}
		}
		back := testTable(2*chunkEntries, 10, 1<<20)
		_, err := back.Restore(r.Export())
		require.NoError(t, err)
		require.Equal(t, 101, back.order.Len())
		require.Equal(t, testID(0), entryOf(back.order.Front()).id)
	})
}

// An event that was being judged again when we ended was remembered as one that needs
// no second look, and so lost for a week.
func TestRejectedWhileJudgedIsWantedAfterARestart(t *testing.T) {
	r := testTable(100, 10, 1<<20)
	dep := graspsync.OnRepo(testRepo(1, "x"))
	r.Add(waits(testNote(1, dep)))
	accepted := waits(testNote(2, dep))
	accepted.Accepted = true
	r.Add(accepted)
	whole, _ := r.Arrived(KeysOf([]graspsync.Dependency{dep}))
	require.Len(t, whole, 2)
	require.True(t, r.Has(testID(1)), "it is being judged")
	require.Empty(t, r.Wanted())

	back := testTable(100, 10, 1<<20)
	_, err := back.Restore(r.Export())
	require.NoError(t, err)
	require.False(t, back.Has(testID(1)) || back.Has(testID(2)))
	require.NotNil(t, back.get(testID(2)))
	require.Equal(t, map[graspsync.RelayURL][]graspsync.EventID{
		back.relays.URL(1): {testID(1)}, back.relays.URL(2): {testID(2)},
	}, back.Wanted())

	r.Stored(testID(1))
	r.Add(accepted)
	back = testTable(100, 10, 1<<20)
	_, err = back.Restore(r.Export())
	require.NoError(t, err)
	require.Empty(t, back.Wanted(), "judged")
}

// Strangers choose how long the URLs of their relays are, and may bring an event from
// each of many.
func TestRejectedChunkOfLongURLs(t *testing.T) {
	r := testTable(chunkEntries, 10, 1<<20)
	for i := range chunkEntries {
		n := testNote(i)
		path := fmt.Sprintf("wss://relay.example/%04d/", i)
		u, err := graspsync.ParseRelayURL(path + strings.Repeat("x", graspsync.MaxURLLength-len(path)))
		require.NoError(t, err)
		n.Incoming.Source.Relay = u
		for k := range manyDependencies {
			n.Deps = append(n.Deps, Key(1+i*manyDependencies+k))
		}
		r.Add(n)
	}
	back := testTable(chunkEntries, 10, 1<<20)
	_, err := back.Restore(r.Export())
	require.NoError(t, err)
	require.Equal(t, chunkEntries, back.order.Len())
}

// One event that was dated beyond 2^62, which no relay that we read ourselves can send, had all of
// its chunk forgotten in a restart.
func TestRejectedOfAnyTimeSurvives(t *testing.T) {
	times := []nostr.Timestamp{math.MinInt64, -5, -1, 0, 1, 1_900_000_000, 1<<62 - 2, 1<<62 - 1, 1 << 62, math.MaxInt64 - 1, math.MaxInt64}
	r := testTable(100, 10, 1<<20)
	for i, at := range times {
		n := testNote(i)
		n.Incoming.Event.CreatedAt = at
		r.Add(n)
	}
	back := testTable(100, 10, 1<<20)
	_, err := back.Restore(r.Export())
	require.NoError(t, err)
	for i, at := range times {
		require.Equal(t, max(at, noTime), back.get(testID(i)).createdAt)
	}
}

// Of entries with very many dependencies a chunk has so many bytes, and room for all that
// have few.
func TestRejectedChunkOfManyDependencies(t *testing.T) {
	with := func(id, n int) *remembered {
		e := &remembered{id: testID(id)}
		for k := range n {
			e.deps = append(e.deps, depLink{key: Key(1 + k)}) //nolint:gosec // small
		}
		return e
	}
	var entries []*remembered
	for i := range 7 {
		entries = append(entries, with(i, 4_096)) // 32 KiB each
	}
	entries = append(entries, with(7, 4_097), with(8, 4_096), with(9, 17), with(10, 16), with(11, 0))
	r := testTable(100, 10, 1<<20)
	back, _, err := decodeRejected(r.encode(entries))
	require.NoError(t, err)
	kept := make(map[graspsync.EventID]int)
	for _, e := range back {
		kept[e.id] = len(e.keys)
	}
	want := map[graspsync.EventID]int{testID(8): 4_096, testID(10): 16, testID(11): 0}
	for i := range 7 {
		want[testID(i)] = 4_096
	}
	require.Equal(t, want, kept)
}

// When the ring would not close, the entries are counted anew from the start of a chunk.
func TestRejectedRingIsCountedAnew(t *testing.T) {
	r := testTable(2*chunkEntries, 10, 1<<20)
	const slots = 2 * (2 + 2)
	r.Add(testNote(0)) // stays the oldest
	for r.places < slots*chunkEntries {
		r.Add(testNote(1))
	}
	require.Len(t, r.Export(), slots, "it closes")
	for i := range 2*chunkEntries - 1 {
		r.Add(testNote(1 + i))
	}
	chunks := r.Export()
	require.Len(t, chunks, 2)
	for _, c := range chunks {
		entries, _, err := decodeRejected(c)
		require.NoError(t, err)
		require.Len(t, entries, chunkEntries)
	}
	require.Equal(t, uint64(2*chunkEntries), r.places)
}

// Of a chunk that was cut short or changed nothing is taken, or what can be read again.
func TestRejectedChunksThatAreDamaged(t *testing.T) {
	r := testTable(100, 10, 1<<20)
	for i := range 3 {
		r.Add(testNote(i, graspsync.OnEvent(testID(90+i)), graspsync.OnEvent(testID(95))))
	}
	chunk := r.Export()[0]
	_, urls, err := decodeRejected(chunk)
	require.NoError(t, err)
	require.Len(t, urls, 3)
	whole := 0
	for n := range chunk {
		back := testTable(100, 10, 1<<20)
		if _, err := back.restoreChunk(chunk[:n]); err == nil {
			whole++ // just as many entries as there are
			require.Less(t, back.order.Len(), 3)
		} else {
			require.ErrorIs(t, err, errChunk)
			require.Zero(t, back.order.Len())
		}
		back.consistent(t)
	}
	require.Equal(t, 3, whole, "after the relays, and after each entry but the last")
	for version := range 256 {
		if _, _, err := decodeRejected(append([]byte{byte(version)}, chunk[1:]...)); version != 1 {
			require.ErrorIs(t, err, errChunk)
		}
	}
	_, _, err = decodeRejected(nil)
	require.ErrorIs(t, err, errChunk)
	long := append(chunk, make([]byte, maxChunk+1-len(chunk))...)
	_, _, err = decodeRejected(long)
	require.EqualError(t, err, "not a chunk of remembered events: 3145729 bytes")
	_, _, err = decodeRejected(long[:maxChunk])
	require.EqualError(t, err, "not a chunk of remembered events", "it is read, to where it is damaged")
	d, err := testTable(100, 10, 1<<20).Restore([][]byte{nil, chunk[:5], chunk})
	require.ErrorIs(t, err, errChunk)
	require.Zero(t, d)
}
