package sync

import (
	"bytes"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
)

func testNote(n int, deps ...graspsync.Dependency) note {
	u, err := graspsync.ParseRelayURL(fmt.Sprintf("wss://r%d.example", n%3))
	if err != nil {
		panic(err)
	}
	return note{
		incoming: graspsync.Incoming{Event: testEvent(n, graspsync.KindState, n, nostr.Timestamp(n)), Source: graspsync.Source{Kind: graspsync.Live, Relay: u}},
		id:       testID(n), size: 100, deps: keysOf(deps),
	}
}

func testRejected(most, waiting int, waitingBytes int64) *rejected {
	return newRejected(most, waiting, waitingBytes, 7*24*time.Hour, 2*time.Minute)
}

func waits(n note) note {
	n.waits = true
	return n
}

func fresh(n note) note {
	n.fresh = true
	return n
}

func later(n note) note {
	n.later = true
	return n
}

// consistent checks the tables against each other.
func (r *rejected) consistent(t *testing.T) {
	t.Helper()
	require.Len(t, r.byID, r.order.Len())
	links, whole, owned := 0, 0, int64(0)
	for n := range uint16(len(r.relays.urls) + 1) {
		w := r.owners.Weight(n)
		owned += w
		require.Equal(t, n > 0 && w > 0, !r.relays.url(n).IsZero(), "a relay has its number while there is anything of it")
	}
	var size, weight int64
	for el := r.order.Front(); el != nil; el = el.Next() {
		e := entryOf(el)
		links += len(e.deps)
		weight += 1 + int64(len(e.deps)/linksPerEntry)
		if e.whole != nil {
			whole++
			size += wholeOf(e.whole).size
		}
	}
	rings := 0
	for k := range r.byDep {
		for _, e := range r.waitingFor(k) {
			_, known := r.byID[e.id] // require.Contains looks at all of them
			require.True(t, known)
			rings++
		}
	}
	require.Equal(t, links, rings)
	require.Equal(t, links, r.links)
	require.Equal(t, weight, owned)
	require.Equal(t, whole, r.wait.queue.Len()+r.fresh.queue.Len()+r.later.queue.Len())
	require.Equal(t, size, r.wait.bytes+r.fresh.bytes+r.later.bytes)
}

// A relay of which one event is remembered keeps its number when that is told again, and
// gives it back when another relay has it: else a later one would be taken for it.
func TestNumberOfARelayOfOneEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := testRejected(10, 3, 800)
		first := testNote(1, graspsync.OnEvent(testID(99)))
		for range 3 {
			r.add(first)
			r.consistent(t)
		}
		r.add(testNote(2, graspsync.OnEvent(testID(99))))
		r.consistent(t)
		require.Len(t, r.relays.urls, 2)
		first.incoming.Source.Relay = testNote(2).incoming.Source.Relay
		r.add(first)
		r.consistent(t)
		require.Len(t, r.relays.free, 1)
	})
}

func TestRejectedBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := testRejected(10, 3, 800)
		var total dropped
		for i := range 15 {
			d := r.add(waits(testNote(i, graspsync.OnRepo(testRepo(i%2, "x")))))
			total.waiting += d.waiting
			total.remembered += d.remembered
			r.consistent(t)
		}
		require.Equal(t, dropped{waiting: 12, remembered: 5}, total)
		require.Equal(t, 3, r.waiting())
		require.False(t, r.has(testID(4)))
		require.True(t, r.has(testID(5)))
		for i := range 4 {
			total.fresh += r.add(fresh(testNote(20+i, graspsync.OnEvent(testID(99))))).fresh
			r.consistent(t)
		}
		require.Equal(t, 2, total.fresh, "200 bytes for what was rejected")

		whole, ask := r.arrived(keysOf([]graspsync.Dependency{graspsync.OnRepo(testRepo(0, "x"))}))
		r.consistent(t)
		require.Len(t, whole, 2)
		require.Equal(t, []graspsync.EventID{testID(12), testID(14)}, []graspsync.EventID{whole[0].id, whole[1].id})
		require.Len(t, ask, 1)
		require.Equal(t, []graspsync.EventID{testID(10)}, ask[r.relays.url(2)])
		require.False(t, r.has(testID(10)), "it is wanted")
		require.True(t, r.has(testID(12)), "it is being judged")
		_, again := r.arrived(keysOf([]graspsync.Dependency{graspsync.OnRepo(testRepo(0, "x"))}))
		require.Empty(t, again, "it is asked for once")

		time.Sleep(3 * time.Minute)
		whole, ask = r.arrived(keysOf([]graspsync.Dependency{graspsync.OnEvent(testID(99))}))
		require.Empty(t, whole)
		require.Len(t, ask, 3)
		r.consistent(t)
		time.Sleep(8 * 24 * time.Hour)
		require.False(t, r.has(testID(12)))
		r.add(testNote(50))
		require.Equal(t, 1, r.order.Len())
		r.consistent(t)
	})
}

