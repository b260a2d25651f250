package gitfetch_test

import (
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
)

// Honest servers with unusual behavior must work.
func TestServersAsTheyAre(t *testing.T) {
	there := bare(t, nip34.SHA1)
	tip := history(t, there, "main", 5)[4]
	kind := func(change func(string) string) func(http.ResponseWriter, *http.Request, http.Handler) {
		return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			rec := httptest.NewRecorder()
			next.ServeHTTP(rec, r)
			w.Header().Set("Content-Type", change(rec.Header().Get("Content-Type")))
			_, _ = w.Write(rec.Body.Bytes())
		}
	}
	v0 := func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		r.Header.Del("Git-Protocol")
		next.ServeHTTP(w, r)
	}
	for name, change := range map[string]func(w http.ResponseWriter, r *http.Request, next http.Handler){
		"git http-backend":       nil,
		"version 0":              v0,
		"type with a charset":    kind(func(s string) string { return s + "; charset=utf-8" }),
		"type in capitals":       kind(strings.ToUpper),
		"type with room":         kind(func(s string) string { return s + " ;x" }),
		"compressed as we offer": compressing,
		"compressed advertisement of version 0": func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			r.Header.Del("Git-Protocol")
			compressing(w, r, next)
		},
		"identity": func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			w.Header().Set("Content-Encoding", "identity")
			next.ServeHTTP(w, r)
		},
		"redirect to .git": func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			if !strings.HasPrefix(r.URL.Path, "/repo.git/") {
				http.Redirect(w, r, strings.Replace(r.URL.String(), "/repo/", "/repo.git/", 1), http.StatusMovedPermanently)
				return
			}
			next.ServeHTTP(w, r)
		},
		"an answer in small pieces": func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			rec := httptest.NewRecorder()
			next.ServeHTTP(rec, r)
			w.Header().Set("Content-Type", rec.Header().Get("Content-Type"))
			for _, b := range rec.Body.Bytes() {
				_, _ = w.Write([]byte{b})
				_ = http.NewResponseController(w).Flush()
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := serve(t, there, change)
			here := bare(t, nip34.SHA1)
			f := fetcher(t)
			from := o.clone(t)
			if strings.HasPrefix(name, "redirect") {
				var err error
				from, err = graspsync.ParseCloneURL(o.URL + "/repo")
				require.NoError(t, err)
			}
			get(t, f, here, from, tip)
			require.LessOrEqual(t, len(o.seen()), 4)
			if name == "redirect to .git" {
				require.Equal(t, []string{"GET /repo/info/refs", "GET /repo.git/info/refs", "POST /repo.git/git-upload-pack"}, o.seen())
			}
			git(t, here, "fsck", "--strict")
		})
	}
}

// compressing is a server that compresses answers if the client accepts that.
func compressing(w http.ResponseWriter, r *http.Request, next http.Handler) {
	if !strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		next.ServeHTTP(w, r)
		return
	}
	rec := httptest.NewRecorder()
	next.ServeHTTP(rec, r)
	w.Header().Set("Content-Type", rec.Header().Get("Content-Type"))
	w.Header().Set("Content-Encoding", "gzip")
	z := gzip.NewWriter(w)
	_, _ = io.Copy(z, rec.Body)
	_ = z.Close()
}

// A redirect to another allowed host is followed, and the POST goes there too. After three
// redirects no request is left for a pack.
func TestRedirectToAnotherHost(t *testing.T) {
	there := bare(t, nip34.SHA1)
	tip := history(t, there, "main", 2)[1]
	real := serve(t, there, nil)
	first := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			t.Error("a POST to where the redirect was")
		}
		http.Redirect(w, r, real.URL+r.URL.String(), http.StatusFound)
	}))
	t.Cleanup(first.Close)
	f := fetcher(t)
	from, err := graspsync.ParseCloneURL(first.URL + "/repo.git")
	require.NoError(t, err)
	get(t, f, bare(t, nip34.SHA1), from, tip)
	require.Len(t, real.seen(), 2)

	n := 0
	chain := serve(t, there, func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if n++; n <= 3 {
			http.Redirect(w, r, r.URL.String(), http.StatusFound)
			return
		}
		next.ServeHTTP(w, r)
	})
	err = attempt(t.Context(), f, bare(t, nip34.SHA1), chain.clone(t), tip)
	require.True(t, limited("requests")(err), "%v", err)
	require.Len(t, chain.seen(), 4)
}

// Both formats and both versions, into an empty repository and on top of existing objects.
func TestFormatsAndVersions(t *testing.T) {
	for _, format := range []nip34.ObjectFormat{nip34.SHA1, nip34.SHA256} {
		for _, version := range []string{"0", "1", "2"} {
			t.Run(format.String()+" version "+version, func(t *testing.T) {
				there, here := bare(t, format), bare(t, format)
				ids := history(t, there, "main", 3)
				o := serve(t, there, func(w http.ResponseWriter, r *http.Request, next http.Handler) {
					r.Header.Set("Git-Protocol", "version="+version)
					next.ServeHTTP(w, r)
				})
				f := fetcher(t)
				get(t, f, here, o.clone(t), ids[2])
				git(t, here, "update-ref", "refs/heads/main", ids[2].String())
				more := history(t, there, "main", 2)
				git(t, there, "tag", "-a", "-m", "x", "t", "main")
				tag := oid(t, git(t, there, "rev-parse", "t"))
				get(t, f, here, o.clone(t), more[1], tag)
				git(t, here, "fsck", "--strict")
			})
		}
	}
}

// Servers refuse objects in several ways. In each case the other objects arrive.
func TestServersThatRefuseAnObject(t *testing.T) {
	there := bare(t, nip34.SHA1)
	tip := history(t, there, "main", 3)[2]
	git(t, there, "config", "uploadpack.allowAnySHA1InWant", "true")
	lost := oid(t, "1234567890123456789012345678901234567890")
	for _, phrase := range []string{"upload-pack: not our ref ", "not our ref ", "Server does not allow request for unadvertised object "} {
		for _, version := range []string{"0", "2"} {
			refused := 0
			o := serve(t, there, func(w http.ResponseWriter, r *http.Request, next http.Handler) {
				r.Header.Set("Git-Protocol", "version="+version)
				body, err := io.ReadAll(r.Body)
				if err != nil {
					t.Error(err)
				}
				if strings.Contains(string(body), "want "+lost.String()) {
					refused++
					w.Header().Set("Content-Type", "application/x-git-upload-pack-result")
					_, _ = io.WriteString(w, pkt("ERR "+phrase+lost.String()+"\n"))
					return
				}
				r.Body = io.NopCloser(strings.NewReader(string(body)))
				next.ServeHTTP(w, r)
			})
			f := fetcher(t)
			q, err := f.Open(bare(t, nip34.SHA1))
			require.NoError(t, err)
			_, err = q.Fetch(t.Context(), o.clone(t), []nip34.ObjectID{lost, tip})
			require.NoError(t, err, "%s%s", phrase, version)
			require.Equal(t, 1, refused)
			missing, err := q.Missing(t.Context(), []nip34.ObjectID{lost, tip})
			require.NoError(t, err)
			require.Equal(t, []nip34.ObjectID{lost}, missing)
			require.NoError(t, q.Discard())
			err = attempt(t.Context(), f, bare(t, nip34.SHA1), o.clone(t), lost)
			require.ErrorIs(t, err, purgatory.ErrNotServed)
		}
	}
}
