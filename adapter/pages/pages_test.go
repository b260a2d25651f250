package pages_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/html"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/adapter/pages"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/gitserve"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// events is a Store of unsigned events.
type events struct {
	all   []graspsync.Event
	reads int
	err   error
}

func (s *events) Events(_ context.Context, f nostr.Filter) iter.Seq2[graspsync.Event, error] {
	s.reads++
	return func(yield func(graspsync.Event, error) bool) {
		if s.err != nil {
			yield(graspsync.Event{}, s.err)
			return
		}
		for _, e := range s.all {
			if f.Matches(e.Event) && !yield(e, nil) {
				return
			}
		}
	}
}

func (s *events) add(t testing.TB, evs ...*nostr.Event) {
	t.Helper()
	for _, ev := range evs {
		e, err := graspsync.ParseEvent(ev)
		require.NoError(t, err)
		s.all = append(s.all, e)
	}
}

func (s *events) announced(_ context.Context, ref graspsync.RepoRef) (*nip34.Announcement, map[graspsync.PubKey]struct{}, error) {
	for _, e := range slices.Backward(s.all) {
		if a, err := nip34.ParseAnnouncement(e); err == nil && a.Ref == ref {
			return a, map[graspsync.PubKey]struct{}{ref.Owner: {}}, nil
		}
	}
	return nil, nil, nil
}

const host = "grasp.example.com"

func site(t testing.TB, s *events, about pages.About, blocks func(graspsync.RepoRef) bool) *pages.Site {
	t.Helper()
	identity, err := nip34.ParseIdentity(host)
	require.NoError(t, err)
	return pages.New(pages.Config{Identity: identity, Store: s, Announced: s.announced, Blocks: blocks, About: func() pages.About { return about }})
}

// hosted is the announcement of a repository of k, at a minute.
func hosted(k *relaytest.Key, minute int, identifier, name, description string) *nostr.Event {
	return k.Event(nostr.Timestamp(1_700_000_000+60*minute), graspsync.KindAnnouncement, "", nostr.Tag{"d", identifier}, nostr.Tag{"name", name},
		nostr.Tag{"description", description}, nostr.Tag{"relays", "wss://" + host}, nostr.Tag{"clone", k.CloneURL("wss://"+host, identifier)})
}

func get(t testing.TB, h http.HandlerFunc, target string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, target, nil)
	r.Host = host
	r.Header.Set("X-Forwarded-Proto", "gopher") // clients can send any
	w := httptest.NewRecorder()
	h(w, r)
	return w
}

func has(t testing.TB, text, part string, of ...any) {
	t.Helper()
	require.True(t, strings.Contains(strings.ReplaceAll(text, "<wbr>", ""), part), "want %q %v", part, of)
}

func lacks(t testing.TB, text, part string) {
	t.Helper()
	require.False(t, strings.Contains(text, part), part)
}

func TestFrontPage(t *testing.T) {
	s, alice, bob := &events{}, relaytest.NewKey("alice"), relaytest.NewKey("bob")
	for i := range 70 {
		s.add(t, hosted(alice, i, fmt.Sprintf("project-%02d", i), fmt.Sprintf("Project %02d", i), "A thing"))
	}
	s.add(t, hosted(bob, 0, "a b", "<Bob>", "its\ntext"), bob.State(1_700_100_000, "a b", map[string]string{}, "main"),
		hosted(bob, 0, "blocked", "hidden", ""), bob.Announcement(1_700_000_000, "elsewhere", []string{"wss://other.example"}, []string{"https://other.example/x.git"}))
	p := site(t, s, pages.About{
		Name: "<Ours>", Description: "Describes & more", Contact: "mailto:a@example.com", Icon: "https://icons.example/x.png", Criteria: "good ones", Curation: "No mirrors.",
		Version: "v1.2.3", GRASPs: []string{"GRASP-01"}, NIPs: []string{"34"},
	}, func(ref graspsync.RepoRef) bool { return ref.Identifier == "blocked" })
	body := func(target string) string {
		w := get(t, p.Front, target)
		require.Equal(t, http.StatusOK, w.Code)
		checkHTML(t, w.Body.String())
		return w.Body.String()
	}
	first := body("/")
	for _, part := range []string{
		"&lt;Ours&gt;", "Describes &amp; more", "mailto:a@example.com", "No mirrors.", "good ones", "v1.2.3", "GRASP-01", "NIP-34", `src="https://icons.example/x.png"`,
		"ngit init --grasp-server wss://" + host, "git clone https://" + host + "/&lt;npub&gt;", "&lt;Bob&gt;", `href="/` + bob.Npub() + `/a%20b.git"`, "its text",
		"1–30 of 71.", `href="?page=2" rel="next"`, "Project 69",
	} {
		has(t, first, part)
	}
	require.Less(t, strings.Index(first, "&lt;Bob&gt;"), strings.Index(first, "Project 69"), "the last changed first")
	require.Less(t, strings.Index(first, "Project 69"), strings.Index(first, "Project 68"))
	for _, part := range []string{"Project 39", "\">hidden", "elsewhere.git"} {
		lacks(t, first, part)
	}
	has(t, get(t, p.Front, "/").Header().Get("Content-Security-Policy"), "default-src 'none'; style-src 'self'; img-src 'self' https://icons.example; form-action 'self'")
	has(t, body("/?page=2"), "31–60 of 71.")
	has(t, body("/?q=PROJECT&page=3"), "61–70 of 70 that match, of 71.")
	has(t, body("/?q=PROJECT&page=3"), `href="?page=2&amp;q=PROJECT" rel="prev"`)
	for _, word := range []string{"bob", "a b", bob.Npub(), "its text"} {
		has(t, body("/?q="+url.QueryEscape(word)), "1–1 of 1 that match", word)
	}
	has(t, body("/?q=%22%3E%3Cscript%3E"), "None that match, of 71.")
	require.Equal(t, "text/css; charset=utf-8", get(t, p.Front, "/assets/style.css").Header().Get("Content-Type"))
	for _, path := range []string{"/nothing", "/assets/", "/assets/nothing", "/%3Cscript%3E"} {
		w := get(t, p.Front, path)
		require.Equal(t, http.StatusNotFound, w.Code, path)
		checkHTML(t, w.Body.String())
	}
	has(t, get(t, p.MissingBelow("/git/"), "/x").Body.String(), `href="/git/assets/style.css"`)
	require.Contains(t, get(t, http.StripPrefix("/git", http.HandlerFunc(p.Front)).ServeHTTP, "/git/").Body.String(), `href="/git/`+bob.Npub())

	empty := get(t, site(t, &events{}, pages.About{}, nil).Front, "/").Body.String()
	has(t, empty, "No repository is hosted yet")
	has(t, empty, "<bdi>"+host+"</bdi>")
}

