package main

import (
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// point is a mutation at a place in a file.
type point struct {
	file  string // relative to the root of the module
	line  int
	kind  string
	from  int // offsets of the replaced text
	to    int
	text  string // replacement
	first int    // lines of its declaration
	last  int
	inner bool // in a function, so that coverage profiles apply
}

func (p point) pkg() string { return filepath.Dir(p.file) }

func (p point) String() string { return fmt.Sprintf("%s:%d %s", p.file, p.line, p.kind) }

// support are parts of the paths of tests, examples and tools.
var support = []string{
	"mock", "relaytest", "storetest", "statetest", "fetchtest", "memstore", "examples", "goldentest", "doctest", "cmd/bench",
	"cmd/internal/museum", "internal/supply", "cmd/mutants", "cmd/internal/conformance",
}

// points returns all mutations of the product code below root in order, or only those of the
// packages in only.
func points(root string, only []string) (out []point, err error) {
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		file, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		switch {
		case d.IsDir():
			if name := d.Name(); name == "testdata" || path != root && strings.HasPrefix(name, ".") {
				return fs.SkipDir
			}
			return nil
		case filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go"):
			return nil
		case len(only) > 0 && !slices.Contains(only, filepath.Dir(file)):
			return nil
		case len(only) == 0 && slices.ContainsFunc(support, func(part string) bool { return strings.Contains(file, part) }):
			return nil
		}
		src, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		of, err := ofFile(file, src)
		out = append(out, of...)
		return err
	})
	if err == nil && len(out) == 0 {
		err = errors.New("there is no product code")
	}
	return out, err
}

// reader finds the points of one file.
type reader struct {
	file string
	src  []byte
	set  *token.FileSet
	out  []point
}

// ofFile returns the points of a file, except generated files and files with a build constraint.
func ofFile(file string, src []byte) ([]point, error) {
	r := &reader{file: file, src: src, set: token.NewFileSet()}
	parsed, err := parser.ParseFile(r.set, file, src, parser.ParseComments)
	if err != nil {
		return nil, err
	}
	if ast.IsGenerated(parsed) || bytes.HasPrefix(src, []byte("//go:build !")) {
		return nil, nil
	}
	for _, d := range parsed.Decls {
		if g, is := d.(*ast.GenDecl); is && g.Tok == token.IMPORT {
			continue
		}
		begun := len(r.out)
		ast.Inspect(d, func(n ast.Node) bool {
			r.visit(n)
			return true
		})
		_, inner := d.(*ast.FuncDecl)
		for i := range r.out[begun:] {
			p := &r.out[begun+i]
			p.first, p.last, p.inner = r.set.Position(d.Pos()).Line, r.set.Position(d.End()).Line, inner
		}
	}
	return r.out, nil
}

func (r *reader) offset(p token.Pos) int { return r.set.Position(p).Offset }

func (r *reader) add(kind string, from token.Pos, length int, text string) {
	at := r.offset(from)
	r.out = append(r.out, point{file: r.file, line: r.set.Position(from).Line, kind: kind, from: at, to: at + length, text: text})
}

func (r *reader) replace(kind string, n ast.Node, text string) {
	r.add(kind, n.Pos(), int(n.End()-n.Pos()), text)
}

// operators maps an operator to the kind of its mutation and its replacement.
var operators = map[token.Token][2]string{
	token.LAND: {"and-or", "||"}, token.LOR: {"and-or", "&&"},
	token.LSS: {"comparison", "<="}, token.LEQ: {"comparison", "<"}, token.GTR: {"comparison", ">="}, token.GEQ: {"comparison", ">"},
	token.EQL: {"comparison", "!="}, token.NEQ: {"comparison", "=="},
	token.ADD: {"plus-minus", "-"}, token.SUB: {"plus-minus", "+"}, token.ADD_ASSIGN: {"plus-minus", "-="}, token.SUB_ASSIGN: {"plus-minus", "+="},
}

func (r *reader) visit(n ast.Node) {
	switch x := n.(type) {
	case *ast.BinaryExpr:
		if o, ok := operators[x.Op]; ok && !isText(x.X) && !isText(x.Y) {
			r.add(o[0], x.OpPos, len(x.Op.String()), o[1])
		}
	case *ast.BasicLit:
		if n, err := strconv.ParseInt(x.Value, 0, 64); x.Kind == token.INT && err == nil {
			r.replace("off-by-one", x, strconv.FormatInt(n+1, 10))
		}
	case *ast.IfStmt:
		r.visitIf(x)
	case *ast.ReturnStmt:
		for _, e := range x.Results {
			if isError(e) {
				r.replace("nil-error", e, "nil")
			}
		}
	case *ast.ExprStmt:
		if c, is := x.X.(*ast.CallExpr); is && !isPanic(c) {
			r.replace("drop-call", x, "")
		}
	case *ast.IncDecStmt:
		if _, is := x.X.(*ast.SelectorExpr); is {
			r.replace("drop-field-assign", x, "")
		}
	case *ast.AssignStmt:
		if _, is := x.Lhs[0].(*ast.SelectorExpr); is && len(x.Lhs) == 1 {
			r.replace("drop-field-assign", x, "")
		}
		if o, ok := operators[x.Tok]; ok {
			r.add(o[0], x.TokPos, len(x.Tok.String()), o[1])
		}
	}
}

// visitIf negates a condition, unless the mutation of its comparison does so, and removes the
// return of a guard.
func (r *reader) visitIf(x *ast.IfStmt) {
	if b, is := x.Cond.(*ast.BinaryExpr); !is || b.Op != token.EQL && b.Op != token.NEQ {
		r.replace("negate-if", x.Cond, "!("+string(r.src[r.offset(x.Cond.Pos()):r.offset(x.Cond.End())])+")")
	}
	if x.Else != nil || len(x.Body.List) == 0 {
		return
	}
	switch last := x.Body.List[len(x.Body.List)-1].(type) {
	case *ast.ReturnStmt, *ast.BranchStmt:
		r.replace("drop-guard", last, "")
	}
}

func isText(e ast.Expr) bool {
	l, is := e.(*ast.BasicLit)
	return is && l.Kind == token.STRING
}

func isPanic(c *ast.CallExpr) bool {
	name, is := c.Fun.(*ast.Ident)
	return is && name.Name == "panic"
}

// isError reports whether an expression looks like an error.
func isError(e ast.Expr) bool {
	switch x := e.(type) {
	case *ast.Ident:
		return strings.HasPrefix(x.Name, "err") || strings.HasPrefix(x.Name, "Err")
	case *ast.CallExpr:
		f, is := x.Fun.(*ast.SelectorExpr)
		if !is {
			return false
		}
		of, is := f.X.(*ast.Ident)
		return is && (of.Name == "fmt" && f.Sel.Name == "Errorf" || of.Name == "errors" && (f.Sel.Name == "New" || f.Sel.Name == "Join"))
	}
	return false
}
