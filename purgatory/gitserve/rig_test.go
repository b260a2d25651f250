package gitserve_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/eventtest"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/gitserve"
)

// Layout of the folder of repositories, services of git, and reasons for clients.
const (
	uploadPack, receivePack  = "git-upload-pack", "git-receive-pack"
	area, incoming, departed = "staged", "incoming", "departed"
	lockMark                 = "lock-"
	noteName                 = "upload.json"

	leastStaged = 64 << 10 // minimum charge per event, in bytes
	maxPerEvent = 8        // uploads
	roomEvery   = 8 << 20  // bytes between checks of room
	keptPushes  = 16       // times MaxPush for all pushes

	refusedNoState   = "no state event of this repository is known yet: publish it first"
	refusedState     = "the newest state event says otherwise"
	refusedTip       = "the event with this id names another commit"
	refusedDelete    = "refs of events can't be deleted"
	refusedDisk      = "not enough free disk on the server"
	refusedOther     = "atomic push failed: another ref of this push was refused"
	refusedStale     = "it has changed meanwhile: fetch first"
	refusedMeanwhile = "the event with this id has come or gone meanwhile: push again"
	refusedOwner     = "the repositories of this owner take up all that they may on this server"
	refusedPulls     = "pull requests for the repositories of this owner take up all that they may on this server"
	refusedFull      = "the repositories of this server take up all that they may"
)

var (
	one, two = strings.Repeat("1", 40), strings.Repeat("2", 40)
	event    = strings.Repeat("a", 64)
)

// packet returns packet lines followed by a flush packet.
func packet(lines ...string) (out string) {
	for _, l := range lines {
		out += line(l)
	}
	return out + "0000"
}

// hashed returns the folder of a repository.
func hashed(ref graspsync.RepoRef) string {
	sum := sha256.Sum256([]byte(ref.Identifier))
	return filepath.Join(ref.Owner.String(), hex.EncodeToString(sum[:20])+".git")
}

// mark returns the file that exists while a repository is locked.
func mark(ref graspsync.RepoRef) string {
	return filepath.Join(incoming, lockMark+strings.ReplaceAll(hashed(ref), "/", "-"))
}

func try(t testing.TB, dir string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", args...)
	cmd.Dir = dir
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "GIT_CONFIG_NOSYSTEM=1", "GIT_TERMINAL_PROMPT=0",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.com",
	}
	out, err := cmd.CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

func git(t testing.TB, dir string, args ...string) string {
	t.Helper()
	out, err := try(t, dir, args...)
	require.NoError(t, err, "git %v: %s", args, out)
	return out
}

// authority is an Authority in memory.
type authority struct {
	mu     sync.Mutex
	refs   map[string]string // refs of the state; nil: no state
	tips   map[string]string
	pushed []string
	told   int      // calls of AfterPush, with and without refs
	before []string // arguments of BeforePush
	asked  int
	after  func(asked int)
}

func (a *authority) AuthorizedState(context.Context, graspsync.RepoRef) (*nip34.State, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked++
	if a.after != nil {
		a.after(a.asked)
	}
	if a.refs == nil {
		return nil, nil
	}
	return nip34.ParseState(eventtest.Of(owner.State(1, "x", a.refs, "")))
}

func (a *authority) Tip(_ context.Context, _ graspsync.RepoRef, id graspsync.EventID) (nip34.ObjectID, bool, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	text, known := a.tips[id.String()]
	tip, _ := nip34.ParseObjectID(text) // zero if invalid
	return tip, known, nil
}

func (a *authority) AfterPush(_ context.Context, ref graspsync.RepoRef, names []nip34.RefName) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.told++
	for _, n := range names {
		a.pushed = append(a.pushed, ref.Identifier+" "+n.String())
	}
	return nil
}

func (a *authority) BeforePush(ref graspsync.RepoRef, names []nip34.RefName) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, n := range names {
		a.before = append(a.before, ref.Identifier+" "+n.String())
	}
}

func (*authority) AdmitPullRefs(context.Context, graspsync.RepoRef, string, []graspsync.EventID, int64) (map[graspsync.EventID]string, error) {
	return nil, nil
}

func (*authority) PullBytes(graspsync.PubKey) int64 { return 0 }

func (*authority) Staged(graspsync.RepoRef, []graspsync.EventID) {}

func (*authority) AwaitServed(context.Context, graspsync.RepoRef) error { return nil }

// rig is a server with one repository, and a client with commits.
type rig struct {
	*authority
	repos *gitserve.Repositories
	git   *gitserve.Handler
	url   string // URL of the server
	work  string
	tip   string

	set  sync.Mutex         // makes settings of the test visible to requests
	auth gitserve.Authority // guarded by set
}

// replaceable is an Authority of a rig that a test may replace.
type replaceable struct{ r *rig }

