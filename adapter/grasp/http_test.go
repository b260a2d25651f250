package grasp_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/fiatjaf/khatru"
	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/adapter/grasp"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// ask sends a request to a server.
func (r *rig) ask(method, path string, header ...string) (*http.Response, string) {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), method, "http://"+r.addr+path, nil)
	require.NoError(r.t, err)
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	require.NoError(r.t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(r.t, err)
	return resp, string(text)
}

// CORS headers were inconsistent: POST only at /, and different ones for the NIP-11 document and
// for missing pages.
func TestPagesOfAllSitesMayAsk(t *testing.T) {
	r := unstarted(t)
	r.start()
	defer r.stop()
	npub := relaytest.NewKey("owner").Npub()
	for _, path := range []string{"/", "/nothing", "/npub1test/x.git/info/refs", "/" + npub + "/x.git/git-upload-pack", "/" + npub + "/x.git"} {
		for _, method := range []string{http.MethodOptions, http.MethodGet, http.MethodHead, http.MethodPost, http.MethodDelete} {
			for _, header := range [][]string{
				nil,
				{"Origin", "https://a.example", "Access-Control-Request-Method", "POST", "Access-Control-Request-Headers", "git-protocol"},
				{"Origin", "https://a.example", "Accept", "application/nostr+json"},
			} {
				resp, _ := r.ask(method, path, header...)
				require.Equal(t, []string{"*"}, resp.Header["Access-Control-Allow-Origin"], "%s %s %v", method, path, header)
				require.Equal(t, []string{"GET, POST"}, resp.Header["Access-Control-Allow-Methods"], "%s %s %v", method, path, header)
				require.Equal(t, []string{"Content-Type, Authorization, Git-Protocol"}, resp.Header["Access-Control-Allow-Headers"], "%s %s %v", method, path, header)
				require.Equal(t, []string{"WWW-Authenticate"}, resp.Header["Access-Control-Expose-Headers"], "%s %s %v", method, path, header)
				if method == http.MethodOptions {
					require.Equal(t, http.StatusNoContent, resp.StatusCode, "%s %v", path, header)
				}
			}
		}
	}
}

// A clone of a repository without git data began on main instead of the default branch in its
// state.
func TestDefaultBranchBeforeTheFirstPush(t *testing.T) {
	r := unstarted(t)
	r.start()
	defer r.stop()
	owner := relaytest.NewKey("owner")
	work, commit := r.work()
	require.Empty(t, r.publish(owner.Hosted(nostr.Now()-100, "repo", "ws://"+r.addr),
		owner.State(nostr.Now()-90, "repo", map[string]string{"refs/heads/develop": commit, "refs/heads/other": commit}, "develop")))
	url := owner.CloneURL("ws://"+r.addr, "repo")
	clone := func() string {
		into := t.TempDir()
		r.git(into, "clone", "-q", url, "x")
		return r.git(into, "-C", "x", "symbolic-ref", "HEAD")
	}
	r.eventually("it is the unborn branch", func() bool { return clone() == "refs/heads/develop" })
	require.Empty(t, r.publish(owner.State(nostr.Now()-80, "repo", map[string]string{"refs/heads/develop": commit, "refs/heads/other": commit}, "other")))
	r.eventually("it follows the newest state", func() bool { return clone() == "refs/heads/other" })
	r.git(work, "push", "-q", url, "main:develop", "main:other")
	require.Equal(t, "refs/heads/other", clone())
}

