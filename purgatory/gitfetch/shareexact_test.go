package gitfetch_test

import (
	"bytes"
	"compress/zlib"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/internal/racetest"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/gitfetch"
	"github.com/graspsync/graspsync/purgatory/internal/barerepo"
)

// Packs are shared if what is in them is no more than twice what is needed and a thousand
// objects; what is in no pack is copied besides.
func TestWhichPacksAreShared(t *testing.T) {
	racetest.Amounts(t)
	f := fetcher(t, gitfetch.Config{})
	for _, more := range []int{0, 1} {
		dir := bare(t, nip34.SHA1)
		o, alone := blobs("needed", 1)[0], blobs("in no pack", 1)[0]
		base := place(t, dir, append(blobs("else", 2+1000-1+more), o)...)
		place(t, dir, blobs("another pack", 10)...)
		loosen(t, dir, alone)
		ids := []nip34.ObjectID{oid(t, fmt.Sprintf("%x", o.id())), oid(t, fmt.Sprintf("%x", alone.id()))}
		one, both := bare(t, nip34.SHA1), bare(t, nip34.SHA1)
		require.NoError(t, f.Share(t.Context(), dir, one, ids[:1]))
		require.Len(t, bases(t, one), 1)
		require.Equal(t, more == 0, slices.Contains(bases(t, one), base))
		require.NoError(t, f.Share(t.Context(), dir, both, ids))
		require.Len(t, bases(t, both), 2)
	}
}

// A pack gets its second name in an order that a crash may cut off anywhere: what it was put
// there for is listed first, then come its mark and what git does not look for, all on the
// disk, then the indexes. What has gone meanwhile is missing still.
func TestOrderOfASecondName(t *testing.T) {
	from, to := bare(t, nip34.SHA1), bare(t, nip34.SHA1)
	f := fetcher(t, gitfetch.Config{})
	var ids []nip34.ObjectID
	for _, name := range []string{"a", "b", "c"} {
		made := blobs(name, 1)
		place(t, from, made...)
		ids = append(ids, oid(t, fmt.Sprintf("%x", made[0].id())))
	}
	packs := bases(t, from)
	a, b, gone := packs[0], packs[1], packs[2]
	require.NoError(t, os.WriteFile(filepath.Join(from, "objects", "pack", b+".rev"), nil, 0o600))
	steps := &noted{to: to, goes: filepath.Join(from, "objects", "pack", gone+".pack")}
	*f.Files() = steps
	require.NoError(t, f.Share(t.Context(), from, to, ids))
	names := strings.NewReplacer(a, "a", b, "b", gone, "gone")
	for i, step := range steps.steps {
		steps.steps[i] = names.Replace(step)
	}
	require.Equal(t, []string{
		"open a.keep", "link a.pack", "sync a.keep",
		"open b.keep", "link b.pack", "link b.rev", "sync b.keep",
		"open gone.keep", "link gone.pack", "remove gone.keep",
		"sync pack", "link a.idx", "link b.idx", "sync pack",
	}, slices.DeleteFunc(steps.steps, func(s string) bool {
		return s == "link a.rev" || strings.HasPrefix(s, "open ") && !strings.HasSuffix(s, ".keep") // it has none; reading
	}))
	git(t, to, "fsck", "--strict")
	require.NoFileExists(t, filepath.Join(to, "objects", "pack", gone+".keep"))
	missing, err := f.Missing(t.Context(), to, ids)
	require.NoError(t, err)
	require.Len(t, missing, 1)
}

// noted are files that note what is changed in a repository.
type noted struct {
	openFiles
	to    string
	goes  string // a file that is removed at the first link
	steps []string
}

func (n *noted) note(op, path string) {
	if strings.HasPrefix(path, n.to) {
		if op == "link" {
			_ = os.Remove(n.goes)
		}
		n.steps = append(n.steps, op+" "+filepath.Base(path))
	}
}

func (n *noted) OpenFile(name string, flag int, mode os.FileMode) (*os.File, error) {
	n.note("open", name)
	return n.openFiles.OpenFile(name, flag, mode)
}

func (n *noted) Link(from, to string) error {
	n.note("link", to)
	return n.openFiles.Link(from, to)
}

func (n *noted) Remove(name string) error {
	n.note("remove", name)
	return n.openFiles.Remove(name)
}

func (n *noted) Sync(name string) error {
	n.note("sync", name)
	return n.openFiles.Sync(name)
}

func (n *noted) WriteFile(name string, data []byte, mode os.FileMode) error {
	n.note("write", name)
	return n.openFiles.WriteFile(name, data, mode)
}

func (n *noted) Rename(from, to string) error {
	n.note("rename", to)
	return n.openFiles.Rename(from, to)
}

// What both repositories have is left out, and nothing is done where nothing is to be shared
// or the disk is full.
func TestSharingLeavesOut(t *testing.T) {
	from, to := bare(t, nip34.SHA1), bare(t, nip34.SHA1)
	ids := history(t, from, "main", 3)
	f := fetcher(t, gitfetch.Config{})
	git(t, to, "fetch", "-q", from, ids[1].String()+":refs/heads/main")
	var asked []string
	*f.Started() = func(cmd *exec.Cmd) {
		if slices.Contains(cmd.Args, "--disk-usage") {
			asked = append(asked, "copied")
		}
	}
	require.NoError(t, f.Share(t.Context(), from, to, []nip34.ObjectID{oid(t, strings.Repeat("1", 40))}))
	require.Empty(t, asked)
	*f.Free() = func(string) (uint64, error) { return 0, nil }
	require.ErrorIs(t, f.Share(t.Context(), from, to, ids[2:]), gitfetch.ErrDisk)
	require.Empty(t, asked)
	*f.Free() = func(string) (uint64, error) { return 1 << 40, nil }
	was := bases(t, to)
	require.NoError(t, f.Share(t.Context(), from, to, ids[2:]))
	require.Equal(t, []string{"copied"}, asked)
	var came []string
	for _, base := range bases(t, to) {
		if !slices.Contains(was, base) {
			came = append(came, base)
		}
	}
	require.Len(t, came, 1)
	x, err := barerepo.OpenIndex(gitfetch.OSFiles{}, filepath.Join(to, "objects", "pack", came[0]+".idx"), 20)
	require.NoError(t, err)
	defer x.Close()
	need := strings.Fields(git(t, from, "rev-list", "--objects", "--no-object-names", ids[2].String(), "^"+ids[1].String()))
	require.Equal(t, len(need), x.Len(), "only what is not there")
	require.Empty(t, leftovers(t, to))
}

// blobs are so many objects, of which no two are alike.
func blobs(name string, n int) (out []thing) {
	for i := range n {
		out = append(out, thing{packedBlob, fmt.Append(nil, name, " ", i)})
	}
	return out
}

// loosen puts objects into a repository as an operator may, a file for each.
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
