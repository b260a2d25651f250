// Package goldentest compares output with a file, and plays scripts that contain lines of input
// with their expected output.
//
//	# a comment
//	1m connected a
//	> what the player says to that
//
// With the flag -update the expected output is written and the test passes:
//
//	go test ./health -run TestScripts -update
package goldentest

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the golden output of testdata anew")

// A Player executes one line of a script, given as words, and returns lines of output. An error
// ends the test.
type Player func(words []string) (output []string, err error)

// Play runs each script of testdata as a subtest with its own player and compares the output.
func Play(t *testing.T, begin func(t *testing.T) Player) {
	t.Helper()
	files, err := filepath.Glob("testdata/*.txt")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			script, err := os.ReadFile(file)
			require.NoError(t, err)
			Equal(t, file, play(t, string(script), begin(t)))
		})
	}
}

// Equal compares got with the content of a file.
func Equal(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(got), 0o644))
	}
	golden, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, string(golden), got)
}

func play(t *testing.T, script string, command Player) string {
	t.Helper()
	var out strings.Builder
	for n, line := range strings.Split(strings.TrimSuffix(script, "\n"), "\n") {
		if strings.HasPrefix(line, ">") {
			continue
		}
		fmt.Fprintln(&out, line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		output, err := command(strings.Fields(line))
		require.NoError(t, err, "line %d: %s", n+1, line)
		for _, o := range output {
			fmt.Fprintln(&out, ">", o)
		}
	}
	return out.String()
}
