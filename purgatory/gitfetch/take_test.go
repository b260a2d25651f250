package gitfetch_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/purgatory/gitfetch"
)

// folder returns a folder of packs beside a repository, like a staged push, with a pack of
// revisions of another repository.
func folder(t *testing.T, from, beside, revisions string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "upload")
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "pack"), 0o700))
	pack := exec.CommandContext(t.Context(), "git", "pack-objects", "--revs", "--stdout", "-q", "--thin")
	pack.Dir, pack.Stdin = from, strings.NewReader(revisions)
	data, err := pack.Output()
	require.NoError(t, err)
	index := exec.CommandContext(t.Context(), "git", "index-pack", "--stdin", "--fix-thin")
	index.Dir, index.Stdin = beside, strings.NewReader(string(data))
	index.Env = append(os.Environ(), "GIT_OBJECT_DIRECTORY="+dir, "GIT_ALTERNATE_OBJECT_DIRECTORIES=objects")
	out, err := index.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return dir
}

// Staged objects are imported, without unneeded objects, which the pusher chose. The folder stays.
func TestTake(t *testing.T) {
	there, here := bare(t, nip34.SHA1), bare(t, nip34.SHA1)
	f := fetcher(t)
	ids := history(t, there, "main", 5)
	junk := history(t, there, "junk", 1)[0]
	from := folder(t, there, here, ids[4].String()+"\n"+junk.String()+"\n")
	require.NoError(t, f.ImportPacks(t.Context(), here, from, ids[4:]))
	complete(t, f, here, ids)
	missing, err := f.Missing(t.Context(), here, []nip34.ObjectID{junk})
	require.NoError(t, err)
	require.Len(t, missing, 1, "nobody asked for that")
	require.NotEmpty(t, keeps(t, here), "no ref holds it yet")
	require.Empty(t, leftovers(t, here))
	packs, err := filepath.Glob(from + "/pack/*.idx")
	require.NoError(t, err)
	require.Len(t, packs, 1)
	require.NoError(t, f.ImportPacks(t.Context(), here, from, ids[4:]), "again")
	git(t, here, "gc", "--quiet", "--prune=now")
	git(t, here, "fsck", "--strict")
	complete(t, f, here, ids)
}

// Incomplete and removed objects are not imported, and the attempt leaves nothing.
func TestTakeOfWhatIsNotWhole(t *testing.T) {
	there, here := bare(t, nip34.SHA1), bare(t, nip34.SHA1)
	f := fetcher(t)
	ids := history(t, there, "main", 5)
	git(t, here, "fetch", "-q", there, "main")
	from := folder(t, there, here, ids[4].String()+"\n^"+ids[3].String()+"\n")
	empty := bare(t, nip34.SHA1)
	require.ErrorIs(t, f.ImportPacks(t.Context(), empty, from, ids[4:]), purgatory.ErrNotServed)
	require.ErrorIs(t, f.ImportPacks(t.Context(), empty, from+"/nowhere", ids[4:]), os.ErrNotExist)
	*f.Free() = func(string) (uint64, error) { return 0, nil }
	require.ErrorIs(t, f.ImportPacks(t.Context(), empty, from, ids[4:]), gitfetch.ErrDisk)
	require.Empty(t, leftovers(t, empty))
	require.Empty(t, keeps(t, empty))
	packs, err := filepath.Glob(empty + "/objects/pack/*")
	require.NoError(t, err)
	require.Empty(t, packs)
}
