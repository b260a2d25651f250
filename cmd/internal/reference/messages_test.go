package reference

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	quoted    = regexp.MustCompile("`([^`]+)`")
	goLiteral = regexp.MustCompile(`"(?:[^"\\\n]|\\.)*"|` + "`[^`]*`")
)

// TestMessages checks that the code contains the messages in the first column of the tables of
// docs/troubleshooting.md. It compares the parts between dots and punctuation, where the code
// inserts values or errors.
func TestMessages(t *testing.T) {
	var literals strings.Builder
	for _, dir := range []string{"adapter", "cmd", "nip34", "purgatory", "rules", "state", "sync"} {
		require.NoError(t, filepath.WalkDir(filepath.Join(root, dir), func(path string, _ os.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			source, err := os.ReadFile(path)
			literals.WriteString(strings.Join(goLiteral.FindAllString(string(source), -1), "\n") + "\n")
			return err
		}))
	}
	code := literals.String()
	page, err := os.ReadFile(filepath.Join(root, "docs", "troubleshooting.md"))
	require.NoError(t, err)
	pieces := 0
	for line := range strings.Lines(string(page)) {
		cells := strings.Split(line, " | ")
		if len(cells) != 3 {
			continue
		}
		for _, m := range quoted.FindAllStringSubmatch(cells[0], -1) {
			if strings.Contains(m[1], "listen tcp") {
				continue // message of the operating system
			}
			for piece := range strings.SplitSeq(m[1], "…") {
				for part := range strings.SplitSeq(piece, ": ") {
					if part = strings.Trim(part, " ,:()"); len(part) < 6 {
						continue // too short for a comparison
					}
					pieces++
					assert.True(t, strings.Contains(code, part), "docs/troubleshooting.md: %q is not in the code", part)
				}
			}
		}
	}
	require.Greater(t, pieces, 40)
}
