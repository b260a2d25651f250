package gitfetch_test

import (
	"crypto/sha1"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/gitfetch"
)

// film returns a repository with a large blob.
func film(t *testing.T) (dir, blob, tip string, data []byte) {
	t.Helper()
	dir = bare(t, nip34.SHA1)
	data = make([]byte, 1<<20)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(data) // never fails
	blob = gitIn(t, dir, string(data), "hash-object", "-w", "--stdin")
	tip = git(t, dir, "commit-tree", "-m", "film", gitIn(t, dir, "100644 blob "+blob+"\tfilm\n", "mktree"))
	git(t, dir, "update-ref", "refs/heads/main", tip)
	git(t, dir, "repack", "-adq")
	return dir, blob, tip, data
}

func hashed(kind string, content []byte) []byte {
	sum := sha1.Sum(append(fmt.Appendf(nil, "%s %d\x00", kind, len(content)), content...))
	return sum[:]
}

// variants returns a thin pack with a commit of n deltas against a blob, and junk.
func variants(t *testing.T, blob, parent string, data []byte, n, junk int) (pack []byte, tip nip34.ObjectID) {
	t.Helper()
	from, err := hex.DecodeString(blob)
	require.NoError(t, err)
	var objects [][]byte
	var tree []byte
	for i := range n {
		head := fmt.Sprintf("variant %02d\n", i)
		content := append([]byte(head), data...)
		tree = append(append(tree, fmt.Sprintf("100644 v%02d\x00", i)...), hashed("blob", content)...)
		delta := binary.AppendUvarint(binary.AppendUvarint(nil, uint64(len(data))), uint64(len(content)))
		delta = append(append(delta, byte(len(head))), head...)
		for at := 0; at < len(data); at += 1 << 16 { // size 0x10000 is encoded without bytes
			delta = append(delta, 0x80|0x0f, byte(at), byte(at>>8), byte(at>>16), byte(at>>24))
		}
		deflated := object(7, delta)
		begin := len(entryHead(7, len(delta)))
		objects = append(objects, append(append(deflated[:begin:begin], from...), deflated[begin:]...))
	}
	for i := range junk {
		objects = append(objects, stored(3, fmt.Appendf(nil, "junk %d", i)))
	}
	commit := fmt.Appendf(nil, "tree %x\nparent %s\nauthor a <a@x> 1700000000 +0000\ncommitter a <a@x> 1700000000 +0000\n\nx\n", hashed("tree", tree), parent)
	objects = append(objects, object(2, tree), object(1, commit))
	return packOf(objects...), oid(t, hex.EncodeToString(hashed("commit", commit)))
}

// indexed returns a folder with a pack, beside a repository.
func indexed(t *testing.T, beside string, pack []byte) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "upload")
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "pack"), 0o700))
	cmd := exec.CommandContext(t.Context(), "git", "index-pack", "--stdin", "--fix-thin")
	cmd.Dir, cmd.Stdin = beside, strings.NewReader(string(pack))
	cmd.Env = append(os.Environ(), "GIT_OBJECT_DIRECTORY="+dir, "GIT_ALTERNATE_OBJECT_DIRECTORIES=objects")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return dir
}

// Deltas against objects of the repository were expanded, so a push of some KiB added many MiB.
func TestTakeDoesNotInflateDeltas(t *testing.T) {
	if runtime.GOOS != "linux" {
		return // children have no file size limit
	}
	f := fetcher(t)
	here, blob, base, data := film(t)
	pack, tip := variants(t, blob, base, data, 10, 0)
	from := indexed(t, here, pack)
	came, before := onDisk(t, from), onDisk(t, here)
	require.NoError(t, f.ImportPacks(t.Context(), here, from, []nip34.ObjectID{tip}))
	t.Logf("%d bytes, %d with their base: the repository grew by %d", len(pack), came, onDisk(t, here)-before)
	require.LessOrEqual(t, onDisk(t, here)-before, came+64<<10)
	require.Empty(t, leftovers(t, here))
	git(t, here, "update-ref", "refs/heads/variants", tip.String())
	git(t, here, "fsck", "--strict")
}

// A copy of unprotected objects that fails leaves nothing. Its temporary files had stayed in the
// repository, and had raised the limit of the next copy. A full disk prevents only copies.
func TestNothingIsLeftOfAFailedCopy(t *testing.T) {
	if runtime.GOOS != "linux" {
		return // children have no file size limit
	}
	f := fetcher(t)
	here, blob, base, data := film(t)
	pack, tip := variants(t, blob, base, data, 10, 0)
	gitIn(t, here, string(pack), "index-pack", "--stdin", "--fix-thin")
	before := onDisk(t, here)
	var limit *gitfetch.LimitError
	_, err := f.Missing(t.Context(), here, []nip34.ObjectID{tip})
	require.ErrorAs(t, err, &limit)
	require.Equal(t, before, onDisk(t, here))
	require.Empty(t, leftovers(t, here))

	*f.Free() = func(string) (uint64, error) { return 0, nil }
	_, err = f.Missing(t.Context(), here, []nip34.ObjectID{tip})
	require.ErrorIs(t, err, gitfetch.ErrDisk)
	missing, err := f.Missing(t.Context(), here, []nip34.ObjectID{oid(t, base)})
	require.NoError(t, err)
	require.Empty(t, missing)
}
