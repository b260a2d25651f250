package negentropy

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// A thousand honest pairs with the limits used against real relays.
func TestNegDifferenceIsExact(t *testing.T) {
	const pairs = 1000
	frames := []int{60_000, 500_000, 1 << 20, -1}
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

func TestDifferenceOfOddSets(t *testing.T) {
	always := func(at uint64) func(int) uint64 { return func(int) uint64 { return at } }
	r := newRand(1)
	var random []Item
	for range 5000 {
		random = append(random, Item{1_700_000_000, randomID(r)})
	}
	zero, top := numbered(700, always(0)), numbered(700, always(math.MaxUint64-1))
	half := numbered(700, always(1<<63))
	span := numbered(700, func(i int) uint64 { return uint64(i) * (math.MaxUint64 / 701) })
	zeroID := []Item{{}, {CreatedAt: 1}}

	tests := []struct {
		name         string
		ours, theirs []Item
	}{
		{"both empty", nil, nil},
		{"ours empty", nil, random},
		{"theirs empty", random, nil},
		{"the same", random, random},
		{"one second", random[:4000], random[1000:]},
		{"one second, one missing", append(slices.Clone(random[:2500]), random[2501:]...), random},
		{"long common prefixes", numbered(900, always(5)), numbered(1000, always(5))[50:]},
		{"created_at 0", zero[:500], zero[100:]},
		{"created_at 2^63", half[:500], half[100:]},
		{"the last created_at", top[:500], top[100:]},
		{"all of time", span[:500], span[100:]},
		{"0 against 2^63", zero[:100], half[600:]},
		{"an id of zeros at 0", zeroID[:1], zeroID[1:]},
		{"everything twice", slices.Repeat(random[:900], 2), slices.Repeat(random[300:1200], 2)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for _, frame := range []int{-1, 0, minFrame} {
				l := Limits{FrameSize: frame, MaxRounds: 1000}
				requireExact(t, tt.ours, tt.theirs, l, ourPeer(NewSet(tt.theirs), frame))
			}
		})
	}
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
