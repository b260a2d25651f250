package barerepo

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/nip34"
)

var small = Small{Packs: 1 << 20, Unpacked: 1 << 20}

// needed is what git says that some objects need, and that others do not have.
func needed(t testing.TB, dir string, from, but []nip34.ObjectID) (ids []string, bytes int64) {
	t.Helper()
	var in strings.Builder
	for _, id := range from {
		fmt.Fprintln(&in, id)
	}
	for _, id := range but {
		fmt.Fprintf(&in, "^%s\n", id)
	}
	ids = strings.Fields(git(t, dir, in.String(), "rev-list", "--objects", "--no-object-names", "--stdin"))
	bytes, err := strconv.ParseInt(git(t, dir, in.String(), "rev-list", "--objects", "--disk-usage", "--stdin"), 10, 64)
	require.NoError(t, err)
	return ids, bytes
}

// tangled has branches that merge, take back what was there, have submodules and links, and tags of
// tags. It returns all commits and tags.
func tangled(t testing.TB, rng *rand.Rand, dir string) (all []nip34.ObjectID) {
	t.Helper()
	var b strings.Builder
	n := 3 + rng.IntN(20)
	for i := range n {
		fmt.Fprintf(&b, "commit refs/heads/b%d\nmark :%d\ncommitter c <c@example.com> %d +0000\ndata 0\n", i, i+1, 1700000000+i)
		for k, from := range rng.Perm(i)[:min(i, rng.IntN(3))] {
			fmt.Fprintf(&b, "%s :%d\n", []string{"from", "merge"}[k], from+1)
		}
		for range 1 + rng.IntN(3) {
			text := strings.Repeat("a line that is in all of them\n", 30) + fmt.Sprint(rng.IntN(6))
			mode := []string{"100644", "100755", "120000"}[rng.IntN(3)]
			fmt.Fprintf(&b, "M %s inline d%d/e%d/f%d\ndata %d\n%s\n", mode, rng.IntN(3), rng.IntN(2), rng.IntN(4), len(text), text)
		}
		if rng.IntN(4) == 0 {
			fmt.Fprintf(&b, "M 160000 %s module\n", strings.Repeat(fmt.Sprint(1+rng.IntN(8)), len(Null(nip34.SHA1))))
		}
		b.WriteByte('\n')
		if rng.IntN(4) == 0 {
			fmt.Fprintf(&b, "tag t%d\nmark :%d\nfrom :%d\ntagger c <c@example.com> 1700000000 +0000\ndata 0\n", i, 100+i, i+1)
			fmt.Fprintf(&b, "tag tt%d\nfrom :%d\ntagger c <c@example.com> 1700000000 +0000\ndata 0\n", i, 100+i)
		}
	}
	git(t, dir, b.String(), "-c", "fastimport.unpackLimit=1", "fast-import", "--quiet", "--force")
	for line := range strings.Lines(git(t, dir, "", "cat-file", "--batch-all-objects", "--batch-check=%(objectname) %(objecttype)")) {
		hex, kind, _ := strings.Cut(strings.TrimSpace(line), " ")
		if kind == "commit" || kind == "tag" {
			all = append(all, parsed(t, hex))
		}
	}
	return all
}

// What is walked in memory is what git walks, to the object and the byte, wherever packs are.
func TestNeedsAreWhatGitSays(t *testing.T) {
	for seed := range uint64(30) {
		rng := rand.New(rand.NewPCG(seed, 1))
		format := nip34.SHA1
		dir := newRepository(t, format)
		all := tangled(t, rng, dir)
		if rng.IntN(2) == 0 {
			git(t, dir, "", "repack", "-q", "-a", "-d", "-f", "--depth=50", "--window=50")
		}
		r, err := Read(whole{}, dir)
		require.NoError(t, err)
		some := func() []nip34.ObjectID {
			out := slices.Clone(all)
			rng.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
			return out[:rng.IntN(min(4, len(out)+1))]
		}
		for range 8 {
			from, but := append(some(), all[0]), some()
			ids, bytes := needed(t, dir, from, but)
			got, err := r.Needs("", from, but, small)
			require.NoError(t, err)
			sum, named := int64(0), make([]string, 0, len(got))
			for _, n := range got {
				sum += n.Bytes
				named = append(named, n.ID)
			}
			require.ElementsMatch(t, ids, named, "%v but %v of seed %d", from, but, seed)
			require.Equal(t, bytes, sum)
		}
	}
}

