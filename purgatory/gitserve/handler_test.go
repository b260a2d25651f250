package gitserve_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/gitserve"
)

// A push is applied if it matches the newest state, else refused with the reason.
func TestPush(t *testing.T) {
	r := newRig(t, gitserve.Config{})
	refused := func(reason string, args ...string) {
		t.Helper()
		out, err := try(t, r.work, append([]string{"push", r.repo()}, args...)...)
		require.Error(t, err)
		require.Contains(t, out, reason)
	}
	refused(refusedNoState, "main")
	r.says(map[string]string{"refs/heads/main": r.tip, "refs/tags/v1": r.tip})
	refused(refusedState, "main:other")
	refused("another ref of this push was refused", "--atomic", "main", "main:other")
	require.Empty(t, r.has(t))
	require.Empty(t, r.pushed)
	git(t, r.work, "push", "-q", r.repo(), "main", "main:refs/tags/v1")
	require.Equal(t, []string{"x refs/heads/main", "x refs/tags/v1"}, r.pushed)
	require.Equal(t, r.pushed, r.before)

	second := r.commit(t, "second")
	refused(refusedState, "main")
	refused(refusedState, ":refs/tags/v1")
	r.says(map[string]string{"refs/heads/main": second})
	git(t, r.work, "push", "-q", r.repo(), "main", ":refs/tags/v1")
	require.NotContains(t, r.has(t), "refs/tags/v1")
	require.Contains(t, r.has(t), second+"\trefs/heads/main")
	refused("only branches, tags", "main:refs/pull/1")
	refused("needs an event id", "main:refs/nostr/1")
	git(t, r.repos.Dir()+"/"+hashed(owner.Ref("x")), "fsck", "--strict")
}

// Any client may push the tip of a stored event.
func TestPushForAnEvent(t *testing.T) {
	r := newRig(t, gitserve.Config{})
	other := strings.Repeat("c", 64)
	r.tips[other] = ""
	git(t, r.work, "push", "-q", r.repo(), "main:refs/nostr/"+event)
	require.Equal(t, []string{"x refs/nostr/" + event}, r.pushed)
	out, err := try(t, r.work, "push", r.repo(), "main:refs/nostr/"+other)
	require.Error(t, err)
	require.Contains(t, out, refusedTip)
	r.commit(t, "second")
	out, err = try(t, r.work, "push", "-f", r.repo(), "main:refs/nostr/"+event)
	require.Error(t, err)
	require.Contains(t, out, refusedTip)
	out, err = try(t, r.work, "push", r.repo(), ":refs/nostr/"+event)
	require.Error(t, err)
	require.Contains(t, out, refusedDelete)
}

// A newer state may arrive during a push. The state under the lock decides.
func TestPushIsJudgedAgainUnderTheLock(t *testing.T) {
	r := newRig(t, gitserve.Config{})
	r.says(map[string]string{"refs/heads/main": r.tip})
	r.on("state", 3, func() { r.says(map[string]string{"refs/heads/main": two}) })
	out, err := try(t, r.work, "push", r.repo(), "main")
	require.Error(t, err)
	require.Contains(t, out, refusedState)
	require.Empty(t, r.has(t))
}

// A shallow push made the repository permanently shallow.
func TestTrapG6_ShallowPush(t *testing.T) {
	r := newRig(t, gitserve.Config{})
	r.commit(t, "second")
	shallow := filepath.Join(t.TempDir(), "x")
	git(t, r.work, "clone", "-q", "--depth=1", "file://"+r.work, shallow)
	r.says(map[string]string{"refs/heads/main": git(t, shallow, "rev-parse", "HEAD")})
	_, err := try(t, shallow, "push", r.repo(), "main")
	require.Error(t, err)
	require.NoFileExists(t, filepath.Join(r.repos.Dir(), hashed(owner.Ref("x")), "shallow"))
	require.Empty(t, r.has(t))
}

// Pushes from shallow clones, such as of build systems, were refused. Only pushes that need missing
// history are refused.
func TestPushFromAShallowClone(t *testing.T) {
	r := newRig(t, gitserve.Config{})
	second := r.commit(t, "second")
	r.says(map[string]string{"refs/heads/main": second})
	git(t, r.work, "push", "-q", r.repo(), "main")
	part := filepath.Join(t.TempDir(), "part")
	git(t, r.work, "clone", "-q", "--depth=1", r.repo(), part)
	git(t, part, "commit", "-q", "--allow-empty", "-m", "third")
	third := git(t, part, "rev-parse", "HEAD")
	r.says(map[string]string{"refs/heads/main": third, "refs/tags/v1": second})
	git(t, part, "push", "-q", r.repo(), "main", second+":refs/tags/v1")
	require.Contains(t, r.has(t), third+"\trefs/heads/main")
	require.Contains(t, r.has(t), second+"\trefs/tags/v1")
	require.NoFileExists(t, filepath.Join(r.dir(), "shallow"))
	git(t, r.dir(), "fsck", "--strict")
}

