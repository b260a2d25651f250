package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestProfiles(t *testing.T) {
	dir := t.TempDir()
	p := profiles{cpu: filepath.Join(dir, "cpu.prof"), mem: filepath.Join(dir, "mem.prof")}
	require.True(t, p.missing())
	stop, err := p.start("canned ours by NIP-77")
	require.NoError(t, err)
	require.NoError(t, stop())
	require.False(t, p.missing())
	for _, name := range []string{"cpu-canned-ours-by-NIP-77.prof", "mem-canned-ours-by-NIP-77.prof"} {
		info, err := os.Stat(filepath.Join(dir, name))
		require.NoError(t, err)
		require.Positive(t, info.Size())
	}
	none, err := new(profiles).start("nothing")
	require.NoError(t, err)
	require.NoError(t, none())
	require.False(t, new(profiles).missing())
}
