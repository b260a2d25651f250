package gitserve_test

import (
	"fmt"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/gitserve"
)

// Repositories of an author who is blocked and unblocked are retired and restored concurrently.
// Removing the owner's empty folder failed a concurrent sync.
func TestCaseC19_RepositoriesOfOneOwnerComeAndGo(t *testing.T) {
	repos, err := gitserve.Open(filepath.Join(t.TempDir(), "git"), gitserve.RepositoriesConfig{})
	require.NoError(t, err)
	defer func() { require.NoError(t, repos.Close()) }()
	all := func(f func(ref graspsync.RepoRef) error) {
		t.Helper()
		errs := make([]error, 4)
		var wg sync.WaitGroup
		for i := range errs {
			wg.Go(func() {
				errs[i] = f(graspsync.RepoRef{Owner: graspsync.PubKey{1}, Identifier: fmt.Sprint("r", i)})
			})
		}
		wg.Wait()
		for _, err := range errs {
			require.NoError(t, err)
		}
	}
	create := func(ref graspsync.RepoRef) error { return repos.Create(t.Context(), ref, nip34.SHA1) }
	all(create)
	for range 50 {
		all(func(ref graspsync.RepoRef) error { return repos.Leave(t.Context(), ref) })
		all(create)
	}
	for range 50 {
		all(func(ref graspsync.RepoRef) error { return repos.Delete(t.Context(), ref) })
		all(create)
	}
}
