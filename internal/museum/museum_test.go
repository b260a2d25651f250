package museum

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var open = flag.Bool("museum", false, "put the bugs back; takes minutes")

// root is the folder of the module, seen from here.
const root = "../.."

// Every exhibit fits, and with -museum is caught.
func TestMuseum(t *testing.T) {
	dir := t.TempDir()
	if *open {
		replicate(t, dir)
	}
	canaries := make(map[string]bool)
	for _, x := range exhibits {
		t.Run(x.name, func(t *testing.T) {
			sound, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(x.file)))
			require.NoError(t, err)
			require.Equal(t, 1, bytes.Count(sound, []byte(x.old)), "%s must have this once: %s", x.file, x.old)
			if !*open {
				return
			}
			if key := fmt.Sprint(x.pkg, x.run, x.args); !canaries[key] {
				canaries[key] = true
				verdict, output := try(t, dir, x)
				require.Equal(t, passed, verdict, "the canary is dead: %s", output)
			}
			name := filepath.Join(dir, filepath.FromSlash(x.file))
			require.NoError(t, os.WriteFile(name, bytes.Replace(sound, []byte(x.old), []byte(x.bug), 1), 0o600))
			verdict, output := try(t, dir, x)
			require.NoError(t, os.WriteFile(name, sound, 0o600))
			require.Equal(t, failing, verdict, "%s", output)
			require.Contains(t, output, x.says, "caught for another reason")
		})
	}
}

// replicate copies what git knows, or would know, of the module.
func replicate(t *testing.T, dir string) {
	t.Helper()
	list := exec.CommandContext(t.Context(), "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	list.Dir = root
	files, err := list.Output()
	require.NoError(t, err)
	for name := range strings.SplitSeq(strings.Trim(string(files), "\x00"), "\x00") {
		content, err := os.ReadFile(filepath.Join(root, name))
		if errors.Is(err, os.ErrNotExist) {
			continue // deleted, but not yet from the index
		}
		require.NoError(t, err)
		to := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(to), 0o700))
		require.NoError(t, os.WriteFile(to, content, 0o600))
	}
}

// What tests can say.
const (
	passed  = "not caught"
	failing = "caught"
	broken  = "does not compile"
)

// try runs the tests of an exhibit as the copy is now. A test that hangs fails.
func try(t *testing.T, dir string, x exhibit) (verdict, output string) {
	t.Helper()
	args := []string{"test", "-short", "-count=1", "-vet=off", "-timeout=2m", "-run", x.run, x.pkg}
	cmd := exec.CommandContext(t.Context(), "go", append(args, x.args...)...)
	cmd.Dir = dir
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