// A read right after a push found neither its events nor the new default branch, and the repository
// of another maintainer was unchanged.
func TestPushEndsWhenItsEventsAreServed(t *testing.T) {
	r := unstarted(t)
	r.start()
	defer r.stop()
	alice, bob := relaytest.NewKey("alice"), relaytest.NewKey("bob")
	work, commit := r.work()
	relay := "ws://" + r.addr
	var events []*nostr.Event
	for i, k := range []*relaytest.Key{alice, bob} {
		other := []*relaytest.Key{bob, alice}[i]
		events = append(events, k.Announcement(nostr.Now()-100, "repo", []string{relay}, []string{k.CloneURL(relay, "repo")}, other))
	}
	require.Empty(t, r.publish(events...))
	urls := []string{alice.CloneURL(relay, "repo"), bob.CloneURL(relay, "repo")}
	for i, k := range []*relaytest.Key{alice, bob, alice} {
		branch := "branch" + strconv.Itoa(i)
		r.git(work, "switch", "-q", "-c", branch)
		r.git(work, "commit", "-q", "--allow-empty", "-m", branch)
		was := commit
		commit = r.git(work, "rev-parse", "HEAD")
		require.NotEqual(t, was, commit)
		st := k.State(nostr.Now()-50+nostr.Timestamp(i), "repo", map[string]string{"refs/heads/" + branch: commit}, branch)
		require.Empty(t, r.publish(st))
		require.True(t, r.waits(st))
		r.git(work, "push", "-q", k.CloneURL(relay, "repo"), branch)
		require.True(t, r.serves(st), "push %d", i)
		for _, ev := range events[:min(i+1, 2)] {
			require.True(t, r.serves(ev), "push %d", i)
		}
		for _, url := range urls[:min(i+1, 2)] { // before its first push, bob's repository waits for itself
			r.eventually("the push is served", func() bool { // the other's at once, if its lock is free
				return strings.Contains(r.git(work, "ls-remote", "--symref", url), "ref: refs/heads/"+branch+"\tHEAD\n"+commit)
			})
		}
	}
}

