package gitfetch_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
)

// Refs with a part of the objects may be deleted between the walk and the promotion.
func TestWhatRefsHadIsNeededWhenTheyGo(t *testing.T) {
	there, here := bare(t, nip34.SHA1), bare(t, nip34.SHA1)
	ids := history(t, there, "main", 3)
	from := serve(t, there, nil).clone(t)
	f := fetcher(t)
	get(t, f, here, from, ids[1])
	main := ref(t, "refs/heads/main")
	require.NoError(t, f.UpdateRefs(t.Context(), here, []purgatory.RefChange{{Name: main, New: ids[1]}}, main))
	require.NoError(t, f.Cleanup(t.Context(), here))
	q, err := f.Quarantine(t.Context(), here)
	require.NoError(t, err)
	_, err = q.Fetch(t.Context(), from, ids[2:])
	require.NoError(t, err)
	wholly(t, q, ids[2:])
	require.NoError(t, f.UpdateRefs(t.Context(), here, []purgatory.RefChange{{Name: main, Old: ids[1]}}, nip34.RefName{}))
	require.NoError(t, q.Promote(t.Context()))
	git(t, here, "reflog", "expire", "--expire=all", "--all")
	git(t, here, "gc", "-q", "--prune=now") // only packs with keep files stay
	complete(t, f, here, ids[2:])
	require.NotEmpty(t, git(t, here, "rev-list", "--objects", ids[2].String()))
}
