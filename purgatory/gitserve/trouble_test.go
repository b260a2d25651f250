package gitserve_test

import (
	"errors"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/purgatory/gitserve"
)

// unreadable is a folder with unreadable paths.
type unreadable struct {
	gitserve.Folder
	fails func(name string) bool
}

func (u unreadable) broken(name string) error {
	if u.fails(name) {
		return &fs.PathError{Op: "read", Path: name, Err: syscall.EIO}
	}
	return nil
}

func (u unreadable) Stat(name string) (fs.FileInfo, error) {
	if err := u.broken(name); err != nil {
		return nil, err
	}
	return u.Folder.Stat(name)
}

func (u unreadable) ReadFile(name string) ([]byte, error) {
	if err := u.broken(name); err != nil {
		return nil, err
	}
	return u.Folder.ReadFile(name)
}

func (u unreadable) FS() fs.FS { return unreadableTree{u.Folder.FS(), u} }

type unreadableTree struct {
	fs.FS
	u unreadable
}

func (t unreadableTree) ReadDir(name string) ([]fs.DirEntry, error) {
	if err := t.u.broken(name); err != nil {
		return nil, err
	}
	return fs.ReadDir(t.FS, name)
}

// openUnreadable opens a folder with unreadable paths.
func openUnreadable(dir string, fails func(name string) bool) (*gitserve.Repositories, error) {
	return gitserve.OpenAt(dir, func(root gitserve.Folder) gitserve.Folder { return unreadable{root, fails} })
}

// If Open fails, the marks of killed pushes stay, and the next Open removes their locks.
func TestMarksStayUntilTheirLocksAreGone(t *testing.T) {
	r := newRig(t, gitserve.Config{})
	dir := copyTree(t, r.repos.Dir())
	lock := filepath.Join(dir, hashed(owner.Ref("x")), "refs", "heads", "main.lock")
	marked := filepath.Join(dir, mark(owner.Ref("x")))
	for _, name := range []string{lock, marked} {
		require.NoError(t, os.WriteFile(name, nil, 0o600))
	}
	_, err := openUnreadable(dir, func(p string) bool { return strings.HasPrefix(p, hashed(owner.Ref("x"))) })
	require.ErrorIs(t, err, syscall.EIO)
	require.FileExists(t, marked)
	repos, err := gitserve.Open(dir, gitserve.RepositoriesConfig{})
	require.NoError(t, err)
	defer func() { require.NoError(t, repos.Close()) }()
	require.NoFileExists(t, marked)
	require.NoFileExists(t, lock)
}

// Without [gitserve.Config.Client], a public address, or a /64 of IPv6, is a client with limits.
// Private addresses have no limits, because proxies have private addresses.
func TestClientsWithoutAConfig(t *testing.T) {
	for _, c := range []struct {
		first, second string
		code          int
	}{
		{"203.0.113.1:1", "203.0.113.1:2", http.StatusServiceUnavailable},
		{"203.0.113.1:1", "203.0.113.2:1", http.StatusOK},
		{"[::ffff:203.0.113.1]:1", "203.0.113.1:2", http.StatusServiceUnavailable},
		{"[2001:db8::1]:1", "[2001:db8::2]:1", http.StatusServiceUnavailable},
		{"[2001:db8::1]:1", "[2001:db8:0:1::1]:1", http.StatusOK},
		{"10.0.0.1:1", "10.0.0.1:2", http.StatusOK},
		{"127.0.0.1:1", "127.0.0.1:2", http.StatusOK},
		{"@", "@", http.StatusOK}, // a Unix socket
	} {
		r := newRig(t, gitserve.Config{}.With(gitserve.Fixed{MaxReaders: 8, MaxPerClient: 1, Wait: 50 * time.Millisecond}))
		ask := func(from string, body io.Reader) int {
			req := httptest.NewRequest("POST", "/"+owner.Npub()+"/x.git/"+uploadPack, body)
			req.RemoteAddr = from
			w := httptest.NewRecorder()
			r.git.Before(http.NotFoundHandler()).ServeHTTP(w, req)
			return w.Code
		}
		ended, body := make(chan struct{}), &waiting{more: make(chan struct{})}
		go func() {
			defer close(ended)
			ask(c.first, body)
		}()
		r.taken(t, "requests", "fetch", 1)
		require.Equal(t, c.code, ask(c.second, strings.NewReader("0000")), "%s beside %s", c.second, c.first)
		close(body.more)
		<-ended
	}
}

// waiting is a body that ends when the test ends it.
type waiting struct{ more chan struct{} }

func (e *waiting) Read([]byte) (int, error) {
	<-e.more
	return 0, errors.New("gone")
}
