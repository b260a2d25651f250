package gitserve

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/goldentest"
	"github.com/graspsync/graspsync/nip34"
)

// noted is a folder that notes what is changed in it, and what is open.
type noted struct {
	folder
	opens string // what it is called to open a folder; empty: nothing
	mu    sync.Mutex
	steps []string   // guarded by mu
	open  []*os.File // guarded by mu
}

// note adds a step. Names that are not the same each time are made so.
func (n *noted) note(op, name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if i := strings.LastIndex(name, "/git/"); i >= 0 {
		name = name[i+len("/git/"):]
	}
	for _, ref := range []string{"x", "y"} {
		for _, at := range []string{hashed(owner.Ref(ref)), strings.ReplaceAll(hashed(owner.Ref(ref)), "/", "-")} {
			name = strings.ReplaceAll(name, at, "<"+ref+">")
		}
	}
	name = strings.ReplaceAll(name, owner.Hex(), "<owner>")
	name = regexp.MustCompile(`incoming/[0-9]+`).ReplaceAllString(name, "incoming/<n>")
	name = regexp.MustCompile(`staged/[0-9a-f]{32}`).ReplaceAllString(name, "staged/<upload>")
	n.steps = append(n.steps, op+" "+name)
}

func (n *noted) opened(op, name string, file *os.File, err error) (*os.File, error) {
	if err == nil {
		if op != "" {
			n.note(op, name)
		}
		n.mu.Lock()
		defer n.mu.Unlock()
		n.open = append(n.open, file)
	}
	return file, err
}

func (n *noted) Open(name string) (*os.File, error) {
	file, err := n.folder.Open(name)
	return n.opened(n.opens, name, file, err)
}

func (n *noted) OpenFile(name string, flag int, mode fs.FileMode) (*os.File, error) {
	file, err := n.folder.OpenFile(name, flag, mode)
	if flag&os.O_CREATE == 0 {
		return n.opened("", name, file, err)
	}
	return n.opened("create", name, file, err)
}

func (n *noted) Create(name string) (*os.File, error) {
	file, err := n.folder.Create(name)
	return n.opened("create", name, file, err)
}

func (n *noted) Mkdir(name string, mode fs.FileMode) error {
	err := n.folder.Mkdir(name, mode)
	if err == nil {
		n.note("mkdir", name)
	}
	return err
}

func (n *noted) Rename(from, to string) error {
	err := n.folder.Rename(from, to)
	if err == nil {
		n.note("rename", from)
		n.note("    to", to)
	}
	return err
}

func (n *noted) Remove(name string) error {
	err := n.folder.Remove(name)
	if err == nil {
		n.note("remove", name)
	}
	return err
}

func (n *noted) RemoveAll(name string) error {
	n.note("removeall", name)
	return n.folder.RemoveAll(name)
}

// took returns the steps since it was called last. What is written in any order is in the
// order of its name.
func (n *noted) took() (steps []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	steps, n.steps = n.steps, nil
	var out, any []string
	end := func() {
		slices.Sort(any)
		out, any = append(out, any...), nil
	}
	for _, step := range steps {
		switch verb, name, _ := strings.Cut(step, " "); {
		case path.Dir(name) == "incoming/<n>" && slices.Contains([]string{"HEAD", "config", "description"}, path.Base(name)):
			any = append(any, name+": "+verb)
		default:
			end()
			out = append(out, step)
		}
	}
	end()
	return out
}

// closed checks that nothing is open any more.
func (n *noted) closed(t *testing.T, after string) {
	t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, file := range n.open {
		_, err := file.Stat()
		require.ErrorIs(t, err, os.ErrClosed, "%s after %s", file.Name(), after)
	}
}

