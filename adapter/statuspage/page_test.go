package statuspage_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/net/html"

	"github.com/graspsync/graspsync/adapter/explain"
	"github.com/graspsync/graspsync/adapter/statuspage"
	"github.com/graspsync/graspsync/internal/cputime"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	relaysync "github.com/graspsync/graspsync/sync"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newPage(t testing.TB, s *server, change func(*statuspage.Config)) *statuspage.Page {
	t.Helper()
	cfg := statuspage.Config{Name: "grasp.example.com", Sync: s, Purgatory: gitOf{s}, Links: []statuspage.Link{{Text: "Metrics", Href: "metrics"}}}
	cfg.Explain = func(context.Context, string) (explain.Explanation, error) { return explain.Explanation{}, nil }
	if change != nil {
		change(&cfg)
	}
	page, err := statuspage.New(cfg)
	require.NoError(t, err)
	return page
}

func get(t testing.TB, h http.Handler, path string, header ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func paths(s *server) []string {
	return []string{
		"/", "/relays", "/relays?q=relay00&state=gaps", "/repositories", "/repositories?q=project-00&page=2", "/git", "/explain", "/explain?q=x",
	}
}

func TestConfig(t *testing.T) {
	_, err := statuspage.New(statuspage.Config{})
	require.ErrorContains(t, err, "Sync or Explain is nil")
}

// With as many relays and repositories as a large server has, each view is small and quick.
func TestManyRelaysAndRepositories(t *testing.T) {
	s := large(500, 2500)
	page := newPage(t, s, func(c *statuspage.Config) {
		c.Explain = func(context.Context, string) (explain.Explanation, error) {
			return explain.Explanation{Answer: []string{"so it is"}}, nil
		}
	})
	for _, path := range paths(s) {
		used := cputime.Used()
		w := get(t, page, path)
		took := cputime.Used() - used
		require.Equal(t, http.StatusOK, w.Code, path)
		require.Less(t, w.Body.Len(), 60_000, path)
		require.Less(t, took, 300*time.Millisecond, path) // some 3 ms, and much more with the race detector
	}
	require.LessOrEqual(t, s.outlines.Load(), int64(2), "of the rows that are shown, and of no others")
}

func TestListsArePagedAndSearched(t *testing.T) {
	s := large(120, 300)
	page := newPage(t, s, nil)
	body := func(path string) string { return get(t, page, path).Body.String() }
	rows := func(path string) int { return strings.Count(body(path), `<tr><th scope="row">`) }
	require.Equal(t, 50, rows("/relays"))
	require.Equal(t, 20, rows("/relays?page=3"))
	require.Equal(t, 20, rows("/relays?page=99"), "the last one")
	require.Equal(t, 50, rows("/relays?page=-1"))
	require.Equal(t, 50, rows("/relays?page=x"))
	require.Equal(t, 10, rows("/relays?q=RELAY01"))
	require.Zero(t, rows("/relays?q=elsewhere"))
	require.Contains(t, body("/relays?q=elsewhere"), "None that match, of 120.")
	require.Equal(t, 20, rows("/relays?state=dead"))
	require.Contains(t, body("/relays?page=2&state=all"), "51–100 of 120.")
	require.Contains(t, body("/relays?page=2"), `href="?page=3" rel="next"`)
	require.Equal(t, 50, rows("/repositories?page=6"))
	require.Equal(t, 10, rows("/repositories?q=project-001"))
	require.Equal(t, 1, rows("/repositories?q="+nip34.NPub(s.refs[7].Owner)))
	require.Equal(t, 1, rows("/repositories?q="+s.refs[7].Owner.String()))
	require.Equal(t, http.StatusNotFound, get(t, page, "/elsewhere").Code)
	w := httptest.NewRecorder()
	page.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/relays", nil))
	require.Equal(t, http.StatusMethodNotAllowed, w.Code)
	none := newPage(t, s, func(c *statuspage.Config) { c.Purgatory = nil })
	require.Equal(t, http.StatusNotFound, get(t, none, "/git").Code)
	require.NotContains(t, get(t, none, "/").Body.String(), "Git data")
}

// What needs a look is said on the first page, in words.
func TestNotices(t *testing.T) {
	s := large(6, 1)
	page := newPage(t, s, func(c *statuspage.Config) {
		c.Ready = func(context.Context) error {
			return errors.Join(errors.New("no room on the disk"), errors.New("writing a record: <b>read-only</b>"))
		}
	})
	s.change(func(st *relaysync.Status, git *purgatory.Status) {
		for i := range st.Relays {
			st.Relays[i].Phase, st.Relays[i].Strikes = "disconnected", 1
		}
		st.Events.Panics, git.Panics = map[string]uint64{"store": 1}, map[string]uint64{"git": 2}
		git.Ended, git.Failed, git.Fetches = map[purgatory.EventCode]uint64{purgatory.Expired: 20, purgatory.Released: 2}, 99, 100
	})
	body := get(t, page, "/").Body.String()
	for _, says := range []string{
		"Not ready", "no room on the disk", "&lt;b&gt;read-only&lt;/b&gt;", "No relay is connected.", "2 events could not be saved", "A panic was contained",
		"3 events were found only by the daily pass", "1 of 6 relays have failed for a day", "6 times a relay was proven hostile",
		"events expired since the start",
	} {
		require.Contains(t, body, says)
	}
	quiet := large(0, 0)
	quiet.change(func(st *relaysync.Status, git *purgatory.Status) {
		st.Synced, st.Events, *git = false, relaysync.EventStatus{}, purgatory.Status{}
	})
	body = get(t, newPage(t, quiet, nil), "/").Body.String()
	for _, says := range []string{"No relay is followed", "Next steps", "graspserver -bootstrap wss://relay.ngit.dev", "ngit init --grasp-server wss://grasp.example.com"} {
		require.Contains(t, body, says)
	}
	require.NotContains(t, body, "△")
}

// One relay that is down leaves the rest in sync.
func TestInSyncButForOneThatIsDown(t *testing.T) {
	s := large(3, 1)
	down := time.Now().Add(42 * time.Minute)
	s.change(func(st *relaysync.Status, _ *purgatory.Status) {
		st.Synced = true
		for i := range st.Relays {
			r := &st.Relays[i]
			r.Phase, r.Health, r.Wanted, r.Confirmed, r.Synced, r.Failures = "live", "degraded", 3, 3, true, 0
		}
		r := &st.Relays[2]
		r.Phase, r.Confirmed, r.Synced, r.Failures, r.NextAttempt = "disconnected", 1, false, 7, down
	})
	page := newPage(t, s, nil)
	body := get(t, page, "/").Body.String()
	require.Contains(t, body, "In sync with 2 of 3 relays")
	require.NotContains(t, body, "items are missing")
	require.Contains(t, body, `<span class="value">2</span> of 3 connected`)
	require.NotContains(t, strings.ToLower(body), "degraded")
	body = get(t, page, "/relays").Body.String()
	require.NotContains(t, body, "degraded")
	require.Contains(t, body, "connected for a short while only")
	require.Contains(t, body, "7 attempts in a row failed")
	require.Contains(t, body, "bootstrap, listed by 3 repositories")
	s.change(func(st *relaysync.Status, _ *purgatory.Status) { st.Synced = false })
	body = get(t, newPage(t, s, nil), "/").Body.String()
	require.Contains(t, body, "Taking in what has changed", "100 % of what is wanted is not caught up with")
	require.NotContains(t, body, "Catching up")
	s.change(func(st *relaysync.Status, _ *purgatory.Status) {
		st.Relays[0].Confirmed, st.Relays[0].Synced = 1, false
	})
	require.Contains(t, get(t, newPage(t, s, nil), "/").Body.String(), "Catching up")
	s.change(func(st *relaysync.Status, _ *purgatory.Status) {
		st.Synced = false
		for i := range st.Relays {
			st.Relays[i].Phase, st.Relays[i].Synced, st.Relays[i].Failures = "disconnected", false, 1
		}
	})
	require.Contains(t, get(t, newPage(t, s, nil), "/").Body.String(), "No relay can be reached")
}

// Nobody who looks once costs more than a snapshot; a page that nobody looks at costs nothing.
func TestWhatItCosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := large(50, 50)
		page := newPage(t, s, nil)
		time.Sleep(time.Hour)
		require.Zero(t, s.statuses.Load()+s.outlines.Load())
		for range 20 {
			for _, path := range paths(s)[:6] {
				get(t, page, path)
			}
		}
		require.EqualValues(t, 1, s.statuses.Load())
	})
}

