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
