package gitfetch

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
)

// byHand is what others do: one run of git fetch for a set of objects. It checks
// connectivity as we do, in the repository itself.
func byHand(b *testing.B, dir, url string, ids ...nip34.ObjectID) {
	b.Helper()
	args := []string{"-c", "fetch.fsckObjects=true", "-c", "gc.auto=0", "fetch", "--quiet", "--no-tags", "--no-write-fetch-head", url}
	for i, id := range ids {
		args = append(args, fmt.Sprintf("%s:refs/heads/got%d", id, i))
	}
	git(b, dir, args...)
}

// ours is the whole way of a release: quarantine, fetch, closure, promotion, refs.
func ours(b *testing.B, f *Fetcher, o *origin, dir string, ids ...nip34.ObjectID) {
	b.Helper()
	get(b, f, dir, o.clone(b), ids...)
	missing, err := f.Missing(b.Context(), dir, ids)
	require.NoError(b, err)
	require.Empty(b, missing)
	var changes []purgatory.RefChange
	for i, id := range ids {
		changes = append(changes, purgatory.RefChange{Name: ref(b, fmt.Sprintf("refs/heads/got%d", i)), New: id})
	}
	require.NoError(b, f.UpdateRefs(b.Context(), dir, changes, nip34.RefName{}))
	require.NoError(b, f.Cleanup(b.Context(), dir))
}

// BenchmarkFetchOne: one commit that a repository of 10,000 lacks. Reported is how
// long ours takes, how long git takes, and the ratio.
func BenchmarkFetchOne(b *testing.B) {
	there := bare(b, nip34.SHA1)
	longHistory(b, there, 10_000)
	base := b.TempDir()
	require.NoError(b, os.CopyFS(base, os.DirFS(there)))
	tip := history(b, there, "main", 1)[0]
	compare(b, there, func(dir string) { require.NoError(b, os.CopyFS(dir, os.DirFS(base))) }, []nip34.ObjectID{tip}, 1)
}

// longHistory adds commits that change one of 100 files in 10 folders each.
func longHistory(b *testing.B, dir string, n int) {
	var in strings.Builder
	for i := range n {
		text := fmt.Sprintf("%d\n", i)
		fmt.Fprintf(&in, "commit refs/heads/main\ncommitter c <c@example.com> %d +0000\ndata %d\n%s", 1600000000+i, len(text), text)
		fmt.Fprintf(&in, "M 100644 inline d%d/f%d\ndata %d\n%s\n", i%10, i%100, len(text), text)
	}
	gitIn(b, dir, in.String(), "fast-import", "--quiet")
}

// BenchmarkFetchHundred: the first fetch of 100 small repositories.
func BenchmarkFetchHundred(b *testing.B) {
	there := bare(b, nip34.SHA1)
	ids := history(b, there, "main", 20)
	compare(b, there, func(dir string) { git(b, dir, "init", "-q", "--bare", "-b", "main", dir) }, ids[19:], 100)
}

func compare(b *testing.B, there string, fresh func(dir string), ids []nip34.ObjectID, repositories int) {
	o := serve(b, there, nil)
	f := fetcher(b, Config{})
	root := b.TempDir()
	n := 0
	prepare := func() (dirs []string) {
		b.StopTimer()
		defer b.StartTimer()
		for range repositories {
			n++
			dir := filepath.Join(root, fmt.Sprint(n))
			require.NoError(b, mkdir(dir))
			fresh(dir)
			dirs = append(dirs, dir)
		}
		return dirs
	}
	elapsed := func() float64 { return b.Elapsed().Seconds() }
	var us, them float64
	for b.Loop() {
		dirs := prepare()
		began := elapsed()
		for _, dir := range dirs {
			ours(b, f, o, dir, ids...)
		}
		us += elapsed() - began
		dirs = prepare()
		began = elapsed()
		for _, dir := range dirs {
			byHand(b, dir, o.URL+"/repo.git", ids...)
		}
		them += elapsed() - began
	}
	b.ReportMetric(us/float64(b.N)*1000, "ours-ms")
	b.ReportMetric(them/float64(b.N)*1000, "git-ms")
	b.ReportMetric(us/them, "ours/git")
	b.ReportMetric(0, "ns/op")
}
