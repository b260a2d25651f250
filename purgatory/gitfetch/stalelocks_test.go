package gitfetch_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/internal/refplan"
)

// A stale lock of a killed git does not block refs forever. UpdateRefs runs under the lock of the
// repository, so such a lock has no owner.
func TestAlignDespiteStaleLocks(t *testing.T) {
	f := fetcher(t)
	for _, lock := range []string{"refs/heads/main.lock", "refs/heads/dev.lock", "HEAD.lock", "packed-refs.lock"} {
		t.Run(lock, func(t *testing.T) {
			dir := bare(t, nip34.SHA1)
			ids := history(t, dir, "main", 2)
			git(t, dir, "update-ref", "refs/heads/old", ids[0].String())
			git(t, dir, "pack-refs", "--all")
			path := filepath.Join(dir, filepath.FromSlash(lock))
			require.NoError(t, os.WriteFile(path, nil, 0o600))
			old := time.Now().Add(-2 * staleAfter)
			require.NoError(t, os.Chtimes(path, old, old))
			name := func(s string) nip34.RefName {
				n, err := nip34.ParseRefName(s)
				require.NoError(t, err)
				return n
			}
			require.NoError(t, f.UpdateRefs(t.Context(), dir, []refplan.RefChange{
				{Name: name("refs/heads/main"), Old: ids[1], New: ids[0]},
				{Name: name("refs/heads/dev"), New: ids[1]},
				{Name: name("refs/heads/old"), Old: ids[0]},
			}, name("refs/heads/dev")))
			refs, err := f.Refs(t.Context(), dir)
			require.NoError(t, err)
			require.Equal(t, map[nip34.RefName]nip34.ObjectID{name("refs/heads/main"): ids[0], name("refs/heads/dev"): ids[1]}, refs.At)
			require.Equal(t, name("refs/heads/dev"), refs.Head)
		})
	}
}
