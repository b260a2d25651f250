package barerepo

import (
	"bytes"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/nip34"
)

func git(t testing.TB, dir, stdin string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", args...)
	cmd.Dir, cmd.Stdin = dir, strings.NewReader(stdin)
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "GIT_CONFIG_NOSYSTEM=1",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.com",
	}
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	require.NoError(t, err, "git %v: %s", args, said.Bytes())
	return strings.TrimSpace(string(out))
}

var kindNames = map[string]Kind{"commit": Commit, "tree": Tree, "blob": Blob, "tag": Tag}

func parsed(t testing.TB, hex string) nip34.ObjectID {
	t.Helper()
	id, err := nip34.ParseObjectID(hex)
	require.NoError(t, err)
	return id
}

// newRepository creates a repository with our config.
func newRepository(t testing.TB, format nip34.ObjectFormat) string {
	t.Helper()
	dir := t.TempDir()
	git(t, dir, "", "init", "-q", "--bare", "--object-format="+format.String(), "-b", "main", ".")
	write(t, dir, "config", Config(format))
	return dir
}

// fill adds commits, each with a file that is similar to another file, and a tag of the last
// commit.
func fill(t testing.TB, dir, branch string, n int) {
	t.Helper()
	var b strings.Builder
	for i := range n {
		text := strings.Repeat(fmt.Sprintf("line of %s\n", branch), 60) + fmt.Sprint(i)
		fmt.Fprintf(&b, "commit refs/heads/%s\ncommitter c <c@example.com> %d +0000\ndata 0\n", branch, 1700000000+i)
		fmt.Fprintf(&b, "M 100644 inline dir%d/file%d\ndata %d\n%s\n", i%3, i, len(text), text)
	}
	fmt.Fprintf(&b, "tag %s-v1\nfrom refs/heads/%s\ntagger c <c@example.com> 1700000000 +0000\ndata 0\n", branch, branch)
	git(t, dir, b.String(), "-c", "fastimport.unpackLimit=1", "fast-import", "--quiet")
}

// all returns git's list of all objects, and some missing ids.
func all(t testing.TB, dir string) (ids []nip34.ObjectID, want map[nip34.ObjectID]Kind) {
	t.Helper()
	want = make(map[nip34.ObjectID]Kind)
	for line := range strings.Lines(git(t, dir, "", "cat-file", "--batch-all-objects", "--batch-check=%(objectname) %(objecttype)")) {
		hex, kind, _ := strings.Cut(strings.TrimSpace(line), " ")
		id := parsed(t, hex)
		ids = append(ids, id, parsed(t, hex[:len(hex)-4]+"0000"), parsed(t, "0000"+hex[4:]))
		want[id] = kindNames[kind]
		require.NotZero(t, want[id])
	}
	require.NotEmpty(t, want)
	return append(ids, parsed(t, strings.Repeat("a", 40)), parsed(t, strings.Repeat("a", 64))), want
}

// Results equal git's: for packed objects with any deltas, and for loose and packed refs.
func TestReaderSaysWhatGitDoes(t *testing.T) {
	for _, format := range []nip34.ObjectFormat{nip34.SHA1, nip34.SHA256} {
		dir := newRepository(t, format)
		check := func(what string) {
			t.Helper()
			r, err := Read(whole{}, dir)
			require.NoError(t, err, what)
			require.Equal(t, format, r.Format())
			ids, want := all(t, dir)
			got, err := r.Kinds(ids)
			require.NoError(t, err, what)
			require.Equal(t, want, got, what)
			for _, id := range ids[:3] {
				got, err := r.Kinds([]nip34.ObjectID{id})
				require.NoError(t, err, what)
				require.Equal(t, want[id], got[id], what)
			}
			refs, err := r.Refs()
			require.NoError(t, err, what)
			named := make(map[string]nip34.ObjectID)
			for line := range strings.Lines(git(t, dir, "", "for-each-ref", "--format=%(objectname) %(refname)")) {
				hex, name, _ := strings.Cut(strings.TrimSpace(line), " ")
				named[name] = parsed(t, hex)
			}
			require.Equal(t, named, refs, what)
		}
		r, err := Read(whole{}, dir)
		require.NoError(t, err)
		refs, err := r.Refs()
		require.NoError(t, err)
		require.Empty(t, refs)
		kinds, err := r.Kinds([]nip34.ObjectID{id(t, "1")})
		require.NoError(t, err)
		require.Empty(t, kinds)

		fill(t, dir, "main", 150)
		git(t, dir, "", "update-ref", "refs/nostr/"+strings.Repeat("e", 64), "main")
		check("as it was imported")
		git(t, dir, "", "repack", "-adfq", "--depth=50", "--window=50")
		check("deltas by distance")
		fill(t, dir, "topic/a", 20)
		git(t, dir, "", "-c", "repack.useDeltaBaseOffset=false", "repack", "-adfq", "--depth=50", "--window=50")
		git(t, dir, "", "pack-refs", "--all")
		check("deltas by id")
		blob := git(t, dir, "", "hash-object", "-w", "-t", "blob", "config")
		git(t, dir, "", "update-ref", "refs/tags/blob", blob)
		git(t, dir, "", "update-ref", "refs/heads/topic/a", "main~3")
		git(t, dir, "", "repack", "-q", "-d")
		check("packed again")
		write(t, dir, "refs/heads/main.lock", "")
		write(t, dir, "refs/heads/.hidden", "")
		fill(t, dir, "third", 5)
		check("several packs")
	}
}

