package negentropy

import (
	"bytes"
	"slices"
	"sync"
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

func TestStepBeforeOpen(t *testing.T) {
	s := NewSession(NewSet(nil), Limits{})
	_, _, err := s.Step([]byte{version})
	require.ErrorIs(t, err, ErrProtocol)
	_, again := s.Open()
	require.Equal(t, err, again, "a failed session doesn't open")
}

func TestOpenIsRepeatable(t *testing.T) {
	s := NewSession(NewSet(numbered(500, func(i int) uint64 { return 7 })), Limits{})
	first, err := s.Open()
	require.NoError(t, err)
	second, err := s.Open()
	require.NoError(t, err)
	require.Equal(t, first, second)
	require.Zero(t, s.Rounds())
}

// In another implementation a second "done" closed a closed channel and killed the process.
func TestMessageAfterDone(t *testing.T) {
	id := [32]byte{1}
	s := opened(t, nil, Limits{})
	_, done, err := s.Step(idListMessage(id))
	require.NoError(t, err)
	require.True(t, done)
	for _, msg := range [][]byte{{version}, idListMessage([32]byte{2}), {0}, nil} {
		reply, done, err := s.Step(msg)
		require.NoError(t, err)
		require.True(t, done)
		require.Nil(t, reply)
	}
	require.Equal(t, [][32]byte{id}, s.Need())
	require.Equal(t, 1, s.Rounds())
}

func TestMessageAfterFailure(t *testing.T) {
	s := opened(t, nil, Limits{})
	_, _, first := s.Step([]byte{0})
	require.ErrorIs(t, first, ErrProtocol)
	reply, done, err := s.Step([]byte{version})
	require.Equal(t, first, err)
	require.False(t, done)
	require.Nil(t, reply)
	require.Equal(t, 1, s.Rounds())
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
		require.Equal(t, want, s.Rounds())
	}
}

