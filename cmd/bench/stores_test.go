package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestStores(t *testing.T) {
	r := newTestRun(t)
	d, err := openDataset(r.cache, 50, 1)
	require.NoError(t, err)
	relays, err := startRemote(t.Context(), d, 0)
	require.NoError(t, err)
	defer func() { require.NoError(t, relays.close()) }()
	for _, b := range backends() {
		alone, err := b.writeAlone(r, d) // checks the content
		require.NoError(t, err)
		require.Positive(t, alone.saved)
		require.Positive(t, alone.cpu)
		caughtUp, err := b.catchUp(r, d, relays)
		require.NoError(t, err)
		require.Positive(t, caughtUp.saved)
		require.Positive(t, caughtUp.cpu)
	}
}
