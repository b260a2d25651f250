package admin_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/adapter/admin"
)

// What was commanded is there after a restart, also after one in the middle of a line, and the file
// does not grow for ever.
func TestLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	open := func() *admin.Log {
		l, err := admin.OpenLog(path)
		require.NoError(t, err)
		return l
	}
	commands := func(l *admin.Log, most int) (out []string) {
		entries, err := l.Recent(most)
		require.NoError(t, err)
		for _, e := range entries {
			out = append(out, e.Command)
		}
		return out
	}
	l := open()
	require.Empty(t, commands(l, 10))
	require.NoError(t, l.Record(admin.Entry{At: time.Unix(1, 0), By: "me", Command: "first", Args: []string{"a\nb"}}))
	require.NoError(t, l.Close())
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = f.WriteString(`{"at":"20`)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	l = open()
	require.NoError(t, l.Record(admin.Entry{Command: "second"}))
	require.Equal(t, []string{"first", "second"}, commands(l, 10))
	require.Equal(t, []string{"second"}, commands(l, 1))
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm(), "it says who was blocked and why")

	long := strings.Repeat("x", 1<<20)
	for range 10 {
		require.NoError(t, l.Record(admin.Entry{Command: "long", Error: long}))
	}
	require.NoError(t, l.Record(admin.Entry{Command: "last"}))
	total := int64(0)
	for _, p := range []string{path, path + ".1"} {
		info, err := os.Stat(p)
		require.NoError(t, err)
		total += info.Size()
	}
	require.LessOrEqual(t, total, int64(17<<20))
	all := commands(l, 1000)
	require.Equal(t, "last", all[len(all)-1])
	require.Greater(t, len(all), 7, "the one before is kept")
	require.NoError(t, l.Close())
	require.Error(t, l.Record(admin.Entry{}))
	_, err = admin.OpenLog(t.TempDir())
	require.Error(t, err)
}