func TestNeedsOfSHA256AndBeside(t *testing.T) {
	for _, format := range []nip34.ObjectFormat{nip34.SHA1, nip34.SHA256} {
		dir := newRepository(t, format)
		fill(t, dir, "main", 12)
		git(t, dir, "", "repack", "-q", "-a", "-d")
		tip := parsed(t, git(t, dir, "", "rev-parse", "main"))
		r, err := Read(whole{}, dir)
		require.NoError(t, err)
		want, _ := needed(t, dir, []nip34.ObjectID{tip}, nil)
		require.NoError(t, os.Mkdir(filepath.Join(dir, "beside"), 0o700))
		require.NoError(t, os.Rename(filepath.Join(dir, "objects", "pack"), filepath.Join(dir, "beside", "pack")))
		require.NoError(t, os.Mkdir(filepath.Join(dir, "objects", "pack"), 0o700))
		got, err := r.Needs("beside", []nip34.ObjectID{tip}, nil, small)
		require.NoError(t, err)
		require.Len(t, got, len(want))
		_, err = r.Needs("", []nip34.ObjectID{tip}, nil, small)
		require.ErrorIs(t, err, ErrAskGit)
	}
}

// Of what is not whole, not small, or not as git writes it, nothing is said but that git is to say it.
func TestNeedsLeavesToGit(t *testing.T) {
	dir := newRepository(t, nip34.SHA1)
	fill(t, dir, "main", 12)
	git(t, dir, "", "repack", "-q", "-a", "-d", "-f", "--depth=50", "--window=50")
	tip := parsed(t, git(t, dir, "", "rev-parse", "main"))
	ask := func(id nip34.ObjectID, limits Small) error {
		r, err := Read(whole{}, dir)
		require.NoError(t, err)
		_, err = r.Needs("", []nip34.ObjectID{id}, nil, limits)
		return err
	}
	require.NoError(t, ask(tip, small))
	require.ErrorIs(t, ask(tip, Small{Packs: 1000, Unpacked: 1 << 20}), ErrAskGit)
	require.ErrorIs(t, ask(tip, Small{Packs: 1 << 20, Unpacked: 1000}), ErrAskGit)
	require.ErrorIs(t, ask(parsed(t, strings.Repeat("e", 40)), small), ErrAskGit)
	require.ErrorIs(t, ask(parsed(t, git(t, dir, "", "rev-parse", "main^{tree}")), small), ErrAskGit)
	paths, err := filepath.Glob(filepath.Join(dir, "objects", "pack", "*"))
	require.NoError(t, err)
	for _, at := range paths {
		if ext := filepath.Ext(at); ext != ".pack" && ext != ".idx" {
			continue
		}
		honest, err := os.ReadFile(at)
		require.NoError(t, err)
		require.NoError(t, os.Chmod(at, 0o600))
		wrong := func(data []byte) error {
			require.NoError(t, os.WriteFile(at, data, 0o600))
			return ask(tip, small)
		}
		for i := range 40 {
			require.ErrorIs(t, wrong(honest[:i*len(honest)/40]), ErrAskGit)
		}
		rng := rand.New(rand.NewPCG(1, 1))
		for range 2000 { // no crash; what is in the packs was checked when it came
			data := slices.Clone(honest)
			data[rng.IntN(len(data))] ^= byte(1 + rng.IntN(255))
			if err := wrong(data); err != nil {
				require.ErrorIs(t, err, ErrAskGit)
			}
		}
		require.NoError(t, wrong(honest))
	}
	for _, at := range paths {
		require.NoError(t, os.Remove(at))
	}
	require.ErrorIs(t, ask(tip, small), ErrAskGit)
}