// A question takes as long as it may, and so many are answered at once.
func TestQuestions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := large(1, 1)
		asked, id, npub := make(chan string, 10), strings.Repeat("a", 64), nip34.NPub(s.refs[0].Owner)
		page := newPage(t, s, func(c *statuspage.Config) {
			c.Explain = func(ctx context.Context, q string) (explain.Explanation, error) {
				asked <- q
				if q == "hard" {
					<-ctx.Done()
					return explain.Explanation{}, ctx.Err()
				}
				return explain.Explanation{Subject: nip34.SubjectEvent, Is: "stored", Asked: q, Answer: []string{
					"first <b> " + id + ".", "  second\x1b[2J\u202e" + q, "object " + id[:40] + " of " + npub + ", listed by " + npub + "/demo: wss://a.example.",
				}}, nil
			}
		})
		require.Contains(t, get(t, page, "/explain").Body.String(), "Ask why")
		body := get(t, page, "/explain?q=+easy+").Body.String()
		require.Equal(t, "easy", <-asked)
		for _, says := range []string{
			`<span class="state" data-state="live"><span aria-hidden="true">●</span> Stored and served</span>`, `event <bdi class="key">easy</bdi>`,
			`<li><bdi>first &lt;b&gt; <a class="key" href="explain?q=` + id + `" title="` + id + `">aaaaaaaaaaaa…aaaa</a>.</bdi>`,
			`<li class="below"><bdi>  second\x1b[2J\u202eeasy</bdi>`, `object <span class="key" title="` + id[:40] + `">aaaaaaaaaaaa…aaaa</span> of <span class="key" title="` + npub,
			`listed by <a class="key" href="explain?q=` + npub + `%2fdemo"`, `<a class="key" href="explain?q=wss%3a%2f%2fa.example" title="wss://a.example">wss://a.example</a>.`,
		} {
			require.Contains(t, body, says)
		}
		get(t, page, "/explain?q="+strings.Repeat("x", 5000))
		require.Len(t, <-asked, 1000)
		done := make(chan *httptest.ResponseRecorder, 4)
		began := time.Now()
		for range 4 {
			go func() { done <- get(t, page, "/explain?q=hard") }()
		}
		synctest.Wait()
		require.Equal(t, http.StatusServiceUnavailable, get(t, page, "/explain?q=easy").Code)
		for range 4 {
			require.Contains(t, (<-done).Body.String(), "deadline exceeded")
		}
		require.Equal(t, 10*time.Second, time.Since(began))
		require.Equal(t, http.StatusOK, get(t, page, "/explain?q=easy").Code)
	})
}