func (a replaceable) of() gitserve.Authority {
	a.r.set.Lock()
	defer a.r.set.Unlock()
	return a.r.auth
}

func (a replaceable) AuthorizedState(ctx context.Context, ref graspsync.RepoRef) (*nip34.State, error) {
	return a.of().AuthorizedState(ctx, ref)
}

func (a replaceable) Tip(ctx context.Context, ref graspsync.RepoRef, id graspsync.EventID) (nip34.ObjectID, bool, error) {
	return a.of().Tip(ctx, ref, id)
}

func (a replaceable) AdmitPullRefs(ctx context.Context, ref graspsync.RepoRef, dir string, ids []graspsync.EventID, bytes int64) (map[graspsync.EventID]string, error) {
	return a.of().AdmitPullRefs(ctx, ref, dir, ids, bytes)
}

func (a replaceable) PullBytes(owner graspsync.PubKey) int64 { return a.of().PullBytes(owner) }

func (a replaceable) BeforePush(ref graspsync.RepoRef, refs []nip34.RefName) {
	a.of().BeforePush(ref, refs)
}

func (a replaceable) AfterPush(ctx context.Context, ref graspsync.RepoRef, refs []nip34.RefName) error {
	return a.of().AfterPush(ctx, ref, refs)
}

func (a replaceable) Staged(ref graspsync.RepoRef, ids []graspsync.EventID) { a.of().Staged(ref, ids) }

func (a replaceable) AwaitServed(ctx context.Context, ref graspsync.RepoRef) error {
	return a.of().AwaitServed(ctx, ref)
}

func (r *rig) authorize(a gitserve.Authority) {
	r.set.Lock()
	defer r.set.Unlock()
	r.auth = a
}

func newRig(t *testing.T, cfg gitserve.Config) *rig {
	t.Helper()
	return rigWith(t, gitserve.RepositoriesConfig{}, cfg)
}

func rigWith(t *testing.T, folder gitserve.RepositoriesConfig, cfg gitserve.Config) *rig {
	t.Helper()
	r := &rig{authority: &authority{}, repos: repositoriesWith(t, folder), work: t.TempDir()}
	r.auth = r.authority
	require.NoError(t, r.repos.Create(t.Context(), owner.Ref("x"), nip34.SHA1))
	r.serve(t, cfg)
	git(t, r.work, "init", "-q", "-b", "main")
	r.tip = r.commit(t, "first")
	r.tips = map[string]string{event: r.tip}
	return r
}

func (r *rig) serve(t *testing.T, cfg gitserve.Config) {
	t.Helper()
	h, err := gitserve.New(r.repos, replaceable{r}, cfg)
	require.NoError(t, err)
	t.Cleanup(func() {
		if !t.Failed() {
			h.CheckIdle(t)
		}
	})
	server := httptest.NewServer(h.Before(http.NotFoundHandler()))
	t.Cleanup(server.Close)
	t.Cleanup(h.Close)
	r.git, r.url = h, server.URL
}

func (r *rig) commit(t *testing.T, text string) string {
	git(t, r.work, "commit", "-q", "--allow-empty", "-m", text)
	return git(t, r.work, "rev-parse", "HEAD")
}

// repo returns the URL of the repository. It takes the lock to make settings of the test visible to
// later requests.
func (r *rig) repo() string {
	r.set.Lock()
	defer r.set.Unlock()
	return r.url + "/" + owner.Npub() + "/x.git"
}

func (r *rig) has(t *testing.T) string { return git(t, r.work, "ls-remote", r.repo()) }

func (r *rig) says(refs map[string]string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refs = refs
}

// metric returns the value of a metric with the given labels.
func metric(t testing.TB, c prometheus.Collector, name string, values ...string) int {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(c))
	families, err := registry.Gather()
	require.NoError(t, err)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var has []string
			for _, l := range m.GetLabel() {
				has = append(has, l.GetValue())
			}
			if f.GetName() == name && slices.Equal(has, values) {
				return int(m.GetGauge().GetValue() + m.GetCounter().GetValue())
			}
		}
	}
	require.Fail(t, "no such metric", "%s %v", name, values)
	return 0
}

func (r *rig) count(t testing.TB, name string, values ...string) int {
	t.Helper()
	return metric(t, r.git.Collector("x"), "x_gitserve_"+name, values...)
}

// taken waits until a metric of a kind of requests has a value.
func (r *rig) taken(t testing.TB, name, kind string, n int) {
	t.Helper()
	require.Eventually(t, func() bool { return r.count(t, name, kind) == n }, 10*time.Second, time.Millisecond)
}

func stagingMetric(t testing.TB, r *gitserve.Repositories, name string, values ...string) int {
	t.Helper()
	return metric(t, r.Staging().Collector("x"), "x_staging_"+name, values...)
}

func stagedBytes(t testing.TB, r *gitserve.Repositories) int {
	t.Helper()
	return stagingMetric(t, r, "bytes")
}