// One relay that brought enough of what waits drove out what all others had brought:
// whole events, and the ids of those as well.
func TestRejectedIsSharedByRelays(t *testing.T) {
	r := testRejected(1_000, 30, 10_000)
	of := func(n int, relay string) note {
		w := waits(testNote(n, graspsync.OnRepo(testRepo(n, "x"))))
		w.incoming.Source.Relay, _ = graspsync.ParseRelayURL("wss://" + relay + ".example")
		return w
	}
	for i := range 10 {
		r.add(of(i, "honest"))
	}
	ours := testNote(50)
	ours.incoming.Source, ours.flags = graspsync.Source{}, fateAccepted
	r.add(ours)
	for i := range 5_000 {
		r.add(of(1_000+i, "hostile"))
	}
	r.consistent(t)
	for i := range 10 {
		whole, _ := r.arrived(keysOf([]graspsync.Dependency{graspsync.OnRepo(testRepo(i, "x"))}))
		require.Len(t, whole, 1)
	}
	require.True(t, r.has(testID(50)))
	require.Equal(t, 1_000, r.order.Len())
	for i := range 5_000 { // those of the third take the places of the second
		r.add(of(10_000+i, "other"))
	}
	require.InDelta(t, 500, r.owners.Weight(r.relays.number(of(0, "hostile").incoming.Source.Relay)), 20)
	r.consistent(t)
}

// Deletions may name thousands, and each is waited for: a few hundred of them took the
// places of all that others wait for.
func TestRejectedDependenciesAreShared(t *testing.T) {
	r := testRejected(1_000, 30, 10_000)
	of := func(n, deps int, relay string) note {
		w := testNote(n)
		for i := range deps {
			w.deps = append(w.deps, depKey(n*10_000+i))
		}
		w.incoming.Source.Relay, _ = graspsync.ParseRelayURL("wss://" + relay + ".example")
		return w
	}
	for i := range 100 {
		r.add(of(i, 2, "honest"))
	}
	lost := 0
	for i := range 200 {
		lost += r.add(of(1_000+i, 2_000, "hostile")).remembered
		require.LessOrEqual(t, r.links, 1_000*linksPerEntry)
	}
	r.consistent(t)
	for i := range 100 {
		require.True(t, r.has(testID(i)))
	}
	require.Positive(t, lost)
}

// Numbers of relays that nothing is remembered of are given out again.
func TestRejectedRelayNumbers(t *testing.T) {
	r := testRejected(10, 3, 1_000)
	for i := range maxRelayTab + 1_000 {
		n := testNote(i)
		var err error
		n.incoming.Source.Relay, err = graspsync.ParseRelayURL(fmt.Sprintf("wss://r%d.example", i))
		require.NoError(t, err)
		r.add(n)
	}
	require.Less(t, len(r.relays.urls), 20)
	require.Len(t, r.relays.numbers, 10)
	r.consistent(t)
}

// What was accepted once stays known when it is forgotten, stored or asked for.
func TestRejectedAccepted(t *testing.T) {
	r := testRejected(100, 3, 1<<20)
	n := testNote(1)
	n.flags = fateAccepted
	r.add(n)
	for _, forget := range []func(graspsync.EventID){r.forget, r.stored, r.here} {
		require.NotNil(t, r.get(testID(1)))
		forget(testID(1))
		forget(testID(99))
		r.consistent(t)
	}
	r.add(testNote(3))
	require.True(t, r.has(testID(3)))
	r.forget(testID(3))
	require.False(t, r.has(testID(3)))
}

