package egress_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// forbiddenUses maps an import path to the exported names of it that reach the
// network, or start a program, without the guarded dialer. ".*" forbids the import.
var forbiddenUses = map[string]*regexp.Regexp{
	"net":                               regexp.MustCompile(`^(Dial.*|Lookup.*|Resolver|DefaultResolver)$`),
	"net/http":                          regexp.MustCompile(`^(DefaultClient|DefaultTransport|Get|Head|Post|PostForm|Transport|ProxyFromEnvironment|ProxyURL)$`),
	"net/http/httputil":                 regexp.MustCompile(`^(ReverseProxy|NewSingleHostReverseProxy)$`),
	"net/textproto":                     regexp.MustCompile(`^Dial$`),
	"crypto/tls":                        regexp.MustCompile(`^Dial.*$`),
	"os":                                regexp.MustCompile(`^StartProcess$`),
	"syscall":                           regexp.MustCompile(`^(Connect|Socket|Sendto|Exec|ForkExec|StartProcess)$`),
	"golang.org/x/sys/unix":             regexp.MustCompile(`^(Connect|Socket|Sendto.*|Exec)$`),
	"os/exec":                           regexp.MustCompile(`.*`),
	"net/rpc":                           regexp.MustCompile(`.*`),
	"net/smtp":                          regexp.MustCompile(`.*`),
	"log/syslog":                        regexp.MustCompile(`.*`),
	"plugin":                            regexp.MustCompile(`.*`),
	"C":                                 regexp.MustCompile(`.*`),
	"golang.org/x/net/proxy":            regexp.MustCompile(`.*`),
	"golang.org/x/net/websocket":        regexp.MustCompile(`.*`),
	"github.com/gorilla/websocket":      regexp.MustCompile(`.*`),
	"github.com/fasthttp/websocket":     regexp.MustCompile(`.*`),
	"github.com/nbd-wtf/go-nostr":       regexp.MustCompile(`^(RelayConnect|NewRelay|NewSimplePool|SimplePool|NewConnection|Connection|Relay)$`),
	"github.com/nbd-wtf/go-nostr/nip05": regexp.MustCompile(`.*`),
	"github.com/nbd-wtf/go-nostr/nip11": regexp.MustCompile(`^Fetch$`),
	"github.com/nbd-wtf/go-nostr/nip77": regexp.MustCompile(`^(NegentropySync|FetchIDsOnly)$`),
	"github.com/nbd-wtf/go-nostr/sdk":   regexp.MustCompile(`.*`),
}

// mayRunPrograms are the packages that may start git, which never uses the network.
var mayRunPrograms = map[string]bool{"purgatory/gitfetch": true, "purgatory/gitserve": true, "purgatory/internal/gitrun": true, "internal/gittest": true}

// exemptFolders lists folders that need not use egress: egress itself, and adapters, programs and tests,
// which dial no address of a stranger.
var exemptFolders = []string{"egress", "adapter", "examples", "cmd", "internal/porttest"}

// TestOnlyEgressUsesTheNetwork checks that other packages do not dial, and that few start programs.
func TestOnlyEgressUsesTheNetwork(t *testing.T) {
	const root = ".."
	require.FileExists(t, filepath.Join(root, "go.mod"))
	seen := map[string]bool{}
	err := filepath.WalkDir(root, func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, file)
		if err != nil {
			return err
		}
		if entry.IsDir() {
			return skipDir(root, filepath.ToSlash(rel), entry.Name())
		}
		if !strings.HasSuffix(rel, ".go") || strings.HasSuffix(rel, "_test.go") {
			return nil
		}
		src, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		seen[rel] = true
		found, err := findForbiddenUses(rel, src)
		if err != nil {
			return err
		}
		for _, f := range found {
			assert.Fail(t, "a way out beside egress", f)
		}
		return nil
	})
	require.NoError(t, err)
	assert.True(t, seen["serverurl.go"] && seen["sync/transport.go"], "the library was not looked at")
}

func skipDir(root, rel, name string) error {
	if rel == "." {
		return nil
	}
	if name == "testdata" || name == "vendor" || strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") {
		return fs.SkipDir
	}
	for _, dir := range exemptFolders {
		if rel == dir {
			return fs.SkipDir
		}
	}
	if _, err := os.Stat(filepath.Join(root, rel, "go.mod")); err == nil {
		return fs.SkipDir // a module of its own
	}
	return nil
}

// findForbiddenUses returns the forbidden uses of a file.
func findForbiddenUses(name string, src []byte) ([]string, error) {
	files := token.NewFileSet()
	f, err := parser.ParseFile(files, name, src, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	var found []string
	report := func(n ast.Node, what string) {
		found = append(found, fmt.Sprintf("%s: %s", files.Position(n.Pos()), what))
	}
	imports := map[string]string{} // local name -> import path
	for _, spec := range f.Imports {
		p, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return nil, err
		}
		rule, ruled := forbiddenUses[p]
		local := path.Base(p)
		if p == "github.com/nbd-wtf/go-nostr" {
			local = "nostr"
		}
		if spec.Name != nil {
			local = spec.Name.Name
		}
		imports[local] = p
		switch {
		case p == "os/exec" && mayRunPrograms[path.Dir(name)]:
			delete(imports, local)
		case ruled && (rule.String() == ".*" || local == "."):
			report(spec, "import of "+p)
		}
	}
	v := &useVisitor{imports: imports, report: report}
	ast.Walk(v, f)
	return found, nil
}

