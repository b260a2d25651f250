package graspadapter_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"fiatjaf.com/nostr"
	"fiatjaf.com/nostr/eventstore"
	"fiatjaf.com/nostr/eventstore/boltdb"
	"fiatjaf.com/nostr/khatru"
	"fiatjaf.com/nostr/khatru/grasp"
	gonostr "github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/adapter/nostrlib"
	graspadapter "github.com/graspsync/graspsync/adapter/nostrlib/grasp"
	"github.com/graspsync/graspsync/internal/porttest"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/purgatory/gitfetch"
	"github.com/graspsync/graspsync/purgatory/gitserve"
	"github.com/graspsync/graspsync/rules"
	"github.com/graspsync/graspsync/state"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/relaytest"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// Two goroutines of the relay: one ends with its connection, and one sleeps for 20 minutes.
		goleak.IgnoreAnyFunction("fiatjaf.com/nostr/khatru.(*Relay).HandleWebsocket.func3"),
		goleak.IgnoreAnyFunction("fiatjaf.com/nostr/khatru/grasp.(*GraspServer).cleanupMergedPatches"))
}

// place is a relay with a GraspServer at an address.
type place struct {
	t     *testing.T
	addr  string
	dir   string
	db    *boltdb.BoltBackend
	relay *khatru.Relay
	grasp *grasp.GraspServer
	front atomic.Pointer[khatru.Relay] // the served relay
}

// swap serves another relay with the same data.
func (p *place) swap(relay *khatru.Relay, gs *grasp.GraspServer) {
	p.relay, p.grasp = relay, gs
}

func open(t *testing.T) (*place, net.Listener) {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", porttest.Address(t))
	require.NoError(t, err)
	p := &place{t: t, addr: listener.Addr().String(), dir: t.TempDir(), relay: khatru.NewRelay()}
	p.db = &boltdb.BoltBackend{Path: filepath.Join(p.dir, "events")}
	require.NoError(t, p.db.Init())
	p.db.DB.NoSync = true
	t.Cleanup(p.db.Close)
	p.relay.Negentropy = true
	p.grasp = grasp.New(p.relay, filepath.Join(p.dir, "git"))
	p.grasp.Log = func(string, ...any) {}
	return p, listener
}

func (p *place) serve(listener net.Listener) {
	p.front.Store(p.relay)
	front := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.front.Load().ServeHTTP(w, r)
	})}
	go func() { _ = front.Serve(listener) }()
	p.t.Cleanup(func() { _ = front.Close() })
}

func (p *place) url(owner *relaytest.Key, name string) string {
	return "http://" + p.addr + "/" + owner.Npub() + "/" + name + ".git"
}

func (p *place) publish(e *gonostr.Event) error {
	_, err := p.relay.AddEvent(p.t.Context(), theirs(p.t, e))
	return err
}

func theirs(t *testing.T, e *gonostr.Event) nostr.Event {
	t.Helper()
	parsed, err := graspsync.ParseEvent(e)
	require.NoError(t, err)
	out, err := nostrlib.ToEvent(parsed)
	require.NoError(t, err)
	return out
}

// kinds returns the kinds of the events that a relay serves.
func (p *place) kinds() (kinds []int) {
	for e := range p.relay.QueryStored(p.t.Context(), nostr.Filter{}) {
		kinds = append(kinds, int(e.Kind))
	}
	slices.Sort(kinds)
	return kinds
}

func git(t *testing.T, dir string, args ...string) string {
	t.Helper()
	out, err := try(t, dir, args...)
	require.NoError(t, err, "git %v: %s", args, out)
	return out
}

func try(t *testing.T, dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(t.Context(), "git", args...)
	cmd.Dir = dir
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "GIT_CONFIG_NOSYSTEM=1",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.com",
	}
	out, err := cmd.CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

func work(t *testing.T) (dir, commit string) {
	t.Helper()
	dir = t.TempDir()
	git(t, dir, "init", "-q", "-b", "main")
	git(t, dir, "commit", "-q", "--allow-empty", "-m", "first")
	return dir, git(t, dir, "rev-parse", "HEAD")
}

