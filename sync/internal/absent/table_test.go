package absent

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/eventtest"
	"github.com/graspsync/graspsync/internal/racetest"
	"github.com/graspsync/graspsync/sync/internal/shares"
)

func testNote(n int, deps ...graspsync.Dependency) Note {
	u, err := graspsync.ParseRelayURL(fmt.Sprintf("wss://r%d.example", n%3))
	if err != nil {
		panic(err)
	}
	return Note{
		Incoming: graspsync.Incoming{Event: eventtest.Of(testEvent(n, graspsync.KindState, n, nostr.Timestamp(n))), Source: graspsync.Source{Kind: graspsync.Live, Relay: u}},
		ID:       testID(n), Size: 100, Deps: KeysOf(deps),
	}
}

func testTable(most, waiting int, waitingBytes int64) *Table {
	return New(Config{Most: most, Waiting: waiting, WaitingBytes: waitingBytes, KeepFor: 7 * 24 * time.Hour, WholeFor: 2 * time.Minute})
}

func waits(n Note) Note {
	n.Waits = true
	return n
}

func fresh(n Note) Note {
	n.Fresh = true
	return n
}

func later(n Note) Note {
	n.Later = true
	return n
}

func (r *Table) consistent(t *testing.T) {
	t.Helper()
	require.NoError(t, r.Audit())
}

// A relay of which one event is remembered keeps its number when that is told again, and
// gives it back when another relay has it: else a later one would be taken for it.
func TestNumberOfARelayOfOneEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := testTable(10, 3, 800)
		first := testNote(1, graspsync.OnEvent(testID(99)))
		for range 3 {
			r.Add(first)
			r.consistent(t)
		}
		r.Add(testNote(2, graspsync.OnEvent(testID(99))))
		r.consistent(t)
		require.Len(t, r.relays.URLs(), 2)
		first.Incoming.Source.Relay = testNote(2).Incoming.Source.Relay
		r.Add(first)
		r.consistent(t)
		require.Contains(t, r.relays.URLs(), graspsync.RelayURL{}, "its number is free")
	})
}

func TestRejectedBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := testTable(10, 3, 800)
		var total Dropped
		for i := range 15 {
			d := r.Add(waits(testNote(i, graspsync.OnRepo(testRepo(i%2, "x")))))
			total.Waiting += d.Waiting
			total.Remembered += d.Remembered
			r.consistent(t)
		}
		require.Equal(t, Dropped{Waiting: 12, Remembered: 5}, total)
		require.Equal(t, 3, r.Held().Waiting)
		require.False(t, r.Has(testID(4)))
		require.True(t, r.Has(testID(5)))
		for i := range 4 {
			total.Fresh += r.Add(fresh(testNote(20+i, graspsync.OnEvent(testID(99))))).Fresh
			r.consistent(t)
		}
		require.Equal(t, 2, total.Fresh, "200 bytes for what was rejected")

		whole, ask := r.Arrived(KeysOf([]graspsync.Dependency{graspsync.OnRepo(testRepo(0, "x"))}))
		r.consistent(t)
		require.Len(t, whole, 2)
		require.Equal(t, []graspsync.EventID{testID(12), testID(14)}, []graspsync.EventID{whole[0].ID, whole[1].ID})
		require.Len(t, ask, 1)
		require.Equal(t, []graspsync.EventID{testID(10)}, ask[r.relays.URL(2)])
		require.False(t, r.Has(testID(10)), "it is wanted")
		require.True(t, r.Has(testID(12)), "it is being judged")
		_, again := r.Arrived(KeysOf([]graspsync.Dependency{graspsync.OnRepo(testRepo(0, "x"))}))
		require.Empty(t, again, "it is asked for once")

		time.Sleep(3 * time.Minute)
		whole, ask = r.Arrived(KeysOf([]graspsync.Dependency{graspsync.OnEvent(testID(99))}))
		require.Empty(t, whole)
		require.Len(t, ask, 3)
		r.consistent(t)
		time.Sleep(8 * 24 * time.Hour)
		require.False(t, r.Has(testID(12)))
		r.Add(testNote(50))
		require.Equal(t, 1, r.order.Len())
		r.consistent(t)
	})
}

