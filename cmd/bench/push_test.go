package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func pushRun(t *testing.T) *run {
	t.Helper()
	return &run{ctx: t.Context(), quick: true, cache: t.TempDir(), dir: t.TempDir()}
}

// The history is always the same.
func TestPushHistory(t *testing.T) {
	r := pushRun(t)
	h, err := pushHistory(r, 5, 3)
	require.NoError(t, err)
	require.Len(t, h.newest, 3)
	require.Equal(t, "38eb65820c25b67f", h.newest[2][:16])
	again, err := pushHistory(&run{ctx: r.ctx, cache: r.cache, dir: t.TempDir()}, 5, 3)
	require.NoError(t, err)
	require.Equal(t, h.newest, again.newest, "it is kept")
}

// Both servers store each commit, and a state is served after its push. Processes are counted,
// including those that git starts.
func TestPush(t *testing.T) {
	r := pushRun(t)
	h, err := pushHistory(r, 10, 3)
	require.NoError(t, err)
	ours, err := newPushServer(r, h)
	require.NoError(t, err)
	defer ours.close()
	plain, err := newPlainServer(r, h)
	require.NoError(t, err)
	defer plain.close()
	for name, s := range map[string]pushed{"ours": ours, "plain": plain} {
		require.NoError(t, s.fill(r.ctx, h.newest[0]), name)
		cost, err := pushOnce(r.ctx, s, h, h.newest[1])
		require.NoError(t, err, name)
		require.NoError(t, s.check(r.ctx, h.newest[1]), name)
		require.Positive(t, cost.time, name)
		require.Positive(t, cost.cpu, name)
		require.Zero(t, cost.gits, name)
		require.NoError(t, s.count(r.ctx), name)
		cost, err = pushOnce(r.ctx, s, h, h.newest[2])
		require.NoError(t, err, name)
		require.NoError(t, s.check(r.ctx, h.newest[2]), name)
		require.Error(t, s.check(r.ctx, h.newest[1]), name)
		require.Positive(t, cost.started, name)
		if name == "plain" {
			require.Less(t, cost.started, cost.gits, "git has started some")
		} else {
			require.Equal(t, cost.started, cost.gits, "git has started none")
		}
	}
}

func TestMedianOfPushes(t *testing.T) {
	m := pushCosts{{time: 3, cpu: 1, gits: 9}, {time: 1, cpu: 2, gits: 9}, {time: 2, cpu: 3, gits: 4}}.median()
	require.Equal(t, pushCost{time: 2, cpu: 2, gits: 9}, m)
}
