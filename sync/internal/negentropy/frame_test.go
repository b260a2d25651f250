package negentropy

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// requireTruthful compares every fingerprint and list of our message with the set.
func requireTruthful(t *testing.T, s *Set, msg []byte) {
	t.Helper()
	r, at := reader{rest: msg[1:]}, 0
	for {
		sec, ok, err := r.next()
		require.NoError(t, err)
		if !ok {
			return
		}
		hi := s.search(at, &sec.upper)
		switch sec.mode {
		case modeFingerprint:
			fp := s.fingerprint(at, hi)
			require.Equal(t, fp[:], sec.fingerprint, "range of %d items", hi-at)
		case modeIDs:
			var ids []byte
			for _, id := range s.ids[at:hi] {
				ids = append(ids, id[:]...)
			}
			require.Equal(t, ids, append([]byte(nil), sec.ids...))
		}
		at = hi
	}
}

// A full frame ends with the fingerprint of exactly the omitted items. A wrong fingerprint would
// only cost rounds, which no other test would detect.
func TestFramesTellTheTruth(t *testing.T) {
	for seed := range uint64(25) {
		r := newRand(seed)
		a, b := randomPair(r, 4000)
		ours, theirs := NewSet(a), NewSet(b)
		s := NewSession(ours, Limits{FrameSize: minFrame, MaxRounds: 1000})
		_, err := reconcile(s, func(msg []byte) ([]byte, error) {
			requireTruthful(t, ours, msg)
			reply, err := Answer(theirs, msg, minFrame)
			requireTruthful(t, theirs, reply)
			return reply, err
		})
		require.NoError(t, err)
	}
}

// With the largest possible bounds and skips between them, the frame and its end fit the limit and
// are not half empty.
func TestFrameHoldsWithTheLargestBounds(t *testing.T) {
	var items []Item
	for i := range uint64(250) { // deltas of nine digits, prefixes of 32 bytes
		items = append(items, Item{i << 56, [32]byte{31: 1}}, Item{i << 56, [32]byte{31: 2}})
	}
	s := NewSet(items)
	for _, withSkips := range []bool{true, false} {
		for limit := minFrame; limit < minFrame+120; limit++ {
			w := newWriter(s, limit)
			for k := 1; ; k += 2 {
				upper := s.boundAt(k)
				require.Equal(t, 32, upper.size)
				if withSkips && k%4 == 1 {
					w.settle(k, &upper)
				} else if !w.digest(k, &upper) {
					break
				}
			}
			w.rest()
			requireWellFormed(t, w.out, limit)
			requireTruthful(t, s, w.out)
			require.Greater(t, len(w.out), limit-4*maxBound)
		}
	}
}

// The same for empty lists, which continue where no id fits.
func TestFrameHoldsWithEmptyLists(t *testing.T) {
	none := NewSet(nil)
	for limit := minFrame; limit < minFrame+120; limit++ {
		w := newWriter(none, limit)
		for k := uint64(1); ; k++ {
			upper := bound{time: k << 56, id: [32]byte{31: 1}, size: 32}
			if k%2 == 0 {
				w.settle(0, &upper)
			} else if !w.list(0, &upper) {
				break
			}
		}
		w.rest()
		requireWellFormed(t, w.out, limit)
		require.Greater(t, len(w.out), limit-4*maxBound)
	}
}

// The same for lists, with frames of any size.
func TestFrameHoldsWithLists(t *testing.T) {
	s := NewSet(numbered(1000, func(int) uint64 { return 1 << 63 }))
	for limit := minFrame; limit < minFrame+70; limit++ {
		reply, err := Answer(s, []byte{version, 0, 0, byte(modeIDs), 0}, limit)
		require.NoError(t, err)
		requireWellFormed(t, reply, limit)
		requireTruthful(t, s, reply)
		require.Greater(t, len(reply), limit-4*maxBound)
	}
}
