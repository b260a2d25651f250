package purgatory_test

import (
	"context"
	"iter"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/eventtest"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/purgatory/fetchtest"
	"github.com/graspsync/graspsync/purgatory/internal/gitops"
	"github.com/graspsync/graspsync/purgatory/internal/refplan"
	"github.com/graspsync/graspsync/state"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// panicking is a fetcher that panics for one server.
type panicking struct {
	*fetchtest.Fake
	host string
}

func (f panicking) Fetch(ctx context.Context, request purgatory.FetchRequest) error {
	if request.From.HostPort().Host == f.host {
		panic("odd answer")
	}
	return f.Fake.Fetch(ctx, request)
}

// A panic provoked by a server's reply costs one request. Before, it ended the process.
func TestPromiseP38_PanicCostsOneRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, purgatory.Config{})
		w.fetcher = panicking{w.git, "bad.example"}
		w.start()
		w.git.Serve(clone("good.example/r.git"), serving(1))
		w.relay.put(announce(alice, now()-500, "bad.example/r.git", "good.example/r.git"))
		state := says(alice, now(), "main", 1)
		w.held(state)
		wait(10 * time.Minute)
		require.True(t, w.relay.has(state))
		require.Equal(t, map[string]uint64{"git": 1}, w.p.Status().Panics)
		w.stop()
		require.Empty(t, w.git.Broken())
	})
}

// bugs makes calls of the embedder's code panic.
type bugs struct {
	mu   sync.Mutex
	op   string // which calls
	left int    // number of panics
	made int
}

func (b *bugs) at(op string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.op == op && b.left > 0 {
		b.left--
		b.made++
		panic("not my day: " + op)
	}
}

// buggyRelay panics before the call or, in Save, after it.
type buggyRelay struct {
	*relay
	b *bugs
}

func (r buggyRelay) Save(ctx context.Context, ev graspsync.Event) error {
	r.b.at("save")
	err := r.relay.Save(ctx, ev)
	r.b.at("saved")
	return err
}

func (r buggyRelay) Events(ctx context.Context, f nostr.Filter) iter.Seq2[graspsync.Event, error] {
	r.b.at(asks(f))
	all := r.relay.Events(ctx, f)
	return func(yield func(graspsync.Event, error) bool) {
		all(yield)
		r.b.at(asks(f) + " ranged")
	}
}

func (r buggyRelay) Lists(a *nip34.Announcement) bool {
	r.b.at("lists")
	return r.relay.Lists(a)
}

func (r buggyRelay) Deleted(ctx context.Context, ev graspsync.Event) (bool, error) {
	r.b.at("deleted")
	return r.relay.Deleted(ctx, ev)
}

type buggyRepos struct {
	*fetchtest.Fake
	b *bugs
}

func (r buggyRepos) Lock(ctx context.Context, ref graspsync.RepoRef) (string, func(), error) {
	r.b.at("lock")
	dir, unlock, err := r.Fake.Lock(ctx, ref)
	return dir, func() {
		unlock()
		r.b.at("unlock")
	}, err
}

func (r buggyRepos) Create(ctx context.Context, ref graspsync.RepoRef, format nip34.ObjectFormat) error {
	r.b.at("create")
	return r.Fake.Create(ctx, ref, format)
}

func (r buggyRepos) Retire(ctx context.Context, ref graspsync.RepoRef, keep time.Duration) (bool, error) {
	r.b.at("remove")
	return r.Fake.Retire(ctx, ref, keep)
}

type buggyGit struct {
	*fetchtest.Fake
	b *bugs
}

func (g buggyGit) Quarantine(ctx context.Context, dir string) (gitops.Quarantine, error) {
	g.b.at("quarantine")
	q, err := g.Fake.Quarantine(ctx, dir)
	return buggyQuarantine{q, g.b}, err
}

func (g buggyGit) Missing(ctx context.Context, dir string, ids []nip34.ObjectID) ([]nip34.ObjectID, error) {
	g.b.at("missing")
	return g.Fake.Missing(ctx, dir, ids)
}

func (g buggyGit) Refs(ctx context.Context, dir string) (refplan.Refs, error) {
	g.b.at("refs")
	return g.Fake.Refs(ctx, dir)
}

func (g buggyGit) UpdateRefs(ctx context.Context, dir string, changes []refplan.RefChange, head nip34.RefName) error {
	g.b.at("align")
	err := g.Fake.UpdateRefs(ctx, dir, changes, head)
	g.b.at("aligned")
	return err
}

func (g buggyGit) CopyObjects(ctx context.Context, from, to string, ids []nip34.ObjectID) error {
	g.b.at("share")
	return g.Fake.CopyObjects(ctx, from, to, ids)
}

func (g buggyGit) Cleanup(ctx context.Context, dir string) error {
	g.b.at("tidy")
	return g.Fake.Cleanup(ctx, dir)
}

type buggyQuarantine struct {
	gitops.Quarantine
	b *bugs
}

func (q buggyQuarantine) Missing(ctx context.Context, ids []nip34.ObjectID) ([]nip34.ObjectID, error) {
	q.b.at("quarantine missing")
	return q.Quarantine.Missing(ctx, ids)
}

