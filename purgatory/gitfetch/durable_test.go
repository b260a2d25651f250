package gitfetch_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/internal/refplan"
)

// An event was stored although a power failure could remove its refs, because git does not sync
// folders.
func TestRefsAreOnTheDisk(t *testing.T) {
	dir := bare(t, nip34.SHA1)
	commits := history(t, dir, "x", 2)
	f := fetcher(t)
	var synced []string
	*f.Synced() = func(path string) {
		name, err := filepath.Rel(dir, path)
		require.NoError(t, err)
		synced = append(synced, name)
	}
	ref := func(name string) nip34.RefName {
		r, err := nip34.ParseRefName(name)
		require.NoError(t, err)
		return r
	}
	change := []refplan.RefChange{{Name: ref("refs/heads/a/b"), New: commits[0]}, {Name: ref("refs/tags/v1"), New: commits[0]}}
	require.NoError(t, f.UpdateRefs(t.Context(), dir, change, nip34.RefName{}))
	want := []string{"refs/heads/a", "refs/heads", "refs", "refs/tags", "logs/refs/heads/a", "logs/refs/heads", "logs/refs", "logs/refs/tags", "logs", "."}
	require.ElementsMatch(t, want, synced)
	synced = nil
	gone := []refplan.RefChange{{Name: ref("refs/heads/a/b"), Old: commits[0]}}
	require.NoError(t, f.UpdateRefs(t.Context(), dir, gone, nip34.RefName{}))
	require.NoFileExists(t, filepath.Join(dir, "refs", "heads", "a", "b"))
	require.Subset(t, synced, []string{"refs/heads", "refs", "logs/refs/heads", "."})
}