// A push was refused if the ref already had the new value, because it did not have the client's old
// value.
func TestPushOfWhatIsThereAlready(t *testing.T) {
	r := newRig(t, gitserve.Config{})
	first := r.tip
	second := r.commit(t, "second")
	git(t, r.work, "push", "-q", "file://"+r.dir(), first+":refs/heads/gone", second+":refs/heads/made", first+":refs/heads/late", first+":refs/heads/main")
	r.says(map[string]string{"refs/heads/made": second, "refs/heads/moved": second, "refs/heads/main": second, "refs/heads/late": second})
	git(t, r.dir(), "update-ref", "-d", "refs/heads/gone")
	git(t, r.dir(), "update-ref", "refs/heads/moved", second)
	git(t, r.dir(), "pack-refs", "--all")
	for _, atomic := range []string{"", " atomic"} {
		git(t, r.dir(), "update-ref", "refs/heads/main", first)
		_, text := r.do(t, "POST", "/"+owner.Npub()+"/x.git/git-receive-pack", packet(
			null+" "+second+" refs/heads/made\x00report-status"+atomic,
			first+" "+second+" refs/heads/moved",
			first+" "+null+" refs/heads/gone",
			first+" "+second+" refs/heads/main",
		)+string(packOf()))
		require.Equal(t, packet("unpack ok\n", "ok refs/heads/made\n", "ok refs/heads/moved\n", "ok refs/heads/gone\n", "ok refs/heads/main\n"), text)
		require.NotContains(t, r.has(t), "gone")
		require.Contains(t, r.has(t), second+"\trefs/heads/main")
	}
	// A ref with neither the client's old nor new value is not moved.
	_, text := r.do(t, "POST", "/"+owner.Npub()+"/x.git/git-receive-pack", packet(null+" "+second+" refs/heads/late\x00report-status")+string(packOf()))
	require.Contains(t, text, "ng refs/heads/late")
}

// Git deletes the reflog of a ref with the ref, so deletions by pushes were not logged.
func TestDeletionByAPushIsLogged(t *testing.T) {
	r := newRig(t, gitserve.Config{})
	r.says(map[string]string{"refs/heads/main": r.tip, "refs/heads/x": r.tip})
	git(t, r.work, "push", "-q", r.repo(), "main", "main:x")
	r.says(map[string]string{"refs/heads/main": r.tip})
	git(t, r.work, "push", "-q", r.repo(), ":x")
	log, err := os.ReadFile(filepath.Join(r.dir(), "logs", "HEAD"))
	require.NoError(t, err)
	require.Regexp(t, r.tip+" "+r.tip+" graspsync .*deleted refs/heads/x\n", string(log))
	require.Contains(t, git(t, r.dir(), "rev-list", "--reflog"), r.tip)
}

// Every client may fetch any tip, any reachable commit, and with filters.
func TestFetch(t *testing.T) {
	r := newRig(t, gitserve.Config{})
	first := r.tip
	second := r.commit(t, "second")
	r.says(map[string]string{"refs/heads/main": second})
	git(t, r.work, "push", "-q", r.repo(), "main")
	for _, version := range []string{"0", "1", "2"} {
		dir := t.TempDir()
		git(t, dir, "init", "-q")
		git(t, dir, "-c", "protocol.version="+version, "fetch", "-q", "--depth=1", r.repo(), first)
		require.Equal(t, first, git(t, dir, "rev-parse", "FETCH_HEAD"))
		git(t, dir, "-c", "protocol.version="+version, "fetch", "-q", "--refetch", "--filter=blob:none", r.repo(), second)
		require.Equal(t, second, git(t, dir, "rev-parse", "FETCH_HEAD"))
	}
	_, err := try(t, t.TempDir(), "clone", r.url+"/"+owner.Npub()+"/y.git")
	require.Error(t, err)
}

// Expensive filters are refused. Filters of partial clones are allowed.
func TestFiltersOfAFetch(t *testing.T) {
	r := newRig(t, gitserve.Config{})
	main := r.commit(t, "one")
	r.says(map[string]string{"refs/heads/main": main})
	git(t, r.work, "push", "-q", r.repo(), "main")
	for filter, taken := range map[string]bool{
		"blob:none": true, "blob:limit=1k": true, "tree:0": true, "object:type=commit": true,
		"tree:1": false, "sparse:oid=" + main: false, "combine:blob:none+sparse:oid=" + main: false, "combine:blob:none+tree:0": false,
	} {
		out, err := try(t, t.TempDir(), "clone", "-q", "--bare", "--filter="+filter, r.repo(), ".")
		require.Equal(t, taken, err == nil, "%s: %s", filter, out)
	}
}

