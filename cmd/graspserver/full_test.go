//go:build linux

package main

import (
	"context"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A start on a full disk ended by SIGBUS within badger, and 60 lines of its stack.
func TestCaseH7_StartOnAFullDisk(t *testing.T) {
	data := t.TempDir()
	if err := syscall.Mount("tmpfs", data, "tmpfs", 0, "size=32m"); err != nil {
		t.Skip("no small disk can be made here:", err)
	}
	t.Cleanup(func() { require.NoError(t, syscall.Unmount(data, syscall.MNT_DETACH)) })
	opt, err := read([]string{"-listen", "127.0.0.1:0", "-domain", "grasp.example", "-data", data})
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err = run(ctx, opt, newLogger(t.Output(), opt), nil)
	for _, part := range []string{"no room on the disk", " MiB are free", "128 MiB are needed", data} {
		require.ErrorContains(t, err, part)
	}
	require.NoFileExists(t, filepath.Join(data, "events", "00001.mem"))
}