type useVisitor struct {
	imports map[string]string
	report  func(ast.Node, string)
}

// Visit implements [ast.Visitor].
func (v *useVisitor) Visit(n ast.Node) ast.Visitor {
	switch n := n.(type) {
	case *ast.StarExpr:
		// A pointer to a client is one that somebody made, with HTTPClient.
		if p, sel := v.selector(n.X); p == "net/http" && sel == "Client" {
			return nil
		}
	case *ast.CallExpr:
		p, sel := v.selector(n.Fun)
		if p == "github.com/coder/websocket" && sel == "Dial" && len(n.Args) == 3 {
			if nilOptions, ok := n.Args[2].(*ast.Ident); ok && nilOptions.Name == "nil" {
				v.report(n, "websocket.Dial without options uses the default client")
			}
		}
	case *ast.CompositeLit:
		p, sel := v.selector(n.Type)
		if p == "github.com/coder/websocket" && sel == "DialOptions" && !hasKey(n, "HTTPClient") {
			v.report(n, "websocket.DialOptions without HTTPClient uses the default client")
		}
	case *ast.SelectorExpr:
		p, sel := v.selector(n)
		if p == "net/http" && sel == "Client" {
			v.report(n, "an http.Client that HTTPClient did not make")
		}
		if rule, ruled := forbiddenUses[p]; ruled && rule.MatchString(sel) {
			v.report(n, p+"."+sel)
		}
	}
	return v
}

// selector returns the import path and name of an expression like net.Dial.
func (v *useVisitor) selector(e ast.Expr) (importPath, name string) {
	sel, ok := e.(*ast.SelectorExpr)
	if !ok {
		return "", ""
	}
	id, ok := sel.X.(*ast.Ident)
	if !ok {
		return "", ""
	}
	return v.imports[id.Name], sel.Sel.Name
}

func hasKey(lit *ast.CompositeLit, key string) bool {
	for _, e := range lit.Elts {
		if kv, ok := e.(*ast.KeyValueExpr); ok {
			if id, ok := kv.Key.(*ast.Ident); ok && id.Name == key {
				return true
			}
		}
	}
	return false
}

// TestForbiddenUsesAreFound checks that TestOnlyEgressUsesTheNetwork can fail.
func TestForbiddenUsesAreFound(t *testing.T) {
	file := func(imports, body string) []byte {
		return []byte("package x\n" + imports + "\nfunc f() {\n" + body + "\n}\n")
	}
	for _, row := range []struct {
		name, imports, body string
		found               int
	}{
		{"sync/x.go", `import "net"`, `net.DialTimeout("tcp", "x:1", 0); _ = net.Dialer{}; _ = &net.Dialer{}`, 3},
		{"sync/x.go", `import n "net"`, `n.DialTCP("tcp", nil, nil); n.LookupHost("x")`, 2},
		{"sync/x.go", `import . "net"`, `Dial("tcp", "x:1")`, 1},
		{"sync/x.go", `import "net/http"`, `http.Get("x"); http.Post("x", "", nil); _ = http.DefaultClient; _ = http.DefaultTransport`, 4},
		{"sync/x.go", `import "net/http"`, `_ = &http.Client{}; _ = new(http.Client); var c http.Client; _ = &http.Transport{}`, 4},
		{"sync/x.go", `import "os/exec"`, `exec.Command("git")`, 2},
		{"purgatory/gitfetch/sub/x.go", `import "os/exec"`, `exec.Command("git")`, 2},
		{"sync/x.go", `import "C"`, ``, 1},
		{"sync/x.go", `import "github.com/nbd-wtf/go-nostr"`, `nostr.RelayConnect(nil, "x"); nostr.NewSimplePool(nil)`, 2},
		{"sync/x.go", `import "github.com/coder/websocket"`, `websocket.Dial(nil, "x", nil)`, 1},
		{"sync/x.go", `import "github.com/coder/websocket"`, `websocket.Dial(nil, "x", &websocket.DialOptions{Subprotocols: nil})`, 1},

		{"purgatory/gitfetch/x.go", `import "os/exec"`, `exec.Command("git")`, 0},
		{"sync/x.go", `import "net"`, `net.Listen("tcp", "x:1"); var _ net.Conn; net.JoinHostPort("", "")`, 0},
		{"sync/x.go", `import "net/http"`, `var c *http.Client; _ = &http.Server{}; _ = http.MethodGet`, 0},
		{"sync/x.go", `import "github.com/nbd-wtf/go-nostr"`, `var _ *nostr.Event; _ = nostr.Now()`, 0},
		{"sync/x.go", `import "github.com/coder/websocket"`, `websocket.Dial(nil, "x", &websocket.DialOptions{HTTPClient: nil})`, 0},
	} {
		found, err := findForbiddenUses(row.name, file(row.imports, row.body))
		require.NoError(t, err)
		assert.Len(t, found, row.found, "%s: %s: %v", row.name, row.body, found)
	}
}
