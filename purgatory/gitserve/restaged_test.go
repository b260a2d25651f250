package gitserve

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/nip34"
)

// What an earlier process had left was taken in whatever it took up, under limits that were not
// the operator's, and stayed so until somebody served the folder.
func TestStagedIsRestoredUnderTheLimitsOfTheOperator(t *testing.T) {
	ref := owner.Ref("x")
	type left struct {
		client string
		age    time.Duration
	}
	lying := []left{
		{"203.0.113.1", 15 * time.Minute}, {"203.0.113.2", 12 * time.Minute}, {"203.0.113.3", 9 * time.Minute},
		{"198.51.100.1", 6 * time.Minute}, {"203.0.113.4", 3 * time.Minute},
	}
	for name, c := range map[string]struct {
		cfg   RepositoriesConfig
		stay  []int // of these
		ended map[string]uint64
	}{
		"all":        {RepositoriesConfig{}, []int{0, 1, 2, 3, 4}, nil},
		"short time": {RepositoriesConfig{StageHold: 10 * time.Minute}, []int{2, 3, 4}, map[string]uint64{endedExpired: 2}},
		// Each client has one, so that a new one has no room; a network yields what it has beyond four parts.
		"little room":        {RepositoriesConfig{MaxStaged: 3 * leastStaged, fixed: folderNumbers{MaxStagedPerOwner: 1 << 30, MaxStagedPerClient: 1 << 30}}, []int{1, 2, 4}, map[string]uint64{endedDisplaced: 2}},
		"of one owner":       {RepositoriesConfig{fixed: folderNumbers{MaxStagedPerOwner: 3 * leastStaged}}, []int{1, 2, 4}, map[string]uint64{endedDisplaced: 2}},
		"none of one client": {RepositoriesConfig{fixed: folderNumbers{MaxStagedPerClient: 1}}, nil, map[string]uint64{endedDisplaced: 5}},
		"both": {
			RepositoriesConfig{StageHold: 10 * time.Minute, MaxStaged: 2 * leastStaged, fixed: folderNumbers{MaxStagedPerOwner: 1 << 30, MaxStagedPerClient: 1 << 30}},
			[]int{2, 3}, map[string]uint64{endedExpired: 2, endedDisplaced: 1},
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "git")
			r, err := Open(dir, RepositoriesConfig{})
			require.NoError(t, err)
			require.NoError(t, r.Create(t.Context(), ref, nip34.SHA1))
			require.NoError(t, r.Close())
			for i, u := range lying {
				text, err := json.Marshal(note{
					Repo: ref.String(), Client: u.client, Tips: map[string]string{stranger(i): strings.Repeat("1", 40)},
					Bytes: leastStaged, Since: time.Now().Add(-u.age),
				})
				require.NoError(t, err)
				folder := filepath.Join(dir, area, fmt.Sprint("upload", i))
				require.NoError(t, os.Mkdir(folder, 0o700))
				require.NoError(t, os.WriteFile(filepath.Join(folder, noteName), text, 0o600))
			}
			r, err = Open(dir, c.cfg)
			require.NoError(t, err)
			defer func() { require.NoError(t, r.Close()) }()
			var here, folders []int
			for i := range lying {
				if len(r.Staged(ref, eventID(t, stranger(i)))) > 0 {
					here = append(here, i)
				}
				if _, err := os.Stat(filepath.Join(dir, area, fmt.Sprint("upload", i))); err == nil {
					folders = append(folders, i)
				}
			}
			require.Equal(t, c.stay, here)
			require.Equal(t, c.stay, folders, "of what was not restored nothing is left")
			require.Len(t, lies(t, dir), len(c.stay))
			require.EqualValues(t, len(c.stay)*leastStaged, r.staging.uploads.Bytes())
			for why, n := range r.staging.ended {
				require.Equal(t, c.ended[why], n, why)
			}
		})
	}
}

// A configuration that can't be used opens nothing, and is told field by field.
func TestOpenNamesWhatCanNotBeUsed(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "git")
	_, err := Open(dir, RepositoriesConfig{Git: "/nonexistent", StageHold: -1, MaxStaged: -1, MaxBytes: -1})
	require.ErrorIs(t, err, ErrConfig)
	for _, name := range []string{"Git", "StageHold", "MaxStaged", "MaxBytes"} {
		require.ErrorContains(t, err, name)
	}
	require.NoDirExists(t, dir)
}
