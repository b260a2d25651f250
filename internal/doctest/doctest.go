// Package doctest compares the documentation of structs with their code.
package doctest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	defaults = regexp.MustCompile(`\bDefaults? to (.*?)(?:[.;:] |[.;:]?$)`)
	quantity = regexp.MustCompile(`(?:^|[ (])(\+ )?((?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?)(?: ([A-Za-z]+))?`)
)

// units are units of bytes and time as documentation spells them.
var units = map[string]float64{
	"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30,
	"ms": float64(time.Millisecond), "s": float64(time.Second), "min": float64(time.Minute), "h": float64(time.Hour),
	"day": 24 * float64(time.Hour), "days": 24 * float64(time.Hour),
}

// Defaults compares the numbers of a struct with defaults, also in its groups Times, Limits and
// fixed, with its documentation in file: "Defaults to 4 GiB", or for several fields "Default to
// 5,000 and 100". A field with a default other than 0 needs such a sentence, in numbers or words.
func Defaults(t testing.TB, file string, withDefaults any) {
	t.Helper()
	value := reflect.ValueOf(withDefaults)
	checked := check(t, file, value)
	for _, name := range groups {
		if group := value.FieldByName(name); group.IsValid() {
			checked += check(t, fileOf(t, group.Type().Name()), group)
		}
	}
	require.NotZero(t, checked, "%s documents no default of %s", file, value.Type())
}

func fileOf(t testing.TB, typ string) string {
	t.Helper()
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	for _, file := range files {
		if len(documented(t, file, typ)) > 0 {
			return file
		}
	}
	require.FailNow(t, "no file has type "+typ)
	return ""
}

func check(t testing.TB, file string, value reflect.Value) (checked int) {
	t.Helper()
	for _, group := range documented(t, file, value.Type().Name()) {
		said, inWords := documentedDefaults(group.doc)
		for i, name := range group.fields {
			number, ok := number(value.FieldByName(name))
			switch {
			case !ok || inWords:
			case i < len(said):
				checked++
				assert.InDelta(t, said[i], number, 1e-9, "%s of %s", name, value.Type())
			default:
				assert.Zero(t, number, "%s of %s has a default that its documentation does not name", name, value.Type())
			}
		}
	}
	return checked
}

type group struct {
	doc    string
	fields []string
}

func documented(t testing.TB, file, name string) (groups []group) {
	t.Helper()
	tree, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
	require.NoError(t, err)
	for _, decl := range tree.Decls {
		types, ok := decl.(*ast.GenDecl)
		if !ok {
			continue
		}
		for _, spec := range types.Specs {
			if spec, ok := spec.(*ast.TypeSpec); ok && spec.Name.Name == name {
				groups = append(groups, fields(spec)...)
			}
		}
	}
	return groups
}

func fields(spec *ast.TypeSpec) (groups []group) {
	s, ok := spec.Type.(*ast.StructType)
	if !ok {
		return nil
	}
	for _, field := range s.Fields.List {
		if doc := field.Doc.Text(); doc != "" || len(groups) == 0 {
			groups = append(groups, group{doc: strings.Join(strings.Fields(doc), " ")})
		}
		last := &groups[len(groups)-1]
		for _, name := range field.Names {
			last.fields = append(last.fields, name.Name)
		}
	}
	return groups
}

func documentedDefaults(doc string) (numbers []float64, inWords bool) {
	for _, sentence := range defaults.FindAllStringSubmatch(doc, -1) {
		for _, q := range quantity.FindAllStringSubmatch(sentence[1], -1) {
			number, err := strconv.ParseFloat(strings.ReplaceAll(q[2], ",", ""), 64)
			if err != nil {
				continue
			}
			if unit, ok := units[q[3]]; ok {
				number *= unit
			}
			if q[1] != "" && len(numbers) > 0 { // a sum
				numbers[len(numbers)-1] += number
				continue
			}
			numbers = append(numbers, number)
		}
		inWords = inWords || len(numbers) == 0
	}
	return numbers, inWords
}

func number(v reflect.Value) (float64, bool) {
	switch {
	case v.CanInt():
		return float64(v.Int()), true
	case v.CanUint():
		return float64(v.Uint()), true
	case v.CanFloat():
		return v.Float(), true
	}
	return 0, false
}