// One relay that brought enough of what waits drove out what all others had brought:
// whole events, and the ids of those as well.
func TestRejectedIsSharedByRelays(t *testing.T) {
	r := testTable(1_000, 30, 10_000)
	of := func(n int, relay string) Note {
		w := waits(testNote(n, graspsync.OnRepo(testRepo(n, "x"))))
		w.Incoming.Source.Relay, _ = graspsync.ParseRelayURL("wss://" + relay + ".example")
		return w
	}
	for i := range 10 {
		r.Add(of(i, "honest"))
	}
	ours := testNote(50)
	ours.Incoming.Source, ours.Accepted = graspsync.Source{}, true
	r.Add(ours)
	for i := range 5_000 {
		r.Add(of(1_000+i, "hostile"))
	}
	r.consistent(t)
	for i := range 10 {
		whole, _ := r.Arrived(KeysOf([]graspsync.Dependency{graspsync.OnRepo(testRepo(i, "x"))}))
		require.Len(t, whole, 1)
	}
	require.True(t, r.Has(testID(50)))
	require.Equal(t, 1_000, r.order.Len())
	for i := range 5_000 { // those of the third take the places of the second
		r.Add(of(10_000+i, "other"))
	}
	require.InDelta(t, 500, r.owners.Weight(r.relays.Number(of(0, "hostile").Incoming.Source.Relay)), 20)
	r.consistent(t)
}

// Deletions may name thousands, and each is waited for: a few hundred of them took the
// places of all that others wait for.
func TestRejectedDependenciesAreShared(t *testing.T) {
	r := testTable(1_000, 30, 10_000)
	of := func(n, deps int, relay string) Note {
		w := testNote(n)
		for i := range deps {
			w.Deps = append(w.Deps, Key(n*10_000+i))
		}
		w.Incoming.Source.Relay, _ = graspsync.ParseRelayURL("wss://" + relay + ".example")
		return w
	}
	for i := range 100 {
		r.Add(of(i, 2, "honest"))
	}
	lost := 0
	for i := range 200 {
		lost += r.Add(of(1_000+i, 2_000, "hostile")).Remembered
		require.LessOrEqual(t, r.links, 1_000*linksPerEntry)
	}
	r.consistent(t)
	for i := range 100 {
		require.True(t, r.Has(testID(i)))
	}
	require.Positive(t, lost)
}

// Numbers of relays that nothing is remembered of are given out again.
func TestRejectedRelayNumbers(t *testing.T) {
	racetest.Amounts(t)
	r := testTable(10, 3, 1_000)
	for i := range shares.MaxRelays + 1_000 {
		n := testNote(i)
		var err error
		n.Incoming.Source.Relay, err = graspsync.ParseRelayURL(fmt.Sprintf("wss://r%d.example", i))
		require.NoError(t, err)
		r.Add(n)
	}
	require.Less(t, len(r.relays.URLs()), 20)
	named := slices.DeleteFunc(slices.Clone(r.relays.URLs()), graspsync.RelayURL.IsZero)
	require.Len(t, named, 10)
	r.consistent(t)
}

// What was accepted once stays known when it is forgotten, stored or asked for.
func TestRejectedAccepted(t *testing.T) {
	r := testTable(100, 3, 1<<20)
	n := testNote(1)
	n.Accepted = true
	r.Add(n)
	for _, forget := range []func(graspsync.EventID){r.Forget, r.Stored, r.Here} {
		require.NotNil(t, r.get(testID(1)))
		forget(testID(1))
		forget(testID(99))
		r.consistent(t)
	}
	r.Add(testNote(3))
	require.True(t, r.Has(testID(3)))
	r.Forget(testID(3))
	require.False(t, r.Has(testID(3)))
}

func TestRejectedStamps(t *testing.T) {
	r := testTable(100, 1, 1<<20)
	r.Add(waits(testNote(1)))
	r.Add(waits(testNote(2)))
	kinds := nostr.Filter{Kinds: []int{graspsync.KindAnnouncement, graspsync.KindState}}
	require.Equal(t, []graspsync.Stamp{{CreatedAt: 1, ID: testID(1)}, {CreatedAt: 2, ID: testID(2)}}, r.Stamps(kinds))
	two := nostr.Timestamp(2)
	kinds.Since = &two
	require.Equal(t, []graspsync.Stamp{{CreatedAt: 2, ID: testID(2)}}, r.Stamps(kinds))
	require.Equal(t, []graspsync.Stamp{{CreatedAt: 2, ID: testID(2)}}, r.Stamps(nostr.Filter{Authors: []string{testKey(1).String(), testKey(2).String()}}),
		"of the other not enough is left to tell")
	require.Empty(t, r.Stamps(nostr.Filter{Kinds: []int{1}}))
}

