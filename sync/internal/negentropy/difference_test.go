package negentropy

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// A thousand honest pairs with the limits used against real relays.
func TestNegDifferenceIsExact(t *testing.T) {
	const pairs = 1000
	frames := []int{60_000, 500_000, 1 << 20, 1 << 30}
	for seed := range uint64(pairs) {
		r := newRand(seed)
		size := 1000
		if seed%20 == 0 {
			size = 10_000
		}
		ours, theirs := randomPair(r, size)
		frame := frames[r.IntN(len(frames))]
		cost := requireExact(t, ours, theirs, Limits{}, ourPeer(NewSet(theirs), frame))
		require.LessOrEqual(t, cost.rounds, 64)
	}
}

// numbered returns ids that differ only in their last bytes.
func numbered(n int, at func(int) uint64) []Item {
	items := make([]Item, n)
	for i := range items {
		items[i].CreatedAt = at(i)
		items[i].ID = [32]byte{0: 0xaa, 30: byte(i >> 8), 31: byte(i)}
	}
	return items
}

// Another implementation began each reconciliation with an empty local set, so that every sync
// downloaded everything.
func TestTrapH3_LocalItemsAreNotAskedForAgain(t *testing.T) {
	r := newRand(3)
	_, theirs := randomPair(r, 0)
	for range 5000 {
		theirs = append(theirs, Item{1_700_000_000 + r.Uint64N(1e6), randomID(r)})
	}
	peer := ourPeer(NewSet(theirs), 0)

	first := NewSession(NewSet(nil), Limits{})
	_, err := reconcile(first, peer)
	require.NoError(t, err)
	require.Len(t, first.Need(), 5000)

	again := NewSession(NewSet(theirs), Limits{})
	cost, err := reconcile(again, peer)
	require.NoError(t, err)
	require.Empty(t, again.Need())
	require.Empty(t, again.Have())
	require.Equal(t, 1, cost.rounds)
	require.Less(t, cost.sent+cost.received, 500)
}

// These are simple versions of fingerprint and search.
func TestSetAgainstNaive(t *testing.T) {
	for seed := range uint64(40) {
		r := newRand(seed)
		items, _ := randomPair(r, 120)
		s := NewSet(items)
		slices.SortFunc(items, Item.compare)
		items = slices.Compact(items)
		require.Equal(t, len(items), s.Len())
		for range 50 {
			lo := r.IntN(s.Len() + 1)
			hi := lo + r.IntN(s.Len()+1-lo)
			require.Equal(t, NewSet(items[lo:hi]).fingerprint(0, hi-lo), s.fingerprint(lo, hi))

			b := bound{time: 1_700_000_000 + r.Uint64N(300), id: randomID(r), size: 32}
			if s.Len() > 0 && r.IntN(2) == 0 {
				it := items[r.IntN(s.Len())]
				b = bound{time: it.CreatedAt, id: it.ID, size: 32}
			}
			want := lo
			for want < s.Len() && items[want].compare(Item{b.time, b.id}) < 0 {
				want++
			}
			require.Equal(t, want, s.search(lo, &b))
		}
		for i := 1; i < s.Len(); i++ {
			b := s.boundAt(i)
			require.Equal(t, i, s.search(0, &b))
			require.LessOrEqual(t, b.size, 32)
		}
	}
}
