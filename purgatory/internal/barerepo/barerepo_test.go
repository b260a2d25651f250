package barerepo

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/internal/refplan"
)

func ref(t *testing.T, name string) nip34.RefName {
	t.Helper()
	r, err := nip34.ParseRefName(name)
	require.NoError(t, err)
	return r
}

func id(t testing.TB, digit string) nip34.ObjectID {
	t.Helper()
	one, err := nip34.ParseObjectID(strings.Repeat(digit, 40))
	require.NoError(t, err)
	return one
}

func write(t testing.TB, dir, name, text string) {
	t.Helper()
	path := filepath.Join(dir, filepath.FromSlash(name))
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
}

func disk(t *testing.T, dir string) Disk {
	t.Helper()
	root, err := os.OpenRoot(dir)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, root.Close()) })
	return root
}

// After a deletion, the reflog of HEAD contains the value of the ref and its complete reflog lines.
func TestLogRemoved(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "logs/refs/heads/x", "one\ntwo\nhal")
	at := time.Unix(1_700_000_000, 0)
	require.NoError(t, LogRemoved(disk(t, dir), ".", []refplan.RefChange{{Name: ref(t, "refs/heads/x"), Old: id(t, "1")}, {Name: ref(t, "refs/heads/y"), Old: id(t, "2")}}, at))
	one, two := id(t, "1").String(), id(t, "2").String()
	log, err := os.ReadFile(filepath.Join(dir, "logs", "HEAD"))
	require.NoError(t, err)
	require.Equal(t, "one\ntwo\n"+
		one+" "+one+" graspsync <graspsync> 1700000000 +0000\tgraspsync: deleted refs/heads/x\n"+
		two+" "+two+" graspsync <graspsync> 1700000000 +0000\tgraspsync: deleted refs/heads/y\n", string(log))
	before := log
	event, err := graspsync.ParseEventID(strings.Repeat("e", 64))
	require.NoError(t, err)
	require.NoError(t, LogRemoved(disk(t, dir), ".", []refplan.RefChange{{Name: nip34.EventRef(event), Old: id(t, "3")}}, at))
	log, err = os.ReadFile(filepath.Join(dir, "logs", "HEAD"))
	require.NoError(t, err)
	require.Equal(t, before, log, "events say where their refs were")
}

// The latest complete lines of a reflog are kept, up to 1 MiB.
func TestLogRemovedOfALongLog(t *testing.T) {
	for _, more := range []int{-1, 0, 1, 2, 63, 64, 65, 5000} {
		dir := t.TempDir()
		var b strings.Builder
		for i := 0; b.Len() < 1<<20+more; i++ {
			fmt.Fprintf(&b, "%063d\n", i)
		}
		log := b.String()[b.Len()-(1<<20+more):]
		write(t, dir, "logs/refs/heads/x", log)
		require.NoError(t, LogRemoved(disk(t, dir), ".", []refplan.RefChange{{Name: ref(t, "refs/heads/x"), Old: id(t, "1")}}, time.Unix(0, 0)))
		got, err := os.ReadFile(filepath.Join(dir, "logs", "HEAD"))
		require.NoError(t, err)
		want := log
		if more > 0 {
			want = log[more:]
			want = want[strings.IndexByte(want, '\n')+1:]
		}
		kept, line, _ := strings.Cut(string(got), id(t, "1").String())
		require.True(t, want == kept, "%d: %d bytes, not %d", more, len(kept), len(want))
		require.Contains(t, line, "deleted refs/heads/x\n")
	}
}