// A browser at an address of the server got no page.
func TestPages(t *testing.T) {
	for _, base := range []string{"", "/git"} {
		r := unstarted(t)
		r.base = base
		r.configure = func(relay *khatru.Relay, cfg *grasp.Config) {
			relay.Info.Name, relay.Info.Contact, cfg.Curation = "<Ours>", "mailto:a@example.com", "No mirrors."
		}
		r.start()
		owner, other := relaytest.NewKey("owner"), relaytest.NewKey("other")
		work, commit := r.work()
		at, relay := base+"/"+owner.Npub()+"/a%20b.git", "ws://"+r.addr+base
		url := "http://" + r.addr + at
		evil := "<script>alert(1)</script>"
		ann := owner.Event(nostr.Now()-100, graspsync.KindAnnouncement, "", nostr.Tag{"d", "a b"}, nostr.Tag{"name", "A & B"}, nostr.Tag{"description", evil},
			nostr.Tag{"relays", relay}, nostr.Tag{"clone", url}, nostr.Tag{"maintainers", other.PubKey().String()},
			nostr.Tag{"web", "javascript:alert(1)", "https://a.example/\"onclick=\"x", "not a URL"})
		branch := "refs/heads/<b>"
		st := owner.State(nostr.Now()-90, "a b", map[string]string{"refs/heads/main": commit, branch: commit, "refs/tags/v1": commit}, "main")
		also := other.Event(nostr.Now()-100, graspsync.KindAnnouncement, "", nostr.Tag{"d", "a b"}, nostr.Tag{"relays", relay},
			nostr.Tag{"clone", "http://" + r.addr + base + "/" + other.Npub() + "/a%20b.git"}, nostr.Tag{"maintainers", owner.PubKey().String()})
		require.Empty(t, r.publish(ann, also, st))
		resp, text := r.ask(http.MethodGet, at)
		require.Equal(t, http.StatusOK, resp.StatusCode)
		require.Contains(t, text, "None yet")
		r.git(work, "tag", "v1")
		r.git(work, "push", "-q", url, "main", "main:"+branch, "v1")

		resp, text = r.ask(http.MethodGet, at)
		require.Equal(t, http.StatusOK, resp.StatusCode)
		isPage := func() {
			require.Equal(t, "text/html; charset=utf-8", resp.Header.Get("Content-Type"))
			require.Contains(t, resp.Header.Get("Content-Security-Policy"), "default-src 'none'")
			require.Equal(t, "nosniff", resp.Header.Get("X-Content-Type-Options"))
			require.Equal(t, []string{"*"}, resp.Header["Access-Control-Allow-Origin"])
			require.NotContains(t, text, "<script")
			require.NotContains(t, text, "javascript:")
		}
		isPage()
		text = strings.ReplaceAll(text, "<wbr>", "") // where a long line may break
		for _, part := range []string{
			"<h1><bdi>A &amp; B</bdi></h1>", "&lt;script&gt;", "git clone " + url, "git clone nostr://" + owner.Npub() + "/a%20b", "<bdi>main</bdi> <span class=\"by\">default</span> <code title=\"" + commit,
			"<bdi>&lt;b&gt;</bdi>", "<bdi>v1</bdi>", other.Npub(), "https://gitworkshop.dev/" + owner.Npub() + "/a%20b", "https://njump.me/naddr1",
			`href="https://a.example/%22onclick=%22x"`, `href="` + base + `/assets/style.css"`, "Last commit",
		} {
			require.Contains(t, text, part)
		}
		require.Equal(t, commit, strings.Fields(r.git(work, "ls-remote", url, "HEAD"))[0], "the page is at the address that git uses")
		head, empty := r.ask(http.MethodHead, at)
		require.Equal(t, http.StatusOK, head.StatusCode)
		require.Empty(t, empty)
		require.Equal(t, resp.Header.Get("Content-Type"), head.Header.Get("Content-Type"))

		resp, text = r.ask(http.MethodGet, base+"/")
		require.Equal(t, http.StatusOK, resp.StatusCode)
		isPage()
		text = strings.ReplaceAll(text, "<wbr>", "") // where a long line may break
		for _, part := range []string{"&lt;Ours&gt;", "mailto:a@example.com", "No mirrors.", "git clone http://" + r.addr + base + "/&lt;npub", "announcements that list this server", "GRASP-02", `href="` + at + `"`} {
			require.Contains(t, text, part)
		}
		style, _ := r.ask(http.MethodGet, base+"/assets/style.css")
		require.Equal(t, "text/css; charset=utf-8", style.Header.Get("Content-Type"))
		for _, path := range []string{"/nothing", "/" + owner.Npub() + "/nothing.git", "/npub1test/x.git", "/%3Cscript%3E"} {
			resp, text = r.ask(http.MethodGet, base+path)
			require.Equal(t, http.StatusNotFound, resp.StatusCode, path)
			isPage()
			require.Contains(t, text, `href="`+base+`/">`, path)
		}
		resp, text = r.ask(http.MethodGet, base+"/"+owner.Npub()+"/nothing.git/info/refs?service=git-upload-pack")
		require.Equal(t, http.StatusNotFound, resp.StatusCode)
		require.Equal(t, "no such repository: an announcement that lists this server comes first\n", text, "git shows it")
		r.stop()
	}
}

// The server did not serve its operator's key as NIP-05 name "_".
func TestNIP05(t *testing.T) {
	const path = "/.well-known/nostr.json"
	key := strings.Repeat("a", 64)
	for name, c := range map[string]struct {
		base, ask, key string
		status         int
	}{
		"ours":                {"", path, key, http.StatusOK},
		"nobody's":            {"", path, "", http.StatusNotFound},
		"under a path":        {"/git", "/git" + path, key, http.StatusNotFound},
		"of a host we share":  {"/git", path, key, http.StatusNotFound},
		"of another document": {"", "/.well-known/other.json", key, http.StatusNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			r := unstarted(t)
			r.base = c.base
			r.configure = func(relay *khatru.Relay, _ *grasp.Config) { relay.Info.PubKey = c.key }
			r.start()
			defer r.stop()
			for _, accept := range []string{"", "text/html", "application/json", "application/nostr+json"} {
				if accept == "application/nostr+json" && c.status != http.StatusOK && c.base == "" {
					continue // the NIP-11 document, as on every path of our host
				}
				resp, text := r.ask(http.MethodGet, c.ask+"?name=_", "Accept", accept)
				require.Equal(t, c.status, resp.StatusCode, accept)
				require.Equal(t, []string{"*"}, resp.Header["Access-Control-Allow-Origin"], accept)
				if c.status == http.StatusOK {
					require.Equal(t, "application/json", resp.Header.Get("Content-Type"), accept)
					require.JSONEq(t, `{"names":{"_":"`+key+`"}}`, text, accept)
				}
			}
			head, empty := r.ask(http.MethodHead, c.ask)
			require.Equal(t, c.status, head.StatusCode)
			require.Empty(t, empty)
		})
	}
}

