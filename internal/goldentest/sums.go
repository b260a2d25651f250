package goldentest

import (
	"fmt"
	"hash/crc32"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Sums compares long outputs with checksums in a file, one for each part of an output.
type Sums struct {
	file   string
	golden map[string]string
}

const partLines = 100

// NewSums reads the sums of a file.
func NewSums(t *testing.T, file string) *Sums {
	t.Helper()
	s := &Sums{file: file, golden: make(map[string]string)}
	content, err := os.ReadFile(file)
	if !*update {
		require.NoError(t, err)
	}
	for line := range strings.Lines(string(content)) {
		name, sums, _ := strings.Cut(strings.TrimSpace(line), " ")
		s.golden[name] = sums
	}
	if *update {
		t.Cleanup(func() { require.NoError(t, os.WriteFile(file, []byte(s.String()), 0o644)) })
	}
	return s
}

// Updating reports whether the flag -update is set.
func (s *Sums) Updating() bool { return *update }

// Same reports whether the output named name has these lines. With -update it is always true.
func (s *Sums) Same(name string, lines []string) bool {
	return *update || differ(strings.Fields(s.golden[name]), sum(lines)) < 0
}

// Equal checks that the output named name has these lines.
func (s *Sums) Equal(t testing.TB, name string, lines []string) {
	t.Helper()
	got := sum(lines)
	if *update {
		s.golden[name] = strings.Join(got, " ")
		return
	}
	if at := differ(strings.Fields(s.golden[name]), got); at >= 0 {
		part := lines[min(at*partLines, len(lines)):min((at+1)*partLines, len(lines))]
		require.Fail(t, "another output than in "+s.file, "%s, within these lines:\n%s", name, strings.Join(part, "\n"))
	}
}

func (s *Sums) String() string {
	var out strings.Builder
	for _, name := range slices.Sorted(maps.Keys(s.golden)) {
		fmt.Fprintln(&out, name, s.golden[name])
	}
	return out.String()
}

func sum(lines []string) (out []string) {
	for part := range slices.Chunk(lines, partLines) {
		h := crc32.NewIEEE()
		for _, line := range part {
			fmt.Fprintln(h, line)
		}
		out = append(out, fmt.Sprintf("%08x", h.Sum32()))
	}
	return out
}

func differ(a, b []string) int {
	for i := range max(len(a), len(b)) {
		if i >= len(a) || i >= len(b) || a[i] != b[i] {
			return i
		}
	}
	return -1
}
