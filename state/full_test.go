//go:build linux

package state_test

import (
	"fmt"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/state"
)

// On a full disk writes fail with errors and reads continue. After there is space, writes succeed.
func TestDBOnAFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=4m"); err != nil {
		t.Skip("no small disk can be made here:", err)
	}
	t.Cleanup(func() { require.NoError(t, syscall.Unmount(dir, syscall.MNT_DETACH)) })
	d := open(t, dir, state.Config{})
	want := make(map[string]string)
	var err error
	for i := 0; err == nil; i++ {
		r := state.Record{Key: fmt.Sprint(i), Value: make([]byte, 50_000)}
		if err = d.Put(t.Context(), r); err == nil {
			want[r.Key] = string(r.Value)
		}
	}
	require.ErrorIs(t, err, syscall.ENOSPC)
	require.Greater(t, len(want), 20)
	require.EqualValues(t, 1, d.Stats().Failures)
	require.Equal(t, want, all(t, d))
	require.Error(t, d.Put(t.Context(), state.Record{Key: "more", Value: make([]byte, 300_000)}))

	require.NoError(t, syscall.Mount("", dir, "", syscall.MS_REMOUNT, "size=16m"))
	require.NoError(t, d.Put(t.Context(), state.Record{Key: "more", Value: []byte("x")}))
	want["more"] = "x"
	require.NoError(t, d.Close())
	require.Equal(t, want, all(t, open(t, dir, state.Config{})))
	require.Zero(t, d.Stats().SetAside)
}