// An object beyond 2 GiB in a pack is found through the second offset table.
func TestReaderOfALargePack(t *testing.T) {
	dir := newRepository(t, nip34.SHA1)
	fill(t, dir, "main", 30)
	packs, err := filepath.Glob(filepath.Join(dir, "objects", "pack", "*.pack"))
	require.NoError(t, err)
	require.Len(t, packs, 1)
	git(t, dir, "", "index-pack", "--index-version=2,0x40", packs[0]) // as if 2 GiB were byte 64
	r, err := Read(whole{}, dir)
	require.NoError(t, err)
	ids, want := all(t, dir)
	got, err := r.Kinds(ids)
	require.NoError(t, err)
	require.Equal(t, want, got)
}

// A changed config or damaged data causes ErrAskGit.
func TestReaderAsksGit(t *testing.T) {
	pack := func(t *testing.T, dir, ext string) string {
		t.Helper()
		found, err := filepath.Glob(filepath.Join(dir, "objects", "pack", "*"+ext))
		require.NoError(t, err)
		require.Len(t, found, 1)
		require.NoError(t, os.Chmod(found[0], 0o600))
		return found[0]
	}
	change := func(t *testing.T, path string, at int, to ...byte) {
		t.Helper()
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		if at < 0 {
			at += len(data)
		}
		copy(data[at:], to)
		require.NoError(t, os.WriteFile(path, data, 0o600))
	}
	for name, c := range map[string]struct {
		spoil func(t *testing.T, dir string)
		read  bool // detected by Read
		refs  bool // detected by Refs; else by Kinds
	}{
		"another config": {spoil: func(t *testing.T, dir string) { write(t, dir, "config", Config(nip34.SHA1)+"[x]\n") }, read: true},
		"no config":      {spoil: func(t *testing.T, dir string) { require.NoError(t, os.Remove(filepath.Join(dir, "config"))) }, read: true},
		"alternates":     {spoil: func(t *testing.T, dir string) { write(t, dir, "objects/info/alternates", "") }, read: true},
		"shallow":        {spoil: func(t *testing.T, dir string) { write(t, dir, "shallow", "") }, read: true},
		"a work tree":    {spoil: func(t *testing.T, dir string) { write(t, dir, "commondir", "") }, read: true},
		"symbolic":       {spoil: func(t *testing.T, dir string) { write(t, dir, "refs/heads/x", "ref: refs/heads/main\n") }, refs: true},
		"empty ref":      {spoil: func(t *testing.T, dir string) { write(t, dir, "refs/heads/x", "") }, refs: true},
		"null":           {spoil: func(t *testing.T, dir string) { write(t, dir, "refs/heads/x", strings.Repeat("0", 40)+"\n") }, refs: true},
		"another format": {spoil: func(t *testing.T, dir string) { write(t, dir, "refs/heads/x", strings.Repeat("1", 64)+"\n") }, refs: true},
		"a link": {spoil: func(t *testing.T, dir string) {
			require.NoError(t, os.Symlink("main", filepath.Join(dir, "refs/heads/x")))
		}, refs: true},
		"loose object": {spoil: func(t *testing.T, dir string) { git(t, dir, "x", "hash-object", "-w", "--stdin") }},
		"no index":     {spoil: func(t *testing.T, dir string) { change(t, pack(t, dir, ".idx"), 0, 'x') }},
		"half an index": {spoil: func(t *testing.T, dir string) {
			require.NoError(t, os.Truncate(pack(t, dir, ".idx"), int64(IndexFanout+10)))
		}},
		"a head":  {spoil: func(t *testing.T, dir string) { require.NoError(t, os.Truncate(pack(t, dir, ".idx"), 20)) }},
		"cut off": {spoil: func(t *testing.T, dir string) { require.NoError(t, os.Truncate(pack(t, dir, ".pack"), 5)) }},
		"objects of none": {spoil: func(t *testing.T, dir string) {
			change(t, pack(t, dir, ".pack"), 12, bytes.Repeat([]byte{0x50}, 900)...)
		}},
		"no end of sizes": {spoil: func(t *testing.T, dir string) {
			change(t, pack(t, dir, ".pack"), 12, bytes.Repeat([]byte{0x9f}, 900)...)
		}},
		"before it": {spoil: func(t *testing.T, dir string) {
			change(t, pack(t, dir, ".pack"), 12, bytes.Repeat([]byte{0x60, 0x7f, 0}, 300)...)
		}},
		"of no distance": {spoil: func(t *testing.T, dir string) {
			change(t, pack(t, dir, ".pack"), 12, bytes.Repeat([]byte{0x60, 0}, 450)...)
		}},
		"far before it": {spoil: func(t *testing.T, dir string) {
			change(t, pack(t, dir, ".pack"), 12, append([]byte{0x60}, bytes.Repeat([]byte{0xff}, 900)...)...)
		}},
		"on none": {spoil: func(t *testing.T, dir string) {
			change(t, pack(t, dir, ".pack"), 12, append([]byte{0x70}, bytes.Repeat([]byte{0x77}, 900)...)...)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := newRepository(t, nip34.SHA1)
			fill(t, dir, "main", 30)
			tip := parsed(t, git(t, dir, "", "rev-list", "--reverse", "main")[:40])
			c.spoil(t, dir)
			r, err := Read(whole{}, dir)
			if c.read {
				require.ErrorIs(t, err, ErrAskGit)
				require.Nil(t, r)
				return
			}
			require.NoError(t, err)
			if c.refs {
				_, err = r.Refs()
			} else {
				_, err = r.Kinds([]nip34.ObjectID{tip, id(t, "1")})
			}
			require.ErrorIs(t, err, ErrAskGit)
		})
	}
	dir := newRepository(t, nip34.SHA1)
	require.NoError(t, os.Remove(filepath.Join(dir, "config")))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "config"), 0o700))
	_, err := Read(whole{}, dir)
	require.Error(t, err)
	require.NotErrorIs(t, err, ErrAskGit, "the disk failed")
}

