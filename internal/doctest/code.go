package doctest

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// ContainsCode requires that a Markdown file contains, as a Go block without indentation, the part of a
// source file from the first occurrence of from up to the next occurrence of to.
func ContainsCode(t testing.TB, markdown, source, from, to string) {
	t.Helper()
	code, err := os.ReadFile(source)
	require.NoError(t, err)
	text, err := os.ReadFile(markdown)
	require.NoError(t, err)
	at := strings.Index(string(code), from)
	require.GreaterOrEqual(t, at, 0, from)
	at = strings.LastIndexByte(string(code[:at]), '\n') + 1
	part, _, found := strings.Cut(string(code[at:]), to)
	require.True(t, found, to)
	indent := part[:len(part)-len(strings.TrimLeft(part, "\t"))]
	part = strings.ReplaceAll(strings.TrimPrefix(part, indent), "\n"+indent, "\n")
	require.Contains(t, string(text), "```go\n"+part+"```\n")
}
