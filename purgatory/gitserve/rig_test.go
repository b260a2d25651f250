package gitserve_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/http/httptest"
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
	"github.com/graspsync/graspsync/internal/gittest"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/gitserve"
)

// Layout of the folder of repositories, services of git, and reasons for clients.
const (
	uploadPack, receivePack  = "git-upload-pack", "git-receive-pack"
	area, incoming, departed = "staged", "incoming", "departed"
	noteName                 = "upload.json"

	leastStaged = 64 << 10 // minimum charge per event, in bytes
	maxPerEvent = 8        // uploads
	roomEvery   = 8 << 20  // bytes between checks of room
	keptPushes  = 16       // times MaxPush for all pushes

	refusedNoState = "no state event of this repository is known yet: publish it first"
	refusedState   = "the newest state event says otherwise"
	refusedTip     = "the event with this id names another commit"
	refusedDelete  = "refs of events can't be deleted"
	refusedDisk    = "not enough free disk on the server"
	refusedOther   = "atomic push failed: another ref of this push was refused"
	refusedStale   = "it has changed meanwhile: fetch first"
	refusedOwner   = "the repositories of this owner take up all that they may on this server"
	refusedPulls   = "pull requests for the repositories of this owner take up all that they may on this server"
	refusedFull    = "the repositories of this server take up all that they may"
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

var git, try = gittest.Run, gittest.Try

// authority is an Authority in memory.
type authority struct {
	mu     sync.Mutex
	refs   map[string]string // refs of the state; nil: no state
	tips   map[string]string
	pushed []string
	before []string // arguments of Pushing
	// step, if not nil, is called before each operation "state", "tip", "pushed" and "admit". An error
	// ends it.
	step func(op string) error
}

func (a *authority) begin(op string) error {
	a.mu.Lock()
	step := a.step
	a.mu.Unlock()
	if step == nil {
		return nil
	}
	return step(op)
}

func (a *authority) AuthorizedState(_ context.Context, ref graspsync.RepoRef) (*nip34.State, error) {
	if err := a.begin("state"); err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.refs == nil {
		return nil, nil
	}
	return nip34.ParseState(eventtest.Of(owner.State(1, ref.Identifier, a.refs, "")))
}

func (a *authority) Tip(_ context.Context, _ graspsync.RepoRef, id graspsync.EventID) (nip34.ObjectID, bool, error) {
	if err := a.begin("tip"); err != nil {
		return nip34.ObjectID{}, false, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	text, known := a.tips[id.String()]
	tip, _ := nip34.ParseObjectID(text) // zero if invalid
	return tip, known, nil
}

func (a *authority) AfterPush(_ context.Context, ref graspsync.RepoRef, names []nip34.RefName) error {
	if err := a.begin("pushed"); err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, n := range names {
		a.pushed = append(a.pushed, ref.Identifier+" "+n.String())
	}
	return nil
}

func (a *authority) Pushing(ref graspsync.RepoRef, names []nip34.RefName) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, n := range names {
		a.before = append(a.before, ref.Identifier+" "+n.String())
	}
}

func (a *authority) AdmitPullRefs(context.Context, graspsync.RepoRef, string, []graspsync.EventID, int64) (map[graspsync.EventID]string, error) {
	return nil, a.begin("admit")
}

func (*authority) Staged(graspsync.RepoRef, []graspsync.EventID) {}

func (*authority) WaitServed(ctx context.Context, _ graspsync.RepoRef) error { return ctx.Err() }

// on calls do before the n-th operation of a kind.
func (a *authority) on(kind string, n int, do func()) {
	a.step = func(op string) error {
		if op == kind {
			if n--; n == 0 {
				do()
			}
		}
		return nil
	}
}

func (a *authority) says(refs map[string]string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.refs = refs
}

// rig is a server with one repository, and a client with commits.
type rig struct {
	*authority
	repos *gitserve.Repositories
	git   *gitserve.Handler
	url   string // URL of the server
	work  string
	tip   string
}

func newRig(t *testing.T, cfg gitserve.Config) *rig {
	t.Helper()
	return rigWith(t, gitserve.RepositoriesConfig{}, cfg)
}

func rigWith(t *testing.T, folder gitserve.RepositoriesConfig, cfg gitserve.Config) *rig {
	t.Helper()
	r := &rig{authority: &authority{}, repos: repositoriesWith(t, folder), work: t.TempDir()}
	require.NoError(t, r.repos.Create(t.Context(), owner.Ref("x"), nip34.SHA1))
	r.serve(t, cfg)
	git(t, r.work, "init", "-q", "-b", "main")
	r.tip = r.commit(t, "first")
	r.tips = map[string]string{event: r.tip}
	return r
}

func (r *rig) serve(t *testing.T, cfg gitserve.Config) {
	t.Helper()
	h, err := gitserve.New(r.repos, r.authority, cfg)
	require.NoError(t, err)
	t.Cleanup(func() {
		if !t.Failed() {
			h.CheckIdle(t)
		}
	})
	server := httptest.NewServer(h.Middleware(http.NotFoundHandler()))
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
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.url + "/" + owner.Npub() + "/x.git"
}

func (r *rig) has(t *testing.T) string { return git(t, r.work, "ls-remote", r.repo()) }

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
	require.Eventually(t, func() bool { return r.count(t, name, kind) == n }, time.Minute, time.Millisecond)
}

func stagingMetric(t testing.TB, r *gitserve.Repositories, name string, values ...string) int {
	t.Helper()
	return metric(t, r.Staging().Collector("x"), "x_staging_"+name, values...)
}

func stagedBytes(t testing.TB, r *gitserve.Repositories) int {
	t.Helper()
	return stagingMetric(t, r, "bytes")
}
