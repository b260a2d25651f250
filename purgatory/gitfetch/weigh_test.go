package gitfetch_test

import (
	"crypto/rand"
	"encoding/base64"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/nip34"
)

// The size of a pull request is the size of objects that only it needs: 0 if a branch contains
// them.
func TestWeigh(t *testing.T) {
	dir := t.TempDir()
	git(t, dir, "init", "-q", "-b", "main")
	commit := func(size int) nip34.ObjectID {
		text := make([]byte, size)
		_, _ = rand.Read(text)
		require.NoError(t, os.WriteFile(filepath.Join(dir, "f"), []byte(base64.StdEncoding.EncodeToString(text)), 0o600))
		git(t, dir, "add", "f")
		git(t, dir, "commit", "-q", "-m", "change")
		return oid(t, git(t, dir, "rev-parse", "HEAD"))
	}
	base, pull, update := commit(300<<10), commit(100<<10), commit(50<<10)
	f := fetcher(t)
	weigh := func(id nip34.ObjectID, but ...nip34.ObjectID) int64 {
		n, err := f.DiskUsage(t.Context(), filepath.Join(dir, ".git"), []nip34.ObjectID{id}, but)
		require.NoError(t, err)
		return n
	}
	require.InDelta(t, 150<<10, weigh(update, base), 10<<10)
	require.InDelta(t, 50<<10, weigh(update, pull, base), 10<<10)
	require.InDelta(t, 450<<10, weigh(update), 20<<10)
	require.Zero(t, weigh(pull, update), "a branch has it")
	require.Zero(t, weigh(pull, base, pull))
	_, err := f.DiskUsage(t.Context(), filepath.Join(dir, ".git"), []nip34.ObjectID{oid(t, "1234567890123456789012345678901234567890")}, nil)
	require.Error(t, err)
}
