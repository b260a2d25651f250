package negentropy

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

// allocated returns the number of bytes that f allocates, including freed ones.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

const allowance = 1 << 20

// hostilePeer invents messages. Sometimes it answers honestly so that the session makes progress. A
// tidy peer sends valid messages. A stubborn peer also ends each message with a difference.
func hostilePeer(r *rand.Rand, items []Item, honest *Set) peer {
	style := r.IntN(6)
	tidy, stubborn := style < 3, style == 0
	return func(msg []byte) ([]byte, error) {
		choice := r.IntN(8)
		switch {
		case stubborn:
			reply := invented(r, items, true)
			if last := len(reply) - 1; last == 0 || reply[last] == byte(modeSkip) {
				reply = reply[:1]
			}
			return append(append(reply, 0, 0, byte(modeFingerprint)), randomBytes(r, fingerprintSize)...), nil
		case choice < 3:
			return Answer(honest, msg, 1<<30)
		case choice == 3 && !tidy:
			return randomBytes(r, r.IntN(3000)), nil
		case choice < 6 && !tidy:
			reply, err := Answer(honest, msg, 1<<30)
			return mutate(r, reply), err
		}
		return invented(r, items, tidy), nil
	}
}

func randomBytes(r *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	if n > 0 && r.IntN(8) > 0 {
		b[0] = version
	}
	return b
}

func mutate(r *rand.Rand, b []byte) []byte {
	b = bytes.Clone(b)
	for range 1 + r.IntN(4) {
		if len(b) < 2 {
			return b
		}
		i := 1 + r.IntN(len(b)-1)
		switch r.IntN(5) {
		case 0:
			b[i] ^= 1 << r.IntN(8)
		case 1:
			b = b[:i]
		case 2:
			b = append(b[:i:i], append(randomBytes(r, r.IntN(5)), b[i:]...)...)
		case 3:
			b = append(b, b[i:]...)
		case 4:
			b = append(b[:i], b[min(len(b), i+1+r.IntN(40)):]...)
		}
	}
	return b
}

// invented returns random ranges. Unless the peer is tidy, some are out of order, cut, or claim
// more ids than they contain.
func invented(r *rand.Rand, items []Item, tidy bool) []byte {
	w := writer{out: []byte{version}}
	at := uint64(0)
	for range r.IntN(300) {
		at += 1 + r.Uint64N(40)
		b := bound{time: at}
		switch {
		case r.IntN(3) == 0:
			b.id, b.size = randomID(r), idSize
		case r.IntN(100) == 0:
			b.time = infinity
		case r.IntN(100) == 0 && !tidy:
			at -= 50
		}
		w.header(&b, mode(r.IntN(3)))
		switch mode(w.out[len(w.out)-1]) {
		case modeFingerprint:
			w.out = append(w.out, randomBytes(r, fingerprintSize)...)
		case modeIDs:
			n := r.IntN(20)
			claimed := uint64(n)
			if r.IntN(100) == 0 && !tidy {
				claimed = r.Uint64() >> r.IntN(64)
			}
			w.out = appendVarint(w.out, claimed)
			for range n {
				id := randomID(r)
				if len(items) > 0 && r.IntN(3) > 0 {
					id = items[r.IntN(len(items))].ID
				}
				w.out = append(w.out, id[:]...)
			}
		}
		if b.time == infinity && tidy {
			break
		}
	}
	return w.out
}

