package barerepo

import (
	"errors"
	"fmt"
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

func ref(t *testing.T, name string) nip34.RefName {
	t.Helper()
	r, err := nip34.ParseRefName(name)
	require.NoError(t, err)
	return r
}

func id(t testing.TB, digit string) nip34.ObjectID {
	t.Helper()
	one, err := nip34.ParseObjectID(strings.Repeat(digit, 40))
	require.NoError(t, err)
	return one
}

func write(t testing.TB, dir, name, text string) {
	t.Helper()
	path := filepath.Join(dir, filepath.FromSlash(name))
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
}

func disk(t *testing.T, dir string) Disk {
	t.Helper()
	root, err := os.OpenRoot(dir)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, root.Close()) })
	return root
}

// A ref is a file, or a line in packed-refs. The file has precedence.
func TestRefs(t *testing.T) {
	dir := t.TempDir()
	names := []nip34.RefName{
		ref(t, "refs/heads/loose"), ref(t, "refs/heads/packed"), ref(t, "refs/heads/both"), ref(t, "refs/heads/none"),
		ref(t, "refs/heads/both/below"), ref(t, "refs/heads/folder"), ref(t, "refs/tags/v1"),
	}
	got, err := Refs(disk(t, dir), ".", names)
	require.NoError(t, err)
	require.Empty(t, got)
	write(t, dir, "refs/heads/loose", id(t, "1").String()+"\n")
	write(t, dir, "refs/heads/both", id(t, "2").String()+"\n")
	write(t, dir, "refs/heads/folder/x", id(t, "3").String()+"\n")
	write(t, dir, "packed-refs", "# pack-refs with: peeled fully-peeled sorted \n"+
		id(t, "9").String()+" refs/heads/both\n"+id(t, "4").String()+" refs/heads/packed\n"+
		id(t, "5").String()+" refs/tags/v1\n^"+id(t, "6").String()+"\n")
	got, err = Refs(disk(t, dir), ".", names)
	require.NoError(t, err)
	require.Equal(t, map[nip34.RefName]nip34.ObjectID{
		names[0]: id(t, "1"), names[1]: id(t, "4"), names[2]: id(t, "2"), names[6]: id(t, "5"),
	}, got)

	write(t, dir, "packed-refs", "x refs/heads/packed\n")
	_, err = Refs(disk(t, dir), ".", names[:2])
	require.Error(t, err)
	_, err = Refs(disk(t, dir), ".", names[:1])
	require.NoError(t, err, "it is not needed")
	write(t, dir, "refs/heads/loose", "x\n")
	_, err = Refs(disk(t, dir), ".", names[:1])
	require.Error(t, err)
	require.NoError(t, os.Remove(filepath.Join(dir, "packed-refs")))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "packed-refs"), 0o700))
	_, err = Refs(disk(t, dir), ".", names[1:2])
	require.Error(t, err)
}

// Each folder is synced once, inner folders first. Missing folders are ignored, other errors are
// returned.
func TestSyncRefs(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "refs/heads/a/b", "")
	write(t, dir, "logs/refs/heads/a/b", "")
	var synced []string
	broken := ""
	fault := errors.New("a broken disk")
	sync := func(folder string) error {
		name, err := filepath.Rel(dir, folder)
		require.NoError(t, err)
		if _, err := os.Stat(folder); err != nil {
			return err
		}
		if synced = append(synced, name); name == broken {
			return fault
		}
		return nil
	}
	names := []nip34.RefName{ref(t, "refs/heads/a/b"), ref(t, "refs/heads/gone/c"), ref(t, "refs/heads/a/b/d")}
	require.NoError(t, SyncRefs(dir, names, sync))
	all := []string{"refs/heads/a", "logs/refs/heads/a", "refs/heads", "logs/refs/heads", "refs", "logs/refs"}
	require.Equal(t, all, synced[:len(all)])
	require.Subset(t, synced, []string{"logs", "."})
	for _, broken = range []string{"refs/heads/a", "refs", "logs", "."} {
		require.ErrorIs(t, SyncRefs(dir, names, sync), fault, broken)
	}
	synced, broken = nil, ""
	require.NoError(t, SyncRefs(dir, nil, sync))
	require.Empty(t, synced)
	// Each folder fails in each way. A missing folder, or a file in its place, is ignored.
	for _, why := range []struct {
		err  error
		told bool
	}{{fault, true}, {fs.ErrNotExist, false}, {syscall.ENOTDIR, false}, {syscall.EIO, true}} {
		for n := 1; ; n++ {
			calls := 0
			err := SyncRefs(dir, names, func(string) error {
				if calls++; calls == n {
					return &fs.PathError{Op: "sync", Err: why.err}
				}
				return nil
			})
			if calls < n {
				require.NoError(t, err)
				require.Equal(t, 12, calls, "each folder once: five of refs, as many of logs, and the two above")
				break
			}
			if !why.told {
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, why.err)
			}
		}
	}
	var of []string // of one ref
	require.NoError(t, SyncRefs(dir, names[:1], func(folder string) error {
		name, err := filepath.Rel(dir, folder)
		of = append(of, name)
		return err
	}))
	require.ElementsMatch(t, append(all, "logs", "."), of)
	for _, err := range []error{nil, fault} {
		require.Equal(t, err, SyncPacks(dir, func(folder string) error {
			require.Equal(t, filepath.Join(dir, "objects", "pack"), folder)
			return err
		}))
	}
}

