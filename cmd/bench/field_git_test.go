package main

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
)

// The git data of a repository contains everything that states and pull requests name, and is
// cached.
func TestFieldWithGitData(t *testing.T) {
	r := &run{ctx: t.Context(), quick: true, cache: t.TempDir()}
	f, path, err := loadGitField(r)
	require.NoError(t, err)
	there, err := gitIn(t.Context(), gitFolder(path), nil, "for-each-ref", "--format=%(objectname)")
	require.NoError(t, err)
	states, pulls := 0, 0
	for _, ev := range f.Events {
		for _, tag := range ev.Tags {
			switch {
			case ev.Kind == graspsync.KindState && strings.HasPrefix(tag[0], "refs/"):
				states++
				require.Contains(t, there, tag[1])
			case ev.Kind == graspsync.KindPullRequest && tag[0] == "c":
				pulls++
				require.Contains(t, there, tag[1])
			}
		}
	}
	require.Greater(t, states, len(f.Repositories))
	require.Positive(t, pulls)
	wanted, err := f.wanted()
	require.NoError(t, err)
	require.NotEmpty(t, wanted)

	made, err := os.Stat(path)
	require.NoError(t, err)
	again, _, err := loadGitField(r)
	require.NoError(t, err)
	require.Equal(t, f.Repositories, again.Repositories)
	now, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, made.ModTime(), now.ModTime())
}
