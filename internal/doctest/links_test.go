package doctest

import (
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	link     = regexp.MustCompile(`\[([^\]]*)\]\(([^()\s]+)\)`)
	heading  = regexp.MustCompile(`(?m)^#{1,6} (.+)$`)
	testName = regexp.MustCompile("^`?((?:Test|Fuzz|Example)[A-Za-z0-9_]*)`?$")
	fenced   = regexp.MustCompile("(?ms)^```.*?^```")
)

// Links in the documentation lead to existing files and headings. A link whose text is the name of
// a test leads to a file with that test. External links are not checked.
func TestLinks(t *testing.T) {
	links, tests := 0, 0
	require.NoError(t, filepath.WalkDir(filepath.Join("..", ".."), func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(file) != ".md" {
			return err
		}
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, m := range link.FindAllStringSubmatch(fenced.ReplaceAllString(string(text), ""), -1) {
			to, err := url.Parse(m[2])
			if !assert.NoError(t, err, file) || to.Scheme != "" {
				continue
			}
			links++
			target := file
			if to.Path != "" {
				target = filepath.Join(filepath.Dir(file), filepath.FromSlash(to.Path))
			}
			if _, err := os.Stat(target); !assert.NoError(t, err, "%s: %s", file, m[0]) {
				continue
			}
			if to.Fragment != "" {
				assert.Contains(t, anchors(t, target), to.Fragment, "%s: %s", file, m[0])
			}
			if name := testName.FindStringSubmatch(m[1]); name != nil {
				tests++
				code, err := os.ReadFile(target)
				require.NoError(t, err, "%s: %s", file, m[0])
				assert.True(t, strings.Contains(string(code), "\nfunc "+name[1]+"("), "%s: %s", file, m[0]) // assert.Contains would print the whole file
			}
		}
		return nil
	}))
	require.Greater(t, links, 50)
	require.Greater(t, tests, 20)
}

// anchors returns the anchors that GitHub creates for the headings of a file.
func anchors(t *testing.T, file string) (all []string) {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	for _, m := range heading.FindAllStringSubmatch(string(text), -1) {
		name := strings.Map(func(r rune) rune {
			switch {
			case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '-', r == '_':
				return r
			case r == ' ':
				return '-'
			}
			return -1
		}, strings.ToLower(strings.TrimSpace(m[1])))
		all = append(all, name)
	}
	return all
}