// After a deletion, the reflog of HEAD contains the value of the ref and its complete reflog lines.
func TestLogRemoved(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "logs/refs/heads/x", "one\ntwo\nhal")
	at := time.Unix(1_700_000_000, 0)
	require.NoError(t, LogRemoved(disk(t, dir), ".", []Moved{{ref(t, "refs/heads/x"), id(t, "1")}, {ref(t, "refs/heads/y"), id(t, "2")}}, at))
	one, two := id(t, "1").String(), id(t, "2").String()
	log, err := os.ReadFile(filepath.Join(dir, "logs", "HEAD"))
	require.NoError(t, err)
	require.Equal(t, "one\ntwo\n"+
		one+" "+one+" graspsync <graspsync> 1700000000 +0000\tgraspsync: deleted refs/heads/x\n"+
		two+" "+two+" graspsync <graspsync> 1700000000 +0000\tgraspsync: deleted refs/heads/y\n", string(log))
	before := log
	event, err := graspsync.ParseEventID(strings.Repeat("e", 64))
	require.NoError(t, err)
	require.NoError(t, LogRemoved(disk(t, dir), ".", []Moved{{nip34.EventRef(event), id(t, "3")}}, at))
	log, err = os.ReadFile(filepath.Join(dir, "logs", "HEAD"))
	require.NoError(t, err)
	require.Equal(t, before, log, "events say where their refs were")
}

// The latest complete lines of a reflog are kept, up to 1 MiB.
func TestLogRemovedOfALongLog(t *testing.T) {
	for _, more := range []int{-1, 0, 1, 2, 63, 64, 65, 5000} {
		dir := t.TempDir()
		var b strings.Builder
		for i := 0; b.Len() < 1<<20+more; i++ {
			fmt.Fprintf(&b, "%063d\n", i)
		}
		log := b.String()[b.Len()-(1<<20+more):]
		write(t, dir, "logs/refs/heads/x", log)
		require.NoError(t, LogRemoved(disk(t, dir), ".", []Moved{{ref(t, "refs/heads/x"), id(t, "1")}}, time.Unix(0, 0)))
		got, err := os.ReadFile(filepath.Join(dir, "logs", "HEAD"))
		require.NoError(t, err)
		want := log
		if more > 0 {
			want = log[more:]
			want = want[strings.IndexByte(want, '\n')+1:]
		}
		kept, line, _ := strings.Cut(string(got), id(t, "1").String())
		require.True(t, want == kept, "%d: %d bytes, not %d", more, len(kept), len(want))
		require.Contains(t, line, "deleted refs/heads/x\n")
	}
}

// faulty is a disk that fails once, at the n-th operation.
type faulty struct {
	Disk
	n    int
	what string
}

func (f *faulty) step(what string) error {
	if f.n--; f.n == 0 {
		f.what = what
		return syscall.EIO
	}
	return nil
}

func (f *faulty) Mkdir(name string, mode fs.FileMode) error {
	if err := f.step("mkdir " + name); err != nil {
		return err
	}
	return f.Disk.Mkdir(name, mode)
}

func (f *faulty) OpenFile(name string, flag int, mode fs.FileMode) (*os.File, error) {
	if err := f.step("open " + name); err != nil {
		return nil, err
	}
	return f.Disk.OpenFile(name, flag, mode)
}

func (f *faulty) ReadFile(name string) ([]byte, error) {
	if err := f.step("read " + name); err != nil {
		return nil, err
	}
	return f.Disk.ReadFile(name)
}

// Each disk operation fails once. The error is returned, and no incomplete line is written.
func TestEachFault(t *testing.T) {
	x, y := ref(t, "refs/heads/x"), ref(t, "refs/heads/folder")
	for name, do := range map[string]func(on Disk) error{
		"log": func(on Disk) error {
			return LogRemoved(on, ".", []Moved{{x, id(t, "1")}, {y, id(t, "2")}, {ref(t, "refs/heads/x/below"), id(t, "3")}}, time.Unix(0, 0))
		},
		"refs": func(on Disk) error {
			at, err := Refs(on, ".", []nip34.RefName{x, y, ref(t, "refs/heads/x/below")})
			if err == nil && len(at) != 1 || err != nil && at != nil {
				return errors.New("not what is there")
			}
			return err
		},
	} {
		for _, logs := range []bool{false, true} {
			for n := 1; ; n++ {
				dir := t.TempDir()
				write(t, dir, "refs/heads/x", id(t, "1").String()+"\n")
				write(t, dir, "refs/heads/folder/z", id(t, "1").String()+"\n")
				write(t, dir, "packed-refs", "")
				if logs {
					write(t, dir, "logs/refs/heads/x", "one\n")
					write(t, dir, "logs/refs/heads/folder/z", "one\n") // the reflog of HEAD contains none of its lines
				}
				on := &faulty{Disk: disk(t, dir), n: n}
				err := do(on)
				if on.what == "" {
					require.NoError(t, err, name)
					require.Greater(t, n, 3)
					break
				}
				require.ErrorIs(t, err, syscall.EIO, "%s: %s", name, on.what)
				text, err := os.ReadFile(filepath.Join(dir, "logs", "HEAD"))
				require.True(t, err == nil || errors.Is(err, fs.ErrNotExist))
				require.Empty(t, text)
				require.NoError(t, do(on))
			}
		}
	}
	bare := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(bare, "logs"), nil, 0o600))
	require.Error(t, LogRemoved(disk(t, bare), ".", []Moved{{x, id(t, "1")}}, time.Unix(0, 0)), "where a folder should be")
	require.NoError(t, LogRemoved(disk(t, t.TempDir()), ".", []Moved{{x, id(t, "1")}}, time.Unix(0, 0)), "where none is yet")
}
