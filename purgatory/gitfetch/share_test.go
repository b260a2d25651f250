package gitfetch_test

import (
	"bytes"
	"compress/zlib"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/internal/racetest"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/internal/refplan"
)

// Objects of one repository are shared with another, and common objects stay.
func TestShare(t *testing.T) {
	from, to := bare(t, nip34.SHA1), bare(t, nip34.SHA1)
	ids := history(t, from, "main", 5)
	f := fetcher(t)
	require.NoError(t, f.CopyObjects(t.Context(), from, to, ids[2:3]))
	missing, err := f.Missing(t.Context(), to, ids)
	require.NoError(t, err)
	require.NotContains(t, missing, ids[2])
	main := ref(t, "refs/heads/main")
	require.NoError(t, f.UpdateRefs(t.Context(), to, []refplan.RefChange{{Name: main, New: ids[2]}}, main))
	require.NoError(t, f.CopyObjects(t.Context(), from, to, ids[4:]))
	complete(t, f, to, ids)
	require.NoError(t, f.Cleanup(t.Context(), to))
	git(t, to, "fsck", "--strict")
	require.Empty(t, leftovers(t, to))
	require.NoError(t, f.CopyObjects(t.Context(), to, from, []nip34.ObjectID{oid(t, "1234567890123456789012345678901234567890")}))
	require.Empty(t, leftovers(t, from))
}

// onDisk returns the size of folders, each file counted once.
func onDisk(t *testing.T, dirs ...string) (n int64) {
	seen := make(map[uint64]bool)
	for _, dir := range dirs {
		require.NoError(t, filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return err
			}
			info, err := d.Info()
			if err != nil {
				return err
			}
			stat := info.Sys().(*syscall.Stat_t)
			if !seen[stat.Ino] {
				seen[stat.Ino] = true
				n += info.Size()
			}
			return nil
		}))
	}
	return n
}

// Naming the tip of a large repository created a full copy for each key.
func TestShareTakesNoRoom(t *testing.T) {
	root := t.TempDir()
	at := func(owner string) string {
		dir := filepath.Join(root, owner, "r.git")
		require.NoError(t, os.MkdirAll(filepath.Dir(dir), 0o700))
		require.NoError(t, os.Rename(bare(t, nip34.SHA1), dir))
		return dir
	}
	from := at("alice")
	junk := make([]byte, 8<<20)
	_, err := rand.Read(junk)
	require.NoError(t, err)
	blob := strings.TrimSpace(gitIn(t, from, string(junk), "hash-object", "-w", "--stdin"))
	tree := strings.TrimSpace(gitIn(t, from, "100644 blob "+blob+"\tfile\n", "mktree"))
	tip := strings.TrimSpace(git(t, from, "commit-tree", "-m", "x", tree))
	git(t, from, "update-ref", "refs/heads/main", tip)
	git(t, from, "repack", "-adq")
	before := onDisk(t, root)
	f := fetcher(t)
	main := ref(t, "refs/heads/main")
	for _, owner := range []string{"a", "b", "c", "d", "e"} {
		to := at(owner)
		require.NoError(t, f.CopyObjects(t.Context(), from, to, []nip34.ObjectID{oid(t, tip)}))
		complete(t, f, to, []nip34.ObjectID{oid(t, tip)})
		require.NoError(t, f.UpdateRefs(t.Context(), to, []refplan.RefChange{{Name: main, New: oid(t, tip)}}, main))
		require.NoError(t, f.Cleanup(t.Context(), to))
	}
	after := onDisk(t, root)
	t.Logf("%d bytes, and after five shares %d", before, after)
	require.Less(t, after-before, int64(1<<20))
	require.NoError(t, os.RemoveAll(from)) // it does not depend on the source
	git(t, filepath.Join(root, "a", "r.git"), "fsck", "--strict")
}

// Packs are shared if they contain at most twice the needed objects plus a thousand. Otherwise one
// pack is made of the needed objects that the other repository lacks, including loose objects.
func TestWhichPacksAreShared(t *testing.T) {
	racetest.Amounts(t)
	f := fetcher(t)
	for name, c := range map[string]struct {
		more, both int // other objects in the pack, and whether two ids share all objects
	}{"as they are": {2 + 1000 - 1, 2 + 1000 + 1}, "made anew": {2 + 1000, 2}} {
		t.Run(name, func(t *testing.T) {
			dir := bare(t, nip34.SHA1)
			o, loose := blobs("needed", 1)[0], blobs("in no pack", 1)[0]
			base := place(t, dir, append(blobs("else", c.more), o)...)
			loosen(t, dir, loose)
			ids := []nip34.ObjectID{oid(t, fmt.Sprintf("%x", o.id())), oid(t, fmt.Sprintf("%x", loose.id()))}
			one, both := bare(t, nip34.SHA1), bare(t, nip34.SHA1)
			require.NoError(t, f.CopyObjects(t.Context(), dir, one, ids[:1]))
			require.Equal(t, c.both > 2, slices.Contains(bases(t, one), base))
			require.NoError(t, f.CopyObjects(t.Context(), dir, both, ids))
			complete(t, f, both, ids)
			require.Empty(t, leftovers(t, both))
		})
	}
}

// blobs returns n different objects.
func blobs(name string, n int) (out []thing) {
	for i := range n {
		out = append(out, thing{packedBlob, fmt.Append(nil, name, " ", i)})
	}
	return out
}

// loosen adds loose objects to a repository.
func loosen(t *testing.T, dir string, things ...thing) (paths []string) {
	t.Helper()
	for _, o := range things {
		id := fmt.Sprintf("%x", o.id())
		path := filepath.Join(dir, "objects", id[:2], id[2:])
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		var b bytes.Buffer
		z := zlib.NewWriter(&b)
		_, err := fmt.Fprintf(z, "blob %d\x00%s", len(o.body), o.body)
		require.NoError(t, errors.Join(err, z.Close()))
		require.NoError(t, os.WriteFile(path, b.Bytes(), 0o600))
		paths = append(paths, path)
	}
	return paths
}

func bases(t *testing.T, dir string) (out []string) {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, "objects", "pack", "*.pack"))
	require.NoError(t, err)
	for _, path := range found {
		out = append(out, strings.TrimSuffix(filepath.Base(path), ".pack"))
	}
	return out
}
