package barerepo

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/internal/gittest"
	"github.com/graspsync/graspsync/nip34"
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

// newRepository creates a repository with our config, a branch and a tag.
func newRepository(t testing.TB, format nip34.ObjectFormat) string {
	t.Helper()
	dir := t.TempDir()
	gittest.Run(t, dir, "init", "-q", "--bare", "--object-format="+format.String(), "-b", "main", ".")
	write(t, dir, "config", Config(format))
	empty := gittest.Run(t, dir, "mktree")
	gittest.Run(t, dir, "update-ref", "refs/heads/main", gittest.Run(t, dir, "commit-tree", "-m", "m", empty))
	gittest.Run(t, dir, "tag", "-a", "-m", "m", "v1", "main")
	return dir
}

// Refs equal git's, loose and packed.
func TestAllRefsAreGits(t *testing.T) {
	for _, format := range []nip34.ObjectFormat{nip34.SHA1, nip34.SHA256} {
		dir := newRepository(t, format)
		check := func(what string) {
			t.Helper()
			got, err := Format(whole{}, dir)
			require.NoError(t, err)
			require.Equal(t, format, got)
			refs, err := AllRefs(whole{}, dir)
			require.NoError(t, err, what)
			named := make(map[string]nip34.ObjectID)
			for line := range strings.Lines(gittest.Run(t, dir, "for-each-ref", "--format=%(objectname) %(refname)", "refs/heads", "refs/tags", "refs/nostr")) {
				hex, name, _ := strings.Cut(strings.TrimSpace(line), " ")
				named[name], err = nip34.ParseObjectID(hex)
				require.NoError(t, err)
			}
			require.Equal(t, named, refs, what)
		}
		check("loose")
		gittest.Run(t, dir, "update-ref", "refs/nostr/"+strings.Repeat("e", 64), "main")
		gittest.Run(t, dir, "pack-refs", "--all")
		check("packed")
		gittest.Run(t, dir, "update-ref", "refs/heads/topic/a", "main")
		gittest.Run(t, dir, "update-ref", "refs/tags/v1", "main")
		gittest.Run(t, dir, "symbolic-ref", "refs/heads/loose", "refs/heads/topic/a")
		gittest.Run(t, dir, "symbolic-ref", "refs/heads/packed", "refs/heads/main")
		gittest.Run(t, dir, "symbolic-ref", "refs/heads/twice", "refs/heads/packed")
		write(t, dir, "refs/heads/main.lock", "")
		write(t, dir, "refs/heads/.hidden", "")
		check("both")
	}
}

// A ref that leads to no object id is ignored, and counts as a ref. The config may be another one.
func TestUnreadableRefs(t *testing.T) {
	dir := newRepository(t, nip34.SHA1)
	refs, err := AllRefs(whole{}, dir)
	require.NoError(t, err)
	for _, text := range []string{"ref: refs/heads/none\n", "ref: refs/heads/x\n", "", strings.Repeat("0", 40) + "\n"} {
		write(t, dir, "refs/heads/x", text)
		write(t, dir, "packed-refs", id(t, "4").String()+" refs/heads/x\n")
		got, err := AllRefs(whole{}, dir)
		require.NoError(t, err)
		require.Equal(t, refs, got, "%q", text)
	}
	require.NoError(t, os.RemoveAll(filepath.Join(dir, "refs/tags")))
	require.NoError(t, os.Remove(filepath.Join(dir, "refs/heads/main")))
	has, err := HasRefs(whole{}, dir)
	require.NoError(t, err)
	require.True(t, has)
	for _, remove := range []string{"refs/heads/x", "packed-refs"} {
		require.NoError(t, os.Remove(filepath.Join(dir, remove)))
	}
	has, err = HasRefs(whole{}, dir)
	require.NoError(t, err)
	require.False(t, has)

	for text, want := range map[string]nip34.ObjectFormat{"[x]\n": nip34.SHA1, "[extensions]\n\tobjectFormat=sha256\n": nip34.SHA256} {
		write(t, dir, "config", text)
		format, err := Format(whole{}, dir)
		require.NoError(t, err)
		require.Equal(t, want, format)
	}
	require.NoError(t, os.Remove(filepath.Join(dir, "config")))
	format, err := Format(whole{}, dir)
	require.NoError(t, err)
	require.Equal(t, nip34.SHA1, format)
	require.NoError(t, os.Mkdir(filepath.Join(dir, "config"), 0o700))
	_, err = Format(whole{}, dir)
	require.Error(t, err, "the disk failed")
}

// Concurrent packing of refs hides none of them.
func TestRefsWhileTheyArePacked(t *testing.T) {
	dir := newRepository(t, nip34.SHA1)
	refs := gittest.Run(t, dir, "for-each-ref", "--format=%(refname)")
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			for _, args := range [][]string{{"pack-refs", "--all"}, {"update-ref", fmt.Sprintf("refs/heads/n%d", i), "main"}} {
				cmd := exec.Command("git", args...)
				cmd.Dir = dir
				_ = cmd.Run() // the result is checked below
			}
		}
	}()
	for range 1000 {
		at, err := AllRefs(whole{}, dir)
		require.NoError(t, err)
		for name := range strings.Lines(refs) {
			require.Contains(t, at, strings.TrimSpace(name))
		}
	}
	close(stop)
	<-done
}

// meddler is a disk that calls a function after a folder was opened.
type meddler struct {
	whole
	folder string
	then   func()
}

func (m meddler) OpenFile(name string, flag int, mode fs.FileMode) (*os.File, error) {
	file, err := m.whole.OpenFile(name, flag, mode)
	if strings.HasSuffix(name, filepath.FromSlash(m.folder)) {
		m.then()
	}
	return file, err
}

// A folder whose last ref is packed while it is listed is removed. Its refs are in packed-refs.
func TestRefsWhileAFolderGoes(t *testing.T) {
	dir := newRepository(t, nip34.SHA1)
	gittest.Run(t, dir, "update-ref", "refs/heads/feature/x", "refs/heads/main")
	packed := false
	refs, err := AllRefs(meddler{folder: "refs/heads/feature", then: func() {
		packed = true
		gittest.Run(t, dir, "pack-refs", "--all")
		require.NoDirExists(t, filepath.Join(dir, "refs", "heads", "feature"))
	}}, dir)
	require.NoError(t, err)
	require.True(t, packed)
	require.Len(t, refs, 3)
}
