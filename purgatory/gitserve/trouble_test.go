package gitserve

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
)

// A first start that failed took the marks of pushes that were killed with it: the next one
// left their locks and objects where they were.
func TestMarksStayUntilTheyWereOfUse(t *testing.T) {
	root, ref := filepath.Join(t.TempDir(), "git"), owner.Ref("x")
	r, err := Open(root, RepositoriesConfig{})
	require.NoError(t, err)
	require.NoError(t, r.Create(t.Context(), ref, nip34.SHA1))
	dir := filepath.Join(root, filepath.FromSlash(hashed(ref)))
	// As kill -9 in mid push leaves it.
	lock := filepath.Join(dir, "refs", "heads", "main.lock")
	require.NoError(t, os.WriteFile(lock, nil, 0o600))
	marked := filepath.Join(root, filepath.FromSlash(mark(ref)))
	require.NoError(t, os.WriteFile(marked, nil, 0o600))
	require.NoError(t, r.Close())

	held, err := lockFolder(root, lockMost)
	require.NoError(t, err)
	files, err := os.OpenRoot(root)
	require.NoError(t, err)
	_, err = openAt(root, unreadable{files, hashed(ref)}, held, RepositoriesConfig{}.withDefaults())
	require.ErrorIs(t, err, syscall.EIO)
	require.FileExists(t, marked)

	again, err := Open(root, RepositoriesConfig{})
	require.NoError(t, err)
	defer func() { require.NoError(t, again.Close()) }()
	require.NoFileExists(t, marked)
	require.NoFileExists(t, lock)
}

// troubled fails while it is to, each time something is done to what has a name that ends so.
type troubled struct {
	folder
	does, ends string
}

func (f *troubled) err(does, name string) error {
	if f.does == does && strings.HasSuffix(name, f.ends) {
		return &fs.PathError{Op: does, Path: name, Err: syscall.EIO}
	}
	return nil
}

func (f *troubled) Stat(name string) (fs.FileInfo, error) {
	if err := f.err("stat", name); err != nil {
		return nil, err
	}
	return f.folder.Stat(name)
}

func (f *troubled) ReadFile(name string) ([]byte, error) {
	if err := f.err("read", name); err != nil {
		return nil, err
	}
	return f.folder.ReadFile(name)
}

func openTroubled(t *testing.T, dir, does, ends string) (*Repositories, *troubled) {
	t.Helper()
	lock, err := lockFolder(dir, lockMost)
	require.NoError(t, err)
	root, err := os.OpenRoot(dir)
	require.NoError(t, err)
	f := &troubled{root, does, ends}
	r, err := openAt(dir, f, lock, RepositoriesConfig{}.withDefaults())
	require.NoError(t, err)
	return r, f
}

// What was pushed for an event that is not here was thrown away by one read that failed.
func TestStagedStaysThoughItCanNotBeRead(t *testing.T) {
	for does, ends := range map[string]string{"stat": "HEAD", "read": noteName} {
		dir, ref := filepath.Join(t.TempDir(), "git"), owner.Ref("x")
		r, err := Open(dir, RepositoriesConfig{})
		require.NoError(t, err)
		require.NoError(t, r.Create(t.Context(), ref, nip34.SHA1))
		require.NoError(t, r.Close())
		text, err := json.Marshal(note{
			Repo: ref.String(), Client: "203.0.113.1", Tips: map[string]string{stranger(1): strings.Repeat("1", 40)},
			Bytes: leastStaged, Since: time.Now(),
		})
		require.NoError(t, err)
		upload := filepath.Join(dir, area, "upload")
		require.NoError(t, os.Mkdir(upload, 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(upload, noteName), text, 0o600))

		r, _ = openTroubled(t, dir, does, ends)
		require.NoError(t, r.Close())
		require.DirExists(t, upload, does)
		r, err = Open(dir, RepositoriesConfig{})
		require.NoError(t, err)
		require.Len(t, r.Staged(ref, eventID(t, stranger(1))), 1, does)
		require.NoError(t, r.Close())
	}
}

// That a push may not be on the disk was forgotten when its repository could not be looked at.
func TestNobodyGetsALockUntilWhatWasPushedIsOnTheDisk(t *testing.T) {
	dir, ref := filepath.Join(t.TempDir(), "git"), owner.Ref("x")
	require.NoError(t, os.MkdirAll(dir, 0o700))
	r, f := openTroubled(t, dir, "", "")
	defer func() { require.NoError(t, r.Close()) }()
	require.NoError(t, r.Create(t.Context(), ref, nip34.SHA1))
	flush := r.flush
	r.flush = func(*os.File) error { return syscall.EIO }
	require.Error(t, r.settle(ref, []nip34.RefName{nip34.EventRef(graspsync.EventID{1})}))
	lock := func() error {
		_, unlock, err := r.Lock(t.Context(), ref)
		if err == nil {
			unlock()
		}
		return err
	}
	require.ErrorIs(t, lock(), syscall.EIO)
	f.does, f.ends = "stat", "HEAD"
	require.ErrorIs(t, lock(), syscall.EIO)
	f.does = ""
	require.ErrorIs(t, lock(), syscall.EIO)
	r.flush = flush
	require.NoError(t, lock())
}
