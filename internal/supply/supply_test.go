package supply

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	module = "github.com/graspsync/graspsync"
	most   = 7 // modules that the library depends on directly
)

// library reports whether an embedder's program may link a package: not what is an
// adapter to something else, an example or a tool, nor what only tests import.
func library(pkg string) bool {
	path := strings.TrimPrefix(pkg, module+"/")
	for _, prefix := range []string{"adapter/", "examples/", "internal/"} {
		if strings.HasPrefix(path, prefix) {
			return false
		}
	}
	for part := range strings.SplitSeq(path, "/") {
		if strings.HasSuffix(part, "test") || strings.HasSuffix(part, "mock") {
			return false
		}
	}
	return true
}

// The library depends on few modules directly, and on none through cgo.
func TestFewDependencies(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-f",
		`{{.ImportPath}} {{len .CgoFiles}}{{range .Imports}} {{.}}{{end}}`, module+"/...").Output()
	require.NoError(t, err)
	imports := make(map[string]bool)
	packages := 0
	for line := range strings.Lines(string(out)) {
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
	out, err = exec.CommandContext(t.Context(), "go", args...).Output()
	require.NoError(t, err)
	modules := strings.Fields(string(out))
	slices.Sort(modules)
	modules = slices.Compact(modules)
	t.Logf("%d modules: %v", len(modules), modules)
	require.LessOrEqual(t, len(modules), most)
}
