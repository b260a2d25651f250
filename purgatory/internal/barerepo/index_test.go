package barerepo

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// whole is the file system of the machine.
type whole struct{}

func (whole) Mkdir(name string, mode fs.FileMode) error { return os.Mkdir(name, mode) }
func (whole) ReadFile(name string) ([]byte, error)      { return os.ReadFile(name) }
func (whole) Lstat(name string) (fs.FileInfo, error)    { return os.Lstat(name) }
func (whole) Remove(name string) error                  { return os.Remove(name) }
func (whole) OpenFile(name string, flag int, mode fs.FileMode) (*os.File, error) {
	return os.OpenFile(name, flag, mode)
}

// writeIndex writes the part of an index that Index reads: sorted ids.
func writeIndex(t testing.TB, path string, n int, id func(i int) [20]byte) {
	t.Helper()
	file, err := os.Create(path)
	require.NoError(t, err)
	w := bufio.NewWriterSize(file, 1<<20)
	_, _ = w.WriteString(IndexMark) // Flush returns the error
	i := 0
	for b := range 256 {
		for i < n && int(id(i)[0]) <= b {
			i++
		}
		_ = binary.Write(w, binary.BigEndian, uint32(i))
	}
	for i := range n {
		one := id(i)
		_, _ = w.Write(one[:])
	}
	require.NoError(t, w.Flush())
	require.NoError(t, file.Close())
}

// Exactly the ids of an index are found, for any distribution of ids, because a pusher can choose
// it.
func TestIndexHas(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for name, make := range map[string]func(i int) (id [20]byte){
		"evenly": func(int) (id [20]byte) {
			binary.BigEndian.PutUint64(id[:], rng.Uint64())
			return id
		},
		"crowded": func(i int) (id [20]byte) {
			id[0], id[1] = 7, byte(i%3)
			binary.BigEndian.PutUint32(id[10:], uint32(i))
			return id
		},
		"at the ends": func(i int) (id [20]byte) {
			if i%2 == 0 {
				id = [20]byte(bytes.Repeat([]byte{0xff}, 20))
			}
			binary.BigEndian.PutUint32(id[16:], uint32(i))
			return id
		},
	} {
		for _, n := range []int{0, 1, 2, NearIDs - 1, NearIDs, NearIDs + 1, 5000} {
			t.Run(fmt.Sprintf("%s, %d", name, n), func(t *testing.T) {
				var ids [][20]byte
				for i := range n {
					ids = append(ids, make(i))
				}
				slices.SortFunc(ids, func(a, b [20]byte) int { return bytes.Compare(a[:], b[:]) })
				path := filepath.Join(t.TempDir(), "pack-1.idx")
				writeIndex(t, path, n, func(i int) [20]byte { return ids[i] })
				x, err := OpenIndex(whole{}, path, 20)
				require.NoError(t, err)
				defer x.Close()
				require.Equal(t, n, x.Len())
				for i, id := range ids {
					has, err := x.Has(hex.AppendEncode(nil, id[:]))
					require.NoError(t, err)
					require.True(t, has, "%d: %x", i, id)
				}
				for i := range 2000 {
					id := make(i + 10*n)
					id[19] ^= 0x55
					has, err := x.Has(hex.AppendEncode(nil, id[:]))
					require.NoError(t, err)
					require.Equal(t, slices.Contains(ids, id), has, "%x", id)
				}
			})
		}
	}
}
