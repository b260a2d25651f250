package gitfetch_test

import (
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/nip34"
)

// The hourly check of an unchanged repository runs no git. A pushed pack, a moved ref and a removed
// pack are noticed.
func TestUnchangedRepositoryIsCheckedWithoutGit(t *testing.T) {
	f, dir := fetcher(t), bare(t, nip34.SHA1)
	runs := 0
	*f.Started() = func(*exec.Cmd) { runs++ }
	first := packed(t, dir, nip34.ObjectID{}, "first")
	second := first
	check := func(runsGit bool, missing ...nip34.ObjectID) {
		t.Helper()
		runs = 0
		ids := without(missing, first, second)
		kinds, err := f.Stat(t.Context(), dir, append(ids, missing...))
		require.NoError(t, err)
		require.Len(t, kinds, len(ids))
		got, err := f.Missing(t.Context(), dir, ids)
		require.NoError(t, err)
		require.Empty(t, got)
		require.Equal(t, runsGit, runs > 0)
	}
	git(t, dir, "update-ref", "refs/heads/main", first.String())
	check(true)
	check(false)
	second = packed(t, dir, first, "second")
	git(t, dir, "update-ref", "refs/heads/main", second.String())
	check(true)
	check(false)
	git(t, dir, "update-ref", "refs/heads/main", first.String())
	git(t, dir, "reflog", "expire", "--expire=all", "--all")
	git(t, dir, "repack", "-adq")
	git(t, dir, "prune", "--expire=now")
	check(true, second)
}

func without(gone []nip34.ObjectID, ids ...nip34.ObjectID) (out []nip34.ObjectID) {
	seen := make(map[nip34.ObjectID]bool)
	for _, id := range gone {
		seen[id] = true
	}
	for _, id := range ids {
		if !seen[id] {
			out = append(out, id)
		}
		seen[id] = true
	}
	return out
}
