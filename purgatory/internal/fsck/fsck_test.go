package fsck

import (
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Each fault that the installed git documents is refused, accepted, or cannot be ignored by git.
func TestEveryFaultIsKnown(t *testing.T) {
	for _, name := range append(slices.Clone(refused), accepted...) {
		out, err := exec.Command("git", "-c", "receive.fsck."+name+"=ignore", "index-pack", "--strict="+name+"=ignore", "--stdin").CombinedOutput()
		require.Error(t, err, "there is no pack")
		assert.NotContains(t, strings.ToLower(string(out)), "message id", name)
		assert.NotContains(t, strings.ToLower(string(out)), "demote", name)
	}
	page, err := exec.Command("git", "help", "-m", "fsck").Output()
	if err != nil {
		t.Skip("git has no manual here")
	}
	_, list, ok := strings.Cut(string(page), "FSCK MESSAGES")
	require.True(t, ok)
	for _, m := range regexp.MustCompile(`(?m)^ {7}([a-z]\w+)$`).FindAllStringSubmatch(list, -1) {
		known := slices.Contains(refused, m[1]) || slices.Contains(accepted, m[1])
		assert.True(t, known || m[1] == "nulInHeader" || m[1] == "unterminatedHeader", m[1])
	}
}

func TestOperatorAllowsByName(t *testing.T) {
	r, err := New([]string{"hasdotgit", "badDate", "nulInHeader"})
	require.NoError(t, err)
	assert.Contains(t, r.strict(), "hasDotgit=ignore")
	assert.NotContains(t, r.strict(), "hasDot=")
	for _, name := range []string{"hasDotGitt", ""} {
		_, err = New([]string{name})
		require.ErrorContains(t, err, "not a name of a fault")
	}
}

// The first refused fault counts, for any split of git's output and any length of lines.
func TestReport(t *testing.T) {
	r, err := New(nil)
	require.NoError(t, err)
	first := func(out string, size int) *Fault {
		p := &report{rules: r}
		for part := range slices.Chunk([]byte(out), size) {
			n, err := p.Write(part)
			require.NoError(t, err)
			require.Equal(t, len(part), n)
		}
		return p.fault
	}
	out := strings.Repeat("error in commit 11: nulInHeader: unterminated\n", 10_000) + strings.Repeat("x", 10_000) +
		"\nwarning in tree 22: fullPathname: contains full pathnames\nerror in tree 33: hasDotgit: contains '.git'\n"
	for _, size := range []int{1, 7, 4096} {
		require.ErrorContains(t, first(out, size), "object 22: fullPathname")
	}
	require.ErrorContains(t, first("Indexing objects: 1%\rerror: object 44: hasDotdot: contains '..'\n", 5), "object 44: hasDotdot")
	require.Nil(t, first("error: object 44: nulInHeader: x\nfatal: fsck error in packed object\n", 5))
	require.Nil(t, first("commit 55 4194304\nblob 66 99999999\ntag 77 12\n", 5))
	require.ErrorContains(t, first("commit 55 4194305\n", 5), "object 55: a commit of 4194305 bytes")
}
