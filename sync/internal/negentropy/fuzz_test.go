package negentropy

import (
	"errors"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

func fuzzSet() *Set {
	r := newRand(11)
	var items []Item
	for i := range 600 {
		items = append(items, Item{uint64(i / (1 + i%5)), randomID(r)})
	}
	return NewSet(append(items, numbered(80, func(int) uint64 { return 1 << 40 })...))
}

// requireWellFormed reads our message to its end.
func requireWellFormed(t *testing.T, msg []byte, limit int) {
	t.Helper()
	require.LessOrEqual(t, len(msg), limit)
	require.NotEmpty(t, msg)
	require.EqualValues(t, version, msg[0])
	r := reader{rest: msg[1:]}
	for {
		_, ok, err := r.next()
		require.NoError(t, err)
		if !ok {
			require.LessOrEqual(t, r.end, 1)
			return
		}
	}
}

func seedMessages(f *testing.F, add func(msg []byte)) {
	set := fuzzSet()
	for _, tt := range brokenMessages {
		var t testing.T
		add(message(&t, tt.hex))
	}
	msg, err := NewSession(NewSet(nil), Limits{}).Open()
	require.NoError(f, err)
	add(msg)
	msg, err = NewSession(set, Limits{}).Open()
	require.NoError(f, err)
	add(msg)
	msg, err = Answer(NewSet([]Item{{1, [32]byte{1}}}), msg, 0)
	require.NoError(f, err)
	add(msg)
	add(idListMessage(set.ids[:40]...))
}

func FuzzAnswer(f *testing.F) {
	seedMessages(f, func(msg []byte) { f.Add(msg, 0) })
	set := fuzzSet()
	f.Fuzz(func(t *testing.T, msg []byte, frame int) {
		reply, err := Answer(set, msg, frame)
		if err != nil {
			require.ErrorIs(t, err, ErrProtocol)
			require.Nil(t, reply)
			return
		}
		limit := newWriter(set, frame).limit
		requireWellFormed(t, reply, limit)

		// The same set asks, and our own messages must not fail.
		s := NewSession(set, Limits{})
		_, err = s.Open()
		require.NoError(t, err)
		_, _, err = s.Step(reply)
		require.NoError(t, err)
		require.Empty(t, s.Need())
	})
}

func FuzzSessionStep(f *testing.F) {
	seedMessages(f, func(msg []byte) { f.Add(msg, msg, uint8(3), uint16(50)) })
	set := fuzzSet()
	f.Fuzz(func(t *testing.T, first, second []byte, rounds uint8, ids uint16) {
		l := Limits{FrameSize: minFrame, MaxRounds: int(rounds), MaxIDs: int(ids)}
		s := NewSession(set, l)
		l = s.limits
		msg, err := s.Open()
		require.NoError(t, err)
		done := false
		for i := 0; err == nil && !done; i++ {
			require.Less(t, i, l.MaxRounds, "doesn't end")
			requireWellFormed(t, msg, minFrame)
			received := first
			if i%2 == 1 {
				received = second
			}
			msg, done, err = s.Step(received)
		}
		require.Nil(t, msg)
		if err != nil {
			known := errors.Is(err, ErrProtocol) || errors.Is(err, ErrRounds) || errors.Is(err, ErrTooMany)
			require.True(t, known, "%v", err)
		}
		need, have := sortIDs(s.Need()), sortIDs(s.Have())
		require.Len(t, slices.Compact(slices.Clone(need)), len(need))
		require.Len(t, slices.Compact(slices.Clone(have)), len(have))
		if done {
			require.LessOrEqual(t, len(need), l.MaxIDs)
		}
		again, stillDone, sameErr := s.Step(first)
		require.Nil(t, again)
		require.Equal(t, done, stillDone)
		require.Equal(t, err, sameErr)
	})
}

// FuzzDifference makes two sets from the data. Two bits per item select its owners, and six bits
// are the seconds since the previous item.
func FuzzDifference(f *testing.F) {
	f.Add([]byte("\x00\x01\x02\x03\x43\x83\xff"), uint16(0))
	f.Add(make([]byte, 2000), uint16(4096))
	f.Add(slices.Repeat([]byte{0, 1, 2, 3, 7, 0, 0}, 300), uint16(5000))
	f.Fuzz(func(t *testing.T, data []byte, frame uint16) {
		r := newRand(uint64(len(data)))
		var a, b []Item
		at := uint64(0)
		for _, c := range data {
			at += uint64(c >> 2)
			it := Item{at, randomID(r)}
			if c&1 == 0 {
				a = append(a, it)
			}
			if c&2 == 0 {
				b = append(b, it)
			}
		}
		l := Limits{FrameSize: int(frame), MaxRounds: 1000}
		requireExact(t, a, b, l, ourPeer(NewSet(b), int(frame)))
	})
}