// An icon with other characters could change the policy of the page.
func TestIcon(t *testing.T) {
	for _, icon := range []string{"javascript:alert(1)", "https://x; script-src *", "https://x'/y", "data:image/png;base64,x", "https:///x", "//x/y", "https://x y/"} {
		w := get(t, site(t, &events{}, pages.About{Icon: icon}, nil).Front, "/")
		has(t, w.Header().Get("Content-Security-Policy"), "img-src 'self'; form-action", icon)
		has(t, w.Body.String(), `<img src="/assets/icon.svg" alt="" width="64"`, icon)
	}
}

func view(t testing.TB, k *relaytest.Key, identifier string) gitserve.View {
	t.Helper()
	id, err := nip34.ParseObjectID(strings.Repeat("ab", 20))
	require.NoError(t, err)
	return gitserve.View{
		Ref: k.Ref(identifier), HEAD: "refs/heads/main", Changed: time.Unix(1_700_000_000, 0), Subject: "Mend <it>", ReadmeName: "README.md", Readme: []byte("# Hello\n<script>[x](javascript:x)"),
		Refs: map[string]nip34.ObjectID{"refs/heads/main": id, "refs/heads/<b>": id, "refs/tags/v1": id, "refs/tags/v2": id, "refs/nostr/x": id},
	}
}

func show(p *pages.Site, v gitserve.View) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) { p.Repository(w, r, v) }
}

func TestRepositoryPage(t *testing.T) {
	s, alice := &events{}, relaytest.NewKey("alice")
	s.add(t, hosted(alice, 0, "a b", "A & B", "<script>alert(1)</script>"))
	p := site(t, s, pages.About{Name: "Ours"}, nil)
	path := "/" + alice.Npub() + "/a%20b.git"
	w := get(t, show(p, view(t, alice, "a b")), path)
	require.Equal(t, http.StatusOK, w.Code)
	body := w.Body.String()
	checkHTML(t, body)
	for _, part := range []string{
		"<h1><bdi>A &amp; B</bdi></h1>", "&lt;script&gt;", "git clone https://" + host + path, "git clone nostr://" + alice.Npub() + "/a%20b", "Mend &lt;it&gt;", "<pre># Hello\n&lt;script&gt;[x](javascript:x)</pre>",
		"https://gitworkshop.dev/" + alice.Npub() + "/a%20b", "https://njump.me/naddr1", "https://njump.me/" + alice.Npub(),
		"<dt>Branches</dt><dd>2</dd>", "<dt>Tags</dt><dd>2</dd>", "&lt;b&gt;", "<bdi>main</bdi> <span class=\"by\">default</span> <code title=\"abab",
	} {
		has(t, body, part)
	}
	require.Less(t, strings.Index(body, "<bdi>v2</bdi>"), strings.Index(body, "<bdi>v1</bdi>"))

	// Users paste the lines into a shell.
	odd := gitserve.View{Ref: alice.Ref("<b>;$(id)`x`'\"|&")}
	text := get(t, show(p, odd), "/"+alice.Npub()+"/"+url.PathEscape(odd.Ref.Identifier)+".git").Body.String()
	checkHTML(t, text)
	require.NotRegexp(t, "git clone [^\n<]*[;$(`'\"|&]", text)

	// Neither announcement nor data.
	body = get(t, show(p, gitserve.View{Ref: alice.Ref("other")}), "/"+alice.Npub()+"/other.git").Body.String()
	checkHTML(t, body)
	for _, part := range []string{"<h1><bdi>other</bdi></h1>", "No branch was pushed yet", "none yet"} {
		has(t, body, part)
	}
	s.err = errors.New("broken")
	require.Equal(t, http.StatusOK, get(t, show(p, view(t, alice, "a b")), path).Code, "without the description")
	has(t, get(t, p.Front, "/").Body.String(), "The list could not be read.")
}

