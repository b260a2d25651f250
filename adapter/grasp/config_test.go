package grasp

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/purgatory/gitfetch"
	"github.com/graspsync/graspsync/purgatory/gitserve"
	relaysync "github.com/graspsync/graspsync/sync"
)

// What bounds one fetch is said once: purgatory cut off at 11 minutes whoever was
// allowed to take longer.
func TestPurgatoryKnowsTheLimitsOfAFetch(t *testing.T) {
	given := Config{Fetch: gitfetch.Config{MaxPackBytes: 64 << 20}}
	cfg, err := given.withDefaults(nip34.Identity{})
	require.NoError(t, err)
	require.Equal(t, 10*time.Minute+1024*time.Second+time.Minute, cfg.Purgatory.Times.FetchTimeout)
	require.Equal(t, int64(64<<20), cfg.Purgatory.Limits.MaxFetch)

	require.Zero(t, cfg.Purgatory.Limits.MaxRepoDay)
	require.Zero(t, cfg.Fetch.MaxFetches)
	cfg, err = Config{
		Fetch: gitfetch.Config{MaxPackBytes: 5 << 30}, Purgatory: purgatory.Config{Limits: purgatory.Limits{MaxHunts: 30}},
	}.withDefaults(nip34.Identity{})
	require.NoError(t, err)
	require.Equal(t, int64(5<<30), cfg.Purgatory.Limits.MaxRepoDay)
	require.Equal(t, 60, cfg.Fetch.MaxFetches)

	given.Purgatory = purgatory.Config{Times: purgatory.Times{FetchTimeout: time.Minute}, Limits: purgatory.Limits{MaxFetch: 1}}
	cfg, err = given.withDefaults(nip34.Identity{})
	require.NoError(t, err)
	require.Equal(t, time.Minute, cfg.Purgatory.Times.FetchTimeout)
	require.Equal(t, int64(1), cfg.Purgatory.Limits.MaxFetch)

	given = Config{Membership: nip34.Membership{OneSided: true}, GRASPLists: true}
	cfg, err = given.withDefaults(nip34.Identity{})
	require.NoError(t, err)
	require.True(t, cfg.Purgatory.Membership.OneSided)
	require.True(t, cfg.Sync.Policy.(*relaysync.GRASPPolicy).Membership.OneSided)
	require.True(t, cfg.Sync.Policy.(*relaysync.GRASPPolicy).GRASPLists)

	cfg, err = Config{}.withDefaults(nip34.Identity{})
	require.NoError(t, err)
	require.Equal(t, gitfetch.Config{}.Longest()+time.Minute, cfg.Purgatory.Times.FetchTimeout)
	require.Zero(t, cfg.Purgatory.Limits.MaxFetch)
}

// Where pull requests could take up all that an owner may, none gave way to another one any
// more: who pushed first kept everybody else out.
func TestPullRequestsOfARepositoryLeaveRoom(t *testing.T) {
	for most, want := range map[int64]int64{0: 0, 2: 1, 1 << 30: 256 << 20, 1 << 40: 1 << 30} {
		cfg, err := Config{Serve: gitserve.Config{MaxOwnerBytes: most}}.withDefaults(nip34.Identity{})
		require.NoError(t, err)
		require.Equal(t, want, cfg.Purgatory.Limits.MaxPullBytes)
		cfg, err = Config{Serve: gitserve.Config{MaxOwnerBytes: most}, Purgatory: purgatory.Config{Limits: purgatory.Limits{MaxPullBytes: 7}}}.withDefaults(nip34.Identity{})
		require.NoError(t, err)
		require.Equal(t, int64(7), cfg.Purgatory.Limits.MaxPullBytes)
	}
}