// What was accepted once, was judged again and is stored now, or was asked for and came,
// was asked for once more after each restart.
func TestRejectedStoredIsNotWanted(t *testing.T) {
	r := testTable(100, 10, 1<<20)
	judged := waits(testNote(1, graspsync.OnEvent(testID(9))))
	judged.Accepted = true
	r.Add(judged)
	whole, _ := r.Arrived(KeysOf([]graspsync.Dependency{graspsync.OnEvent(testID(9))}))
	require.Len(t, whole, 1)
	asked := testNote(2)
	asked.Accepted = true
	r.Add(asked)
	r.Forget(testID(2))
	r.Owe(testNote(3))
	wanted := func() (n int) {
		back := testTable(100, 10, 1<<20)
		_, err := back.Restore(r.Export())
		require.NoError(t, err)
		for _, ids := range back.Wanted() {
			n += len(ids)
		}
		return n
	}
	require.Equal(t, 3, wanted())
	for i := 1; i <= 3; i++ {
		r.Stored(testID(i))
		require.Equal(t, 3-i, wanted())
	}
	r.consistent(t)
}

// When it is not known what has arrived, everything that waits is looked at.
func TestRejectedAnything(t *testing.T) {
	r := testTable(100, 1, 1<<20)
	r.Add(waits(testNote(1, graspsync.OnEvent(testID(9)))))
	r.Add(waits(testNote(2, graspsync.OnEvent(testID(8)))))
	r.Add(testNote(3))
	whole := r.Anything()
	require.Len(t, whole, 1)
	require.Equal(t, testID(2), whole[0].ID)
	require.False(t, r.Has(testID(1)))
	require.True(t, r.Has(testID(3)))
	r.consistent(t)
}

func TestRejectedSurvives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := testTable(5000, 10, 1<<20)
		for i := range 2500 {
			n := testNote(i, graspsync.OnRepo(testRepo(i, "x")), graspsync.OnMention(testID(i)))
			n.Accepted = i%2 == 1
			r.Add(n)
			r.get(n.ID).flags |= fate(i%8) & fateAsked
		}
		time.Sleep(time.Hour)
		chunks := r.Export()
		require.Len(t, chunks, 3)
		back := testTable(5000, 10, 1<<20)
		for _, c := range chunks {
			require.Less(t, len(c), 100*chunkEntries)
			_, err := back.restoreChunk(c)
			require.NoError(t, err)
			_, err = back.restoreChunk(c) // twice is no harm
			require.NoError(t, err)
		}
		back.consistent(t)
		require.Equal(t, chunks, back.Export())
		_, ask := back.Arrived(KeysOf([]graspsync.Dependency{graspsync.OnMention(testID(8))}))
		require.Equal(t, map[graspsync.RelayURL][]graspsync.EventID{back.relays.URL(3): {testID(8)}}, ask)

		small := testTable(10, 10, 1<<20)
		d, err := small.restoreChunk(chunks[0])
		require.NoError(t, err)
		require.Equal(t, 990, d.Remembered)
		time.Sleep(7 * 24 * time.Hour)
		old := testTable(10, 10, 1<<20)
		_, err = old.restoreChunk(chunks[0])
		require.NoError(t, err)
		require.Zero(t, old.order.Len())
		for _, bad := range [][]byte{nil, {}, {2}, {1}, {1, 200}, {1, 1, 5, 'x'}, bytes.Repeat([]byte{1}, maxChunk+1), chunks[0][:500]} {
			_, err := old.restoreChunk(bad)
			require.ErrorIs(t, err, errChunk)
		}
	})
}