// A server with a path also answered outside its path, at addresses of other services.
func TestNothingOutsideOfAPath(t *testing.T) {
	r := unstarted(t)
	r.base = "/git"
	r.start()
	defer r.stop()
	owner := relaytest.NewKey("owner")
	work, commit := r.work()
	url := owner.CloneURL("ws://"+r.addr+"/git", "repo")
	ann := owner.Hosted(nostr.Now()-100, "repo", "ws://"+r.addr+"/git")
	st := owner.State(nostr.Now()-90, "repo", map[string]string{"refs/heads/main": commit}, "main")
	require.Empty(t, r.publish(ann, st))
	r.git(work, "push", "-q", url, "main")
	websocket := []string{"Connection", "Upgrade", "Upgrade", "websocket", "Sec-WebSocket-Version", "13", "Sec-WebSocket-Key", "MDEyMzQ1Njc4OWFiY2RlZg=="}
	repo := "/" + owner.Npub() + "/repo.git"
	for path, status := range map[string]int{
		"/git": http.StatusOK, "/git/": http.StatusOK, "/git" + repo: http.StatusOK, "/git" + repo + "/info/refs?service=git-upload-pack": http.StatusOK,
		"/": http.StatusNotFound, "/other": http.StatusNotFound, "/git2": http.StatusNotFound, "/Git": http.StatusNotFound, "/git2" + repo: http.StatusNotFound,
		repo: http.StatusNotFound, repo + "/info/refs?service=git-upload-pack": http.StatusNotFound, "/other" + repo: http.StatusNotFound,
		"/other/git" + repo: http.StatusNotFound, "/git/git" + repo: http.StatusNotFound,
	} {
		resp, text := r.ask(http.MethodGet, path)
		require.Equal(t, status, resp.StatusCode, path)
		require.Equal(t, []string{"*"}, resp.Header["Access-Control-Allow-Origin"], path)
		if status == http.StatusNotFound {
			require.Equal(t, "text/html; charset=utf-8", resp.Header.Get("Content-Type"), path)
			require.Contains(t, text, `href="/git/">`, path)
			for _, method := range []string{http.MethodPost, http.MethodHead} {
				resp, _ := r.ask(method, path)
				require.Equal(t, http.StatusNotFound, resp.StatusCode, path)
			}
		}
	}
	for path, status := range map[string]int{
		"/git": http.StatusSwitchingProtocols, "/git/": http.StatusSwitchingProtocols, "/": http.StatusNotFound, "/other": http.StatusNotFound, "/git/below": http.StatusNotFound,
	} {
		resp, _ := r.dial(path, websocket...)
		require.Equal(t, status, resp.StatusCode, "websocket at %s", path)
		resp, text := r.ask(http.MethodGet, path, "Accept", "application/nostr+json")
		require.Equal(t, status == http.StatusSwitchingProtocols, resp.Header.Get("Content-Type") == "application/nostr+json", path)
		require.Equal(t, status == http.StatusSwitchingProtocols, strings.Contains(text, "GRASP-01"), path)
	}

	// An http.StripPrefix may remove the path.
	stripped := http.StripPrefix("/git", r.server.Handler())
	for path, status := range map[string]int{"/git": http.StatusOK, "/git/": http.StatusOK, "/git" + repo: http.StatusOK, "/git/other": http.StatusNotFound} {
		answer := httptest.NewRecorder()
		stripped.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
		require.Equal(t, status, answer.Code, path)
	}
}

// dial opens a websocket.
func (r *rig) dial(path string, header ...string) (*http.Response, error) {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), http.MethodGet, "http://"+r.addr+path, nil)
	require.NoError(r.t, err)
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	require.NoError(r.t, err)
	return resp, resp.Body.Close()
}
