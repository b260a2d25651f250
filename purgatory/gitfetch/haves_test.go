package gitfetch

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/nip34"
)

// What strangers pushed for pull requests, dated as they like, does not crowd out our
// branches from what a server is told that we have: it would send everything anew, which
// may be beyond our limits.
func TestBranchesAreToldFirst(t *testing.T) {
	dir := bare(t, nip34.SHA1)
	main := history(t, dir, "main", 1)[0]
	var b strings.Builder
	for i := range 4*maxHaves + 1 {
		fmt.Fprintf(&b, "commit refs/nostr/%064x\ncommitter c <c@example.com> %d +0000\ndata 0\n\n", i, 4_000_000_000+i)
	}
	gitIn(t, dir, b.String(), "fast-import", "--quiet")
	tips, _, err := fetcher(t, Config{}).objects.tips(t.Context(), dir)
	require.NoError(t, err)
	require.Equal(t, main, tips[0])
	require.Len(t, tips, 256, "a request does not become large by that")
}
