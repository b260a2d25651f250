package gitfetch_test

import (
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/nip34"
)

// Refs of pull requests with forged dates must not displace our branches from the haves. Otherwise
// a server would send everything again, possibly beyond our limits.
func TestBranchesAreToldFirst(t *testing.T) {
	dir := bare(t, nip34.SHA1)
	main := history(t, dir, "main", 1)[0]
	var b strings.Builder
	for i := range 4*256 + 1 {
		fmt.Fprintf(&b, "commit refs/nostr/%064x\ncommitter c <c@example.com> %d +0000\ndata 0\n\n", i, 4_000_000_000+i)
	}
	gitIn(t, dir, b.String(), "fast-import", "--quiet")
	var haves []string
	o := serve(t, dir, func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if r.Method == http.MethodPost {
			body, _ := io.ReadAll(r.Body)
			haves = regexp.MustCompile("have [0-9a-f]+").FindAllString(string(body), -1)
			http.Error(w, "enough", http.StatusInternalServerError)
			return
		}
		next.ServeHTTP(w, r)
	})
	require.Error(t, attempt(t.Context(), fetcher(t), dir, o.clone(t), oid(t, strings.Repeat("a", 40))))
	require.Equal(t, "have "+main.String(), haves[0])
	require.Len(t, haves, 256, "a request does not become large by that")
}
