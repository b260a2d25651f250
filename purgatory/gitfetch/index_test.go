package gitfetch

import (
	"bufio"
	"encoding/binary"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/internal/barerepo"
)

// writeIndex writes the part of an index that is read here: which ids there are. They must
// be in order.
func writeIndex(t testing.TB, path string, n int, id func(i int) [20]byte) {
	t.Helper()
	file, err := os.Create(path)
	require.NoError(t, err)
	w := bufio.NewWriterSize(file, 1<<20)
	_, _ = w.WriteString(barerepo.IndexMark) // Flush says what went wrong
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