// Everything that is done to the folder of repositories, in its order: what is told is on the
// disk, what goes is out of sight before it is removed, and no step that a crash could come
// between is another one than it was.
func TestOrderOfWhatIsDone(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "git")
	n := &noted{}
	open := func() *Repositories {
		require.NoError(t, os.MkdirAll(dir, 0o700))
		lock, err := lockFolder(dir, 0)
		require.NoError(t, err)
		n.folder, err = os.OpenRoot(dir)
		require.NoError(t, err)
		r, err := openAt(dir, n, lock, RepositoriesConfig{}.withDefaults())
		require.NoError(t, err)
		r.flush = func(file *os.File) error {
			n.note("sync", file.Name())
			return file.Sync()
		}
		return r
	}
	r := open()
	var out strings.Builder
	step := func(what string, err error) {
		t.Helper()
		require.NoError(t, err)
		n.closed(t, what)
		fmt.Fprintf(&out, "# %s\n%s\n\n", what, strings.Join(n.took(), "\n"))
	}
	ctx := t.Context()
	x, y := owner.Ref("x"), owner.Ref("y")
	step("open a new folder", nil)
	step("create", r.Create(ctx, x, nip34.SHA1))
	step("create what is there", r.Create(ctx, x, nip34.SHA1))
	step("create with another format", r.Create(ctx, x, nip34.SHA256))
	_, unlock, err := r.Lock(ctx, x)
	step("lock", err)
	unlock()
	step("unlock", nil)
	main, err := nip34.ParseRefName("refs/heads/main")
	require.NoError(t, err)
	tip, err := nip34.ParseObjectID(one)
	require.NoError(t, err)
	tag, err := nip34.ParseRefName("refs/tags/a/b")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, hashed(x), "refs", "heads", "main"), []byte(one+"\n"), 0o600))
	step("prepare a push that deletes", r.prepare(x, []*command{{ref: main, old: tip}, {ref: tag, new: tip}}, map[nip34.RefName]nip34.ObjectID{main: tip}))
	step("settle it", r.settle(x, []nip34.RefName{main, tag}))
	r.unsure[x] = struct{}{}
	_, unlock, err = r.Lock(ctx, x)
	step("lock what may not be on the disk", err)
	unlock()
	step("unlock", nil)
	step("depart", r.Depart(ctx, x))
	step("create what has departed", r.Create(ctx, x, nip34.SHA256))
	step("depart again", r.Depart(ctx, x))
	step("sweep, and its time is not over", r.Sweep(ctx, time.Now().Add(-time.Hour)))
	step("create another one of the owner", r.Create(ctx, y, nip34.SHA1))
	step("sweep", r.Sweep(ctx, time.Now().Add(time.Hour)))
	step("remove", r.Remove(ctx, y))
	step("create", r.Create(ctx, y, nip34.SHA1))
	step("erase", r.Erase(ctx, y))
	step("create", r.Create(ctx, x, nip34.SHA1))
	id := eventID(t, stranger(1))
	for _, what := range []string{"keep an upload", "keep one that replaces it"} {
		a, err := r.staging.begin(x, clientNamed("c"), []graspsync.EventID{id})
		require.NoError(t, err)
		require.NoError(t, a.keep(map[graspsync.EventID]nip34.ObjectID{id: tip}))
		step(what, a.end())
	}
	r.Unstage(x, id)
	step("unstage", nil)
	a, err := r.staging.begin(x, clientNamed("c"), []graspsync.EventID{id})
	require.NoError(t, err)
	step("end one that is not kept", a.end())
	for _, name := range []string{"refs/heads/a.lock/b", "refs/heads/c.lock", "HEAD.lock", "logs/refs/heads/d.lock"} {
		at := filepath.Join(dir, hashed(x), filepath.FromSlash(name))
		require.NoError(t, os.MkdirAll(filepath.Dir(at), 0o700))
		require.NoError(t, os.WriteFile(at, nil, 0o600))
	}
	step("sweep after a push that was killed", r.sweep(hashed(x)))
	for _, name := range []string{mark(x), marked(lockMark, y), "incoming/7"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
	}
	require.NoError(t, os.Mkdir(filepath.Join(dir, area, "unreadable"), 0o700))
	require.NoError(t, r.Close())
	n.opens = "open to sync" // which is not ours to see yet
	r = open()
	step("open a folder with what was left", nil)
	require.NoError(t, r.Close())
	goldentest.Equal(t, "testdata/order.txt", out.String())
}
