package museum

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

var open = flag.Bool("museum", false, "put the bugs back; takes minutes")

// root is the relative path of the module.
const root = "../../.."

// Every exhibit fits the code, and with -museum its bug is caught. -parallel sets the number of
// exhibits at the same time. They share a copy of the module, with an overlay for the file with the
// bug.
func TestMuseum(t *testing.T) {
	dir := t.TempDir()
	if *open {
		replicate(t, dir)
	}
	canaries := make(map[string]func() (verdict, output string))
	for _, x := range exhibits {
		key := fmt.Sprint(x.pkg, x.run, x.args)
		if canaries[key] == nil {
			canaries[key] = sync.OnceValues(func() (verdict, output string) { return try(t, dir, x, "") })
		}
		t.Run(x.name, func(t *testing.T) {
			sound, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(x.file)))
			require.NoError(t, err)
			require.Equal(t, 1, bytes.Count(sound, []byte(x.old)), "%s must have this once: %s", x.file, x.old)
			if !*open {
				return
			}
			t.Parallel()
			verdict, output := canaries[key]()
			require.Equal(t, passed, verdict, "the canary is dead: %s", output)
			verdict, output = try(t, dir, x, overlay(t, dir, x))
			require.Equal(t, failing, verdict, "%s", output)
			require.Contains(t, output, x.says, "caught for another reason")
		})
	}
}

// overlay makes the go command use a file with the bug.
func overlay(t *testing.T, dir string, x exhibit) (flag string) {
	t.Helper()
	name, with := filepath.Join(dir, filepath.FromSlash(x.file)), t.TempDir()
	sound, err := os.ReadFile(name)
	require.NoError(t, err)
	bug := filepath.Join(with, "bug.go")
	require.NoError(t, os.WriteFile(bug, bytes.Replace(sound, []byte(x.old), []byte(x.bug), 1), 0o600))
	list, err := json.Marshal(map[string]any{"Replace": map[string]string{name: bug}})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(with, "overlay.json"), list, 0o600))
	return "-overlay=" + filepath.Join(with, "overlay.json")
}

// replicate copies the files of the module that git tracks or would track.
func replicate(t *testing.T, dir string) {
	t.Helper()
	list := exec.CommandContext(t.Context(), "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	list.Dir = root
	files, err := list.Output()
	require.NoError(t, err)
	for name := range strings.SplitSeq(strings.Trim(string(files), "\x00"), "\x00") {
		content, err := os.ReadFile(filepath.Join(root, name))
		if errors.Is(err, os.ErrNotExist) {
			continue // deleted and still in the index
		}
		require.NoError(t, err)
		to := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(to), 0o700))
		require.NoError(t, os.WriteFile(to, content, 0o600))
	}
}

// Results of tests.
const (
	passed  = "not caught"
	failing = "caught"
	broken  = "does not compile"
)

// try runs the tests of an exhibit in the copy, with an overlay if it is not empty. A test that
// hangs fails.
func try(t *testing.T, dir string, x exhibit, overlay string) (verdict, output string) {
	t.Helper()
	args := []string{"test", "-short", "-count=1", "-vet=off", "-timeout=2m", overlay, "-run", x.run, x.pkg}
	args = slices.DeleteFunc(args, func(a string) bool { return a == "" })
	cmd := exec.CommandContext(t.Context(), "go", append(args, x.args...)...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "GRASPSYNC_ROUNDS=3") // all cases, not a random sample
	out, err := cmd.CombinedOutput()
	output = string(out)
	switch {
	case err == nil:
		return passed, output
	case strings.Contains(output, "[build failed]"), strings.Contains(output, "[setup failed]"):
		return broken, output
	}
	return failing, output
}
