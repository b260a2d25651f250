package reference

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// promises are short descriptions of the promises by number.
var promises = map[int]string{
	3: "at most 3 redirects, each checked, none of a POST", 7: "remote ids and refs are validated, and are never arguments of git",
	8: "no path contains text of an event", 9: "git runs only with our configuration and environment, without hooks", 10: "no request carries credentials",
	11: "remote text is printable, short, and logged once a minute", 12: "an event moves refs only where its author is a member",
	13: "every event goes through the policy", 14: "a host gets few attempts, under any number of names", 15: "backoff survives restarts",
	16: "missing objects are requested once per Git server", 17: "bytes are bounded by fetch, repository, server and day", 19: "waits grow, are randomized, and honor Retry-After",
	20: "any bytes of a relay end in an ignored message or a closed connection", 21: "proofs of hostility end a connection", 22: "unrequested and forged bytes are bounded, rejected events cost nothing",
	24: "a full second is split", 25: "a confirmed item is complete", 26: "reconciliation is bounded", 27: "events missed live are found", 28: "requests fit the limits of the relay",
	29: "the order of arrival does not matter", 30: "a fetch is bounded in bytes, objects, time and memory", 31: "objects are checked in a quarantine",
	32: "an event is served with all its objects", 33: "garbage collection removes no needed object", 34: "refs move together, also after a crash",
	35: "broken hashes and mixed formats are refused", 36: "an old git prevents the start", 37: "each relay, client and owner gets its part under flood",
	38: "a panic costs one connection or one request", 39: "everything ends within 5 s", 40: "dropped items are counted",
}

var (
	promised      = regexp.MustCompile(`^TestPromiseP(\d+)_`)
	promiseNumber = regexp.MustCompile(`\bP(\d+)\b`)
)

// TestPromises checks that docs/promises-tests.md names the tests of each promise.
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
	page, err := os.ReadFile(filepath.Join(root, "docs", "promises.md"))
	require.NoError(t, err)
	named := make(map[int]bool)
	for _, m := range promiseNumber.FindAllStringSubmatch(string(page), -1) {
		n, _ := strconv.Atoi(m[1])
		named[n] = true
		assert.NotEmpty(t, tests[n], "docs/promises.md: P%d has no test", n)
	}
	for n := range tests {
		assert.True(t, named[n], "docs/promises.md does not name P%d", n)
	}
	var out strings.Builder
	out.WriteString("\n| promise | test |\n|---|---|\n")
	for n := range 100 {
		slices.Sort(tests[n])
		out.WriteString(strings.Join(tests[n], ""))
	}
	generated(t, "promises-tests.md", out.String())
}
