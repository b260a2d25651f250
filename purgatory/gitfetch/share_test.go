package gitfetch_test

import (
	"crypto/rand"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/internal/refplan"
)

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
	require.Less(t, after-before, int64(1<<20))
	require.NoError(t, os.RemoveAll(from)) // it does not depend on the source
	git(t, filepath.Join(root, "a", "r.git"), "fsck", "--strict")
}
