package purgatory_test

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/eventtest"
	"github.com/graspsync/graspsync/internal/racetest"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/purgatory/fetchtest"
	"github.com/graspsync/graspsync/state"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// faults makes the n-th call fail, of all calls.
type faults struct {
	mu      sync.Mutex
	n, done int
	what    string // what failed
	where   string // the caller
}

func (f *faults) step(op string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.done++; f.done != f.n {
		return nil
	}
	f.what = op
	stack := make([]byte, 8<<10)
	for _, line := range strings.Split(string(stack[:runtime.Stack(stack, false)]), "\n") {
		if strings.Contains(line, "/purgatory/") && strings.HasPrefix(line, "\t") && !strings.Contains(line, "_test.go") {
			f.where += " " + line[strings.LastIndex(line, "/")+1:]
		}
	}
	return errDisk
}

func (f *faults) failed() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.what == "" {
		return ""
	}
	return f.what + ":" + f.where
}

type faultyRelay struct {
	*relay
	f *faults
}

func (r faultyRelay) Save(ctx context.Context, ev graspsync.Event) error {
	if err := r.f.step("save"); err != nil {
		return err
	}
	return r.relay.Save(ctx, ev)
}

func (r faultyRelay) Events(ctx context.Context, f nostrFilter) iter.Seq2[graspsync.Event, error] {
	return func(yield func(graspsync.Event, error) bool) {
		if err := r.f.step(asks(f)); err != nil {
			yield(graspsync.Event{}, err)
			return
		}
		r.relay.Events(ctx, f)(yield)
	}
}

func (r faultyRelay) Deleted(ctx context.Context, ev graspsync.Event) (bool, error) {
	if err := r.f.step("deleted"); err != nil {
		return false, err
	}
	return r.relay.Deleted(ctx, ev)
}

type faultyState struct {
	state.Store
	f *faults
}

func (s faultyState) Put(ctx context.Context, records ...state.Record) error {
	if err := s.f.step("set " + kindOf(records[0].Key)); err != nil {
		return err
	}
	return s.Store.Put(ctx, records...)
}

func (s faultyState) Delete(ctx context.Context, keys ...string) error {
	if err := s.f.step("delete " + kindOf(keys[0])); err != nil {
		return err
	}
	return s.Store.Delete(ctx, keys...)
}

func (s faultyState) Each(ctx context.Context, prefix string) iter.Seq2[state.Record, error] {
	return func(yield func(state.Record, error) bool) {
		if err := s.f.step("keys " + kindOf(prefix)); err != nil {
			yield(state.Record{}, err)
			return
		}
		s.Store.Each(ctx, prefix)(yield)
	}
}

func kindOf(key string) string {
	kind, _, _ := strings.Cut(strings.TrimPrefix(key, "purgatory/"), "/")
	return kind
}

// spoken records logs and observations.
type spoken struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *spoken) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *spoken) has(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.text.String(), text)
}

// faultyLife is a world in which one call fails. Failed submissions are repeated.
type faultyLife struct {
	*world
	f    *faults
	said spoken
	told bool // a caller got an error
	// often means that releases may fail anyway, for example if two wait for each other. Such
	// failures are logged once a minute per repository.
	often bool
}

func (l *faultyLife) try(do func() error) {
	l.t.Helper()
	if err := do(); err != nil {
		require.ErrorIs(l.t, err, errDisk)
		l.told = true
		require.NoError(l.t, do())
	}
}

func (l *faultyLife) open() {
	l.t.Helper()
	l.git.FailWith(func(op string) error { return l.f.step("git " + op) })
	l.try(func() error {
		repos := purgatory.Repositories(l.git)
		if l.repos != nil {
			repos = l.repos
		}
		p, err := purgatory.Open(l.t.Context(), l.host, repos, l.git, l.git, l.state, l.cfg)
		l.p = p
		return err
	})
	ctx, cancel := context.WithCancel(l.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = l.p.Run(ctx)
	}()
	l.stop = func() {
		cancel()
		<-done
		require.Empty(l.t, l.p.Left(), "%d: %s", l.f.n, l.f.failed())
	}
	synctest.Wait()
}

func (l *faultyLife) comes(evs ...*nostrEvent) {
	l.t.Helper()
	for _, ev := range evs {
		l.try(func() error {
			_, err := l.p.Submit(l.t.Context(), eventtest.Of(ev), graspsync.Source{Kind: graspsync.CatchUp})
			return err
		})
	}
}

// goes is a push to one ref.
func (l *faultyLife) goes(to graspsync.RepoRef, name nip34.RefName, tip int) {
	l.t.Helper()
	l.pushRefs(to, map[nip34.RefName]nip34.ObjectID{name: object(tip)})
	l.p.Pushed(l.t.Context(), to, []nip34.RefName{name})
}

