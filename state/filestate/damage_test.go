package filestate

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/state"
)

// sample is a log of n records under different keys, and where each begins.
func sample(rng *rand.Rand, n int) (data []byte, at []int) {
	data = appendFileHead(nil, 77, 0)
	for i := range n {
		at = append(at, len(data))
		value := []byte(strings.Repeat(fmt.Sprint(i), rng.IntN(300)))
		if rng.IntN(4) == 0 { // a value that looks like records, as of a saved log
			value = appendRecord(nil, 76, record{version: 1 << 40, kind: put, key: "invented", value: value})
		}
		data = appendRecord(data, 77, record{version: state.Version(i + 1), kind: put, key: fmt.Sprint(i), value: value})
	}
	return data, append(at, len(data))
}

// A damaged stretch costs the records that it touches and no other, wherever it is.
func TestDamageInTheMiddle(t *testing.T) {
	seeds := uint64(2_000)
	if testing.Short() {
		seeds = 200
	}
	for seed := range seeds {
		rng := rand.New(rand.NewPCG(4, seed))
		data, at := sample(rng, 1+rng.IntN(30))
		whole, err := read(bytes.NewReader(data), int64(len(data)))
		require.NoError(t, err)
		require.Len(t, whole.entries, len(at)-1)
		require.Zero(t, whole.setAside)

		from := rng.IntN(len(data))
		to := min(len(data), from+1+rng.IntN(1+rng.IntN(1_000)))
		for i := from; i < to; i++ {
			data[i] ^= byte(1 + rng.IntN(255))
		}
		got, err := read(bytes.NewReader(data), int64(len(data)))
		require.NoError(t, err)
		for i := range len(at) - 1 {
			key := fmt.Sprint(i)
			if at[i+1] <= from || at[i] >= to {
				require.Equal(t, whole.entries[key], got.entries[key], key)
			} else {
				require.NotContains(t, got.entries, key)
			}
		}
		if from >= fileHeadSize || to <= at[0] { // else the file's number may be taken from a wrong record
			require.NotContains(t, got.entries, "invented")
		}
		if to <= at[len(at)-2] {
			require.Positive(t, got.setAside)
			require.GreaterOrEqual(t, uint64(got.last), uint64(lostVersions), "versions of lost records are not used again")
		} else {
			require.Positive(t, got.torn+int64(got.setAside))
		}
	}
}

// What was damaged is said, kept for inspection, and gone from the log.
func TestDamageIsSetAside(t *testing.T) {
	d := newDisk(rand.New(rand.NewPCG(0, 0)))
	s := openDisk(t, d)
	var largest state.Version
	for i := range 10 {
		v, err := s.CompareAndSwap(t.Context(), fmt.Sprint(i), state.Absent, make([]byte, 100))
		require.NoError(t, err)
		largest = max(largest, v)
	}
	d = d.kill()
	old := d.names[logName].data
	old[len(old)/2] ^= 1
	s = openDisk(t, d)
	st := s.Stats()
	require.Equal(t, 1, st.SetAside)
	require.Positive(t, st.SetAsideBytes)
	require.Equal(t, 9, st.Keys)
	require.Equal(t, old, d.names[damagedName].data)
	v, err := s.CompareAndSwap(t.Context(), "new", state.Absent, nil)
	require.NoError(t, err)
	require.Greater(t, v, largest)
	s = openDisk(t, d.kill())
	require.Zero(t, s.Stats().SetAside)
	require.Equal(t, 10, s.Stats().Keys)
}

func TestTornTail(t *testing.T) {
	data, at := sample(rand.New(rand.NewPCG(5, 0)), 10)
	for n := range len(data) {
		got, err := read(bytes.NewReader(data), int64(n))
		require.NoError(t, err)
		whole := 0
		for whole < 10 && at[whole+1] <= n {
			whole++
		}
		require.Len(t, got.entries, whole)
		require.Zero(t, got.setAside)
		got, err = read(&broken{data: data[:n], err: io.EOF}, int64(n)+1)
		require.ErrorIs(t, err, io.ErrUnexpectedEOF, "a file that can't be read is not an empty one")
		require.Zero(t, got)
		got, err = read(&broken{data: data[:n], err: errFault}, int64(len(data)))
		require.ErrorIs(t, err, errFault)
		require.Zero(t, got)
	}
}

// broken is a file that can be read up to some place, and is not read for ever there.
type broken struct {
	data  []byte
	err   error
	tries int
}

func (b *broken) Read(p []byte) (int, error) {
	if len(b.data) > 0 {
		n := copy(p, b.data)
		b.data = b.data[n:]
		return n, nil
	}
	if b.tries++; b.tries > 10 {
		panic("read again and again")
	}
	return 0, b.err
}

// Whatever the folder holds: no panic, no more memory than the file is long, and a
// store that works and reads the same when opened again.
func FuzzRead(f *testing.F) {
	for seed := range uint64(5) {
		data, _ := sample(rand.New(rand.NewPCG(6, seed)), int(seed)*3)
		f.Add(data)
		f.Add(data[:len(data)*2/3])
		f.Add(data[min(20, len(data)):])
	}
	long := appendRecord(nil, 1, record{version: 1, kind: put, key: "k"})
	f.Add(long)
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := read(bytes.NewReader(data), int64(len(data)))
		require.NoError(t, err)
		require.LessOrEqual(t, got.bytes, int64(len(data)))
		require.LessOrEqual(t, got.torn+got.skipped, int64(len(data)))
		d := newDisk(rand.New(rand.NewPCG(0, 0)))
		d.names[logName] = &inode{data: data}
		s := openDisk(t, d)
		_, old, _ := s.Get(t.Context(), "a")
		v, err := s.CompareAndSwap(t.Context(), "a", old, []byte("b"))
		require.NoError(t, err)
		require.Greater(t, v, got.last)
		again := openDisk(t, d.kill())
		require.Equal(t, s.entries, again.entries)
		require.Zero(t, again.Stats().SetAside+int(again.Stats().Torn))
	})
}
