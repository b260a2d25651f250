package gitfetch_test

import (
	"crypto/rand"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/internal/racetest"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/purgatory/gitfetch"
)

// What came for one repository serves another one, and what both have stays where it
// is.
func TestShare(t *testing.T) {
	from, to := bare(t, nip34.SHA1), bare(t, nip34.SHA1)
	ids := history(t, from, "main", 5)
	f := fetcher(t, gitfetch.Config{})
	require.NoError(t, f.Share(t.Context(), from, to, ids[2:3]))
	missing, err := f.Missing(t.Context(), to, ids)
	require.NoError(t, err)
	require.NotContains(t, missing, ids[2])
	main := ref(t, "refs/heads/main")
	require.NoError(t, f.UpdateRefs(t.Context(), to, []purgatory.RefChange{{Name: main, New: ids[2]}}, main))
	require.NoError(t, f.Share(t.Context(), from, to, ids[4:]))
	missing, err = f.Missing(t.Context(), to, ids)
	require.NoError(t, err)
	require.Empty(t, missing)
	require.NoError(t, f.Cleanup(t.Context(), to))
	git(t, to, "fsck", "--strict")
	require.Empty(t, leftovers(t, to))
	require.NoError(t, f.Share(t.Context(), to, from, []nip34.ObjectID{oid(t, "1234567890123456789012345678901234567890")}))
	require.Empty(t, leftovers(t, from))
}

// onDisk is what folders take up, in bytes, each file once.
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

// Whoever named the tip of a large repository got a copy of all of it, once for each key.
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
	f := fetcher(t, gitfetch.Config{})
	main := ref(t, "refs/heads/main")
	for _, owner := range []string{"a", "b", "c", "d", "e"} {
		to := at(owner)
		require.NoError(t, f.Share(t.Context(), from, to, []nip34.ObjectID{oid(t, tip)}))
		missing, err := f.Missing(t.Context(), to, []nip34.ObjectID{oid(t, tip)})
		require.NoError(t, err)
		require.Empty(t, missing)
		require.NoError(t, f.UpdateRefs(t.Context(), to, []purgatory.RefChange{{Name: main, New: oid(t, tip)}}, main))
		require.NoError(t, f.Cleanup(t.Context(), to))
	}
	after := onDisk(t, root)
	t.Logf("%d bytes, and after five shares %d", before, after)
	require.Less(t, after-before, int64(1<<20))
	require.NoError(t, os.RemoveAll(from)) // it lives without the one it came from
	git(t, filepath.Join(root, "a", "r.git"), "fsck", "--strict")
}

// heavy makes a repository of one pack with so many branches, each of which has a file of its
// own of so many random bytes, and is of 3 objects.
func heavy(t *testing.T, dir string, branches, size int) (tips []nip34.ObjectID) {
	t.Helper()
	for i := range branches {
		junk := make([]byte, size)
		_, err := rand.Read(junk)
		require.NoError(t, err)
		blob := gitIn(t, dir, string(junk), "hash-object", "-w", "--stdin")
		tree := gitIn(t, dir, "100644 blob "+blob+"\tfile\n", "mktree")
		tip := git(t, dir, "commit-tree", "-m", "x", tree)
		git(t, dir, "update-ref", fmt.Sprintf("refs/heads/%d", i), tip)
		tips = append(tips, oid(t, tip))
	}
	git(t, dir, "repack", "-adq")
	return tips
}

// An owner may have so many bytes copied in a day, and a copy that is refused costs no packing.
func TestRefusedCopiesCostNoPacking(t *testing.T) {
	racetest.Amounts(t)
	root := t.TempDir()
	at := owners(t, root)
	from := at("alice")
	tips := heavy(t, from, 2, 400<<10)
	var all []thing
	for i := range 1100 { // so much else that the pack is not shared
		all = append(all, thing{packedBlob, fmt.Append(nil, "else ", i)})
	}
	place(t, from, all...)
	git(t, from, "repack", "-adkq")
	f := fetcher(t, gitfetch.Config{})
	packed := 0
	*f.Started() = func(cmd *exec.Cmd) {
		if slices.Contains(cmd.Args, "pack-objects") {
			packed++
		}
	}
	to := at("mallory")
	require.NoError(t, f.Share(t.Context(), from, to, tips[:1]))
	missing, err := f.Missing(t.Context(), to, tips)
	require.NoError(t, err)
	require.Equal(t, tips[1:], missing)
	require.Positive(t, packed)
	packed = 0
	f.Copied(to, 512<<20-400<<10) // an eighth of 4 GiB
	require.ErrorContains(t, f.Share(t.Context(), from, to, tips[1:]), "too much was copied")
	require.Zero(t, packed)
	other := at("eve")
	require.NoError(t, f.Share(t.Context(), from, other, tips[1:]))
	f.Copied(other, 4<<30)
	require.ErrorContains(t, f.Share(t.Context(), from, at("dave"), tips[:1]), "too much was copied")
}

// owners makes empty repositories in folders of their owners.
func owners(t *testing.T, root string) func(owner string) string {
	return func(owner string) string {
		dir := filepath.Join(root, owner, "r.git")
		require.NoError(t, os.MkdirAll(filepath.Dir(dir), 0o700))
		require.NoError(t, os.Rename(bare(t, nip34.SHA1), dir))
		return dir
	}
}
