package gitfetch_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/internal/refplan"
)

func ref(t testing.TB, name string) nip34.RefName {
	t.Helper()
	r, err := nip34.ParseRefName(name)
	require.NoError(t, err)
	return r
}

// The whole sequence: fetch, check, promote, update refs, clone.
func TestFetchAndAlign(t *testing.T) {
	for _, format := range []nip34.ObjectFormat{nip34.SHA1, nip34.SHA256} {
		t.Run(format.String(), func(t *testing.T) {
			there, here := bare(t, format), bare(t, format)
			first := history(t, there, "main", 20)
			o := serve(t, there, nil)
			f := fetcher(t)
			tip := first[len(first)-1]
			missing, err := f.Missing(t.Context(), here, []nip34.ObjectID{tip})
			require.NoError(t, err)
			require.Equal(t, []nip34.ObjectID{tip}, missing)
			get(t, f, here, o.clone(t), tip)
			require.Len(t, o.seen(), 2)
			main := ref(t, "refs/heads/main")
			require.NoError(t, f.UpdateRefs(t.Context(), here, []refplan.RefChange{{Name: main, New: tip}}, main))
			require.NoError(t, f.Cleanup(t.Context(), here))
			git(t, here, "fsck", "--strict")

			// New commits arrive as a small pack against existing objects.
			second := history(t, there, "main", 1)
			get(t, f, here, o.clone(t), second[0])
			require.NoError(t, f.UpdateRefs(t.Context(), here, []refplan.RefChange{{Name: main, Old: tip, New: second[0]}}, main))
			refs, err := f.Refs(t.Context(), here)
			require.NoError(t, err)
			require.Equal(t, refplan.Refs{At: map[nip34.RefName]nip34.ObjectID{main: second[0]}, Head: main, Format: format}, refs)
			git(t, here, "fsck", "--strict")
			require.Empty(t, leftovers(t, here))
		})
	}
}
