package reference

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// promises are what the tests of a number show, in a few words.
var promises = map[int]string{
	3: "redirects are few, judged one by one, and never of a POST", 7: "an id is 40 or 64 hex digits, a ref is one that git takes, and neither is an argument",
	8: "no path is made of what an event says", 9: "git runs with no configuration, hook or environment but ours", 10: "no request has credentials",
	11: "strangers' text is printable, short, and in the log once a minute", 12: "an event moves refs only where its author has a say",
	13: "every event goes through the policy", 14: "a victim under many names is hardly asked", 15: "backoff survives restarts",
	16: "what a git server lacks is asked for once", 17: "bytes are bounded by fetch, repository, server and day", 19: "waits grow, are drawn apart, and honour Retry-After",
	20: "any bytes of a relay end in an ignored message or a closed connection", 21: "proofs of hostility end a connection", 22: "unrequested and forged bytes are bounded, useless events hold nobody up",
	24: "a full second is split", 25: "what is confirmed is complete", 26: "reconciliation is bounded", 27: "what was missed live is found", 28: "requests fit what a relay takes",
	29: "the order of arrival does not matter", 30: "a fetch is bounded in bytes, objects, time and memory", 31: "objects are checked in a quarantine",
	32: "an event is served with all its objects", 33: "garbage collection takes nothing that is needed", 34: "refs move together, also after a crash",
	35: "broken hashes and mixed formats are refused", 36: "git is new enough, or we don't start", 37: "honest relays, pushes and repositories don't wait behind others",
	38: "a panic costs one connection or one request", 39: "all ends within 5 s", 40: "what is dropped is counted",
}

var promised = regexp.MustCompile(`^TestPromiseP(\d+)_`)

// TestPromises: docs/promises.md names the tests of each promise.
func TestPromises(t *testing.T) {
	tests := make(map[int][]string)
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		tree, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		dir, err := filepath.Rel(root, filepath.Dir(path))
		for _, decl := range tree.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok {
				continue
			}
			if m := promised.FindStringSubmatch(f.Name.Name); m != nil {
				n, _ := strconv.Atoi(m[1])
				if promises[n] == "" {
					return fmt.Errorf("%s: promise %d says nothing", f.Name.Name, n)
				}
				tests[n] = append(tests[n], fmt.Sprintf("| P%d: %s | `go test ./%s -run '%s$'` |\n", n, promises[n], filepath.ToSlash(dir), f.Name.Name))
			}
		}
		return err
	})
	require.NoError(t, err)
	require.NotEmpty(t, tests)
	var out strings.Builder
	out.WriteString("\n| promise | test |\n|---|---|\n")
	for n := range 100 {
		slices.Sort(tests[n])
		out.WriteString(strings.Join(tests[n], ""))
	}
	generated(t, "promises.md", out.String())
}