func TestHeadersAndAssets(t *testing.T) {
	s := large(2, 2)
	page := newPage(t, s, nil)
	require.Equal(t, http.StatusForbidden, get(t, page, "/", "Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "cors").Code)
	require.Equal(t, http.StatusOK, get(t, page, "/", "Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate").Code)
	for _, path := range append(paths(s), "/assets/style.css", "/elsewhere") {
		h := get(t, page, path).Header()
		for name, says := range map[string]string{
			"Content-Security-Policy": "default-src 'none'; style-src 'self';", "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer",
		} {
			require.Contains(t, h.Get(name), says, path)
		}
		require.NotContains(t, h.Get("Content-Security-Policy"), "unsafe")
		require.Contains(t, h.Get("Content-Security-Policy"), "frame-ancestors 'none'")
	}
	for name, typ := range map[string]string{"style.css": "text/css", "icon.svg": "image/svg+xml"} {
		w := get(t, page, "/assets/"+name)
		require.Equal(t, http.StatusOK, w.Code)
		require.Contains(t, w.Header().Get("Content-Type"), typ)
		require.Equal(t, http.StatusNotModified, get(t, page, "/assets/"+name, "If-None-Match", w.Header().Get("Etag")).Code)
	}
	require.Equal(t, http.StatusNotFound, get(t, page, "/assets/").Code)
	require.Equal(t, http.StatusNotFound, get(t, page, "/assets/layout.html").Code)
}

func each(n *html.Node, f func(*html.Node)) {
	if n.Type == html.ElementNode {
		f(n)
	}
	for c := n.FirstChild; c != nil; c = c.NextSibling {
		each(c, f)
	}
}
