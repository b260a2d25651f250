package gitfetch

import (
	"crypto/rand"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/internal/racetest"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
)

// What came for one repository serves another one, and what both have stays where it
// is.
func TestShare(t *testing.T) {
	from, to := bare(t, nip34.SHA1), bare(t, nip34.SHA1)
	ids := history(t, from, "main", 5)
	f := fetcher(t, Config{})
	require.NoError(t, f.Share(t.Context(), from, to, ids[2:3]))
	missing, err := f.Missing(t.Context(), to, ids)
	require.NoError(t, err)
	require.NotContains(t, missing, ids[2])
	main := ref(t, "refs/heads/main")
	require.NoError(t, f.UpdateRefs(t.Context(), to, []purgatory.RefChange{{Name: main, New: ids[2]}}, main))
	require.NoError(t, f.Share(t.Context(), from, to, ids[4:]))
	missing, err = f.Missing(t.Context(), to, ids)
	require.NoError(t, err)
	require.Empty(t, missing)
	require.NoError(t, f.Cleanup(t.Context(), to))
	git(t, to, "fsck", "--strict")
	require.Empty(t, leftovers(t, to))
	require.NoError(t, f.Share(t.Context(), to, from, []nip34.ObjectID{oid(t, "1234567890123456789012345678901234567890")}))
	require.Empty(t, leftovers(t, from))
}

// onDisk is what folders take up, in bytes, each file once.
func onDisk(t *testing.T, dirs ...string) (n int64) {
	seen := make(map[uint64]bool)
	for _, dir := range dirs {
		require.NoError(t, filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return err
			}
			info, err := d.Info()
			if err != nil {
				return err
			}
			stat := info.Sys().(*syscall.Stat_t)
			if !seen[stat.Ino] {
				seen[stat.Ino] = true
				n += info.Size()
			}
			return nil
		}))
	}
	return n
}

// Whoever named the tip of a large repository got a copy of all of it, once for each key.
func TestShareTakesNoRoom(t *testing.T) {
	root := t.TempDir()
	at := func(owner string) string {
		dir := filepath.Join(root, owner, "r.git")
		require.NoError(t, os.MkdirAll(filepath.Dir(dir), 0o700))
		require.NoError(t, os.Rename(bare(t, nip34.SHA1), dir))
		return dir
	}
	from := at("alice")
	junk := make([]byte, 8<<20)
	_, err := rand.Read(junk)
	require.NoError(t, err)
	blob := strings.TrimSpace(gitIn(t, from, string(junk), "hash-object", "-w", "--stdin"))
	tree := strings.TrimSpace(gitIn(t, from, "100644 blob "+blob+"\tfile\n", "mktree"))
	tip := strings.TrimSpace(git(t, from, "commit-tree", "-m", "x", tree))
	git(t, from, "update-ref", "refs/heads/main", tip)
	git(t, from, "repack", "-adq")
	before := onDisk(t, root)
	f := fetcher(t, Config{})
	main := ref(t, "refs/heads/main")
	for _, owner := range []string{"a", "b", "c", "d", "e"} {
		to := at(owner)
		require.NoError(t, f.Share(t.Context(), from, to, []nip34.ObjectID{oid(t, tip)}))
		missing, err := f.Missing(t.Context(), to, []nip34.ObjectID{oid(t, tip)})
		require.NoError(t, err)
		require.Empty(t, missing)
		require.NoError(t, f.UpdateRefs(t.Context(), to, []purgatory.RefChange{{Name: main, New: oid(t, tip)}}, main))
		require.NoError(t, f.Cleanup(t.Context(), to))
	}
	after := onDisk(t, root)
	t.Logf("%d bytes, and after five shares %d", before, after)
	require.Less(t, after-before, int64(1<<20))
	require.NoError(t, os.RemoveAll(from)) // it lives without the one it came from
	git(t, filepath.Join(root, "a", "r.git"), "fsck", "--strict")
}

// What is copied in a day was gone when eight keys had asked for an eighth each, and those
// who came later got nothing, whoever they were. Now each may have a part of what others
// have left, and half of it is for repositories that have served something for a day.
func TestCopiesAreLeftForOthers(t *testing.T) {
	c := copies{most: maxCopies}
	now := time.Unix(1_700_000_000, 0)
	most := func(who payer) (got int64) {
		for size := int64(maxCopies); size > 0; size /= 2 {
			for {
				if _, err := c.spend(now, who, size); err != nil {
					require.ErrorIs(t, err, errCopies)
					break
				}
				got += size
			}
		}
		return got
	}
	require.EqualValues(t, 256<<20, most(payer{owner: "first"}), "an eighth of 2 GiB")
	var taken int64
	for i := range 7 {
		taken += most(payer{owner: fmt.Sprint(i)})
	}
	ninth := most(payer{owner: "ninth"})
	require.Greater(t, ninth, int64(80<<20))
	for i := range 1000 {
		taken += most(payer{owner: fmt.Sprint("key ", i)})
	}
	served := most(payer{owner: "honest", served: true})
	t.Logf("the ninth key had %d MiB; 1,000 more left %d MiB to one that serves", ninth>>20, served>>20)
	require.EqualValues(t, maxCopies/2/copiesShare, served)
	more, err := c.spend(now, payer{owner: "other", served: true}, 1<<20)
	require.NoError(t, err)
	before := c.pools[1].spent
	more(-5)
	more(10)
	require.Equal(t, before+10, c.pools[1].spent, "it was larger than it seemed")
	now = now.Add(24 * time.Hour)
	require.EqualValues(t, 256<<20, most(payer{owner: "first"}), "an eighth of 2 GiB")
}

