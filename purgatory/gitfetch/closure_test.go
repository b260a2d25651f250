package gitfetch_test

import (
	"bytes"
	"compress/zlib"
	"crypto/sha1"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/internal/racetest"
	"github.com/graspsync/graspsync/nip34"
)

// node is an object with the objects that it needs.
type node struct {
	id    nip34.ObjectID
	kind  string
	body  []byte
	needs []nip34.ObjectID
}

// graph is a generated history.
type graph struct {
	t     testing.TB
	rng   *rand.Rand
	all   map[nip34.ObjectID]*node
	kinds map[string][]*node
}

func (g *graph) add(kind string, body []byte, needs ...nip34.ObjectID) *node {
	sum := sha1.Sum(append(fmt.Appendf(nil, "%s %d\x00", kind, len(body)), body...))
	n := &node{oid(g.t, fmt.Sprintf("%x", sum)), kind, body, needs}
	if g.all[n.id] == nil {
		g.all[n.id] = n
		g.kinds[kind] = append(g.kinds[kind], n)
	}
	return g.all[n.id]
}

func (g *graph) pick(kind string) *node { return g.kinds[kind][g.rng.IntN(len(g.kinds[kind]))] }

// tree adds a tree with files, folders, links, and submodules, whose commits are elsewhere.
func (g *graph) tree() *node {
	var body []byte
	var needs []nip34.ObjectID
	for i := range 1 + g.rng.IntN(4) {
		mode, n := "100644", g.pick("blob")
		switch g.rng.IntN(5) {
		case 0:
			if len(g.kinds["tree"]) > 0 {
				mode, n = "40000", g.pick("tree")
			}
		case 1:
			mode = "120000"
		case 2:
			body = append(fmt.Appendf(body, "160000 e%d\x00", i), bytes.Repeat([]byte{byte(1 + g.rng.IntN(200))}, 20)...)
			continue
		}
		body = append(fmt.Appendf(body, "%s e%d\x00", mode, i), unhex(n.id.String())...)
		needs = append(needs, n.id)
	}
	return g.add("tree", body, needs...)
}

func (g *graph) commit(i int) *node {
	tree := g.tree()
	needs := []nip34.ObjectID{tree.id}
	text := "tree " + tree.id.String() + "\n"
	for range g.rng.IntN(3) {
		if len(g.kinds["commit"]) > 0 {
			parent := g.pick("commit")
			text += "parent " + parent.id.String() + "\n"
			needs = append(needs, parent.id)
		}
	}
	text += fmt.Sprintf("author a <a@x> %d +0000\ncommitter a <a@x> %d +0000\n\n%d\n", 1700000000+i, 1700000000+i, i)
	return g.add("commit", []byte(text), needs...)
}

func (g *graph) tag(i int) *node {
	of := g.pick([]string{"commit", "commit", "tree", "blob", "tag"}[g.rng.IntN(4+min(1, len(g.kinds["tag"])))])
	text := fmt.Sprintf("object %s\ntype %s\ntag t%d\ntagger a <a@x> 1700000000 +0000\n\nx\n", of.id, of.kind, i)
	return g.add("tag", []byte(text), of.id)
}

func newGraph(t testing.TB, seed uint64) *graph {
	g := &graph{t, rand.New(rand.NewPCG(seed, 7)), make(map[nip34.ObjectID]*node), make(map[string][]*node)}
	for i := range 3 + g.rng.IntN(4) {
		g.add("blob", fmt.Appendf(nil, "%d %d\n", seed, i))
	}
	for i := range 2 + g.rng.IntN(10) {
		g.commit(i)
		if g.rng.IntN(3) == 0 {
			g.tag(i)
		}
	}
	return g
}

// complete is a naive walk. It reports whether id does not need without.
func (g *graph) complete(id, without nip34.ObjectID) bool {
	return id != without && !slices.ContainsFunc(g.all[id].needs, func(n nip34.ObjectID) bool { return !g.complete(n, without) })
}

