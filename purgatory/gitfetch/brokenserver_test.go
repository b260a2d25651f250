package gitfetch_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
)

// A missing or private repository does not make its server broken, because users can name
// repositories that do not exist.
func TestOneMissingRepositoryIsNotABrokenServer(t *testing.T) {
	for _, status := range []int{http.StatusNotFound, http.StatusGone, http.StatusUnauthorized} {
		o := serve(t, bare(t, nip34.SHA1), func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
			w.WriteHeader(status)
		})
		err := attempt(t.Context(), fetcher(t), bare(t, nip34.SHA1), o.clone(t), oid(t, strings.Repeat("a", 40)))
		require.ErrorIs(t, err, purgatory.ErrNotServed, status)
		require.NotErrorIs(t, err, purgatory.ErrServerUnusable, status)
	}
}