// Concurrent packing of objects and refs hides none of them.
func TestReaderWhileItIsPacked(t *testing.T) {
	dir := newRepository(t, nip34.SHA1)
	fill(t, dir, "main", 10)
	ids, want := all(t, dir)
	refs := git(t, dir, "", "for-each-ref", "--format=%(refname)")
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			for _, args := range [][]string{
				{"repack", "-adfq", fmt.Sprintf("--window=%d", 2+i%9)}, {"pack-refs", "--all"}, {"update-ref", fmt.Sprintf("refs/heads/n%d", i), "main"}, {"gc", "-q"},
			} {
				cmd := exec.Command("git", args...)
				cmd.Dir = dir
				_ = cmd.Run() // the result is checked below
			}
		}
	}()
	r, err := Read(whole{}, dir)
	require.NoError(t, err)
	for range 100 {
		kinds, err := r.Kinds(ids)
		if err != nil {
			require.ErrorIs(t, err, ErrAskGit)
			continue
		}
		require.Equal(t, want, kinds)
		at, err := r.Refs()
		require.NoError(t, err)
		for name := range strings.Lines(refs) {
			require.Contains(t, at, strings.TrimSpace(name))
		}
	}
	close(stop)
	<-done
}

// Any bytes of a pack result in a kind or an error.
func TestEntriesOfAnyBytes(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for range 100_000 {
		b := make([]byte, rng.IntN(entryHead))
		for i := range b {
			b[i] = byte(rng.UintN(256))
		}
		kind, rest := entry(b)
		require.LessOrEqual(t, len(rest), len(b))
		if kind == offsetDelta {
			back, ok := distance(rest)
			require.True(t, !ok || back >= 0)
		}
	}
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
func TestReaderWhileAFolderGoes(t *testing.T) {
	dir := newRepository(t, nip34.SHA1)
	fill(t, dir, "main", 1)
	git(t, dir, "", "update-ref", "refs/heads/feature/x", "refs/heads/main")
	packed := false
	r, err := Read(meddler{folder: "refs/heads/feature", then: func() {
		packed = true
		git(t, dir, "", "pack-refs", "--all")
		require.NoDirExists(t, filepath.Join(dir, "refs", "heads", "feature"))
	}}, dir)
	require.NoError(t, err)
	refs, err := r.Refs()
	require.NoError(t, err)
	require.True(t, packed)
	require.Len(t, refs, 3)
}