// The last allowed round may end the session successfully.
func TestDoneInTheLastRound(t *testing.T) {
	s := opened(t, nil, Limits{MaxRounds: 1})
	_, done, err := s.Step([]byte{version})
	require.NoError(t, err)
	require.True(t, done)
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

// With more than 64 of our items in the range, compare uses a map.
func TestMaxIDsAgainstManyOfOurs(t *testing.T) {
	s := opened(t, numbered(100, func(i int) uint64 { return uint64(i) }), Limits{MaxIDs: 1})
	_, _, err := s.Step(idListMessage([32]byte{1}, [32]byte{2}, [32]byte{3}))
	require.ErrorIs(t, err, ErrTooMany)
}

// Lists out of order, with duplicates, long and short: the difference is exact.
func TestIDListsAgainstNaive(t *testing.T) {
	for seed := range uint64(300) {
		r := newRand(seed)
		ours, theirs := randomPair(r, []int{20, 64, 65, 300}[r.IntN(4)])
		s := opened(t, ours, Limits{})
		var list [][32]byte
		for _, it := range theirs {
			list = append(list, it.ID)
			if r.IntN(4) == 0 {
				list = append(list, it.ID)
			}
		}
		_, done, err := s.Step(idListMessage(list...))
		require.NoError(t, err)
		require.True(t, done)
		require.Equal(t, without(theirs, ours), nilIfEmpty(sortIDs(s.Need())))
		require.Equal(t, without(ours, theirs), nilIfEmpty(sortIDs(s.Have())))
	}
}

// A peer that repeats itself in every round is counted once, and memory does not grow.
func TestRepeatedRounds(t *testing.T) {
	items := numbered(1000, func(i int) uint64 { return uint64(i) })
	s := opened(t, items, Limits{})
	// Every second item is missing at the peer. A difference follows so that the session continues.
	var msg []byte
	msg = append(msg, version)
	for i := range 400 {
		mode := byte(i % 2 * int(modeIDs))
		msg = append(msg, 2, 0, mode)
		if mode == byte(modeIDs) {
			msg = append(msg, 0)
		}
	}
	msg = append(append(msg, 0, 0, byte(modeFingerprint)), make([]byte, 16)...)
	for range 63 {
		_, done, err := s.Step(msg)
		require.NoError(t, err)
		require.False(t, done)
		require.LessOrEqual(t, len(s.have.spans), s.set.Len()+2)
	}
	have := s.Have()
	require.Len(t, have, 200)
	require.Equal(t, items[1].ID, have[0])
	require.Equal(t, items[399].ID, have[199])
}

// The same for ids that only the peer has.
func TestRepeatedIDsDontPileUp(t *testing.T) {
	s := opened(t, nil, Limits{MaxIDs: 50})
	list := make([][32]byte, 45)
	for i := range list {
		list[i] = [32]byte{byte(i)}
	}
	// They lie below time 9. Above it there is always a difference.
	msg := idListMessage(list...)
	msg[1] = 10
	msg = append(append(msg, 0, 0, byte(modeFingerprint)), make([]byte, 16)...)
	for range 60 {
		_, done, err := s.Step(msg)
		require.NoError(t, err)
		require.False(t, done)
		require.LessOrEqual(t, len(s.need.ids), 100)
	}
	require.Equal(t, list, s.Need())
}

func TestResultsBelongToTheCaller(t *testing.T) {
	s := opened(t, numbered(3, func(i int) uint64 { return uint64(i) }), Limits{})
	_, _, err := s.Step(idListMessage([32]byte{1}))
	require.NoError(t, err)
	clear(s.Need())
	clear(s.Have())
	require.Equal(t, [][32]byte{{1}}, s.Need())
	require.Equal(t, s.set.ids, s.Have())
}

func TestStepKeepsNothingOfTheMessage(t *testing.T) {
	s := opened(t, nil, Limits{})
	msg := idListMessage([32]byte{1}, [32]byte{2})
	_, _, err := s.Step(msg)
	require.NoError(t, err)
	clear(msg)
	require.Equal(t, [][32]byte{{1}, {2}}, s.Need())
}

func TestLimitsDefaults(t *testing.T) {
	want := Limits{FrameSize: 30_000, MaxRounds: 64, MaxIDs: 200_000}
	require.Equal(t, want, Limits{}.withDefaults())
	require.Equal(t, Limits{-1, 64, 200_000}, Limits{-1, -1, -1}.withDefaults())
	require.Equal(t, Limits{1, 2, 3}, Limits{1, 2, 3}.withDefaults())
}

// Many concurrent sessions share one set.
func TestSetIsShared(t *testing.T) {
	r := newRand(9)
	ours, _ := randomPair(r, 3000)
	set := NewSet(ours)
	var wg sync.WaitGroup
	for seed := range uint64(8) {
		wg.Go(func() {
			_, theirs := randomPair(newRand(seed), 500)
			theirs = append(theirs, ours[:len(ours)/2]...)
			s := NewSession(set, Limits{})
			if _, err := reconcile(s, ourPeer(NewSet(theirs), 0)); err != nil {
				t.Error(err)
				return
			}
			if !slices.Equal(without(theirs, ours), nilIfEmpty(sortIDs(s.Need()))) {
				t.Error("need differs")
			}
		})
	}
	wg.Wait()
}

// In a full frame fingerprints replace the ids of ranges, and the peer lists them.
func TestScarceFrameSendsFingerprints(t *testing.T) {
	r := newRand(4)
	var ours, theirs []Item
	for i := range 20_000 {
		it := Item{uint64(i), randomID(r)}
		if i%20 != 0 {
			ours = append(ours, it)
		}
		theirs = append(theirs, it)
	}
	limited := requireExact(t, ours, theirs, Limits{}, ourPeer(NewSet(theirs), 500_000))
	free := requireExact(t, ours, theirs, Limits{FrameSize: -1}, ourPeer(NewSet(theirs), 500_000))
	require.Less(t, 3*limited.sent, 2*free.sent)
	require.LessOrEqual(t, limited.rounds, 12)
}

func TestAnswerIsStateless(t *testing.T) {
	r := newRand(6)
	ours, theirs := randomPair(r, 800)
	set := NewSet(theirs)
	msg, err := NewSession(NewSet(ours), Limits{}).Open()
	require.NoError(t, err)
	first, err := Answer(set, msg, 0)
	require.NoError(t, err)
	second, err := Answer(set, bytes.Clone(msg), 0)
	require.NoError(t, err)
	require.Equal(t, first, second)
}
