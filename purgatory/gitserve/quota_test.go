package gitserve_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/internal/racetest"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/purgatory/gitserve"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// Repositories of one owner, or of all owners together, could fill the disk. There was no limit.
func TestRepositoriesHaveACeiling(t *testing.T) {
	racetest.Amounts(t)
	const unit = 1 << 18
	for name, cfg := range map[string]gitserve.RepositoriesConfig{"owner": {MaxOwnerBytes: 4 * unit}, "all": {MaxBytes: 4 * unit}} {
		t.Run(name, func(t *testing.T) {
			want := map[string]string{"owner": refusedOwner, "all": refusedFull}[name]
			r := rigWith(t, cfg, gitserve.Config{})
			other := relaytest.NewKey("other")
			require.NoError(t, r.repos.Create(t.Context(), other.Ref("x"), nip34.SHA1))
			push := func(url, text string) (string, error) {
				tip, _ := r.file(t, "f", text)
				r.says(map[string]string{"refs/heads/main": tip})
				return try(t, r.work, "push", "-f", url, "main")
			}
			out, err := push(r.repo(), random(t, 3*unit))
			require.NoError(t, err, out)
			before := files(t, r.dir())
			out, err = push(r.repo(), random(t, 2*unit))
			require.Error(t, err)
			require.Contains(t, out, want)
			require.Equal(t, before, files(t, r.dir()))
			out, err = push(r.repo(), "what fits is taken")
			require.Error(t, err, "what it builds on was not: %s", out)

			git(t, r.work, "reset", "-q", "--hard", "HEAD~2")
			out, err = push(r.repo(), "what fits is taken")
			require.NoError(t, err, out)
			out, err = push(r.url+"/"+other.Npub()+"/x.git", "with a large history")
			require.Equal(t, name == "owner", err == nil, out)

			if name == "all" { // it is measured later
				return
			}
			// Removed data is free.
			require.NoError(t, os.RemoveAll(filepath.Join(r.dir(), "objects", "pack")))
			require.NoError(t, os.Mkdir(filepath.Join(r.dir(), "objects", "pack"), 0o700))
			require.NoError(t, r.repos.Reserve(t.Context(), owner.Ref("x"), false, unit))
		})
	}
}

// Pull requests of other users filled the room of an owner, so the owner's pushes failed. The last quarter is closed to
// them.
func TestPullRequestsLeaveTheOwnersRoom(t *testing.T) {
	const unit = 1 << 18
	r := rigWith(t, gitserve.RepositoriesConfig{MaxOwnerBytes: 8 * unit}, gitserve.Config{})
	pull := func(n int) (string, error) {
		git(t, r.work, "switch", "-q", "-C", "theirs", r.tip)
		tip, _ := r.file(t, fmt.Sprint("theirs", n), random(t, 2*unit))
		r.tips[stranger(n)] = tip
		return try(t, r.work, "push", r.repo(), "theirs:refs/nostr/"+stranger(n))
	}
	for n := range 2 {
		out, err := pull(n)
		require.NoError(t, err, out)
	}
	out, err := pull(2)
	require.Error(t, err)
	require.Contains(t, out, refusedPulls)
	out, err = try(t, r.work, "push", r.repo(), "theirs:refs/nostr/"+stranger(2), "main:refs/nostr/"+stranger(9))
	require.Error(t, err, "nor beside one whose event is not here")
	require.Contains(t, out, refusedPulls)
	push := func(size int) (string, error) {
		git(t, r.work, "switch", "-q", "main")
		tip, _ := r.file(t, "f", random(t, size))
		r.says(map[string]string{"refs/heads/main": tip})
		return try(t, r.work, "push", "-f", r.repo(), "main")
	}
	out, err = push(3 * unit)
	require.NoError(t, err, out)
	out, err = push(unit)
	require.Error(t, err, "but no more than that")
	require.Contains(t, out, refusedOwner)
}

// Fetched data has the same limits as pushed data, and an error reports them.
func TestWhatIsFetchedIsBoundedAsWell(t *testing.T) {
	const mib = 1 << 20
	for name, cfg := range map[string]gitserve.RepositoriesConfig{"owner": {MaxOwnerBytes: 4 * mib}, "all": {MaxBytes: 4 * mib}, "none": {}} {
		t.Run(name, func(t *testing.T) {
			r := rigWith(t, cfg, gitserve.Config{})
			ref := owner.Ref("x")
			reserve := func(pulls bool, bytes int64) error { return r.repos.Reserve(t.Context(), ref, pulls, bytes) }
			require.NoError(t, reserve(false, 0))
			require.NoError(t, reserve(false, 3*mib))
			if name == "none" {
				require.NoError(t, reserve(false, 1<<50))
				return
			}
			require.ErrorIs(t, reserve(false, 5*mib), purgatory.ErrFull)
			if name == "all" {
				require.ErrorIs(t, reserve(false, 2*mib), purgatory.ErrFull, "beside what was granted")
				return
			}
			pack := filepath.Join(r.dir(), "objects", "pack", "pack-came.pack")
			require.NoError(t, os.WriteFile(pack, make([]byte, 3*mib), 0o600))
			require.ErrorIs(t, reserve(true, 0), purgatory.ErrFull, "the last quarter is the owner's")
			require.NoError(t, reserve(false, mib/2))
			require.ErrorIs(t, reserve(false, mib), purgatory.ErrFull)
		})
	}
}
