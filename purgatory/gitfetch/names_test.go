package gitfetch

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/nip34"

	"github.com/graspsync/graspsync/purgatory/internal/gitrun"
)

// The refs of a repository are its branches, its tags and those of events; what an operator has
// made of other names is none of our business.
func TestRefsOfARepository(t *testing.T) {
	dir := bare(t, nip34.SHA1)
	main := packed(t, dir, nip34.ObjectID{}, "main")
	event := "refs/nostr/" + strings.Repeat("ab", 32)
	ours := []string{"refs/heads/main", "refs/heads/a/b", "refs/tags/v1", event}
	others := []string{
		"refs/nostr/x", event + "00", "refs/nostr/" + strings.Repeat("AB", 32), event + "/x", "refs/notes/x", "refs/pull/1/head", "refs/nostrich",
	}
	for _, name := range append(others[:2:2], append(ours, "refs/notes/x", "refs/pull/1/head", "refs/nostrich")...) {
		git(t, dir, "update-ref", name, main.String())
	}
	refs, err := fetcher(t, Config{}).Refs(t.Context(), dir)
	require.NoError(t, err)
	require.Len(t, refs.At, len(ours))
	for _, name := range ours {
		r, ok := refName(name)
		require.True(t, ok, name)
		require.Equal(t, name, r.String())
		require.Equal(t, main, refs.At[r], name)
	}
	for _, name := range others {
		_, ok := refName(name)
		require.False(t, ok, name)
	}
}

// A process that has gone has no limit set, and that is told.
func TestLimitOfWhoHasGone(t *testing.T) {
	require.Error(t, gitrun.LimitMemory(1<<30, 1))
	require.Error(t, gitrun.LimitFiles(1<<30, 1))
}

// What has come is dropped, or it is told that it could not be.
func TestSpoolIsEmptied(t *testing.T) {
	s, err := newSpool(osFiles{}, filepath.Join(t.TempDir(), "spool"))
	require.NoError(t, err)
	for range 2 {
		n, err := s.Write([]byte("abc"))
		require.NoError(t, err)
		require.Equal(t, 3, n)
		require.NoError(t, s.empty())
		info, err := s.file.Stat()
		require.NoError(t, err)
		require.Zero(t, info.Size())
	}
	_, err = s.Write([]byte("de"))
	require.NoError(t, err)
	info, err := s.file.Stat()
	require.NoError(t, err)
	require.EqualValues(t, 2, info.Size(), "it goes on at its beginning")
	require.NoError(t, s.file.Close())
	require.Error(t, s.empty())
}

// Purgatory waits 24 h for a fetch, or 6 h for each GiB of what one may bring: for less it
// would cut off at its own time whoever is allowed to take longer, and not know why.
func TestLongestFetch(t *testing.T) {
	for gib := int64(1); gib < 1000; gib++ {
		c := Config{MaxPackBytes: gib<<30 - 1}.withDefaults()
		require.Less(t, c.earned(c.MaxPackBytes), max(24, 6*time.Duration(gib-1))*time.Hour, gib)
	}
}
