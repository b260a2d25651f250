package gitfetch

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/nip34"
)

// writeIndex writes the part of an index that is read here: which ids there are. They must
// be in order.
func writeIndex(t testing.TB, path string, n int, id func(i int) [20]byte) {
	t.Helper()
	file, err := os.Create(path)
	require.NoError(t, err)
	w := bufio.NewWriterSize(file, 1<<20)
	_, _ = w.WriteString(indexMark) // Flush says what went wrong
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

// evenly has ids be spread evenly, as hashes are, but for their last bytes.
func evenly(n int) func(i int) [20]byte {
	return func(i int) (id [20]byte) {
		binary.BigEndian.PutUint64(id[:], uint64(i)*(^uint64(0)/uint64(n)))
		return id
	}
}

// To share objects, all indexes of packs were read into memory, of as many bytes as the
// repository has objects times 28: hundreds of MB for a large one, and for each stranger
// who asked for something in it.
func TestSharingReadsNoIndexIntoMemory(t *testing.T) {
	const objects = 3_000_000
	from, to := bare(t, nip34.SHA1), bare(t, nip34.SHA1)
	tip := history(t, from, "main", 50)[49]
	git(t, from, "repack", "-adq")
	large := filepath.Join(from, "objects", "pack", "pack-0000000000000000000000000000000000000000.idx")
	writeIndex(t, large, objects, evenly(objects))
	info, err := os.Stat(large)
	require.NoError(t, err)
	f := fetcher(t, Config{})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	require.NoError(t, f.Share(t.Context(), from, to, []nip34.ObjectID{tip}))
	runtime.ReadMemStats(&after)
	t.Logf("an index of %d bytes: %d bytes of memory, all together", info.Size(), after.TotalAlloc-before.TotalAlloc)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(4<<20))
	missing, err := f.Missing(t.Context(), to, []nip34.ObjectID{tip})
	require.NoError(t, err)
	require.Empty(t, missing)
}

// What is in an index is found, and nothing else, however its ids are spread: whoever pushes
// may have some that are not spread as hashes are.
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
		for _, n := range []int{0, 1, 2, nearIDs - 1, nearIDs, nearIDs + 1, 5000} {
			t.Run(fmt.Sprintf("%s, %d", name, n), func(t *testing.T) {
				var ids [][20]byte
				for i := range n {
					ids = append(ids, make(i))
				}
				slices.SortFunc(ids, func(a, b [20]byte) int { return bytes.Compare(a[:], b[:]) })
				path := filepath.Join(t.TempDir(), "pack-1.idx")
				writeIndex(t, path, n, func(i int) [20]byte { return ids[i] })
				x, err := openIndex(osFiles{}, path, 20)
				require.NoError(t, err)
				defer x.close()
				require.Equal(t, n, x.len())
				for i, id := range ids {
					has, err := x.has(id[:])
					require.NoError(t, err)
					require.True(t, has, "%d: %x", i, id)
				}
				for i := range 2000 {
					id := make(i + 10*n)
					id[19] ^= 0x55
					has, err := x.has(id[:])
					require.NoError(t, err)
					require.Equal(t, slices.Contains(ids, id), has, "%x", id)
				}
			})
		}
	}
}

// One index covers another as a set does; an index that ends early is an error, whichever it
// is.
func TestIndexCovers(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	dir := t.TempDir()
	open := func(name string, ids [][20]byte) *indexFile {
		slices.SortFunc(ids, func(a, b [20]byte) int { return bytes.Compare(a[:], b[:]) })
		path := filepath.Join(dir, name+".idx")
		writeIndex(t, path, len(ids), func(i int) [20]byte { return ids[i] })
		x, err := openIndex(osFiles{}, path, 20)
		require.NoError(t, err)
		t.Cleanup(x.close)
		return x
	}
	covered := 0
	for range 300 {
		var mine, theirs [][20]byte
		has := true
		for b := range byte(8) {
			one := [20]byte{17*b + 1, b}
			inMine, inTheirs := rng.IntN(4) > 0, rng.IntN(4) == 0
			if inMine {
				mine = append(mine, one)
			}
			if inTheirs {
				theirs = append(theirs, one)
			}
			has = has && (inMine || !inTheirs)
		}
		got, err := open("mine", mine).covers(open("theirs", theirs))
		require.NoError(t, err, "%x, %x", mine, theirs)
		require.Equal(t, has, got, "%x, %x", mine, theirs)
		if has {
			covered++
		}
	}
	require.Greater(t, covered, 30)
	all := [][20]byte{{1}, {2}, {3}}
	for _, short := range []string{"mine", "theirs"} {
		mine, theirs := open("mine", all), open("theirs", all)
		require.NoError(t, os.Truncate(filepath.Join(dir, short+".idx"), int64(indexFanout+20)))
		_, err := mine.covers(theirs)
		require.Error(t, err, short)
	}
}
