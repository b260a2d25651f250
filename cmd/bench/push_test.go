package main

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func pushRun(t *testing.T) *run {
	t.Helper()
	return &run{ctx: t.Context(), quick: true, cache: t.TempDir(), dir: t.TempDir()}
}

// Both servers serve each commit after its push.
func TestPush(t *testing.T) {
	r := pushRun(t)
	h, err := pushHistory(r, 10, 2)
	require.NoError(t, err)
	ours, err := newPushServer(r, h)
	require.NoError(t, err)
	defer ours.close()
	plain, err := newPlainServer(r, h)
	require.NoError(t, err)
	defer plain.Close()
	for url, push := range map[string]func(context.Context, string) (pushCost, error){ours.url(): ours.push, plain.url(): plain.push} {
		cost, err := push(t.Context(), h.newest[1])
		require.NoError(t, err)
		require.Positive(t, cost.time)
		require.Positive(t, cost.cpu)
		at, err := h.at(t.Context(), url)
		require.NoError(t, err)
		require.Equal(t, h.newest[1], at)
	}
}

// at returns the commit of a server's branch.
func (h *history) at(ctx context.Context, url string) (string, error) {
	out, err := h.git(ctx, nil, "ls-remote", url, "refs/heads/main")
	id, _, _ := strings.Cut(out, "\t")
	return id, err
}
