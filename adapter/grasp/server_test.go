package grasp_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/fiatjaf/eventstore"
	"github.com/fiatjaf/eventstore/slicestore"
	"github.com/fiatjaf/khatru"
	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/adapter/grasp"
	purgatoryadapter "github.com/graspsync/graspsync/adapter/purgatory"
	"github.com/graspsync/graspsync/internal/gittest"
	"github.com/graspsync/graspsync/internal/httplimit"
	"github.com/graspsync/graspsync/internal/porttest"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/purgatory/gitfetch"
	"github.com/graspsync/graspsync/state"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// rig is a server with an HTTP listener.
type rig struct {
	t      *testing.T
	dir    string
	kept   state.Store
	db     *slicestore.SliceStore
	other  eventstore.Store // backend in place of db; may be nil
	addr   string
	base   string   // path of the identity
	names  []string // names of the identity; defaults to addr and base
	relay  *khatru.Relay
	server *grasp.Server
	ended  []purgatory.HoldEnded
	stop   func()

	configure func(*khatru.Relay, *grasp.Config) // before New
	later     func(*khatru.Relay)                // after New
	before    func(http.Handler) http.Handler    // wraps the handler of the server
}

func (r *rig) start() {
	t := r.t
	if r.addr == "127.0.0.1:0" {
		r.addr = porttest.Address(t) // stays the same after a restart
	}
	var listener net.Listener
	require.Eventually(t, func() (ok bool) { // after a restart, a git process that starts has the listener open
		var err error
		listener, err = (&net.ListenConfig{}).Listen(t.Context(), "tcp", r.addr)
		return err == nil
	}, time.Minute, time.Millisecond)
	identity, err := nip34.ParseIdentity(append(r.names, r.addr+r.base)[:max(1, len(r.names))]...)
	require.NoError(t, err)
	r.relay = khatru.NewRelay()
	cfg := grasp.Config{Dir: r.dir, State: r.kept, Sync: relaysync.Config{AllowPlaintext: true}}
	cfg.Egress.Own = []netip.AddrPort{netip.MustParseAddrPort(r.addr)}
	cfg.Purgatory.Observe = func(o purgatory.Observation) {
		if e, ok := o.(purgatory.HoldEnded); ok {
			r.ended = append(r.ended, e)
		}
	}
	if r.configure != nil {
		r.configure(r.relay, &cfg)
	}
	backend := eventstore.Store(r.db)
	if r.other != nil {
		backend = r.other
	}
	r.server, err = grasp.New(t.Context(), r.relay, backend, identity, cfg)
	require.NoError(t, err)
	if r.later != nil {
		r.later(r.relay)
	}
	handler := r.server.Handler()
	if r.before != nil {
		handler = r.before(handler)
	}
	front := &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute, ConnState: httplimit.Idle()}
	go func() { _ = front.Serve(listener) }()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.server.Run(ctx) }()
	r.stop = sync.OnceFunc(func() { // a failed restart stops it again
		cancel()
		require.ErrorIs(t, <-done, context.Canceled)
		require.NoError(t, front.Close())
		require.NoError(t, r.server.Close())
		require.NoError(t, r.server.Close(), "again")
	})
}

func (r *rig) git(dir string, args ...string) string { return gittest.Run(r.t, dir, args...) }

func (r *rig) try(dir string, args ...string) (string, error) { return gittest.Try(r.t, dir, args...) }

// served returns the ids of the events that the relay serves.
func (r *rig) served() (ids []string) {
	for ev, err := range r.server.Sync().Store().Events(r.t.Context(), nostr.Filter{}) {
		require.NoError(r.t, err)
		ids = append(ids, ev.ID.String())
	}
	return ids
}

// A published event is held until its push, also after a restart, and then served with its git
// data.
func TestServer(t *testing.T) {
	r := &rig{t: t, addr: "127.0.0.1:0", dir: filepath.Join(t.TempDir(), "git"), kept: state.NewMemory(), db: &slicestore.SliceStore{}}
	require.NoError(t, r.db.Init())
	r.start()

	work := t.TempDir()
	r.git(work, "init", "-q", "-b", "main")
	r.git(work, "commit", "-q", "--allow-empty", "-m", "first")
	commit := r.git(work, "rev-parse", "HEAD")
	owner := relaytest.NewKey("owner")
	ann := owner.Hosted(nostr.Now()-100, "repo", "ws://"+r.addr)
	st := owner.State(nostr.Now()-90, "repo", map[string]string{"refs/heads/main": commit}, "main")
	for _, ev := range []*nostr.Event{ann, st} {
		_, err := r.relay.AddEvent(t.Context(), ev)
		require.NoError(t, err)
	}
	require.Empty(t, r.served())
	was := r.server.Purgatory().Status()
	require.Equal(t, 1, was.Announcements)
	require.Equal(t, 1, was.States)
	r.stop()

	r.start()
	defer r.stop()
	now := r.server.Purgatory().Status()
	require.Len(t, now.Waiting, 2)
	require.WithinDuration(t, was.Waiting[0].Deadline, now.Waiting[0].Deadline, 100*time.Millisecond)
	url := owner.CloneURL("ws://"+r.addr, "repo")
	r.git(work, "push", "-q", url, "main")
	require.Eventually(t, func() bool { return len(r.served()) == 2 }, time.Minute, 20*time.Millisecond)
	require.ElementsMatch(t, []string{ann.ID, st.ID}, r.served())
	require.Equal(t, commit+"\trefs/heads/main", r.git(work, "ls-remote", url, "refs/heads/main"))
	require.Len(t, r.ended, 2)

	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+r.addr+"/", nil)
	require.NoError(t, err)
	req.Header.Set("Accept", "application/nostr+json")
	answer := httptest.NewRecorder()
	r.server.Handler().ServeHTTP(answer, req)
	require.Contains(t, answer.Body.String(), `"supported_grasps":["GRASP-01","GRASP-02"]`)
	require.Contains(t, answer.Body.String(), "announcements that list this server")
	require.ErrorIs(t, r.server.Run(t.Context()), relaysync.ErrRunning)
}

// New reports every invalid field of a Config and leaves the relay unchanged.
func TestConfig(t *testing.T) {
	identity, err := nip34.ParseIdentity("grasp.example")
	require.NoError(t, err)
	db := &slicestore.SliceStore{}
	require.NoError(t, db.Init())
	relay := khatru.NewRelay()
	_, err = grasp.New(t.Context(), relay, db, identity, grasp.Config{})
	require.ErrorIs(t, err, grasp.ErrConfig)
	require.ErrorContains(t, err, "Dir is empty")
	require.ErrorContains(t, err, "State is nil")

	cfg := grasp.Config{Dir: t.TempDir(), State: state.NewMemory()}
	cfg.Fetch.Git = "no such git"
	_, err = grasp.New(t.Context(), relay, db, identity, cfg)
	require.ErrorIs(t, err, gitfetch.ErrGit)
	require.Empty(t, relay.StoreEvent)

	cfg.Fetch.Git = ""
	cfg.Sync.Holder = purgatoryadapter.NewPolicy(nil)
	_, err = grasp.New(t.Context(), relay, db, identity, cfg)
	require.ErrorIs(t, err, grasp.ErrConfig)
	require.ErrorContains(t, err, "Sync.Holder is set")

	cfg.Sync.Holder = nil
	cfg.Purgatory.Times.Hold = -1
	_, err = grasp.New(t.Context(), relay, db, identity, cfg)
	require.ErrorIs(t, err, purgatory.ErrConfig)
	require.ErrorContains(t, err, "Hold")
}
