package negentropy

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// idListMessage lists ids for the whole range.
func idListMessage(ids ...[32]byte) []byte {
	msg := appendVarint([]byte{version, 0, 0, byte(modeIDs)}, uint64(len(ids)))
	for _, id := range ids {
		msg = append(msg, id[:]...)
	}
	return msg
}

func opened(t *testing.T, items []Item, l Limits) *Session {
	t.Helper()
	s := NewSession(NewSet(items), l)
	_, err := s.Open()
	require.NoError(t, err)
	return s
}

// H11: in another implementation a peer that never converged kept a reconciliation running.
func TestTrapH11_EndlessPeerIsStopped(t *testing.T) {
	items := numbered(1000, func(i int) uint64 { return uint64(i) })
	for _, limit := range []int{0, 1, 2, 10} {
		want := limit
		if limit == 0 {
			want = 64
		}
		s := opened(t, items, Limits{MaxRounds: limit})
		differs := append([]byte{version, 0, 0, byte(modeFingerprint)}, make([]byte, 16)...)
		var err error
		steps := 0
		for ; err == nil && steps < 1000; steps++ {
			var done bool
			_, done, err = s.Step(differs)
			require.False(t, done)
		}
		require.ErrorIs(t, err, ErrRounds)
		require.Equal(t, want, steps)
	}
}

func TestMaxIDs(t *testing.T) {
	ids := make([][32]byte, 21)
	for i := range ids {
		ids[i] = [32]byte{byte(i + 1)}
	}
	tests := []struct {
		name string
		list [][32]byte
		max  int
		err  error
	}{
		{"as many as allowed", ids[:10], 10, nil},
		{"one more", ids[:11], 10, ErrTooMany},
		{"twice as many and one", ids[:21], 10, ErrTooMany},
		{"repeated ids count once", slices.Concat(ids[:10], ids[:10], ids[:10], ids[:10]), 10, nil},
		{"repeated and one more", slices.Concat(ids[:10], ids[:10], ids[:11]), 10, ErrTooMany},
		{"default", ids, 0, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := opened(t, nil, Limits{MaxIDs: tt.max})
			_, done, err := s.Step(idListMessage(tt.list...))
			require.ErrorIs(t, err, tt.err)
			require.Equal(t, tt.err == nil, done)
			if tt.err == nil {
				unique := slices.Compact(sortIDs(tt.list))
				require.Equal(t, unique, s.Need(), "once each, in the order of the peer")
			}
		})
	}
}
