//go:build unix

package admin_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/adapter/admin"
)

// An entry that there was no room for took the next one with it, which was said to be there.
func TestLogAfterAFullDisk(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	l, err := admin.OpenLog(path)
	require.NoError(t, err)
	require.NoError(t, l.Record(admin.Entry{Command: "one"}))
	info, err := os.Stat(path)
	require.NoError(t, err)
	var before syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_FSIZE, &before))
	full := before
	full.Cur = uint64(info.Size()) + 30 //nolint:gosec // no size is negative
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &full))
	err = l.Record(admin.Entry{Command: "two"})
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &before))
	require.Error(t, err)
	for _, command := range []string{"three", "four"} {
		require.NoError(t, l.Record(admin.Entry{Command: command}))
	}
	require.NoError(t, l.Close())
	require.Equal(t, []string{"one", "three", "four"}, commandsIn(t, path))
}

// A log that can't be renamed lost all that came then.
func TestLogThatCanNotBeRenamed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	require.NoError(t, os.MkdirAll(filepath.Join(path+".1", "x"), 0o700))
	l, err := admin.OpenLog(path)
	require.NoError(t, err)
	long := strings.Repeat("x", 3<<20)
	for range 2 {
		require.NoError(t, l.Record(admin.Entry{Command: "long", Error: long}))
	}
	for range 2 {
		require.ErrorContains(t, l.Record(admin.Entry{Command: "kept", Error: long}), "which is continued")
	}
	for err := error(nil); err == nil || strings.Contains(err.Error(), "which is continued"); {
		err = l.Record(admin.Entry{Command: "more", Error: long + long})
	}
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Less(t, info.Size(), int64(24<<20))
	require.NoError(t, os.RemoveAll(path+".1"))
	require.NoError(t, l.Record(admin.Entry{Command: "again"}))
	all := commandsIn(t, path)
	require.Contains(t, all, "kept")
	require.Equal(t, "again", all[len(all)-1])
	info, err = os.Stat(path)
	require.NoError(t, err)
	require.Less(t, info.Size(), int64(1<<20))
	require.NoError(t, l.Close())
	require.ErrorIs(t, l.Record(admin.Entry{}), os.ErrClosed)
}

func commandsIn(t *testing.T, path string) (out []string) {
	l, err := admin.OpenLog(path)
	require.NoError(t, err)
	defer l.Close()
	entries, err := l.Recent(1000)
	require.NoError(t, err)
	for _, e := range entries {
		out = append(out, e.Command)
	}
	return out
}
