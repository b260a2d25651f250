package admin_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/adapter/admin"
)

// Entries are read again after a restart, also after a line that was cut off.
func TestLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	l, err := admin.OpenLog(path)
	require.NoError(t, err)
	require.NoError(t, l.Record(admin.Entry{By: "me", Command: "first", Args: []string{"a\nb"}}))
	require.NoError(t, l.Close())
	require.ErrorIs(t, l.Record(admin.Entry{}), os.ErrClosed)
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = f.WriteString(`{"at":"20`)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	l, err = admin.OpenLog(path)
	require.NoError(t, err)
	require.NoError(t, l.Record(admin.Entry{Command: "second"}))
	require.NoError(t, l.Close())
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, `{"at":"0001-01-01T00:00:00Z","by":"me","command":"first","args":["a\nb"],"outcome":""}
{"at":"20
{"at":"0001-01-01T00:00:00Z","by":"","command":"second","outcome":""}
`, string(text))
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm(), "it contains names and reasons")
	l, err = admin.OpenLog(t.TempDir())
	require.Error(t, err)
	require.Nil(t, l, "a caller would close it")
}

// The log had no maximum size.
func TestLogIsBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	l, err := admin.OpenLog(path)
	require.NoError(t, err)
	large := admin.Entry{Args: []string{strings.Repeat("x", 1<<20)}}
	for range 50 {
		require.NoError(t, l.Record(large))
	}
	require.NoError(t, l.Record(admin.Entry{Command: "last"}))
	require.NoError(t, l.Close())
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Contains(t, string(text), "last")
	sum := 0
	files, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	for _, f := range files {
		info, err := f.Info()
		require.NoError(t, err)
		sum += int(info.Size())
	}
	require.Less(t, sum, 36<<20)
	require.Greater(t, sum, 16<<20, "the previous file stays")
}