// eachFailure makes each call of the relay, git and the store fail once in a separate life. The
// failure must be reported, and the final state must be as if nothing had failed. live returns the
// final state.
func eachFailure(t *testing.T, least int, live func(l *faultyLife) string) {
	t.Helper()
	var whole string
	for n := 0; ; n++ {
		last := false
		synctest.Test(t, func(t *testing.T) {
			l := &faultyLife{world: newWorld(t, purgatory.Config{Membership: unanswered()}), f: &faults{n: n}}
			l.cfg.Logger = slog.New(slog.NewTextHandler(&l.said, &slog.HandlerOptions{Level: slog.LevelDebug}))
			l.cfg.Observe = func(o purgatory.Observation) { _, _ = fmt.Fprintln(&l.said, o) }
			l.host, l.state = faultyRelay{l.relay, l.f}, faultyState{l.state, l.f}
			now := live(l)
			l.stop()
			require.Empty(t, l.git.Broken())
			if n == 0 {
				whole = now
			}
			require.Equal(t, whole, now, "%d: %s", n, l.f.failed())
			last = n > 0 && l.f.failed() == ""
			// Data that cannot be measured counts as large. Data that cannot be unstaged expires.
			told := l.told || strings.HasPrefix(l.f.failed(), "git unstage:") || l.said.has(errDisk.Error()) || l.often && l.said.has("looking at a repository failed") || strings.HasPrefix(l.f.failed(), "git weigh:")
			if n > 0 && !last && !told {
				t.Errorf("%d: not told: %s", n, l.f.failed())
			}
		})
		if last {
			t.Log(n, "calls")
			require.Greater(t, n, least)
			return
		}
	}
}

func TestEachFailureIsToldAndMadeUpFor(t *testing.T) {
	racetest.Amounts(t)
	eachFailure(t, 50, func(l *faultyLife) string {
		l.open()
		l.git.Serve(clone("a.example/r.git"), serving(1, 2))
		first := []*nostrEvent{announce(alice, now()-100, "a.example/r.git"), says(alice, now()-100, "main", 1), pull(carol, repoOf(alice), 2, graspsync.KindPullRequest)}
		l.comes(first...)
		wait(3 * time.Minute)
		l.git.Serve(clone("a.example/r.git"), fetchtest.Server{})
		moved := says(alice, now(), "main", 3, "dev", 2)
		l.comes(moved)
		wait(time.Minute)
		l.stop()
		l.open()
		l.comes(announce(bob, now()-50, "b.example/r.git"))
		wait(time.Minute)
		l.git.Serve(clone("a.example/r.git"), serving(1, 2, 3))
		wait(2 * time.Hour)
		for _, ev := range append(first, moved) {
			require.True(l.t, l.relay.has(ev), "%d: %s: %v", l.f.n, l.f.failed(), ev.Kind)
		}
		return fmt.Sprint(l.git.RefsOf(repoOf(alice)), l.git.RefsOf(repoOf(bob)), l.p.Status().Waiting)
	})
}

// The same for two repositories that list each other and share objects, with a refused state, a
// pull request to both, and pushes whose event arrives later or never.
func TestEachFailureAmongRepositoriesIsMadeUpFor(t *testing.T) {
	racetest.Amounts(t)
	eachFailure(t, 50, func(l *faultyLife) string {
		l.often = true
		l.relay.put(listing(alice, now()-500, bob), listing(bob, now()-500, alice), says(alice, now()-400, "main", 1))
		for _, k := range []*relaytest.Key{alice, bob} {
			l.git.Put(repoOf(k), object(1))
			l.git.Push(repoOf(k), map[nip34.RefName]nip34.ObjectID{branch("main"): object(1)})
		}
		bad := says(alice, now(), "main", 2)
		l.relay.refuse = func(ev *nostrEvent) error {
			if ev.ID == bad.ID {
				return purgatory.ErrRefused
			}
			return nil
		}
		l.open()
		l.git.Push(repoOf(alice), nil, object(2), object(3))
		both := carol.Event(now(), graspsync.KindPullRequest, "", nostrTag{"a", repoOf(alice).String()}, nostrTag{"a", repoOf(bob).String()},
			nostrTag{"c", object(3).String()})
		l.comes(bad, both)
		late := pull(dave, repoOf(alice), 5, graspsync.KindPullRequest)
		l.goes(repoOf(alice), refOf(late), 5)
		l.goes(repoOf(bob), refOf(late), 5) // which it does not name
		l.goes(repoOf(bob), junk(1), 6)
		wait(5 * time.Minute)
		l.comes(late)
		wait(3 * time.Hour)
		for _, ev := range []*nostrEvent{both, late} {
			require.True(l.t, l.relay.has(ev), "%d: %s: %v", l.f.n, l.f.failed(), ev.Kind)
		}
		st := l.p.Status()
		return fmt.Sprint(l.git.RefsOf(repoOf(alice)), l.git.RefsOf(repoOf(bob)), st.Waiting, st.Ended[purgatory.NotStored])
	})
}

// The same for a repository that gets its objects from another one.
func TestEachFailureOfSharingIsToldAndMadeUpFor(t *testing.T) {
	eachFailure(t, 20, func(l *faultyLife) string {
		l.relay.put(announce(alice, now()-500), says(alice, now()-400, "main", 1, "dev", 2))
		l.git.Put(repoOf(alice), object(1), object(2))
		l.git.Push(repoOf(alice), map[nip34.RefName]nip34.ObjectID{branch("main"): object(1), branch("dev"): object(2)})
		l.open()
		wait(time.Minute)
		l.comes(listing(bob, now(), alice))
		wait(time.Second)
		require.True(l.t, l.f.failed() != "" || l.p.Sizes()["needs"] == 0, "what it was given it does not lack")
		wait(time.Hour)
		return fmt.Sprint(l.git.RefsOf(repoOf(alice)), l.git.RefsOf(repoOf(bob)), l.p.Status().Waiting)
	})
}
