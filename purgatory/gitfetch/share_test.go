package gitfetch

import (
	"testing"

	"github.com/stretchr/testify/require"

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
	require.Equal(t, ids[3:], missing)
	main := ref(t, "refs/heads/main")
	require.NoError(t, f.Align(t.Context(), to, []purgatory.RefChange{{Name: main, New: ids[2]}}, main))
	require.NoError(t, f.Share(t.Context(), from, to, ids[4:]))
	missing, err = f.Missing(t.Context(), to, ids)
	require.NoError(t, err)
	require.Empty(t, missing)
	require.NoError(t, f.Tidy(t.Context(), to))
	git(t, to, "fsck", "--strict")
	require.Empty(t, leftovers(t, to))
	require.Error(t, f.Share(t.Context(), to, from, []nip34.ObjectID{oid(t, "1234567890123456789012345678901234567890")}))
	require.Empty(t, leftovers(t, from))
}
