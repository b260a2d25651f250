package reference

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/internal/goldentest"
)

const root = "../../.."

// optionTypes are the names of structs that hold what an embedder may set.
var optionTypes = []string{"Config", "Tuning", "BudgetConfig", "Limit", "Limits", "Times", "RepositoriesConfig"}

// fixedTypes are those of structs that hold what only tests set otherwise.
var fixedTypes = []string{"constants", "numbers", "budgetConstants", "folderNumbers"}

var (
	defaults = regexp.MustCompile(`(?s)^(.*?)(?:[,;.]?\s*\bDefaults?|, defaults?) to (.*?)(?:[.;:] |[.;:]?$)`)
	link     = regexp.MustCompile(`\[([\w./]+)\]`)
)

// option is a field, or several that are documented together.
type option struct{ fields, about, byDefault string }

// TestOptions: docs/limits.md has each option with its default, as the documentation of its
// field has it, which is held to the code by tests of its package.
func TestOptions(t *testing.T) {
	var out strings.Builder
	for _, dir := range publicPackages(t) {
		for _, s := range optionStructs(t, dir) {
			if slices.Contains(fixedTypes, s.name) {
				fmt.Fprintf(&out, "\n### Fixed in %s\n\n| number | value | what |\n|---|---|---|\n", dir)
			} else {
				fmt.Fprintf(&out, "\n### %s.%s\n\n| option | default | what |\n|---|---|---|\n", dir, s.name)
			}
			for _, o := range s.options {
				fmt.Fprintf(&out, "| %s | %s | %s |\n", o.fields, cell(o.byDefault), cell(o.about))
			}
		}
	}
	generated(t, "limits.md", out.String())
}

// generated checks, or with -update writes, what a file of docs has below its marker.
func generated(t *testing.T, file, want string) {
	t.Helper()
	const marker = "<!-- Made by go test ./cmd/internal/reference -update. -->\n"
	path := filepath.Join(root, "docs", file)
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	before, _, ok := strings.Cut(string(text), marker)
	require.True(t, ok, "%s has no marker", file)
	goldentest.Equal(t, path, before+marker+want)
}

// publicPackages are the folders of packages that others may import, and whose options they set.
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

type optionStruct struct {
	name    string
	options []option
}

func optionStructs(t *testing.T, dir string) (structs []optionStruct) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, dir, "*.go"))
	require.NoError(t, err)
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		tree, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
		require.NoError(t, err)
		for _, decl := range tree.Decls {
			types, ok := decl.(*ast.GenDecl)
			if !ok {
				continue
			}
			for _, spec := range types.Specs {
				spec, ok := spec.(*ast.TypeSpec)
				if !ok || !slices.Contains(optionTypes, spec.Name.Name) && !slices.Contains(fixedTypes, spec.Name.Name) {
					continue
				}
				if options := optionsOf(spec); len(options) > 0 {
					structs = append(structs, optionStruct{spec.Name.Name, options})
				}
			}
		}
	}
	return structs
}

func optionsOf(spec *ast.TypeSpec) (options []option) {
	s, ok := spec.Type.(*ast.StructType)
	if !ok {
		return nil
	}
	var names []string
	var text string
	end := func() {
		if len(names) > 0 {
			o := option{fields: "`" + strings.Join(names, "`, `") + "`", about: text}
			if m := defaults.FindStringSubmatch(text); m != nil {
				o.about, o.byDefault = m[1], link.ReplaceAllString(m[2], "$1")
			}
			o.about = link.ReplaceAllString(new(doc.Package).Synopsis(o.about), "$1")
			options = append(options, o)
		}
		names = nil
	}
	for _, field := range s.Fields.List {
		if about := cmp.Or(field.Doc.Text(), field.Comment.Text()); about != "" {
			end()
			text = strings.Join(strings.Fields(about), " ")
		}
		for _, name := range field.Names {
			if name.IsExported() {
				names = append(names, name.Name)
			}
		}
	}
	end()
	return options
}

// cell makes a text fit into a table.
func cell(s string) string { return strings.ReplaceAll(s, "|", `\|`) }