// For any messages of a peer the session ends without a panic, and the received bytes bound the
// allocations.
func TestNegHostileTranscripts(t *testing.T) {
	outcomes := make(map[string]int)
	for seed := range uint64(1000) {
		r := newRand(seed)
		var items []Item
		for i := range r.IntN(2000) {
			items = append(items, Item{uint64(i / (1 + i%3)), randomID(r)})
		}
		set, honest := NewSet(items), NewSet(items[:len(items)/2])
		answer := hostilePeer(r, items, honest)
		s := NewSession(set, Limits{MaxIDs: 1 + r.IntN(5000)})
		msg, err := s.Open()
		require.NoError(t, err)

		// Slices grow by doubling, so the sum over a session is compared.
		steps, total, spent, done := 0, 0, uint64(0), false
		for ; !done && err == nil && steps <= 64; steps++ {
			received, answerErr := answer(msg)
			require.NoError(t, answerErr)
			total += len(received)
			spent += allocated(func() { msg, done, err = s.Step(received) })
			require.LessOrEqual(t, spent, uint64(8*total+allowance), "seed %d, round %d", seed, steps)
			require.LessOrEqual(t, len(msg), defaultFrame)
			if err == nil && !done && steps%3 == 0 {
				spent := allocated(func() { _, _ = Answer(set, received, 0) })
				require.LessOrEqual(t, spent, uint64(8*len(received)+allowance), "seed %d, round %d", seed, steps)
			}
		}
		require.True(t, done || err != nil, "seed %d doesn't end", seed)
		require.LessOrEqual(t, steps, 64)
		require.LessOrEqual(t, len(s.Have()), set.Len())
		outcomes[outcome(done, err)]++
	}
	// The transcripts would prove little if all ended at the first byte.
	t.Log(outcomes)
	require.Greater(t, outcomes["done"], 20)
	require.Greater(t, outcomes["protocol"], 100)
	require.Greater(t, outcomes["too many"], 20)
	require.Greater(t, outcomes["rounds"], 20)
}

func outcome(done bool, err error) string {
	switch {
	case done:
		return "done"
	case errors.Is(err, ErrProtocol):
		return "protocol"
	case errors.Is(err, ErrTooMany):
		return "too many"
	case errors.Is(err, ErrRounds):
		return "rounds"
	}
	return "other"
}

// H11: in another implementation eight bytes that claim 2^27 ids allocated 10 GB.
func TestTrapH11_CountsAreHeldAgainstTheMessage(t *testing.T) {
	msg := message(t, "61 00 00 02 c0 80 80 00")
	require.Len(t, msg, 8)
	set := NewSet(numbered(1000, func(i int) uint64 { return uint64(i) }))
	s := NewSession(set, Limits{})
	_, err := s.Open()
	require.NoError(t, err)
	require.Less(t, allocated(func() { _, _, err = s.Step(msg) }), uint64(64<<10))
	require.ErrorIs(t, err, ErrProtocol)
	require.Less(t, allocated(func() { _, err = Answer(set, msg, 0) }), uint64(64<<10))
	require.ErrorIs(t, err, ErrProtocol)
}

// The most expensive messages for their length, including their sessions.
func TestNegAllocations(t *testing.T) {
	r := newRand(2)
	var items []Item
	for i := range 200_000 {
		items = append(items, Item{uint64(i), randomID(r)})
	}
	big, small := NewSet(items), NewSet(items[:10])
	strangers := make([][32]byte, 1<<15+1)
	for i := range strangers {
		strangers[i] = randomID(r)
	}
	repeated := make([][32]byte, 1<<15+1)

	// One span per seven bytes: one item missing at the peer, one skipped.
	spans := []byte{version}
	for range 99_000 {
		spans = append(spans, 2, 0, byte(modeSkip), 2, 0, byte(modeIDs), 0)
	}
	// One mismatch per 19 bytes.
	mismatches := []byte{version}
	for range 50_000 {
		mismatches = append(append(mismatches, 3, 0, byte(modeFingerprint)), make([]byte, 16)...)
	}
	tests := []struct {
		name string
		set  *Set
		msg  []byte
	}{
		{"unknown ids, few of ours", small, idListMessage(strangers...)},
		{"unknown ids, many of ours", big, idListMessage(strangers...)},
		{"one id over and over", small, idListMessage(repeated...)},
		{"none of 200,000", big, idListMessage()},
		{"every second one missing", big, spans},
		{"everything differs", big, mismatches},
		{"short skips", big, append([]byte{version}, bytes.Repeat([]byte{2, 0, 0}, 100_000)...)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			limit := uint64(8*len(tt.msg) + allowance)
			s := NewSession(tt.set, Limits{})
			_, err := s.Open()
			require.NoError(t, err)
			spent := allocated(func() { _, _, err = s.Step(tt.msg) })
			require.NoError(t, err)
			require.LessOrEqual(t, spent, limit)
			t.Logf("%d bytes: %d allocated, %.1f times", len(tt.msg), spent, float64(spent)/float64(len(tt.msg)))

			spent = allocated(func() { _, err = Answer(tt.set, tt.msg, 0) })
			require.NoError(t, err)
			require.LessOrEqual(t, spent, limit)
		})
	}
}