// heavy makes a repository of one pack with so many branches, each of which has a file of its
// own of so many random bytes, and is of 3 objects.
func heavy(t *testing.T, dir string, branches, size int) (tips []nip34.ObjectID) {
	t.Helper()
	for i := range branches {
		junk := make([]byte, size)
		_, err := rand.Read(junk)
		require.NoError(t, err)
		blob := gitIn(t, dir, string(junk), "hash-object", "-w", "--stdin")
		tree := gitIn(t, dir, "100644 blob "+blob+"\tfile\n", "mktree")
		tip := git(t, dir, "commit-tree", "-m", "x", tree)
		git(t, dir, "update-ref", fmt.Sprintf("refs/heads/%d", i), tip)
		tips = append(tips, oid(t, tip))
	}
	git(t, dir, "repack", "-adq")
	return tips
}

// Copies were packed before anybody asked whether there may be more of them: each refusal
// cost as much work as the copy.
func TestRefusedCopiesCostNoPacking(t *testing.T) {
	racetest.Amounts(t)
	root := t.TempDir()
	at := owners(t, root)
	from := at("alice")
	tips := heavy(t, from, 2, 400<<10)
	var all []thing
	for i := range fewExtra + 100 { // so much else that the pack is not shared
		all = append(all, thing{packedBlob, fmt.Append(nil, "else ", i)})
	}
	place(t, from, all...)
	git(t, from, "repack", "-adkq")
	f := fetcher(t, Config{})
	f.sharer.copies.most = 2 * copiesShare * (1 << 20) // one MiB for the first
	packed := 0
	f.git.started = func(cmd *exec.Cmd) {
		if slices.Contains(cmd.Args, "pack-objects") {
			packed++
		}
	}
	to := at("mallory")
	require.NoError(t, f.Share(t.Context(), from, to, tips[:1]))
	missing, err := f.Missing(t.Context(), to, tips)
	require.NoError(t, err)
	require.Equal(t, tips[1:], missing)
	require.Positive(t, packed)
	require.InDelta(t, 400<<10, f.sharer.copies.pools[0].spent, 10<<10)
	packed = 0
	other := at("eve")
	f.sharer.copies.pools[0].by[filepath.Dir(other)] = 1 << 20
	require.ErrorIs(t, f.Share(t.Context(), from, other, tips[:1]), errCopies)
	require.Zero(t, packed)
	require.EqualValues(t, 1, f.sharer.copies.refused)

	// Who has served for a day has a part that is not theirs.
	who, err := payerOf(t.Context(), f.git, f.disk, other)
	require.NoError(t, err)
	require.Equal(t, payer{owner: filepath.Dir(other)}, who)
	age(t, filepath.Join(other, "config"), 2*servedAfter)
	who, err = payerOf(t.Context(), f.git, f.disk, other)
	require.NoError(t, err)
	require.False(t, who.served, "it has served nothing")
	history(t, other, "main", 1)
	require.NoError(t, f.Share(t.Context(), from, other, tips[:1]))
	require.InDelta(t, 400<<10, f.sharer.copies.pools[1].spent, 10<<10)
}

// owners makes empty repositories in folders of their owners.
func owners(t *testing.T, root string) func(owner string) string {
	return func(owner string) string {
		dir := filepath.Join(root, owner, "r.git")
		require.NoError(t, os.MkdirAll(filepath.Dir(dir), 0o700))
		require.NoError(t, os.Rename(bare(t, nip34.SHA1), dir))
		return dir
	}
}

// Whoever named one branch of a large repository got its packs by a second name, which takes
// no room; but the first maintenance gave each of them a copy of that branch, and of all
// but a branch when one was deleted.
func TestMaintenanceGivesStrangersNoCopies(t *testing.T) {
	racetest.Amounts(t)
	const size, keys = 1 << 20, 12
	root := t.TempDir()
	at := owners(t, root)
	from := at("alice")
	tips := heavy(t, from, 3, size)
	f := fetcher(t, Config{})
	before := onDisk(t, root)
	var forks []*kept
	for i := range keys {
		to := at(fmt.Sprint("key", i))
		require.NoError(t, f.Share(t.Context(), from, to, tips[:2]))
		for n, tip := range tips[:2] {
			git(t, to, "update-ref", fmt.Sprintf("refs/heads/%d", n), tip.String())
		}
		require.NoError(t, f.Cleanup(t.Context(), to))
		forks = append(forks, keeping(t, f, to))
	}
	for _, k := range forks {
		require.True(t, k.maintain().Pruned)
		git(t, k.dir, "fsck", "--strict")
	}
	more := onDisk(t, root) - before
	t.Logf("%d bytes, and %d more when %d keys that name two thirds of them were maintained", before, more, keys)
	require.Less(t, more, int64(size/2))

	// Whose pack it was has what nothing names gone all the same, and at once.
	k := keeping(t, f, from)
	git(t, from, "update-ref", "-d", "refs/heads/2")
	k.later(15 * 24 * time.Hour)
	require.True(t, k.maintain().Pruned)
	require.False(t, k.has(tips[2]))
	require.True(t, k.has(tips[0]))
}

