package gitfetch_test

import (
	"bytes"
	"io"
	"net/http"
	"regexp"
	"testing"

	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/fetchtest"
)

// The suite of fetchtest passes with real git and real servers.
func TestSuite(t *testing.T) {
	for _, format := range []nip34.ObjectFormat{nip34.SHA1, nip34.SHA256} {
		t.Run(format.String(), func(t *testing.T) {
			fetchtest.RunGitFetcher(t, func(t *testing.T) fetchtest.Setup {
				full, half, none := bare(t, format), bare(t, format), bare(t, format)
				ids := history(t, full, "main", 2)
				history(t, half, "main", 1)
				history(t, none, "other", 1)
				junk := bare(t, format)
				history(t, junk, "junk", 2)
				absent := "12345678901234567890123456789012345678901234567890123456789012345"
				f := fetcher(t)
				return fetchtest.Setup{
					Git: f, Fetcher: f, Dir: bare(t, format), Other: bare(t, format),
					Full: serve(t, full, nil).clone(t), Half: serve(t, half, nil).clone(t), None: serve(t, none, nil).clone(t),
					Junk:  serve(t, junk, another(oid(t, git(t, junk, "rev-parse", "junk")))).clone(t),
					First: ids[0], Second: ids[1], Absent: oid(t, absent[:len(ids[0].String())]),
				}
			})
		})
	}
}

// another makes a server send an unwanted object.
func another(id nip34.ObjectID) func(http.ResponseWriter, *http.Request, http.Handler) {
	wants := regexp.MustCompile("want [0-9a-f]+")
	return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		body, _ := io.ReadAll(r.Body)
		body = wants.ReplaceAll(body, []byte("want "+id.String()))
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		next.ServeHTTP(w, r)
	}
}