// write writes an object to an object directory.
func (n *node) write(t testing.TB, dir string) {
	t.Helper()
	hex := n.id.String()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, hex[:2]), 0o700))
	var z bytes.Buffer
	w := zlib.NewWriter(&z)
	_, _ = w.Write(append(fmt.Appendf(nil, "%s %d\x00", n.kind, len(n.body)), n.body...))
	_ = w.Close()
	require.NoError(t, os.WriteFile(filepath.Join(dir, hex[:2], hex[2:]), z.Bytes(), 0o600))
}

// pack packs the loose objects of an object directory.
func pack(t testing.TB, dir string) {
	t.Helper()
	var ids strings.Builder
	loose, err := filepath.Glob(filepath.Join(dir, "??"))
	require.NoError(t, err)
	for _, folder := range loose {
		entries, err := os.ReadDir(folder)
		require.NoError(t, err)
		for _, e := range entries {
			fmt.Fprintln(&ids, filepath.Base(folder)+e.Name())
		}
	}
	if ids.Len() > 0 {
		cmd := exec.CommandContext(t.Context(), "git", "pack-objects", "-q", filepath.Join(dir, "pack", "pack"))
		cmd.Dir, cmd.Env, cmd.Stdin = filepath.Dir(dir), append(os.Environ(), "GIT_DIR=.", "GIT_OBJECT_DIRECTORY="+dir), strings.NewReader(ids.String())
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	for _, folder := range loose {
		require.NoError(t, os.RemoveAll(folder))
	}
}

// In generated histories without one object, exactly the ids that need the object are missing. This
// holds for objects in the repository or in the quarantine, packed or loose, and with any refs.
func TestPromiseP32_OneObjectGone(t *testing.T) {
	seeds := racetest.Rounds(60)
	empty := bare(t, nip34.SHA1)
	f := fetcher(t)
	checked, gone := 0, 0
	for seed := range seeds {
		g := newGraph(t, uint64(seed))
		ids := make([]nip34.ObjectID, 0, len(g.all))
		for id := range g.all {
			ids = append(ids, id)
		}
		slices.SortFunc(ids, func(a, b nip34.ObjectID) int { return strings.Compare(a.String(), b.String()) })
		without := ids[g.rng.IntN(len(ids))]
		dir := filepath.Join(t.TempDir(), "r")
		require.NoError(t, os.CopyFS(dir, os.DirFS(empty)))
		q, err := f.Open(dir)
		require.NoError(t, err)
		inRepository := g.rng.IntN(3) == 0
		for _, id := range ids {
			switch {
			case id == without:
			case inRepository || g.rng.IntN(2) == 0:
				g.all[id].write(t, filepath.Join(dir, "objects"))
			default:
				g.all[id].write(t, q.Path())
			}
		}
		if c := g.pick("commit"); inRepository && g.complete(c.id, without) {
			require.NoError(t, os.WriteFile(filepath.Join(dir, "refs/heads/main"), []byte(c.id.String()+"\n"), 0o600))
		}
		if seed%2 == 0 {
			pack(t, filepath.Join(dir, "objects"))
			pack(t, q.Path())
		}
		wanted := []nip34.ObjectID{without, g.kinds["commit"][len(g.kinds["commit"])-1].id}
		for range 4 {
			wanted = append(wanted, ids[g.rng.IntN(len(ids))])
		}
		var want []nip34.ObjectID
		for _, id := range wanted {
			if !g.complete(id, without) {
				want = append(want, id)
			}
		}
		checked, gone = checked+len(wanted), gone+len(want)
		got, err := q.Missing(t.Context(), wanted)
		require.NoError(t, err)
		require.ElementsMatch(t, want, got, "seed %d without %s", seed, without)
		whole := slices.DeleteFunc(g.kinds["commit"], func(n *node) bool { return !g.complete(n.id, without) })
		if len(whole) > 0 {
			got, err := q.Missing(t.Context(), []nip34.ObjectID{whole[len(whole)-1].id, whole[0].id})
			require.NoError(t, err)
			require.Empty(t, got)
		}
		require.NoError(t, q.Discard())
	}
	t.Logf("%d histories, %d ids asked for, %d of them incomplete: wrongly complete 0", seeds, checked, gone)
}

// loose creates a repository of g without one object and without refs.
func (g *graph) loose(t testing.TB, without nip34.ObjectID) string {
	dir := bare(t, nip34.SHA1)
	for id, n := range g.all {
		if id != without {
			n.write(t, filepath.Join(dir, "objects"))
		}
	}
	return dir
}

func chain(t testing.TB) (g *graph, commits []*node) {
	g = &graph{t, rand.New(rand.NewPCG(1, 7)), make(map[nip34.ObjectID]*node), make(map[string][]*node)}
	var parent string
	for i := range 5 {
		blob := g.add("blob", fmt.Appendf(nil, "%d\n", i))
		tree := g.add("tree", append([]byte("100644 f\x00"), unhex(blob.id.String())...), blob.id)
		needs := []nip34.ObjectID{tree.id}
		if i > 0 {
			needs = append(needs, commits[i-1].id)
		}
		text := fmt.Sprintf("tree %s\n%sauthor a <a@x> %d +0000\ncommitter a <a@x> %d +0000\n\n%d\n", tree.id, parent, 1700000000+i, 1700000000+i, i)
		commits = append(commits, g.add("commit", []byte(text), needs...))
		parent = "parent " + commits[i].id.String() + "\n"
	}
	return g, commits
}

// A truncated history is incomplete, even if a shallow file or a commit graph says otherwise.
func TestTrapG6_ShallowIsNotComplete(t *testing.T) {
	g, commits := chain(t)
	f := fetcher(t)
	for _, c := range []struct {
		name  string
		spoil func(dir string)
	}{
		{"shallow", func(dir string) {
			require.NoError(t, os.WriteFile(dir+"/shallow", []byte(commits[2].id.String()+"\n"), 0o600))
		}},
		{"grafts", func(dir string) {
			require.NoError(t, os.MkdirAll(dir+"/info", 0o700))
			require.NoError(t, os.WriteFile(dir+"/info/grafts", []byte(commits[2].id.String()+"\n"), 0o600))
		}},
		{"commit graph", func(dir string) {
			g.all[commits[1].id].write(t, dir+"/objects")
			gitIn(t, dir, commits[4].id.String()+"\n", "commit-graph", "write", "--stdin-commits")
			hex := commits[1].id.String()
			require.NoError(t, os.Remove(dir+"/objects/"+hex[:2]+"/"+hex[2:]))
		}},
		{"replaced", func(dir string) {
			require.NoError(t, os.MkdirAll(dir+"/refs/replace", 0o700))
			require.NoError(t, os.WriteFile(dir+"/refs/replace/"+commits[1].id.String(), []byte(commits[0].id.String()+"\n"), 0o600))
		}},
	} {
		dir := g.loose(t, commits[1].id)
		c.spoil(dir)
		missing, err := f.Missing(t.Context(), dir, []nip34.ObjectID{commits[4].id, commits[0].id})
		require.NoError(t, err, c.name)
		require.Equal(t, []nip34.ObjectID{commits[4].id}, missing, c.name)
	}
}

// If a server lacks most of many objects, the others arrive in four requests.
func TestTrapG7_ManyMissingObjects(t *testing.T) {
	there, here := bare(t, nip34.SHA1), bare(t, nip34.SHA1)
	ids := history(t, there, "main", 3)
	o := serve(t, there, nil)
	f := fetcher(t)
	want := []nip34.ObjectID{ids[2]}
	for i := range 50 {
		want = append(want, oid(t, fmt.Sprintf("%040x", i+1)))
	}
	q, err := f.Open(here)
	require.NoError(t, err)
	_, err = q.Fetch(t.Context(), o.clone(t), want)
	require.NoError(t, err)
	require.Len(t, o.seen(), 4)
	missing, err := q.Missing(t.Context(), want)
	require.NoError(t, err)
	require.ElementsMatch(t, want[1:], missing)
	require.NoError(t, q.Discard())

	_, err = q.Fetch(t.Context(), o.clone(t), nil)
	require.Error(t, err, "no objects requested")
	require.Len(t, o.seen(), 4)
}
