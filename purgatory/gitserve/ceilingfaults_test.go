package gitserve

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/racetest"
	"github.com/graspsync/graspsync/nip34"
)

// nothing has given way.
func nothing(graspsync.PubKey) int64 { return 0 }

// measuring is a ceiling above repositories of which pull requests need nothing.
func measuring(repos *Repositories, cfg RepositoriesConfig) *ceiling {
	return newCeiling(repos.layout, cfg, func(context.Context, string) (int64, error) { return 0, nil },
		newTasks(), &failures{log: slog.New(slog.DiscardHandler)})
}

// Each thing that is looked at fails once while it is measured what all have: what could not be
// measured is as it was, all is measured anew soon, and who does that is done with it.
func TestEachFaultOfMeasuringIsMadeUpFor(t *testing.T) {
	racetest.Amounts(t)
	repos := newRepositories(t)
	for _, name := range []string{"x", "y"} {
		require.NoError(t, repos.Create(t.Context(), owner.Ref(name), nip34.SHA1))
	}
	require.NoError(t, repos.Depart(t.Context(), owner.Ref("y")))
	folder := owner.Ref("x").Owner.String()
	require.NoError(t, os.WriteFile(filepath.Join(repos.dir, "file"), nil, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(repos.dir, folder, "file"), nil, 0o600))
	whole := measuring(repos, RepositoriesConfig{MaxBytes: 1 << 30})
	require.True(t, whole.stale(time.Now()))
	require.False(t, whole.stale(time.Now()), "somebody does it")
	whole.walk(t.Context())
	require.Len(t, whole.sizes, 1)
	require.Positive(t, whole.sum)
	require.Equal(t, whole.sum, whole.sizes[folder].disk)
	require.False(t, whole.stale(time.Now()), "it was done")
	require.True(t, whole.stale(time.Now().Add(sizesAge)))
	<-whole.walking
	root := repos.root
	for n := 1; ; n++ {
		f := &faultyFolder{folder: root, n: n}
		c := measuring(repos, RepositoriesConfig{MaxBytes: 1 << 30})
		gone := "of somebody who has gone"
		c.sizes[gone], c.sum = size{disk: 5}, 5
		repos.root = f
		require.True(t, c.stale(time.Now()))
		c.walk(t.Context())
		repos.root = root
		if f.failed() == "" {
			require.Greater(t, n, 5)
			break
		}
		require.Contains(t, c.sizes, gone)
		require.False(t, c.stale(time.Now()), f.failed())
		require.True(t, c.stale(time.Now().Add(sizeAge)), f.failed())
		c.walk(t.Context())
		require.False(t, c.walked.IsZero())
		require.Equal(t, whole.sum, c.sum, f.failed())
		require.NotContains(t, c.sizes, gone)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	c := measuring(repos, RepositoriesConfig{MaxBytes: 1 << 30})
	require.True(t, c.stale(time.Now()))
	c.walk(over)
	require.True(t, c.walked.IsZero(), "it was not done to its end")
}

// What pull requests take up is the sum of what they do in each repository of an owner; what is
// none is passed by, and what fails is told.
func TestWeighingAllOfAnOwner(t *testing.T) {
	repos := newRepositories(t)
	folder := owner.Ref("x").Owner.String()
	c := measuring(repos, RepositoriesConfig{MaxOwnerBytes: 1 << 30})
	var weighed []string
	broken := errors.New("broken")
	fails := ""
	c.weigh = func(_ context.Context, dir string) (int64, error) {
		if weighed = append(weighed, dir); dir == fails {
			return 1000, broken
		}
		return 10, nil
	}
	sum, err := c.weighAll(t.Context(), folder)
	require.NoError(t, err, "there is nothing")
	require.Zero(t, sum)
	for _, name := range []string{"x", "y", "z"} {
		require.NoError(t, repos.Create(t.Context(), owner.Ref(name), nip34.SHA1))
	}
	require.NoError(t, os.Mkdir(filepath.Join(repos.dir, folder, "none"), 0o700))
	sum, err = c.weighAll(t.Context(), folder)
	require.NoError(t, err)
	require.EqualValues(t, 30, sum)
	for _, fails = range weighed[:3] {
		sum, err = c.weighAll(t.Context(), folder)
		require.ErrorIs(t, err, broken)
		require.Zero(t, sum)
	}
	root := repos.root
	repos.root = &faultyFolder{folder: root, n: 1}
	_, err = c.weighAll(t.Context(), folder)
	repos.root = root
	require.ErrorIs(t, err, syscall.EIO)
}

// namedOften is a file of which so many names are known, or none.
type namedOften struct {
	fs.FileInfo
	sys any
}

func (n namedOften) Sys() any { return n.sys }

// A file has one name at least, also where nobody can tell.
func TestLinksOfAFile(t *testing.T) {
	require.EqualValues(t, 1, linksOf(namedOften{}))
	for links, want := range map[uint64]int64{0: 1, 1: 1, 2: 2, 7: 7} {
		st := &syscall.Stat_t{}
		st.Nlink += links
		require.EqualValues(t, want, linksOf(namedOften{sys: st}))
	}
}
