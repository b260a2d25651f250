package gitfetch_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
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

// A redirect to a broken server does not make the redirecting server broken, because users may
// create such redirects.
func TestRedirectToABrokenServer(t *testing.T) {
	for _, to := range []string{"http://10.0.0.1", "http://nowhere.invalid"} {
		first := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, to+r.URL.String(), http.StatusFound)
		}))
		t.Cleanup(first.Close)
		from, err := graspsync.ParseCloneURL(first.URL + "/repo.git")
		require.NoError(t, err)
		err = attempt(t.Context(), fetcher(t), bare(t, nip34.SHA1), from, oid(t, strings.Repeat("a", 40)))
		require.Error(t, err)
		require.NotErrorIs(t, err, purgatory.ErrServerUnusable, to)
	}
	broken, err := graspsync.ParseCloneURL("http://10.0.0.1/repo.git")
	require.NoError(t, err)
	err = attempt(t.Context(), fetcher(t), bare(t, nip34.SHA1), broken, oid(t, strings.Repeat("a", 40)))
	require.ErrorIs(t, err, purgatory.ErrServerUnusable)
}
