package gitserve

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
)

// Of each kind of refs, of what strangers say and of those who have a say a page shows so much
// and no more.
func TestHowMuchAPageShows(t *testing.T) {
	for n := 99; n <= 102; n++ {
		refs := map[string]string{"refs/tags/v1": "0", "refs/headsx": "1"}
		var d Description
		for i := range n {
			refs[fmt.Sprintf("refs/heads/%03d", i)] = fmt.Sprint(i)
			d.Web = append(d.Web, fmt.Sprint("https://a/", i))
			d.Maintainers = append(d.Maintainers, owner.PubKey())
		}
		out := shownOf(refs, "refs/heads/")
		require.Len(t, out.Refs, min(n, 100))
		require.Equal(t, max(0, n-100), out.More)
		require.Equal(t, shownRef{"099", "99"}, append(out.Refs, shownRef{"099", "99"})[99])
		require.Equal(t, shownRefs{Refs: []shownRef{{"v1", "0"}}}, shownOf(refs, "refs/tags/"))
		var p pageOf
		p.describe(d)
		require.Len(t, p.Web, min(n, 100))
		require.Len(t, p.Maintainers, min(n, 100))
		require.Equal(t, owner.Npub(), p.Maintainers[0])
	}
	for n, more := range map[int]string{1999: "", 2000: "", 2001: "..."} {
		text := strings.Repeat("é", n)
		p := pageOf{Title: "x"}
		p.describe(Description{Text: text})
		require.Equal(t, pageOf{Title: "x", Text: strings.Repeat("é", min(n, 2000)) + more}, p)
		p.describe(Description{Name: text})
		require.Equal(t, pageOf{Title: strings.Repeat("é", min(n, 2000)) + more}, p)
	}
	var p pageOf
	p.describe(Description{Web: []string{"http://a", "https://b/c", "javascript:alert(1)", "https:", "https:///x", "ftp://a", "://", "//a"}})
	require.Equal(t, []string{"http://a", "https://b/c"}, p.Web)
	letters := "-./09AZaz_~%"
	for c := range 256 {
		text := string([]byte{byte(c)})
		kept := strings.Contains(letters, text) || c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z'
		if kept {
			require.Equal(t, text, pasted(text))
		} else {
			require.Equal(t, fmt.Sprintf("%%%02X", c), pasted(text))
		}
	}
}

// The page of a repository is read from the disk: a ref with a file is where that says, and
// none is shown that is being written, or of another kind. Each fault of the disk is told.
func TestWhatAPageShows(t *testing.T) {
	r := newRepositories(t)
	x := owner.Ref("x")
	require.NoError(t, r.Create(t.Context(), x, nip34.SHA1))
	refs, head, err := r.shown(hashed(x))
	require.NoError(t, err)
	require.Empty(t, refs)
	require.Empty(t, head, "it is not there yet")
	for name, text := range map[string]string{
		"packed-refs":     "# pack-refs with: peeled\n" + one + " refs/heads/main\n" + one + " refs/tags/v1\n^" + two + "\nnonsense\n",
		"refs/heads/main": two + "\n", "refs/heads/a/b": one + "\n", "refs/heads/a/b.lock": two + "\n", "refs/nostr/x": one + "\n",
	} {
		at := filepath.Join(r.dir, filepath.FromSlash(hashed(x)), filepath.FromSlash(name))
		require.NoError(t, os.MkdirAll(filepath.Dir(at), 0o700))
		require.NoError(t, os.WriteFile(at, []byte(text), 0o600))
	}
	want := map[string]string{"refs/heads/main": two, "refs/heads/a/b": one, "refs/tags/v1": one}
	root := r.root
	for n := 1; ; n++ {
		f := &faultyFolder{folder: root, n: n}
		r.root = f
		refs, head, err := r.shown(hashed(x))
		r.root = root
		if f.failed() == "" {
			require.NoError(t, err)
			require.Equal(t, want, refs)
			require.Equal(t, "refs/heads/main", head)
			require.Greater(t, n, 6)
			break
		}
		require.ErrorIs(t, err, syscall.EIO, f.failed())
		require.Empty(t, refs)
		require.Empty(t, head)
	}
}

// Whose Config.Describe panicked had lost a place for good: after some of these nobody was answered.
func TestAPanicLeavesThePlaceOfAPage(t *testing.T) {
	r := newRig(t, Config{})
	page := func() *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		r.git.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/"+owner.Npub()+"/x.git", nil))
		return w
	}
	r.git.cfg.Describe = func(context.Context, graspsync.RepoRef) (Description, error) {
		require.Equal(t, 1, has(r.git.asks.processes))
		panic("what somebody else has written")
	}
	for range 3 {
		require.PanicsWithValue(t, "what somebody else has written", func() { page() })
		require.Zero(t, has(r.git.asks.processes))
	}
	r.git.cfg.Describe = Config{}.withDefaults().Describe
	require.Equal(t, http.StatusOK, page().Code)
	require.Zero(t, has(r.git.asks.processes))
}

// A page has what nobody may change in it in its head, and says what it can though not all of it
// is known.
func TestHeadOfAPage(t *testing.T) {
	r := newRig(t, Config{})
	for _, err := range []error{nil, syscall.EIO} {
		r.git.cfg.Describe = func(context.Context, graspsync.RepoRef) (Description, error) {
			return Description{Text: "some <b>words"}, err
		}
		w := httptest.NewRecorder()
		r.git.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/"+owner.Npub()+"/x.git", nil))
		require.Equal(t, http.StatusOK, w.Code)
		require.Contains(t, w.Body.String(), "some &lt;b&gt;words")
		for name, value := range map[string]string{
			"Content-Type": "text/html; charset=utf-8", "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer",
			"Cache-Control":           "no-cache",
			"Content-Security-Policy": "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
		} {
			require.Equal(t, value, w.Header().Get(name))
		}
	}
	for target, want := range map[string][2]string{
		"http://h/a/b.git/":  {"/a/b.git", "/"},
		"http://h/a%2Fb.git": {"/a%2Fb.git", "/"},
	} {
		req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, target, nil)
		require.Equal(t, want, [2]string{originalPath(req), Root(req)})
		require.Equal(t, "http://h", Origin(req))
		req.Header.Set("X-Forwarded-Proto", "https")
		require.Equal(t, "https://h", Origin(req))
		req.RequestURI = "/below" + req.URL.EscapedPath()
		require.Equal(t, "/below/", Root(req))
		req.RequestURI = "::"
		require.Equal(t, want[0], originalPath(req))
	}
}
