package gitfetch

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
)

// What a fetch brings was walked three times: when it came, before it was promoted, and when
// the repository was looked at after that, with nothing in between.
func TestWhatComesIsWalkedOnce(t *testing.T) {
	for _, format := range []nip34.ObjectFormat{nip34.SHA1, nip34.SHA256} {
		there, here := bare(t, format), bare(t, format)
		ids := history(t, there, "main", 4)
		from := serve(t, there, nil).clone(t)
		f := fetcher(t, Config{})
		asked := asking(f)
		get(t, f, here, from, ids[1])
		require.Equal(t, []string{"index-pack", "cat-file", "rev-list"}, asked())
		missing := func(want ...nip34.ObjectID) {
			t.Helper()
			got, err := f.Missing(t.Context(), here, []nip34.ObjectID{ids[1]})
			require.NoError(t, err)
			require.ElementsMatch(t, want, got)
		}
		missing()
		require.Empty(t, asked())

		main := ref(t, "refs/heads/main")
		require.NoError(t, f.UpdateRefs(t.Context(), here, []purgatory.RefChange{{Name: main, New: ids[0]}}, main))
		require.Equal(t, []string{"update-ref"}, asked())
		missing()
		require.Equal(t, []string{"rev-list"}, asked(), "a ref has moved")

		changes := []purgatory.RefChange{{Name: main, Old: ids[0], New: ids[1]}}
		require.NoError(t, f.UpdateRefs(t.Context(), here, changes, nip34.RefName{}))
		require.Equal(t, []string{"update-ref"}, asked())
		get(t, f, here, from, ids[3])
		require.Equal(t, []string{"index-pack", "cat-file", "rev-list"}, asked())
		packs, err := filepath.Glob(filepath.Join(here, "objects/pack/pack-*"))
		require.NoError(t, err)
		for _, path := range packs {
			require.NoError(t, os.Remove(path))
		}
		missing(ids[1])
		got, err := f.Missing(t.Context(), here, []nip34.ObjectID{ids[3]})
		require.NoError(t, err)
		require.Equal(t, []nip34.ObjectID{ids[3]}, got, "objects have gone")
	}
}

// Between the walk of what came and its promotion refs may go that had a part of it.
func TestWhatRefsHadIsNeededWhenTheyGo(t *testing.T) {
	there, here := bare(t, nip34.SHA1), bare(t, nip34.SHA1)
	ids := history(t, there, "main", 3)
	from := serve(t, there, nil).clone(t)
	f := fetcher(t, Config{})
	get(t, f, here, from, ids[1])
	main := ref(t, "refs/heads/main")
	require.NoError(t, f.UpdateRefs(t.Context(), here, []purgatory.RefChange{{Name: main, New: ids[1]}}, main))
	require.NoError(t, f.Cleanup(t.Context(), here))
	q, err := f.Quarantine(t.Context(), here)
	require.NoError(t, err)
	_, err = q.Fetch(t.Context(), from, ids[2:])
	require.NoError(t, err)
	missing, err := q.Missing(t.Context(), ids[2:])
	require.NoError(t, err)
	require.Empty(t, missing)
	require.NoError(t, f.UpdateRefs(t.Context(), here, []purgatory.RefChange{{Name: main, Old: ids[1]}}, nip34.RefName{}))
	asked := asking(f)
	require.NoError(t, q.Promote(t.Context()))
	require.Equal(t, []string{"rev-list", "rev-parse", "pack-objects"}, asked())
	git(t, here, "reflog", "expire", "--expire=all", "--all")
	git(t, here, "gc", "-q", "--prune=now") // only what is marked stays
	missing, err = f.Missing(t.Context(), here, ids[2:])
	require.NoError(t, err)
	require.Empty(t, missing)
	require.NotEmpty(t, git(t, here, "rev-list", "--objects", ids[2].String()))
}
