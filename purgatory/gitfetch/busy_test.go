package gitfetch_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
)

// A server may request a pause in its answer to the first or second request. An answer of another
// server after a redirect does not count.
func TestAServerThatIsBusySaysSo(t *testing.T) {
	there := bare(t, nip34.SHA1)
	tip := history(t, there, "main", 1)[0]
	const date = "in an hour"
	for _, c := range []struct {
		name   string
		status int
		after  string
		want   time.Duration // negative: no pause
	}{
		{"too many", 429, "", 0},
		{"too many, with a time", 429, "120", 2 * time.Minute},
		{"too many, with nonsense", 429, "soon", 0},
		{"unavailable", 503, "", -1},
		{"unavailable, with nonsense", 503, "-1", -1},
		{"unavailable, with a time", 503, "7200", 2 * time.Hour},
		{"unavailable, until a date", 503, date, time.Hour},
		{"unavailable, until long ago", 503, "Mon, 02 Jan 2006 15:04:05 GMT", 0},
		{"for ever", 503, "2147483647", 2147483647 * time.Second},
		{"for longer", 503, "99999999999999999999", 2147483647 * time.Second},
		{"another error", 500, "120", -1},
	} {
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			t.Run(c.name+" "+method, func(t *testing.T) {
				answer := func(w http.ResponseWriter) {
					if after := c.after; after != "" {
						if after == date {
							after = time.Now().Add(time.Hour).UTC().Format(http.TimeFormat)
						}
						w.Header().Set("Retry-After", after)
					}
					w.WriteHeader(c.status)
				}
				o := serve(t, there, func(w http.ResponseWriter, r *http.Request, next http.Handler) {
					if r.Method == method {
						answer(w)
						return
					}
					next.ServeHTTP(w, r)
				})
				err := attempt(t.Context(), fetcher(t), bare(t, nip34.SHA1), o.clone(t), tip)
				require.Error(t, err)
				var busy *purgatory.BusyError
				if c.want < 0 {
					require.NotErrorIs(t, err, purgatory.ErrBusy)
					return
				}
				require.True(t, errors.As(err, &busy), "%v", err)
				require.InDelta(t, c.want.Seconds(), busy.After.Seconds(), 30)
				other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					http.Redirect(w, r, strings.Replace(o.URL, "127.0.0.1", "localhost", 1)+r.URL.String(), http.StatusFound)
				}))
				defer other.Close()
				if method == http.MethodGet {
					err = attempt(t.Context(), fetcher(t), bare(t, nip34.SHA1), (&origin{Server: other}).clone(t), tip)
					require.Error(t, err)
					require.NotErrorIs(t, err, purgatory.ErrBusy)
				}
			})
		}
	}
}