// Whatever is on the disk, restoring it ends in an error or in tables that agree.
func FuzzRejected(f *testing.F) {
	r := testTable(100, 10, 1<<20)
	r.Add(testNote(1, graspsync.OnRepo(testRepo(1, "x"))))
	r.Add(testNote(2))
	f.Add(r.Export()[0])
	f.Add([]byte{1, 0})
	f.Fuzz(func(t *testing.T, chunk []byte) {
		r := testTable(100, 10, 1<<20)
		if _, err := r.restoreChunk(chunk); err != nil {
			return
		}
		r.consistent(t)
		for _, c := range r.Export() {
			if _, err := testTable(100, 10, 1<<20).restoreChunk(c); err != nil {
				t.Fatal("what was read can't be read again", err)
			}
		}
	})
}

func BenchmarkRejected(b *testing.B) {
	for range b.N {
		r := testTable(200_000, 10, 1<<20)
		for i := range 200_000 {
			r.Add(testNote(i, graspsync.OnRepo(testRepo(i, "x"))))
		}
	}
	b.ReportAllocs()
}

// What there was no room for is judged as long as it is whole, and else counts as known
// for a while, longer each time.
func TestRejectedForWantOfRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := testTable(100, 4, 1<<20)
		for i := range 6 {
			d := r.Add(later(testNote(i * 3))) // of one relay
			require.Equal(t, i >= 4, d.Later == 1)
			require.True(t, r.Has(testID(i*3)))
			r.consistent(t)
		}
		require.Equal(t, []graspsync.Stamp{{CreatedAt: 12, ID: testID(12)}}, r.Stamps(nostr.Filter{Authors: []string{testKey(12).String()}}))
		time.Sleep(time.Second)
		began := time.Now()
		turn := r.InTurn(3, began, began)
		require.Equal(t, []graspsync.EventID{testID(6), testID(9), testID(12)}, idsOf(turn))
		r.Add(later(testNote(1))) // of another one, which has half
		time.Sleep(time.Second)
		require.Equal(t, []graspsync.EventID{testID(15), testID(1)}, idsOf(r.InTurn(2, time.Now(), time.Now())))
		require.Equal(t, []graspsync.EventID{testID(9)}, idsOf(r.InTurn(1, time.Now(), time.Now())), "the other relay's is the oldest")
		require.Equal(t, []graspsync.EventID{testID(12)}, idsOf(r.InTurn(9, began, time.Now())))
		r.consistent(t)

		ask, any := r.Overdue(9)
		require.True(t, any)
		require.Empty(t, ask)
		for tries, wait := range []time.Duration{1, 2, 4, 8, 16, 20, 20, 20} {
			at := time.Unix(entryOf(r.byID[testID(0)]).seen, 0).Add(wait * time.Hour)
			time.Sleep(time.Until(at) - time.Second)
			require.True(t, r.Has(testID(0)), "try %d", tries)
			time.Sleep(time.Second)
			require.False(t, r.Has(testID(0)), "try %d", tries)
			require.True(t, r.Has(testID(15)), "it is whole")
			r.consistent(t)
			ask, _ = r.Overdue(1)
			require.Len(t, ask[r.relays.URL(1)], min(1, max(0, laterAsks-tries)))
			ask, _ = r.Overdue(9)
			if tries < laterAsks {
				require.Contains(t, ask[r.relays.URL(1)], testID(3))
			}
			for _, id := range []int{0, 3} { // it came, and there was none
				r.Add(later(testNote(id)))
				r.unhold(entryOf(r.byID[testID(id)]))
			}
		}
		require.Equal(t, laterTries, r.get(testID(0)).flags.tries())

		back := testTable(100, 4, 1<<20)
		_, err := back.Restore(r.Export())
		require.NoError(t, err)
		require.Empty(t, back.Wanted(), "it has its turn with the others")
		require.False(t, back.Has(testID(15)), "it is not whole any more")
		ask, any = back.Overdue(9)
		require.True(t, any)
		require.Contains(t, ask[back.relays.URL(1)], testID(15))
		back.Add(testNote(15))
		require.Zero(t, back.get(testID(15)).flags.tries(), "it was rejected")
		require.True(t, back.Has(testID(15)))
		r.Stored(testID(15))
		r.consistent(t)
		require.Nil(t, r.get(testID(15)))
	})
}

func idsOf(events []*Whole) (ids []graspsync.EventID) {
	for _, w := range events {
		ids = append(ids, w.ID)
	}
	return ids
}