func TestRejectedStamps(t *testing.T) {
	r := testRejected(100, 1, 1<<20)
	r.add(waits(testNote(1)))
	r.add(waits(testNote(2)))
	kinds := nostr.Filter{Kinds: []int{graspsync.KindAnnouncement, graspsync.KindState}}
	require.Equal(t, []graspsync.Stamp{{CreatedAt: 1, ID: testID(1)}, {CreatedAt: 2, ID: testID(2)}}, r.stamps(kinds))
	two := nostr.Timestamp(2)
	kinds.Since = &two
	require.Equal(t, []graspsync.Stamp{{CreatedAt: 2, ID: testID(2)}}, r.stamps(kinds))
	require.Equal(t, []graspsync.Stamp{{CreatedAt: 2, ID: testID(2)}}, r.stamps(nostr.Filter{Authors: []string{testKey(1).String(), testKey(2).String()}}),
		"of the other not enough is left to tell")
	require.Empty(t, r.stamps(nostr.Filter{Kinds: []int{1}}))
}

// What was accepted once, was judged again and is stored now, or was asked for and came,
// was asked for once more after each restart.
func TestRejectedStoredIsNotWanted(t *testing.T) {
	r := testRejected(100, 10, 1<<20)
	judged := waits(testNote(1, graspsync.OnEvent(testID(9))))
	judged.flags = fateAccepted
	r.add(judged)
	whole, _ := r.arrived(keysOf([]graspsync.Dependency{graspsync.OnEvent(testID(9))}))
	require.Len(t, whole, 1)
	asked := testNote(2)
	asked.flags = fateAccepted
	r.add(asked)
	r.forget(testID(2))
	r.owe(testNote(3))
	wanted := func() (n int) {
		back := testRejected(100, 10, 1<<20)
		_, err := back.restoreAll(r.export())
		require.NoError(t, err)
		for _, ids := range back.wanted() {
			n += len(ids)
		}
		return n
	}
	require.Equal(t, 3, wanted())
	for i := 1; i <= 3; i++ {
		r.stored(testID(i))
		require.Equal(t, 3-i, wanted())
	}
	r.consistent(t)
}

// When it is not known what has arrived, everything that waits is looked at.
func TestRejectedAnything(t *testing.T) {
	r := testRejected(100, 1, 1<<20)
	r.add(waits(testNote(1, graspsync.OnEvent(testID(9)))))
	r.add(waits(testNote(2, graspsync.OnEvent(testID(8)))))
	r.add(testNote(3))
	whole := r.anything()
	require.Len(t, whole, 1)
	require.Equal(t, testID(2), whole[0].id)
	require.False(t, r.has(testID(1)))
	require.True(t, r.has(testID(3)))
	r.consistent(t)
}

func TestRejectedSurvives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := testRejected(5000, 10, 1<<20)
		for i := range 2500 {
			n := testNote(i, graspsync.OnRepo(testRepo(i, "x")), graspsync.OnMention(testID(i)))
			n.flags = fate(i%8) & (fateAccepted | fateAsked)
			r.add(n)
		}
		time.Sleep(time.Hour)
		chunks := r.export()
		require.Len(t, chunks, 3)
		back := testRejected(5000, 10, 1<<20)
		for _, c := range chunks {
			require.Less(t, len(c), 100*chunkEntries)
			_, err := back.restore(c)
			require.NoError(t, err)
			_, err = back.restore(c) // twice is no harm
			require.NoError(t, err)
		}
		back.consistent(t)
		require.Equal(t, chunks, back.export())
		_, ask := back.arrived(keysOf([]graspsync.Dependency{graspsync.OnMention(testID(8))}))
		require.Equal(t, map[graspsync.RelayURL][]graspsync.EventID{back.relays.url(3): {testID(8)}}, ask)

		small := testRejected(10, 10, 1<<20)
		d, err := small.restore(chunks[0])
		require.NoError(t, err)
		require.Equal(t, 990, d.remembered)
		time.Sleep(7 * 24 * time.Hour)
		old := testRejected(10, 10, 1<<20)
		_, err = old.restore(chunks[0])
		require.NoError(t, err)
		require.Zero(t, old.order.Len())
		for _, bad := range [][]byte{nil, {}, {2}, {1}, {1, 200}, {1, 1, 5, 'x'}, bytes.Repeat([]byte{1}, maxChunk+1), chunks[0][:500]} {
			_, err := old.restore(bad)
			require.ErrorIs(t, err, errChunk)
		}
	})
}