func (p *place) add(cfg graspadapter.Config) (server *graspadapter.Server, stop func()) {
	p.t.Helper()
	identity, err := nip34.ParseIdentity(p.addr)
	require.NoError(p.t, err)
	if cfg.State == nil {
		cfg.State = state.NewMemory()
	}
	cfg.Egress.Allow = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	cfg.Sync.AllowPlaintext = true
	cfg.Sync.BatchWindow = 10 * time.Millisecond
	server, err = graspadapter.New(p.t.Context(), p.grasp, p.db, identity, cfg)
	require.NoError(p.t, err)
	p.front.Store(p.relay) // not before, because New changes it
	ctx, cancel := context.WithCancel(p.t.Context())
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx) }()
	return server, func() {
		cancel()
		require.ErrorIs(p.t, <-done, context.Canceled)
		require.NoError(p.t, server.Close())
		require.NoError(p.t, server.Close(), "again")
	}
}

const soon, often = time.Minute, 10 * time.Millisecond

// A repository with an issue is synced from a GraspServer, where it was pushed, to a server with
// sync and purgatory. Events are served with their git data, and the repository can be cloned.
func TestFromAnotherServer(t *testing.T) {
	there, listener := open(t)
	there.relay.UseEventstore(there.db, 500)
	t.Cleanup(there.relay.DisableExpirationManager)
	there.serve(listener)
	here, listener := open(t)
	here.serve(listener)

	alice := relaytest.NewKey("alice")
	dir, commit := work(t)
	now := gonostr.Now()
	for _, e := range []*gonostr.Event{
		alice.Announcement(now-9, "repo", []string{"ws://" + here.addr, "ws://" + there.addr}, []string{here.url(alice, "repo"), there.url(alice, "repo")}),
		alice.State(now-8, "repo", map[string]string{"refs/heads/main": commit}, "main"),
		alice.Issue(now-7, alice.Ref("repo"), "it does not start"),
	} {
		require.NoError(t, there.publish(e))
	}
	// The first push to a GraspServer arrives, but git 2.39 reports a failure, because the server
	// does not announce its capabilities.
	_, _ = try(t, dir, "push", there.url(alice, "repo"), "main")
	require.Contains(t, git(t, dir, "ls-remote", there.url(alice, "repo")), commit)

	first, err := graspsync.ParseRelayURL("ws://" + there.addr)
	require.NoError(t, err)
	server, stop := here.add(graspadapter.Config{Sync: relaysync.Config{Bootstrap: []graspsync.RelayURL{first}}})
	require.Eventually(t, func() bool { return slices.Equal(here.kinds(), []int{1621, 30617, 30618}) }, soon, often, "%v", here.kinds())
	clone := t.TempDir()
	git(t, clone, "clone", "-q", here.url(alice, "repo"), "x")
	require.Equal(t, commit, git(t, filepath.Join(clone, "x"), "rev-parse", "HEAD"))
	require.DirExists(t, filepath.Join(here.dir, "git", alice.Hex(), "repo", "objects"), "where a GraspServer looks for it")
	require.Contains(t, here.relay.Info.SupportedGrasps, "GRASP-02")
	require.Empty(t, server.Purgatory().Status().Waiting)
	stop()
}

// Existing repositories of a server are kept unchanged.
func TestOfAServerThatHasRepositories(t *testing.T) {
	p, listener := open(t)
	p.relay.UseEventstore(p.db, 500)
	t.Cleanup(p.relay.DisableExpirationManager)
	p.serve(listener)
	alice := relaytest.NewKey("alice")
	dir, first := work(t)
	now := gonostr.Now()
	require.NoError(t, p.publish(alice.Hosted(now-9, "repo", "ws://"+p.addr)))
	require.NoError(t, p.publish(alice.State(now-8, "repo", map[string]string{"refs/heads/main": first}, "main")))
	_, _ = try(t, dir, "push", p.url(alice, "repo"), "main")

	p.swap(again(t, p))
	_, stop := p.add(graspadapter.Config{})
	defer stop()
	require.Equal(t, []int{30617, 30618}, p.kinds())
	require.Contains(t, git(t, dir, "ls-remote", p.url(alice, "repo")), first)
	git(t, dir, "commit", "-q", "--allow-empty", "-m", "second")
	second := git(t, dir, "rev-parse", "HEAD")
	require.NoError(t, p.publish(alice.State(now-7, "repo", map[string]string{"refs/heads/main": second}, "main")))
	git(t, dir, "push", "-q", p.url(alice, "repo"), "main")
	require.Contains(t, git(t, dir, "ls-remote", p.url(alice, "repo")), second)
	require.Equal(t, []int{30617, 30618}, p.kinds())
}

