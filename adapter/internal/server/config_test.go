package server

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/purgatory/gitfetch"
	"github.com/graspsync/graspsync/purgatory/gitserve"
	relaysync "github.com/graspsync/graspsync/sync"
)

// Limits of fetches are set once. Fetches filled the disk up, because MinFreeDisk applied only to
// pushes.
func TestPurgatoryKnowsTheLimitsOfAFetch(t *testing.T) {
	given := Config{Fetch: gitfetch.Config{MaxPackBytes: 64 << 20}}
	complete := func(c Config) Config {
		require.NoError(t, c.setDefaults())
		return c
	}
	cfg := complete(given)
	require.Zero(t, cfg.Fetch.MaxFetches)
	require.Zero(t, cfg.Fetch.MinFreeDisk)
	cfg = complete(Config{
		Purgatory: purgatory.Config{Limits: purgatory.Limits{MaxFetchJobs: 30}}, Serve: gitserve.Config{MinFreeDisk: 10 << 30},
	})
	require.Equal(t, 60, cfg.Fetch.MaxFetches)
	require.Equal(t, uint64(10<<30), cfg.Fetch.MinFreeDisk)

	given.Fetch.Git = "/opt/git"
	given.Serve.MinFreeDisk, given.Fetch.MinFreeDisk = 10<<30, 3<<30
	cfg = complete(given)
	require.Equal(t, uint64(3<<30), cfg.Fetch.MinFreeDisk)
	require.Equal(t, "/opt/git", cfg.Repositories.Git)
	given.Repositories.Git = "/usr/bin/git"
	cfg = complete(given)
	require.Equal(t, "/usr/bin/git", cfg.Repositories.Git)

	given = Config{Membership: nip34.Membership{OneSided: true}, GRASPLists: true}
	cfg = complete(given)
	require.NotEqual(t, complete(Config{}).Sync.PolicyVersion, cfg.Sync.PolicyVersion, "what was rejected is judged again")
	require.True(t, cfg.Purgatory.Membership.OneSided)
	require.True(t, cfg.Sync.Policy.(*relaysync.GRASPPolicy).Membership.OneSided)
	require.True(t, cfg.Sync.Policy.(*relaysync.GRASPPolicy).GRASPLists)
}

// If pull requests could use the whole quota of an owner, none was evicted for another, and the
// first ones blocked all others.
func TestPullRequestsOfARepositoryLeaveRoom(t *testing.T) {
	for most, want := range map[int64]int64{0: 0, 2: 1, 1 << 30: 128 << 20, 1 << 40: 1 << 30} {
		cfg := Config{Repositories: gitserve.RepositoriesConfig{MaxOwnerBytes: most}}
		require.NoError(t, cfg.setDefaults())
		require.Equal(t, want, cfg.Purgatory.Limits.MaxPullBytes)
		cfg = Config{Repositories: gitserve.RepositoriesConfig{MaxOwnerBytes: most}, Purgatory: purgatory.Config{Limits: purgatory.Limits{MaxPullBytes: 7}}}
		require.NoError(t, cfg.setDefaults())
		require.Equal(t, int64(7), cfg.Purgatory.Limits.MaxPullBytes)
	}
}