// Pages contained control characters and bidirectional overrides of client text.
func TestCaseC8_StrangersTextIsPrintableOnPages(t *testing.T) {
	odd := []string{"\x1b[2J", "\u202e", "\u2066", "\u200f", "\u200b", "\u2028", "\u0007", "\ufeff", "\U000e0041", "\u061c", "\u009b", "\u3164", "\ufe0f", "\u2800", "\xff"}
	all := strings.Join(odd, "-")
	s, alice := &events{}, relaytest.NewKey("alice")
	ev := hosted(alice, 0, "x", "name"+all, "text\nwith two lines"+all)
	ev.Tags = append(ev.Tags, nostr.Tag{"web", "https://example.com/" + strings.Join(odd[1:6], "-"), "javascript:alert(1)"})
	s.add(t, ev)
	p, v := site(t, s, pages.About{Name: all}, nil), view(t, alice, "x")
	v.Subject, v.ReadmeName, v.Readme = all, "README"+all, []byte("a"+all+"b")
	v.Refs["refs/heads/b"+odd[1]] = v.Refs["refs/heads/main"]
	for name, body := range map[string]string{
		"repository": get(t, show(p, v), "/").Body.String(), "front": get(t, p.Front, "/?q="+url.QueryEscape(all)).Body.String(), "list": get(t, p.Front, "/").Body.String(),
	} {
		checkHTML(t, body)
		if name != "front" {
			has(t, body, `name\x1b[2J-\u202e`, name)
		}
	}
}

// The list is read by a viewer, and not again while it is new.
func TestListIsReadForViewersOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, alice := &events{}, relaytest.NewKey("alice")
		s.add(t, hosted(alice, 0, "first", "First", ""))
		p := site(t, s, pages.About{}, nil)
		time.Sleep(time.Hour)
		require.Zero(t, s.reads)
		for range 20 {
			has(t, get(t, p.Front, "/").Body.String(), "First")
		}
		require.Equal(t, 1, s.reads)
		s.err = errors.New("broken")
		time.Sleep(10 * time.Second)
		body := get(t, p.Front, "/").Body.String()
		has(t, body, "The list could not be read.")
		has(t, body, "First", "the last list is shown")
	})
}

// checkHTML fails if a page contains elements, links or characters that a page never has.
func checkHTML(t testing.TB, page string) {
	t.Helper()
	for _, r := range page {
		require.True(t, r == '\n' || r == '\t' || graspsync.IsPrintable(r), "%U", r)
	}
	doc, err := html.Parse(strings.NewReader(page))
	require.NoError(t, err)
	for n := range doc.Descendants() {
		if n.Type != html.ElementNode {
			continue
		}
		require.True(t, slices.Contains(elements, n.Data), n.Data)
		for _, a := range n.Attr {
			require.True(t, slices.Contains(attributes, a.Key), "%s of %s", a.Key, n.Data)
			if a.Key == "href" || a.Key == "src" || a.Key == "action" {
				u, err := url.Parse(a.Val)
				require.NoError(t, err)
				require.Contains(t, []string{"", "https", "http", "mailto"}, u.Scheme, a.Val)
			}
		}
	}
}

var (
	elements = strings.Fields("html head meta title link body a p img bdi nav ul li header main section h1 h2 h3 form label input button aside code footer div span dl dt dd " +
		"article details summary pre wbr time")
	attributes = strings.Fields("lang charset name content rel href type class id src alt width height aria-label aria-labelledby tabindex action method role for maxlength value placeholder " +
		"spellcheck autocomplete autocapitalize title dir open datetime")
)

func BenchmarkFront(b *testing.B) {
	s := &events{}
	for i := range 2500 {
		s.add(b, hosted(relaytest.NewKey(fmt.Sprint(i/10)), i, fmt.Sprintf("project-%04d", i), fmt.Sprintf("Project %04d", i), strings.Repeat("A description. ", 10)))
	}
	p := site(b, s, pages.About{Name: "Ours"}, nil)
	b.Run("cached", func(b *testing.B) {
		for b.Loop() {
			get(b, p.Front, "/?q=description")
		}
	})
	b.Run("read", func(b *testing.B) {
		for b.Loop() {
			get(b, site(b, s, pages.About{Name: "Ours"}, nil).Front, "/")
		}
	})
}