// Whatever is on the disk, restoring it ends in an error or in tables that agree.
func FuzzRejected(f *testing.F) {
	r := testRejected(100, 10, 1<<20)
	r.add(testNote(1, graspsync.OnRepo(testRepo(1, "x"))))
	r.add(testNote(2))
	f.Add(r.export()[0])
	f.Add([]byte{1, 0})
	f.Fuzz(func(t *testing.T, chunk []byte) {
		r := testRejected(100, 10, 1<<20)
		if _, err := r.restore(chunk); err != nil {
			return
		}
		r.consistent(t)
		for _, c := range r.export() {
			if _, err := testRejected(100, 10, 1<<20).restore(c); err != nil {
				t.Fatal("what was read can't be read again", err)
			}
		}
	})
}

func BenchmarkRejected(b *testing.B) {
	for range b.N {
		r := testRejected(200_000, 10, 1<<20)
		for i := range 200_000 {
			r.add(testNote(i, graspsync.OnRepo(testRepo(i, "x"))))
		}
	}
	b.ReportAllocs()
}

// What there was no room for is judged as long as it is whole, and else counts as known
// for a while, longer each time.
func TestRejectedForWantOfRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := testRejected(100, 4, 1<<20)
		for i := range 6 {
			d := r.add(later(testNote(i * 3))) // of one relay
			require.Equal(t, i >= 4, d.later == 1)
			require.True(t, r.has(testID(i*3)))
			r.consistent(t)
		}
		require.Equal(t, []graspsync.Stamp{{CreatedAt: 12, ID: testID(12)}}, r.stamps(nostr.Filter{Authors: []string{testKey(12).String()}}))
		time.Sleep(time.Second)
		began := time.Now()
		turn := r.inTurn(3, began, began)
		require.Equal(t, []graspsync.EventID{testID(6), testID(9), testID(12)}, idsOf(turn))
		r.add(later(testNote(1))) // of another one, which has half
		time.Sleep(time.Second)
		require.Equal(t, []graspsync.EventID{testID(15), testID(1)}, idsOf(r.inTurn(2, time.Now(), time.Now())))
		require.Equal(t, []graspsync.EventID{testID(9)}, idsOf(r.inTurn(1, time.Now(), time.Now())), "the other relay's is the oldest")
		require.Equal(t, []graspsync.EventID{testID(12)}, idsOf(r.inTurn(9, began, time.Now())))
		r.consistent(t)

		ask, any := r.overdue(9)
		require.True(t, any)
		require.Empty(t, ask)
		for tries, wait := range []time.Duration{1, 2, 4, 8, 16, 20, 20, 20} {
			at := time.Unix(entryOf(r.byID[testID(0)]).seen, 0).Add(wait * time.Hour)
			time.Sleep(time.Until(at) - time.Second)
			require.True(t, r.has(testID(0)), "try %d", tries)
			time.Sleep(time.Second)
			require.False(t, r.has(testID(0)), "try %d", tries)
			require.True(t, r.has(testID(15)), "it is whole")
			r.consistent(t)
			ask, _ = r.overdue(1)
			require.Len(t, ask[r.relays.url(1)], min(1, max(0, laterAsks-tries)))
			ask, _ = r.overdue(9)
			if tries < laterAsks {
				require.Contains(t, ask[r.relays.url(1)], testID(3))
			}
			for _, id := range []int{0, 3} { // it came, and there was none
				r.add(later(testNote(id)))
				r.unhold(entryOf(r.byID[testID(id)]))
			}
		}
		require.Equal(t, laterTries, r.get(testID(0)).flags.tries())

		back := testRejected(100, 4, 1<<20)
		_, err := back.restoreAll(r.export())
		require.NoError(t, err)
		require.Empty(t, back.wanted(), "it has its turn with the others")
		require.False(t, back.has(testID(15)), "it is not whole any more")
		ask, any = back.overdue(9)
		require.True(t, any)
		require.Contains(t, ask[back.relays.url(1)], testID(15))
		back.add(testNote(15))
		require.Zero(t, back.get(testID(15)).flags.tries(), "it was rejected")
		require.True(t, back.has(testID(15)))
		r.stored(testID(15))
		r.consistent(t)
		require.Nil(t, r.get(testID(15)))
	})
}

func idsOf(events []*waitingEvent) (ids []graspsync.EventID) {
	for _, w := range events {
		ids = append(ids, w.id)
	}
	return ids
}
