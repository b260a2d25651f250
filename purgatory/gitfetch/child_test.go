package gitfetch_test

import (
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/gitfetch"
	"github.com/graspsync/graspsync/purgatory/internal/gitrun"
	"github.com/graspsync/graspsync/purgatory/internal/refplan"
)

// Each child has all limits, and nothing of our environment. Most of the limits matter only in rare
// cases.
func TestPromiseP9_EveryChild(t *testing.T) {
	t.Setenv("GIT_SSL_NO_VERIFY", "1")
	t.Setenv("https_proxy", "http://127.0.0.1:1")
	there, here := bare(t, nip34.SHA1), sample(t)
	tip := history(t, there, "other", 3)[2]
	f := fetcher(t, gitfetch.Config{Memory: gitrun.NewMemory(600 << 20)})
	var mu sync.Mutex
	ran := make(map[string]bool)
	*f.Started() = func(cmd *exec.Cmd) {
		mu.Lock()
		defer mu.Unlock()
		line := strings.Join(cmd.Args, " ")
		var verb string
		for i := 1; verb == ""; i++ {
			switch a := cmd.Args[i]; {
			case a == "-c":
				i++
			case !strings.HasPrefix(a, "-"):
				verb = a
			}
		}
		ran[verb] = true
		for _, setting := range []string{
			"core.hooksPath=/dev/null", "core.fsmonitor=false", "gc.auto=0", "maintenance.auto=false", "core.fsyncMethod=fsync",
			"core.fsync=objects,derived-metadata,reference", "core.commitGraph=false", "core.packedGitWindowSize=1m",
			"core.packedGitLimit=16m", "core.bigFileThreshold=16m",
		} {
			require.Contains(t, line, "-c "+setting+" ", verb)
		}
		env := slices.DeleteFunc(slices.Clone(cmd.Env), func(s string) bool {
			return strings.HasPrefix(s, "GIT_ALLOC_LIMIT=") || strings.HasPrefix(s, "GIT_OBJECT_DIRECTORY=graspsync-quarantine-") || s == "GIT_ALTERNATE_OBJECT_DIRECTORIES=objects"
		})
		require.ElementsMatch(t, []string{
			"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/nonexistent", "LC_ALL=C",
			"GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_ATTR_NOSYSTEM=1", "GIT_TERMINAL_PROMPT=0",
			"GIT_ASKPASS=/bin/false", "GIT_ALLOW_PROTOCOL=", "GIT_NO_LAZY_FETCH=1", "GIT_SHALLOW_FILE=",
			"GIT_GRAFT_FILE=/nonexistent", "GIT_NO_REPLACE_OBJECTS=1", "GIT_OPTIONAL_LOCKS=0",
		}, env, verb)
		require.True(t, cmd.SysProcAttr.Setpgid)
		require.Equal(t, 5*time.Second, cmd.WaitDelay, "for who holds what it should write to")
	}
	get(t, f, here, serve(t, there, nil).clone(t), tip)
	name := ref(t, "refs/heads/new")
	require.NoError(t, f.UpdateRefs(t.Context(), here, []refplan.RefChange{{Name: name, New: tip}}, name))
	require.NoError(t, f.UpdateRefs(t.Context(), here, []refplan.RefChange{{Name: name, Old: tip}}, nip34.RefName{}))
	other := bare(t, nip34.SHA1)
	require.NoError(t, f.CopyObjects(t.Context(), here, other, []nip34.ObjectID{tip}))
	gitIn(t, here, "loose", "hash-object", "-w", "--stdin")
	k := keeping(t, f, here, tip)
	k.how.Prune = true
	k.maintain()
	theirs := configured(t, sample(t))
	_, err := f.Refs(t.Context(), theirs)
	require.NoError(t, err)
	_, err = f.Stat(t.Context(), theirs, []nip34.ObjectID{tip})
	require.NoError(t, err)
	allowed := []string{
		"index-pack", "rev-list", "update-ref", "for-each-ref", "cat-file", "pack-objects",
		"pack-refs", "reflog", "repack", "prune",
	}
	for verb := range ran {
		require.Contains(t, allowed, verb, "nothing else")
	}
	require.Len(t, ran, len(allowed))
}
