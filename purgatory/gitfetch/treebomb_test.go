package gitfetch_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/internal/refplan"
)

// A commit of 12 objects represents 10^10 files, because each folder contains the next one ten
// times. No operation visits a folder twice.
func TestTreeBombCostsItsObjects(t *testing.T) {
	const levels, entries, most = 10, 10, 2 * time.Minute
	there, here, other := bare(t, nip34.SHA1), bare(t, nip34.SHA1), bare(t, nip34.SHA1)
	id := gitIn(t, there, "bomb", "hash-object", "-w", "--stdin")
	kind, mode := "blob", "100644"
	for range levels {
		var tree strings.Builder
		for i := range entries {
			fmt.Fprintf(&tree, "%s %s %s\tf%d\n", mode, kind, id, i)
		}
		id = gitIn(t, there, tree.String(), "mktree")
		kind, mode = "tree", "040000"
	}
	tip := oid(t, git(t, there, "commit-tree", "-m", "bomb", id))
	git(t, there, "update-ref", "refs/heads/main", tip.String())
	git(t, there, "repack", "-adq")
	o := serve(t, there, nil)
	f := fetcher(t)
	peaks := watchChildren(f)
	main := ref(t, "refs/heads/main")
	k := keeping(t, f, here)
	for _, step := range []struct {
		name string
		do   func() error
	}{
		{"fetched", func() error {
			q, err := f.Open(here)
			require.NoError(t, err)
			_, err = q.Fetch(t.Context(), o.clone(t), []nip34.ObjectID{tip})
			require.NoError(t, err)
			missing, err := q.Missing(t.Context(), []nip34.ObjectID{tip})
			require.Empty(t, missing)
			require.NoError(t, err)
			return q.Promote(t.Context())
		}},
		{"walked", func() error {
			missing, err := f.Missing(t.Context(), here, []nip34.ObjectID{tip})
			require.Empty(t, missing)
			return err
		}},
		{"aligned", func() error {
			return f.UpdateRefs(t.Context(), here, []refplan.RefChange{{Name: main, New: tip}}, main)
		}},
		{"shared", func() error { return f.CopyObjects(t.Context(), here, other, []nip34.ObjectID{tip}) }},
		{"maintained", func() error {
			require.NoError(t, f.Cleanup(t.Context(), here))
			require.True(t, k.maintain().Pruned)
			return nil
		}},
		{"cloned", func() error {
			git(t, here, "-c", "safe.directory=*", "clone", "-q", "--bare", "file://"+here, filepath.Join(t.TempDir(), "c"))
			return nil
		}},
	} {
		began := time.Now()
		require.NoError(t, step.do(), step.name)
		t.Logf("%s: %v", step.name, time.Since(began).Round(time.Millisecond))
		require.Less(t, time.Since(began), most, step.name)
	}
	peaks.end()
	t.Logf("git took up to %d KiB in %d children", peaks.resident, peaks.children)
	require.Less(t, peaks.resident, int64(64<<10))
	require.Len(t, strings.Fields(git(t, here, "rev-list", "--objects", "--no-object-names", "main")), levels+2)
}
