package reference

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/internal/goldentest"
)

const root = "../../.."

// optionTypes are the names of structs with options.
var optionTypes = []string{"Config", "Tuning", "BudgetConfig", "Limit", "Limits", "Times", "RepositoriesConfig"}

var (
	defaults = regexp.MustCompile(`\bDefaults? to (.*?)(?:[.;:] |[.;:]?$)`)
	quantity = regexp.MustCompile(`(?:^| )\d[\d,]*(?: (?:ms|s|min|h|days?|[KMG]iB)\b)?`)
	flag     = regexp.MustCompile(`(?m)^\t([A-Z]\w+) .*group:"`)
	capital  = regexp.MustCompile(`([a-z])([A-Z])`)
)

// TestOptions checks that docs/configuration.md contains every option with a number as default. It
// reads the number from the field's documentation, which tests of the package compare with the
// code.
func TestOptions(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, "docs", "configuration.md"))
	require.NoError(t, err)
	options := 0
	for _, dir := range publicPackages(t) {
		for _, file := range goFiles(t, dir) {
			for name, said := range defaultsIn(t, file) {
				name = path.Base(dir) + "." + name
				options++
				assert.True(t, row(string(page), "`"+name+"`", said), "docs/configuration.md has no row of %s with its default, %s", name, said)
			}
		}
	}
	require.Greater(t, options, 30)
}

// row reports whether a line of a table contains both texts.
func row(page, name, value string) bool {
	for line := range strings.Lines(page) {
		if strings.Contains(line, name) && strings.Contains(line, value) {
			return true
		}
	}
	return false
}

// TestFlags checks that docs/configuration.md contains every flag of graspserver.
func TestFlags(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, "docs", "configuration.md"))
	require.NoError(t, err)
	source, err := os.ReadFile(filepath.Join(root, "cmd", "graspserver", "settings.go"))
	require.NoError(t, err)
	flags := flag.FindAllStringSubmatch(string(source), -1)
	require.Greater(t, len(flags), 40)
	for _, m := range flags {
		assert.Contains(t, string(page), "`-"+strings.ToLower(capital.ReplaceAllString(m[1], "$1-$2"))+"`")
	}
}

// generated checks the part of a file in docs below its marker, or writes it with -update.
func generated(t *testing.T, file, want string) {
	t.Helper()
	const marker = "<!-- Made by go test ./cmd/internal/reference -update. -->\n"
	file = filepath.Join(root, "docs", file)
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	before, _, ok := strings.Cut(string(text), marker)
	require.True(t, ok, "%s has no marker", file)
	goldentest.Equal(t, file, before+marker+want)
}

// publicPackages returns the folders of the public packages.
func publicPackages(t *testing.T) (dirs []string) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		name := d.Name()
		if path != root && (strings.HasPrefix(name, ".") || slices.Contains([]string{"internal", "testdata", "examples", "docs"}, name) ||
			strings.HasSuffix(name, "test") || strings.HasSuffix(name, "mock")) {
			return fs.SkipDir
		}
		rel, err := filepath.Rel(root, path)
		dirs = append(dirs, filepath.ToSlash(rel))
		return err
	})
	require.NoError(t, err)
	return dirs
}

func goFiles(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, dir, "*.go"))
	require.NoError(t, err)
	return slices.DeleteFunc(files, func(file string) bool { return strings.HasSuffix(file, "_test.go") })
}

// defaultsIn returns the numeric defaults of the options in a file, by Type.Field.
func defaultsIn(t *testing.T, file string) map[string]string {
	t.Helper()
	tree, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
	require.NoError(t, err)
	found := make(map[string]string)
	ast.Inspect(tree, func(n ast.Node) bool {
		spec, ok := n.(*ast.TypeSpec)
		if !ok || !slices.Contains(optionTypes, spec.Name.Name) {
			return true
		}
		s, ok := spec.Type.(*ast.StructType)
		if !ok {
			return true
		}
		var numbers []string
		for _, field := range s.Fields.List {
			if about := field.Doc.Text(); about != "" {
				m := defaults.FindStringSubmatch(strings.Join(strings.Fields(about), " "))
				if numbers = nil; m != nil {
					numbers = quantity.FindAllString(m[1], -1)
				}
			}
			for _, name := range field.Names {
				if name.IsExported() && len(numbers) > 0 {
					found[spec.Name.Name+"."+name.Name] = strings.Trim(numbers[0], " ,")
					numbers = numbers[1:]
				}
			}
		}
		return true
	})
	return found
}

// cell escapes a text for a table.
func cell(s string) string { return strings.ReplaceAll(s, "|", `\|`) }