// A published event is held until its push, also after a restart. The newest state, held or served,
// decides about pushes. Hooks of the GraspServer are called.
func TestPush(t *testing.T) {
	p, listener := open(t)
	p.serve(listener)
	kept := state.NewMemory()
	alice := relaytest.NewKey("alice")
	dir, commit := work(t)
	now := gonostr.Now()
	var reject atomic.Bool
	reject.Store(true)
	hook := func(name string) func(context.Context, nostr.PubKey, string) (bool, string) {
		return func(_ context.Context, owner nostr.PubKey, identifier string) (bool, string) {
			require.Equal(t, alice.Hex(), owner.Hex())
			require.Equal(t, "repo", identifier)
			return reject.Load(), name + " says no"
		}
	}
	p.grasp.OnWrite, p.grasp.OnRead = hook("OnWrite"), hook("OnRead")
	server, stop := p.add(graspadapter.Config{State: kept})
	require.NoError(t, p.publish(alice.Hosted(now-9, "repo", "ws://"+p.addr)))
	require.NoError(t, p.publish(alice.State(now-8, "repo", map[string]string{"refs/heads/main": commit}, "main")))
	require.Empty(t, p.kinds())
	require.Len(t, server.Purgatory().Status().Waiting, 2)
	stop()

	p.swap(again(t, p))
	p.grasp.OnWrite, p.grasp.OnRead = hook("OnWrite"), hook("OnRead")
	_, stop = p.add(graspadapter.Config{State: kept})
	url := p.url(alice, "repo")
	out, err := try(t, dir, "push", url, "main")
	require.Error(t, err)
	require.Contains(t, out, "403")
	reject.Store(false)
	for _, ref := range []string{"refs/heads/other", "refs/tags/v1", "refs/notes/commits"} {
		_, err = try(t, dir, "push", url, "main:"+ref)
		require.Error(t, err, ref)
	}
	require.Empty(t, p.kinds())
	git(t, dir, "push", "-q", url, "main")
	require.Equal(t, []int{30617, 30618}, p.kinds(), "as soon as git says so")
	require.Equal(t, commit+"\trefs/heads/main", git(t, dir, "ls-remote", url, "refs/heads/main"))
	reject.Store(true)
	out, err = try(t, dir, "ls-remote", url)
	require.Error(t, err)
	require.Contains(t, out, "403")

	answer, err := http.Get(url) //nolint:noctx // loopback
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, answer.StatusCode, "the page needs no access")
	require.NoError(t, answer.Body.Close())
	front, status := get(t, "http://"+p.addr+"/", "text/html")
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, front, `href="/`+alice.Npub()+`/repo.git"`)
	_, status = get(t, "http://"+p.addr+"/assets/style.css", "text/css")
	require.Equal(t, http.StatusOK, status)
	_, status = get(t, "http://"+p.addr+"/assets/nothing", "text/html")
	require.Equal(t, http.StatusNotFound, status)
	reject.Store(false)
	answer, err = http.Get(url + "/info/refs?service=git-archive") //nolint:noctx // loopback
	require.NoError(t, err)
	require.Equal(t, http.StatusNotFound, answer.StatusCode, "no program is run because a stranger names it")
	require.NoError(t, answer.Body.Close())
	stop()
}

// After a New that failed, events on the relay reached hooks of the closed server. Another New must
// work.
func TestNewAgainAfterAFailure(t *testing.T) {
	p, listener := open(t)
	p.serve(listener)
	identity, err := nip34.ParseIdentity(p.addr)
	require.NoError(t, err)
	router, info := p.relay.Router(), *p.relay.Info
	for name, cfg := range map[string]graspadapter.Config{
		"Purgatory": {Purgatory: purgatory.Config{Limits: purgatory.Limits{MaxEntries: -1}}},
		"Serve":     {Serve: gitserve.Config{MaxPush: -1}},
	} {
		cfg.State = state.NewMemory()
		_, err := graspadapter.New(t.Context(), p.grasp, p.db, identity, cfg)
		require.Error(t, err, name)
		require.Nil(t, p.relay.OnEvent, name)
		require.Nil(t, p.relay.QueryStored, name)
		require.Same(t, router, p.relay.Router(), name)
		require.Equal(t, info, *p.relay.Info, name)
	}
	server, stop := p.add(graspadapter.Config{})
	defer stop()
	require.NoError(t, p.publish(relaytest.NewKey("alice").Hosted(gonostr.Now(), "repo", "ws://"+p.addr)))
	require.Len(t, server.Purgatory().Status().Waiting, 1)
}

