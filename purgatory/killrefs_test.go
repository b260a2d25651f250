package purgatory_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/gittest"
)

// killRefs is a server that is killed while refs move.
type killRefs struct{ folder string }

// run runs the process with events to submit. Before the nth transaction of git, both are killed. 0
// means never.
func (k killRefs) run(t *testing.T, nth int, events ...*nostr.Event) (wasKilled bool) {
	t.Helper()
	real, err := exec.LookPath("git")
	require.NoError(t, err)
	shim, count := filepath.Join(t.TempDir(), "git"), filepath.Join(t.TempDir(), "count")
	require.NoError(t, os.WriteFile(shim, fmt.Appendf(nil, `#!/bin/sh
case "$*" in
*update-ref*)
	echo >> %[1]s
	[ $(wc -l < %[1]s) -eq %[2]d ] && kill -9 $PPID && exit 1;;
esac
exec %[3]s "$@"
`, count, nth, real), 0o700))
	if events == nil {
		events = []*nostr.Event{}
	}
	text, err := json.Marshal(events)
	require.NoError(t, err)
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), envFolder+"="+k.folder, envGit+"="+shim, envEvents+"="+string(text))
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		require.Equal(t, syscall.SIGKILL, exit.Sys().(syscall.WaitStatus).Signal(), "%s", out)
		return true
	}
	require.NoError(t, err, "%s", out)
	return false
}

func (k killRefs) dir() string { return folderOf(filepath.Join(k.folder, "repos"), alice) }

// refs returns the refs of alice's repository after an integrity check.
func (k killRefs) refs(t *testing.T) string {
	t.Helper()
	gittest.Run(t, k.dir(), "fsck", "--strict", "--connectivity-only")
	return gittest.Run(t, k.dir(), "for-each-ref", "--format=%(refname) %(objectname)")
}

// Replacing a ref by refs below its name takes two transactions, after one that git refuses. After a
// kill before each of them, or before each transaction of the repair, the refs are finally those of
// the old or the new state, and that state is served. Garbage collection in between deletes no
// needed object, even if its server is gone.
func TestPromiseP34_KilledBetweenTransactions(t *testing.T) {
	backend, tips := originOf(t, "main", "other")
	const at = 1_700_000_000
	d := nostrTag{"d", "r"}
	old := "refs/heads/a " + tips[0]
	made := "refs/heads/a/b " + tips[1] + "\nrefs/heads/n " + tips[1]
	for first := 1; first <= 3; first++ {
		for second := 1; second <= 5; second++ {
			t.Run(fmt.Sprintf("%d, then %d", first, second), func(t *testing.T) {
				t.Parallel()
				server := httptest.NewServer(backend)
				defer server.Close()
				k := killRefs{folder: t.TempDir()}
				for _, name := range []string{"events", "repos", "state"} {
					require.NoError(t, os.Mkdir(filepath.Join(k.folder, name), 0o700))
				}
				before := alice.Event(at, graspsync.KindState, "", d, nostrTag{"refs/heads/a", tips[0]})
				after := alice.Event(at+1, graspsync.KindState, "", d, nostrTag{"HEAD", "ref: refs/heads/a/b"},
					nostrTag{"refs/heads/a/b", tips[1]}, nostrTag{"refs/heads/n", tips[1]})
				announced := alice.Event(at, graspsync.KindAnnouncement, "", d, nostrTag{"clone", server.URL + "/r.git"})
				require.False(t, k.run(t, 0, announced, before))
				require.Equal(t, old, k.refs(t))

				require.True(t, k.run(t, first, after))
				require.Equal(t, []string{old, old, ""}[first-1], k.refs(t), "nobody reads it: we are dead")
				served, err := openRelay(filepath.Join(k.folder, "events"))
				require.NoError(t, err)
				require.False(t, served.has(after))
				server.Close()
				gittest.Run(t, k.dir(), "gc", "--quiet", "--prune=now")

				// Transactions of the repair: back to the old state if necessary, then to the new
				// one.
				killed := k.run(t, second)
				left := [][]string{{old, old, ""}, {old, old, ""}, {"", old, old, ""}}[first-1]
				require.Equal(t, second <= len(left), killed)
				if killed {
					require.Equal(t, left[second-1], k.refs(t))
					gittest.Run(t, k.dir(), "gc", "--quiet", "--prune=now")
				}
				require.False(t, k.run(t, 0))
				require.Equal(t, made, k.refs(t))
				served, err = openRelay(filepath.Join(k.folder, "events"))
				require.NoError(t, err)
				require.True(t, served.has(after))
				head, err := os.ReadFile(filepath.Join(k.dir(), "HEAD"))
				require.NoError(t, err)
				require.Equal(t, "ref: refs/heads/a/b\n", string(head))
				locks, err := filepath.Glob(filepath.Join(k.dir(), "*.lock"))
				require.NoError(t, err)
				require.Empty(t, locks)
			})
		}
	}
}