func (r *rig) do(t *testing.T, method, path, body string, header ...string) (*http.Response, string) {
	t.Helper()
	_ = r.repo() // makes settings of the test visible
	req, err := http.NewRequestWithContext(t.Context(), method, r.url+path, strings.NewReader(body))
	require.NoError(t, err)
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	client := http.Client{Timeout: time.Minute}
	defer client.CloseIdleConnections()
	resp, err := client.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp, string(text)
}

func TestRequests(t *testing.T) {
	r := newRig(t, gitserve.Config{MaxPush: 3000}.With(gitserve.Fixed{MaxAsk: 3000}))
	at := "/" + owner.Npub() + "/x.git"
	upload, receive := at+"/git-upload-pack", at+"/git-receive-pack"
	command := packet(null + " " + r.tip + " refs/heads/main\x00report-status")
	var bomb bytes.Buffer
	z := gzip.NewWriter(&bomb)
	_, err := z.Write(make([]byte, 10<<20))
	require.NoError(t, err)
	require.NoError(t, z.Close())
	for _, tt := range []struct {
		method, path, body string
		header             []string
		status             int
	}{
		{"OPTIONS", upload, "", nil, 204},
		{"GET", at + "/info/refs?service=git-upload-pack", "", nil, 200},
		{"GET", at + "/info/refs?service=git-receive-pack", "", nil, 200},
		{"HEAD", at + "/info/refs?service=git-receive-pack", "", nil, 200},
		{"HEAD", upload, "", nil, 405},
		{"GET", "/", "", nil, 404},
		{"GET", "/npub1x/x.git/info/refs", "", nil, 404},
		{"GET", at + "/info/refs", "", nil, 404}, // dumb HTTP
		{"GET", at + "/info/refs?service=git-upload-archive", "", nil, 404},
		{"GET", at + "/HEAD", "", nil, 404},
		{"GET", at + "/config", "", nil, 404},
		{"GET", at + "/objects/info/packs", "", nil, 404},
		{"GET", at, "", nil, 200},
		{"HEAD", at, "", nil, 200},
		{"POST", at, "", nil, 404},
		{"GET", "/" + owner.Npub() + "/y.git", "", nil, 404},
		{"GET", "/" + owner.Npub() + "/..%2f..%2fetc.git/info/refs?service=git-upload-pack", "", nil, 404},
		{"GET", "/" + owner.Npub()[:30] + "/x.git/info/refs?service=git-upload-pack", "", nil, 404},
		{"GET", "/" + strings.ToUpper(owner.Npub()) + "/x.git/info/refs?service=git-upload-pack", "", nil, 404},
		{"GET", upload, "", nil, 405},
		{"POST", at + "/info/refs?service=git-upload-pack", "", nil, 405},
		{"POST", receive, "0000", nil, 200}, // git's check for permission
		{"POST", receive, "zzzz", nil, 403},
		{"POST", receive, "00", nil, 400},
		{"POST", receive, command, nil, 200},
		{"POST", receive, packet(null + " " + r.tip + " refs/heads/main"), nil, 403}, // the client reads no report
		{"POST", receive, packet(null+" "+r.tip+" refs/nostr/"+event) + strings.Repeat("x", 3000), nil, 413},
		{"POST", upload, strings.Repeat("x", 3001), nil, 413},
		{"POST", upload, bomb.String(), []string{"Content-Encoding", "gzip"}, 413},
		{"POST", upload, "x", []string{"Content-Encoding", "gzip"}, 400},
		{"POST", upload, "x", []string{"Content-Encoding", "br"}, 415},
	} {
		resp, text := r.do(t, tt.method, tt.path, tt.body, tt.header...)
		require.Equal(t, tt.status, resp.StatusCode, "%s %s: %.200s", tt.method, tt.path, text)
		require.Equal(t, "*", resp.Header.Get("Access-Control-Allow-Origin"), tt.path)
	}
	left, err := os.ReadDir(filepath.Join(r.repos.Dir(), incoming))
	require.NoError(t, err)
	require.Empty(t, left)
}

// libgit2 fails if object-format is the last capability. Pushes of its clients were lost.
func TestCapabilitiesDoNotEndWithTheObjectFormat(t *testing.T) {
	r := newRig(t, gitserve.Config{})
	_, text := r.do(t, "GET", "/"+owner.Npub()+"/x.git/info/refs?service=git-receive-pack", "")
	require.Regexp(t, "\x00report-status .* object-format=sha1 agent=graspsync\n", text)
}