// Packs that another repository has as well were never made fewer, here and there: each
// push whose pack somebody shared was one that every reader looks into, for good.
func TestSharedPacksBecomeFew(t *testing.T) {
	racetest.Amounts(t)
	const rounds, pushes = 10, 60
	root := t.TempDir()
	at := owners(t, root)
	from, to := at("alice"), at("bob")
	f := fetcher(t, Config{})
	both := []*kept{keeping(t, f, from), keeping(t, f, to)}
	var parent string
	var most [2]int
	for round := range rounds {
		for i := range pushes {
			blob := thing{packedBlob, fmt.Appendf(nil, "%d %d", round, i)}
			id := blob.id()
			tree := thing{packedTree, append([]byte("100644 f\x00"), id[:]...)}
			body := fmt.Appendf(nil, "tree %x\n", tree.id())
			if parent != "" {
				body = fmt.Appendf(body, "parent %s\n", parent)
			}
			commit := thing{packedCommit, fmt.Appendf(body, "author a <a> %d +0000\ncommitter a <a> %d +0000\n\nx\n", i, i)}
			place(t, from, blob, tree, commit)
			parent = fmt.Sprintf("%x", commit.id())
		}
		git(t, from, "update-ref", "refs/heads/main", parent)
		require.NoError(t, f.Share(t.Context(), from, to, []nip34.ObjectID{oid(t, parent)}))
		git(t, to, "update-ref", "refs/heads/main", parent)
		require.NoError(t, f.Cleanup(t.Context(), to))
		for i, k := range both {
			if round%3 == 2 { // a month has gone by
				k.pass(31 * 24 * time.Hour)
			}
			most[i] = max(most[i], k.maintain().Packs)
		}
	}
	t.Logf("%d packs were pushed and shared: at most %d, and %d where they were shared; in the end %d and %d", rounds*pushes, most[0], most[1],
		len(both[0].packs()), len(both[1].packs()))
	for i, k := range both {
		require.Less(t, most[i], maxShared+2*fewPacks)
		require.Equal(t, fmt.Sprint(3*rounds*pushes), fmt.Sprint(len(strings.Fields(git(t, k.dir, "rev-list", "--objects", "--no-object-names", "main")))))
		git(t, k.dir, "fsck", "--strict")
	}
}

// Who shares packs has his own made fewer, once there are many of them, and those that he
// shares left as they are.
func TestOwnPacksBecomeFewBesideSharedOnes(t *testing.T) {
	for own, left := range map[int]int{fewPacks - 2: fewPacks - 2, 2 * fewPacks: 1} {
		at := owners(t, t.TempDir())
		from, to := at("alice"), at("bob")
		f := fetcher(t, Config{})
		push := func(dir, name string) nip34.ObjectID {
			blob := thing{packedBlob, []byte(name)}
			id := blob.id()
			tree := thing{packedTree, append([]byte("100644 f\x00"), id[:]...)}
			commit := thing{packedCommit, fmt.Appendf(nil, "tree %x\nauthor a <a> 1 +0000\ncommitter a <a> 1 +0000\n\nx\n", tree.id())}
			place(t, dir, blob, tree, commit)
			tip := fmt.Sprintf("%x", commit.id())
			git(t, dir, "update-ref", "refs/heads/"+name, tip)
			return oid(t, tip)
		}
		var tips []nip34.ObjectID
		for i := range maxShared {
			tips = append(tips, push(from, fmt.Sprint("shared", i)))
		}
		require.NoError(t, f.Share(t.Context(), from, to, tips))
		for i, tip := range tips {
			git(t, to, "update-ref", fmt.Sprint("refs/heads/shared", i), tip.String())
		}
		require.NoError(t, f.Cleanup(t.Context(), to))
		k := keeping(t, f, to)
		shared := k.packs()
		require.Len(t, shared, maxShared)
		for i := range own {
			push(to, fmt.Sprint("own", i))
		}
		require.NoError(t, os.WriteFile(filepath.Join(to, recordName), fmt.Appendf(nil, `{"began":%q}`, time.Now().Format(time.RFC3339)), 0o600))
		require.False(t, k.maintain().Pruned)
		require.Subset(t, k.packs(), shared)
		require.Len(t, k.packs(), len(shared)+left, "%d of his own", own)
		git(t, to, "fsck", "--strict")
	}
}
