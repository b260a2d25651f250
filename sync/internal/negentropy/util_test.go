package negentropy

import (
	"cmp"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// newRand returns random numbers for a seed.
func newRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 77)) }

func randomID(r *rand.Rand) (id [32]byte) {
	for i := 0; i < 32; i += 8 {
		binary.LittleEndian.PutUint64(id[i:], r.Uint64())
	}
	return id
}

func sortIDs(ids [][32]byte) [][32]byte {
	ids = slices.Clone(ids)
	slices.SortFunc(ids, func(a, b [32]byte) int { return slices.Compare(a[:], b[:]) })
	return ids
}

// without returns the sorted ids of a that b lacks.
func without(a, b []Item) [][32]byte {
	in := make(map[[32]byte]bool)
	for _, it := range b {
		in[it.ID] = true
	}
	var out [][32]byte
	for _, it := range a {
		if !in[it.ID] {
			in[it.ID] = true
			out = append(out, it.ID)
		}
	}
	return sortIDs(out)
}

// peer answers a message.
type peer func(msg []byte) ([]byte, error)

func ourPeer(s *Set, frameSize int) peer {
	return func(msg []byte) ([]byte, error) { return Answer(s, msg, frameSize) }
}

// traffic is the cost of a reconciliation.
type traffic struct{ rounds, sent, received, largest int }

// reconcile runs a session to its end.
func reconcile(s *Session, p peer) (t traffic, err error) {
	msg, err := s.Open()
	for err == nil {
		t.rounds++
		t.sent += len(msg)
		t.largest = max(t.largest, len(msg))
		var reply []byte
		if reply, err = p(msg); err != nil {
			return t, errors.Join(errors.New("peer"), err)
		}
		t.received += len(reply)
		var done bool
		if msg, done, err = s.Step(reply); done {
			return t, err
		}
	}
	return t, err
}

// requireExact reconciles and compares with the simple difference.
func requireExact(t *testing.T, ours, theirs []Item, l Limits, p peer) traffic {
	t.Helper()
	s := NewSession(NewSet(ours), l)
	cost, err := reconcile(s, p)
	require.NoError(t, err)
	need, have := s.Need(), s.Have()
	require.Equal(t, without(theirs, ours), nilIfEmpty(sortIDs(need)), "need")
	require.Equal(t, without(ours, theirs), nilIfEmpty(sortIDs(have)), "have")
	require.LessOrEqual(t, cost.largest, max(cmp.Or(l.FrameSize, defaultFrame), minFrame))
	return cost
}

func nilIfEmpty(ids [][32]byte) [][32]byte {
	if len(ids) == 0 {
		return nil
	}
	return ids
}

// randomPair returns two sets of up to size items each that share items, in one of several shapes:
// disjoint, one empty, scattered or clustered differences, many items in few seconds.
func randomPair(r *rand.Rand, size int) (a, b []Item) {
	n := r.IntN(size + 1)
	seconds := uint64(1 + r.IntN(1+2*n))
	if r.IntN(4) == 0 {
		seconds = uint64(1 + r.IntN(3))
	}
	base := uint64(1_700_000_000)
	missA, missB := r.Float64(), r.Float64()
	if r.IntN(2) == 0 { // mostly equal
		missA, missB = missA/50, missB/50
	}
	from, to := 0, n
	if n > 0 && r.IntN(3) == 0 { // differences in one part only
		from = r.IntN(n)
		to = from + r.IntN(n-from)
	}
	for i := range n {
		it := Item{base + uint64(i)*seconds/uint64(n), randomID(r)}
		differ := i >= from && i <= to
		if !differ || r.Float64() >= missA {
			a = append(a, it)
		}
		if !differ || r.Float64() >= missB {
			b = append(b, it)
		}
	}
	if r.IntN(20) == 0 {
		a = nil
	}
	if r.IntN(20) == 0 {
		b = nil
	}
	r.Shuffle(len(a), func(i, j int) { a[i], a[j] = a[j], a[i] })
	r.Shuffle(len(b), func(i, j int) { b[i], b[j] = b[j], b[i] })
	return a, b
}
