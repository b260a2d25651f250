package gitserve_test

import (
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/gitserve"
)

// P11: a repository that git cannot serve causes one log line, not one per request.
func TestPromiseP11_FailedRequests(t *testing.T) {
	var log strings.Builder
	r := newRig(t, gitserve.Config{Logger: slog.New(slog.NewJSONHandler(&log, nil))})
	ref := owner.Ref("\u202e" + strings.Repeat("é", 40))
	require.NoError(t, r.repos.Create(t.Context(), ref, nip34.SHA1))
	dir := filepath.Join(r.repos.Dir(), filepath.FromSlash(hashed(ref)))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "config"), []byte("[core\n\x1b[31m"), 0o600))
	for range 10 {
		resp, err := http.Get(r.url + "/" + owner.Npub() + "/" + ref.Identifier + ".git/info/refs?service=git-upload-pack")
		require.NoError(t, err)
		require.Equal(t, http.StatusInternalServerError, resp.StatusCode)
		require.NoError(t, resp.Body.Close())
	}
	require.Equal(t, 1, strings.Count(log.String(), "git request failed"), log.String())
	for _, c := range strings.TrimSpace(log.String()) {
		require.True(t, unicode.IsPrint(c), log.String())
	}
	require.Less(t, log.Len(), 1000)
}
