package supply

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	module = "github.com/graspsync/graspsync"
	root   = "../.." // folder of the library, relative to this package
	most   = 8       // maximum number of direct dependencies of the library
)

// library reports whether a program that embeds the library may link a package. Tools and packages
// for tests are excluded.
func library(pkg string) bool {
	path := strings.TrimPrefix(pkg, module+"/")
	if strings.HasPrefix(path, "internal/") {
		return false
	}
	for part := range strings.SplitSeq(path, "/") {
		if strings.HasSuffix(part, "test") || strings.HasSuffix(part, "mock") {
			return false
		}
	}
	return true
}

// goCommand runs the go command in a folder without go.work and returns its output.
func goCommand(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(t, err, "go %v: %s", args, &stderr)
	return string(out)
}

// The library has few direct dependencies, and none with cgo.
func TestFewDependencies(t *testing.T) {
	imports := make(map[string]bool)
	packages := 0
	for line := range strings.Lines(goCommand(t, root, "list", "-f", `{{.ImportPath}} {{len .CgoFiles}}{{range .Imports}} {{.}}{{end}}`, "./...")) {
		fields := strings.Fields(line)
		if !library(fields[0]) {
			continue
		}
		packages++
		require.Equal(t, "0", fields[1], "%s uses cgo", fields[0])
		for _, imported := range fields[2:] {
			require.NotEqual(t, "C", imported, fields[0])
			if first, _, _ := strings.Cut(imported, "/"); strings.Contains(first, ".") && !strings.HasPrefix(imported, module) {
				imports[imported] = true
			}
		}
	}
	require.Greater(t, packages, 10)
	args := []string{"list", "-f", "{{.Module.Path}}"}
	for imported := range imports {
		args = append(args, imported)
	}
	modules := strings.Fields(goCommand(t, root, args...))
	slices.Sort(modules)
	modules = slices.Compact(modules)
	t.Logf("%d modules: %v", len(modules), modules)
	require.LessOrEqual(t, len(modules), most)
}

// Programs that embed sync, purgatory and the git server link no relay framework and no database.
func TestNoFrameworkComesAlong(t *testing.T) {
	dir := t.TempDir()
	here, err := filepath.Abs(root)
	require.NoError(t, err)
	for name, content := range map[string]string{
		"go.mod": "module relay.example\n\ngo 1.26.0\n\nrequire " + module + " v0.0.0\n\nreplace " + module + " => " + here + "\n",
		"main.go": `package main

import (
	_ "` + module + `/purgatory"
	_ "` + module + `/purgatory/gitserve"
	_ "` + module + `/sync"
)

func main() {}
`,
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
	}
	goCommand(t, dir, "mod", "tidy")
	sums, err := os.ReadFile(filepath.Join(dir, "go.sum"))
	require.NoError(t, err)
	require.Contains(t, string(sums), "github.com/nbd-wtf/go-nostr ")
	for _, foreign := range []string{"khatru", "eventstore", "badger", "fasthttp"} {
		require.NotContains(t, string(sums), foreign)
	}
}
