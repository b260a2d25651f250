package main

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// A new data set is equal to the cached one.
func TestDatasetIsTheSameEachTime(t *testing.T) {
	dir := t.TempDir()
	d, err := openDataset(dir, 100)
	require.NoError(t, err)
	first, err := os.ReadFile(d.path)
	require.NoError(t, err)
	require.NoError(t, os.Remove(d.path))
	again, err := openDataset(dir, 100)
	require.NoError(t, err)
	second, err := os.ReadFile(again.path)
	require.NoError(t, err)
	require.Equal(t, string(first), string(second))
	require.Equal(t, d, again)
	require.Equal(t, 12, d.repos)
	require.Equal(t, 31, d.roots)

	n, listed := 0, 0
	for ev, err := range d.events() {
		require.NoError(t, err)
		require.True(t, ev.CheckID())
		require.True(t, d.has(ev.ID))
		n++
		if ev.Kind == 30617 {
			listed++
			require.Len(t, ev.Tags.Find("relays"), 3)
		}
	}
	require.Equal(t, 100, n)
	require.Equal(t, d.repos, listed)
	require.NoError(t, os.WriteFile(d.path, first[:len(first)/2], 0o600))
	_, err = openDataset(dir, 100)
	require.Error(t, err)
}
