package negentropy

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// between is a simple version of Set.Between.
func between(items []Item, since, until uint64) (out []Item) {
	for _, it := range items {
		if it.CreatedAt >= since && it.CreatedAt <= until {
			out = append(out, it)
		}
	}
	return out
}

func TestBetweenAgainstNaive(t *testing.T) {
	for seed := range uint64(60) {
		r := newRand(seed)
		items, _ := randomPair(r, 150)
		whole := NewSet(items)
		for range 20 {
			since, until := 1_700_000_000+r.Uint64N(300), 1_700_000_000+r.Uint64N(300)
			switch r.IntN(4) {
			case 0:
				since = 0
			case 1:
				until = math.MaxUint64 - uint64(r.IntN(3))
			}
			part, want := whole.Between(since, until), NewSet(between(items, since, until))
			require.Equal(t, len(want.ids), part.Len())
			if part.Len() == 0 {
				continue
			}
			require.Equal(t, want.ids, part.ids)
			require.Equal(t, want.times, part.times)
			require.Equal(t, want.Time(0), part.Time(0))
			lo := r.IntN(part.Len())
			hi := lo + r.IntN(part.Len()-lo+1)
			require.Equal(t, want.fingerprint(lo, hi), part.fingerprint(lo, hi))
			// a part of a part
			mid := part.Time(part.Len() / 2)
			require.Equal(t, NewSet(between(items, max(since, mid), until)).ids, part.Between(mid, until).ids)
		}
	}
}

// A peer with more differences than one session takes is reconciled in several sessions. Each
// begins where the previous one ended.
func TestSessionsOneAfterAnother(t *testing.T) {
	ours, theirs := benchPair(20_000, 8_000)
	set, peer := NewSet(ours), NewSet(theirs)
	found := make(map[[32]byte]bool)
	for from, sessions := uint64(0), 1; ; sessions++ {
		require.LessOrEqual(t, sessions, 20)
		s := NewSession(set.Between(from, infinity), Limits{FrameSize: 10_000, MaxRounds: 12})
		_, err := reconcile(s, ourPeer(peer.Between(from, infinity), 10_000))
		for _, id := range s.Need() {
			found[id] = true
		}
		if err == nil {
			require.Greater(t, sessions, 1)
			break
		}
		require.ErrorIs(t, err, ErrRounds)
		require.Greater(t, s.Settled(), from, "it gets on")
		from = s.Settled()
	}
	require.Len(t, found, len(without(theirs, ours)))
}