// A browser at the URL of a repository got an error.
func TestPageOfARepository(t *testing.T) {
	r := newRig(t, gitserve.Config{})
	for identifier, status := range map[string]int{"x": http.StatusOK, "other": http.StatusNotFound} {
		resp, text := r.do(t, "GET", "/"+owner.Npub()+"/"+identifier+".git", "")
		require.Equal(t, status, resp.StatusCode)
		require.NotEmpty(t, text)
		require.Equal(t, "text/plain; charset=utf-8", resp.Header.Get("Content-Type"))
		require.Equal(t, "*", resp.Header.Get("Access-Control-Allow-Origin"))
	}
}

// No text of a client is in git's arguments or environment.
func TestPromiseP7_NothingOfAClientReachesGit(t *testing.T) {
	real, err := exec.LookPath("git")
	require.NoError(t, err)
	dir := t.TempDir()
	log, shim := filepath.Join(dir, "log"), filepath.Join(dir, "git")
	script := fmt.Sprintf("#!/bin/sh\n{ printf '%%s\\n' \"$@\"; env; } >> %s\nexec %s \"$@\"\n", log, real)
	require.NoError(t, os.WriteFile(shim, []byte(script), 0o700))
	r := rigWith(t, gitserve.RepositoriesConfig{Git: shim}, gitserve.Config{})
	const mark = "attacker"
	ref := owner.Ref(mark + "$(id)")
	require.NoError(t, r.repos.Create(t.Context(), ref, nip34.SHA1))
	at := "/" + owner.Npub() + "/" + url.PathEscape(ref.Identifier) + ".git"
	resp, _ := r.do(t, "GET", at+"/info/refs?service=git-upload-pack&x="+mark, "", "Git-Protocol", mark+"=1:version=2:"+mark+"=2", "User-Agent", mark,
		"X-Forwarded-For", mark, "Referer", mark, "Authorization", mark)
	require.Equal(t, 200, resp.StatusCode)
	r.says(map[string]string{"refs/heads/" + mark: r.tip})
	git(t, r.work, "push", "-q", r.url+at, "main:"+mark)
	seen, err := os.ReadFile(log)
	require.NoError(t, err)
	require.Contains(t, string(seen), "GIT_PROTOCOL=version=2")
	require.Contains(t, string(seen), "upload-pack")
	require.Contains(t, string(seen), "index-pack")
	require.NotContains(t, string(seen), mark)
}

func TestNewNamesWhatIsWrong(t *testing.T) {
	_, err := gitserve.New(nil, nil, gitserve.Config{MaxPush: -1, MaxFetches: -1})
	require.ErrorIs(t, err, gitserve.ErrConfig)
	for _, name := range []string{"repos", "authority", "MaxPush", "MaxFetches"} {
		require.ErrorContains(t, err, name)
	}
}

// A panic of the Authority under the lock kept the lock forever, and each later push kept a slot.
func TestPanicUnderTheLock(t *testing.T) {
	r := newRig(t, gitserve.Config{}.With(gitserve.Fixed{Wait: 3 * time.Second}))
	r.says(map[string]string{"refs/heads/main": r.tip})
	r.on("state", 3, func() { panic("a store that panics") })
	_, _ = try(t, r.work, "push", r.repo(), "main") // git may retry
	git(t, r.work, "push", "-q", r.repo(), "main")
	require.Contains(t, r.has(t), r.tip)
	r.taken(t, "running", "push", 0)
}

// unread is a page whose client does not read the answer.
type unread struct{ begun, end chan struct{} }

func (u unread) Repository(w http.ResponseWriter, _ *http.Request, _ gitserve.View) {
	u.begun <- struct{}{}
	<-u.end
	w.WriteHeader(http.StatusOK)
	u.begun <- struct{}{}
	<-u.end
}

func (u unread) Missing(w http.ResponseWriter, r *http.Request) { http.NotFound(w, r) }

// A page has a slot while it is rendered, and not while its client reads it.
func TestSlotOfAPage(t *testing.T) {
	u := unread{make(chan struct{}), make(chan struct{})}
	r := newRig(t, gitserve.Config{Pages: u})
	done := make(chan struct{})
	defer func() { <-done }()
	defer close(u.end)
	go func() {
		defer close(done)
		r.do(t, "GET", "/"+owner.Npub()+"/x.git", "")
	}()
	<-u.begun
	require.Equal(t, 1, r.count(t, "running", "page"))
	u.end <- struct{}{}
	<-u.begun
	require.Equal(t, 0, r.count(t, "running", "page"))
}

// Every page of the server has a slot.
func TestPageHasASlot(t *testing.T) {
	r := newRig(t, gitserve.Config{}.With(gitserve.Fixed{Wait: 50 * time.Millisecond}))
	empty := r.git.Fill("page")
	page := r.git.Page(http.NotFoundHandler())
	get := func() int {
		w := httptest.NewRecorder()
		page.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
		return w.Code
	}
	require.Equal(t, http.StatusServiceUnavailable, get())
	empty()
	require.Equal(t, http.StatusNotFound, get())
}