func (q buggyQuarantine) Promote(ctx context.Context) error {
	q.b.at("promote")
	return q.Quarantine.Promote(ctx)
}

func (q buggyQuarantine) Discard() error {
	err := q.Quarantine.Discard()
	q.b.at("discard")
	return err
}

type buggyState struct {
	state.Store
	b *bugs
}

func (s buggyState) Put(ctx context.Context, records ...state.Record) error {
	s.b.at("put")
	err := s.Store.Put(ctx, records...)
	s.b.at("was put")
	return err
}

func (s buggyState) Delete(ctx context.Context, keys ...string) error {
	s.b.at("delete")
	return s.Store.Delete(ctx, keys...)
}

// If any code of the embedder panics a few times in a row, every task still completes once, no lock
// stays held, and the process survives.
func TestPanicsCostWhatWasBeingDone(t *testing.T) {
	for where, ops := range map[string][]string{
		"relay":        {"save", "saved", "announcements", "states", "lists", "deleted", "has", "identifiers", "identifiers ranged"},
		"repositories": {"lock", "unlock", "create", "remove"},
		"git": {
			"quarantine", "missing", "refs", "align", "aligned", "share", "tidy", "quarantine missing", "promote", "discard",
		},
		"store":    {"put", "was put", "delete"},
		"observer": {"observe"},
	} {
		for _, op := range ops {
			t.Run(op, func(t *testing.T) { testPanics(t, where, op) })
		}
	}
}

// While Lists panics, no repository is retired. Before, the repository was retired and deleted a
// week later.
func TestPanicsOfListsTakeNothingAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, purgatory.Config{})
		b := &bugs{op: "lists"}
		w.host = buggyRelay{w.relay, b}
		w.serveAlice()
		w.start()
		defer w.stop()
		wait(time.Minute)
		b.mu.Lock()
		b.left = 1_000_000
		b.mu.Unlock()
		w.p.NotifyStored(eventtest.Of(announce(alice, now()-100))) // causes a release
		wait(9 * 24 * time.Hour)
		require.Positive(t, w.p.Status().Panics["relay"])
		require.True(t, w.git.Has(repoOf(alice)))
		_, err := w.p.Submit(t.Context(), eventtest.Of(announce(bob, now())), graspsync.Source{})
		require.Error(t, err, "no verdict about a new one either")
	})
}

func testPanics(t *testing.T, where, op string) {
	synctest.Test(t, func(t *testing.T) {
		const times = 3
		b := &bugs{op: op}
		w := newWorld(t, purgatory.Config{Membership: unanswered()})
		w.host, w.repos, w.fetcher = buggyRelay{w.relay, b}, buggyRepos{w.git, b}, buggyGit{w.git, b}
		w.state = buggyState{w.state, b}
		w.observe = func(purgatory.Observation) { b.at("observe") }
		w.start()
		b.mu.Lock()
		b.left = times
		b.mu.Unlock()
		until := func(f func() error) {
			for range times + 1 {
				if err := f(); err == nil {
					return
				}
			}
			t.Fatal("goes on failing")
		}
		submit := func(ev *nostr.Event) {
			until(func() error {
				_, err := w.p.Submit(t.Context(), eventtest.Of(ev), graspsync.Source{})
				return err
			})
		}
		w.git.Serve(clone("good.example/r.git"), serving(1))
		a, s := announce(alice, now(), "good.example/r.git"), says(alice, now(), "main", 1)
		alsoBobs := listing(bob, now(), alice) // gets alice's data
		vain := announce(carol, now(), "bad.example/r.git")
		for _, ev := range []*nostr.Event{a, s, alsoBobs, vain, says(carol, now(), "main", 2)} {
			submit(ev)
		}
		// Data of an event that never arrives.
		pushed := nip34.EventRef(graspsync.EventID{7})
		wait(10 * time.Minute)
		w.git.Push(repoOf(alice), map[nip34.RefName]nip34.ObjectID{pushed: object(9)}, object(9))
		w.p.Pushed(t.Context(), repoOf(alice), []nip34.RefName{pushed})
		wait(3 * time.Hour)

		st := w.p.Status()
		require.Positive(t, b.made)
		require.Equal(t, map[string]uint64{where: uint64(b.made)}, st.Panics)
		for _, ev := range []*nostr.Event{a, s, alsoBobs} {
			require.True(t, w.relay.has(ev))
		}
		require.False(t, w.relay.has(vain))
		require.False(t, w.git.Has(repoOf(carol)))
		main := map[nip34.RefName]nip34.ObjectID{branch("main"): object(1)}
		require.Equal(t, main, w.git.RefsOf(repoOf(alice)))
		require.Equal(t, main, w.git.RefsOf(repoOf(bob)))
		for _, k := range []*relaytest.Key{alice, bob} {
			require.False(t, w.git.Locked(repoOf(k)))
		}
		require.Equal(t, uint64(3), st.Ended[purgatory.Released])
		w.stop()
		require.Zero(t, w.git.Quarantines())
		require.Empty(t, w.git.Broken())
	})
}
