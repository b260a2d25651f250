package gitfetch_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/gitfetch"
	"github.com/graspsync/graspsync/purgatory/internal/refplan"
)

// fetched returns a quarantine with a complete new history.
func fetched(t testing.TB, f *gitfetch.Fetcher, here string, o *origin, ids ...nip34.ObjectID) *gitfetch.Quarantine {
	t.Helper()
	q, err := f.Open(here)
	require.NoError(t, err)
	_, err = q.Fetch(t.Context(), o.clone(t), ids)
	require.NoError(t, err)
	wholly(t, q, ids)
	return q
}

// An aggressive garbage collection between any two steps loses no needed object.
func TestPromiseP33_GarbageCollectedBetweenSteps(t *testing.T) {
	there, here := bare(t, nip34.SHA1), bare(t, nip34.SHA1)
	f := fetcher(t)
	o := serve(t, there, nil)
	main := ref(t, "refs/heads/main")
	var old nip34.ObjectID
	gc := func() {
		git(t, here, "gc", "--quiet", "--prune=now")
		git(t, here, "prune", "--expire=now")
	}
	for range 2 { // the second round adds to an existing history
		tip := history(t, there, "main", 5)[4]
		q, err := f.Open(here)
		require.NoError(t, err)
		gc()
		_, err = q.Fetch(t.Context(), o.clone(t), []nip34.ObjectID{tip})
		require.NoError(t, err)
		gc()
		wholly(t, q, []nip34.ObjectID{tip})
		gc()
		require.NoError(t, q.Promote(t.Context()))
		gc()
		complete(t, f, here, []nip34.ObjectID{tip})
		gc()
		require.NoError(t, f.UpdateRefs(t.Context(), here, []refplan.RefChange{{Name: main, Old: old, New: tip}}, main))
		gc()
		require.NoError(t, f.Cleanup(t.Context(), here))
		gc()
		git(t, here, "fsck", "--strict")
		require.Equal(t, git(t, there, "rev-list", "main"), git(t, here, "rev-list", "main"))
		old = tip
	}
	require.Empty(t, keeps(t, here))
}

func keeps(t testing.TB, dir string) []string {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(dir, "objects", "pack", "*.keep"))
	require.NoError(t, err)
	return list
}

// A file appears in the repository only after its sync. The index appears last, after everything
// else is durable.
func TestPromiseP33_OrderOfPromotion(t *testing.T) {
	there, here := bare(t, nip34.SHA1), bare(t, nip34.SHA1)
	tip := history(t, there, "main", 5)[4]
	f := fetcher(t)
	o := serve(t, there, nil)
	q := fetched(t, f, here, o, tip)
	folder := filepath.Join(here, "objects", "pack")
	var steps []string
	*f.Synced() = func(path string) {
		if path == folder {
			steps = append(steps, "sync folder")
			return
		}
		steps = append(steps, "sync "+filepath.Ext(path))
	}
	*f.Placed() = func(path string) {
		steps = append(steps, "place "+filepath.Ext(path))
		if filepath.Ext(path) == ".idx" {
			require.NotEmpty(t, keeps(t, here))
		}
	}
	require.NoError(t, q.Promote(t.Context()))
	require.Equal(t, []string{"sync .pack", "place .pack", "sync .keep", "sync folder", "sync .idx", "place .idx", "sync folder"}, steps)
	require.Empty(t, leftovers(t, here))
	require.NoError(t, q.Discard(), "after Promote")
}

// Too much unwanted data is not promoted.
func TestPromiseP32_UnwantedObjectsAreNotPromoted(t *testing.T) {
	g, commits := chain(t)
	var pack [][]byte
	for _, n := range g.all {
		pack = append(pack, object(map[string]byte{"commit": 1, "tree": 2, "blob": 3}[n.kind], n.body))
	}
	for i := range 3000 {
		pack = append(pack, stored(3, fmt.Appendf(nil, "junk %d", i)))
	}
	here := bare(t, nip34.SHA1)
	f := fetcher(t)
	o := serve(t, here, nil)
	o.Config.Handler = sendPack(packOf(pack...))
	q := fetched(t, f, here, o, commits[4].id)
	require.NoError(t, q.Promote(t.Context()))
	require.Contains(t, git(t, here, "count-objects", "-v"), "in-pack: 15\n")
	for more, there := range map[int]int{2*15 + 1000: 2*15 + 1000, 2*15 + 1000 + 1: 15} {
		dir := bare(t, nip34.SHA1)
		o := serve(t, dir, nil)
		o.Config.Handler = sendPack(packOf(pack[:more]...))
		require.NoError(t, fetched(t, f, dir, o, commits[4].id).Promote(t.Context()))
		require.Contains(t, git(t, dir, "count-objects", "-v"), fmt.Sprintf("in-pack: %d\n", there), "exactly as much may be in it")
	}
	complete(t, f, here, []nip34.ObjectID{commits[4].id})

	// All objects exist and are referenced, so nothing is promoted.
	git(t, here, "update-ref", "refs/heads/main", commits[4].id.String())
	q = fetched(t, f, here, o, commits[0].id)
	require.NoError(t, q.Promote(t.Context()))
	require.Contains(t, git(t, here, "count-objects", "-v"), "in-pack: 15\n")
	require.Empty(t, leftovers(t, here))
}

// Promote runs under the lock, so it does not walk histories. It had counted the needed objects.
func TestPromotionWalksNoHistory(t *testing.T) {
	f := fetcher(t)
	here, blob, base, data := film(t)
	pack, tip := variants(t, blob, base, data, 1, 1100)
	q, err := f.Open(here)
	require.NoError(t, err)
	require.NoError(t, os.CopyFS(q.Packs(), os.DirFS(filepath.Join(indexed(t, here, pack), "pack"))))
	wholly(t, q, []nip34.ObjectID{tip})
	var ran []string
	*f.Started() = func(cmd *exec.Cmd) { ran = append(ran, cmd.Args...) }
	require.NoError(t, q.Promote(t.Context()))
	require.Contains(t, ran, "pack-objects", "there is junk")
	require.NotContains(t, ran, "rev-list")
	complete(t, f, here, []nip34.ObjectID{tip})
}
