package gitserve_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/gitserve"
)

func owned(t *testing.T, r *gitserve.Repositories) (names []string) {
	t.Helper()
	for ref, err := range r.Owned(t.Context(), graspsync.PubKey{}) {
		require.NoError(t, err)
		names = append(names, ref.Identifier)
	}
	slices.Sort(names)
	return names
}

// The folder of another server works unchanged. Identifiers that cannot be folder names get hashed
// names.
func TestPlainNames(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "git")
	theirs := filepath.Join(folder, owner.Hex(), "theirs")
	require.NoError(t, os.MkdirAll(theirs, 0o755))
	git(t, theirs, "init", "-q", "--bare", ".")
	config := filepath.Join(theirs, "config")
	before, err := os.ReadFile(config)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(theirs, "refs", "heads", "main"), []byte(strings.Repeat("a1", 20)+"\n"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(folder, owner.Hex(), "notes.txt"), nil, 0o600))

	r, err := gitserve.Open(folder, gitserve.RepositoriesConfig{PlainNames: true})
	require.NoError(t, err)
	digest := filepath.Base(hashed(owner.Ref("x")))
	plain := []string{"a-b_c.d", "theirs", "x", strings.Repeat("n", 150)}
	others := []string{".", "..", "a b", "a/b", "é", digest, strings.Repeat("n", 150+1)}
	for _, name := range append(slices.Clone(plain), others...) {
		require.NoError(t, r.Create(t.Context(), owner.Ref(name), nip34.SHA1), name)
		dir, unlock, err := r.Lock(t.Context(), owner.Ref(name))
		require.NoError(t, err, name)
		require.Equal(t, filepath.Join(folder, owner.Hex()), filepath.Dir(dir))
		require.Equal(t, slices.Contains(plain, name), filepath.Base(dir) == name, name)
		about, err := r.About(owner.Ref(name))
		require.NoError(t, err)
		require.True(t, about.Here, name)
		require.Equal(t, dir, filepath.Join(folder, about.Dir))
		unlock()
	}
	after, err := os.ReadFile(config)
	require.NoError(t, err)
	require.Equal(t, before, after, "it has refs and stays as it is")
	all := slices.Sorted(slices.Values(append(slices.Clone(plain), others...)))
	require.Equal(t, all, owned(t, r))

	require.NoError(t, os.WriteFile(filepath.Join(folder, hashed(owner.Ref("a b")), "refs", "heads", "main"), []byte(strings.Repeat("a1", 20)+"\n"), 0o600))
	for _, name := range []string{"theirs", "a b"} {
		require.NoError(t, r.Leave(t.Context(), owner.Ref(name)))
		for _, who := range []graspsync.PubKey{owner.PubKey(), {}} {
			left, err := graspsync.RepoRef{}, error(nil)
			for left, err = range r.Departed(t.Context(), who) {
				require.NoError(t, err)
			}
			require.Equal(t, owner.Ref(name), left)
		}
		require.NotContains(t, owned(t, r), name)
		about, err := r.About(owner.Ref(name))
		require.NoError(t, err)
		require.NotZero(t, about.Until, name)
		require.NoError(t, r.Create(t.Context(), owner.Ref(name), nip34.SHA1))
	}
	require.FileExists(t, filepath.Join(theirs, "refs", "heads", "main"), "it is back")
	require.Equal(t, all, owned(t, r))
	for _, name := range all {
		require.NoError(t, r.Leave(t.Context(), owner.Ref(name)))
	}
	require.NoError(t, r.DeleteRetired(t.Context(), time.Now().Add(time.Hour)))
	left, err := os.ReadDir(filepath.Join(folder, departed))
	require.NoError(t, err)
	require.Empty(t, left)
	require.NoError(t, r.Close())
}