// A push first lists all refs, so OnRead is called too, and OnWrite before any data is sent.
func TestRefsAreListedAsTheHooksSay(t *testing.T) {
	p, listener := open(t)
	p.serve(listener)
	var unread, unwritten atomic.Bool
	p.grasp.OnRead = func(context.Context, nostr.PubKey, string) (bool, string) { return unread.Load(), "not yours to read" }
	p.grasp.OnWrite = func(context.Context, nostr.PubKey, string) (bool, string) {
		return unwritten.Load(), "not yours to write"
	}
	_, stop := p.add(graspadapter.Config{})
	defer stop()
	alice := relaytest.NewKey("alice")
	dir, commit := work(t)
	now := gonostr.Now()
	require.NoError(t, p.publish(alice.Hosted(now-9, "repo", "ws://"+p.addr)))
	require.NoError(t, p.publish(alice.State(now-8, "repo", map[string]string{"refs/heads/main": commit}, "main")))
	url := p.url(alice, "repo")
	git(t, dir, "push", "-q", url, "main")

	for _, c := range []struct {
		service           string
		unread, unwritten bool
		want              string // of the answer
	}{
		{"git-receive-pack", false, false, commit},
		{"git-receive-pack", true, false, "not yours to read"},
		{"git-receive-pack", false, true, "not yours to write"},
		{"git-receive-pack", true, true, "not yours to read"},
		{"git-upload-pack", false, true, commit},
		{"git-upload-pack", true, false, "not yours to read"},
	} {
		unread.Store(c.unread)
		unwritten.Store(c.unwritten)
		answer, err := http.Get(url + "/info/refs?service=" + c.service) //nolint:noctx // loopback
		require.NoError(t, err)
		body, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		require.Contains(t, string(body), c.want, "%+v", c)
		require.Equal(t, c.want == commit, answer.StatusCode == http.StatusOK, "%+v", c)
		require.Equal(t, c.want == commit, strings.Contains(string(body), commit), "%+v", c)
	}
}

// again returns the relay of a new process with the same data.
func again(t *testing.T, p *place) (*khatru.Relay, *grasp.GraspServer) {
	t.Helper()
	relay := khatru.NewRelay()
	gs := grasp.New(relay, filepath.Join(p.dir, "git"))
	gs.Log = func(string, ...any) {}
	return relay, gs
}

func TestConfig(t *testing.T) {
	identity, err := nip34.ParseIdentity("grasp.example.com")
	require.NoError(t, err)
	below, err := nip34.ParseIdentity("grasp.example.com/git")
	require.NoError(t, err)
	p, listener := open(t)
	require.NoError(t, listener.Close())
	for want, c := range map[string]struct {
		gs       *grasp.GraspServer
		db       eventstore.Store
		identity nip34.Identity
		cfg      graspadapter.Config
		is       error
	}{
		"GraspServer is nil": {nil, p.db, identity, graspadapter.Config{State: state.NewMemory()}, graspadapter.ErrConfig},
		"Relay":              {&grasp.GraspServer{RepositoryDir: p.dir}, p.db, identity, graspadapter.Config{}, graspadapter.ErrConfig},
		"RepositoryDir":      {&grasp.GraspServer{Relay: p.relay}, p.db, identity, graspadapter.Config{}, graspadapter.ErrConfig},
		"State is nil":       {p.grasp, p.db, identity, graspadapter.Config{}, graspadapter.ErrConfig},
		"Sync.Rules":         {p.grasp, p.db, identity, graspadapter.Config{State: state.NewMemory(), Sync: relaysync.Config{Rules: &rules.RuleSet{}}}, graspadapter.ErrConfig},
		"path":               {p.grasp, p.db, below, graspadapter.Config{State: state.NewMemory()}, graspadapter.ErrConfig},
		"no backend":         {p.grasp, nil, identity, graspadapter.Config{State: state.NewMemory()}, nil},
		"git":                {p.grasp, p.db, identity, graspadapter.Config{State: state.NewMemory(), Fetch: gitfetch.Config{Git: "no such git"}}, gitfetch.ErrGit},
	} {
		_, err := graspadapter.New(t.Context(), c.gs, c.db, c.identity, c.cfg)
		require.ErrorContains(t, err, want)
		if c.is != nil {
			require.ErrorIs(t, err, c.is)
		}
		require.Nil(t, p.relay.OnEvent, want)
	}
}

func get(t *testing.T, url, accept string) (body string, status int) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	req.Header.Set("Accept", accept)
	answer, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	text, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	return string(text), answer.StatusCode
}
