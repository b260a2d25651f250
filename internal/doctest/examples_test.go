package doctest

import (
	"errors"
	"go/build"
	"go/doc"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Each public package has an Example, so that readers see a use of it that compiles.
func TestEveryPublicPackageHasAnExample(t *testing.T) {
	root := filepath.Join("..", "..")
	var without []string
	public := 0
	require.NoError(t, filepath.WalkDir(root, func(dir string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		if name := d.Name(); dir != root && (strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") || name == "internal" || name == "testdata") {
			return fs.SkipDir
		}
		pkg, err := build.ImportDir(dir, 0)
		if none := (*build.NoGoError)(nil); errors.As(err, &none) || err == nil && pkg.Name == "main" {
			return nil // no importable package
		}
		require.NoError(t, err)
		public++
		if !hasExample(t, dir, slices.Concat(pkg.TestGoFiles, pkg.XTestGoFiles)) {
			without = append(without, strings.TrimPrefix(dir, root+string(filepath.Separator)))
		}
		return nil
	}))
	require.Greater(t, public, 20)
	require.Empty(t, without, "packages without an Example")
}

func hasExample(t *testing.T, dir string, files []string) bool {
	t.Helper()
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(dir, name), nil, parser.ParseComments|parser.SkipObjectResolution)
		require.NoError(t, err)
		if len(doc.Examples(file)) > 0 {
			return true
		}
	}
	return false
}
