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

	"github.com/graspsync/graspsync/filters"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/purgatory/fetchtest"
	"github.com/graspsync/graspsync/state"
)

// faults has one call of many fail, whoever is called: the n-th one.
type faults struct {
	mu      sync.Mutex
	n, done int
	what    string // what failed
	where   string // who called
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

func (r faultyRelay) Save(ctx context.Context, ev *nostrEvent) error {
	if err := r.f.step("save"); err != nil {
		return err
	}
	return r.relay.Save(ctx, ev)
}

func (r faultyRelay) Announcements(ctx context.Context, identifier string) ([]*nip34.Announcement, error) {
	if err := r.f.step("announcements"); err != nil {
		return nil, err
	}
	return r.relay.Announcements(ctx, identifier)
}

func (r faultyRelay) States(ctx context.Context, identifier string) ([]*nip34.State, error) {
	if err := r.f.step("states"); err != nil {
		return nil, err
	}
	return r.relay.States(ctx, identifier)
}

func (r faultyRelay) Deleted(ctx context.Context, ev *nostrEvent) (bool, error) {
	if err := r.f.step("deleted"); err != nil {
		return false, err
	}
	return r.relay.Deleted(ctx, ev)
}

func (r faultyRelay) Has(ctx context.Context, id filters.EventID) (bool, error) {
	if err := r.f.step("has"); err != nil {
		return false, err
	}
	return r.relay.Has(ctx, id)
}

func (r faultyRelay) Pulls(ctx context.Context, ref filters.RepoRef) iter.Seq2[*nip34.PullRequest, error] {
	return func(yield func(*nip34.PullRequest, error) bool) {
		if err := r.f.step("pulls"); err != nil {
			yield(nil, err)
			return
		}
		r.relay.Pulls(ctx, ref)(yield)
	}
}

func (r faultyRelay) Standings(ctx context.Context, ref filters.RepoRef, pulls []*nip34.PullRequest, members map[filters.PubKey]struct{}) (map[filters.EventID]purgatory.PullStanding, error) {
	if err := r.f.step("standings"); err != nil {
		return nil, err
	}
	return r.relay.Standings(ctx, ref, pulls, members)
}

func (r faultyRelay) Identifiers(ctx context.Context) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		if err := r.f.step("identifiers"); err != nil {
			yield("", err)
			return
		}
		r.relay.Identifiers(ctx)(yield)
	}
}

type faultyState struct {
	state.Store
	f *faults
}

func (s faultyState) Get(ctx context.Context, key string) ([]byte, state.Version, error) {
	if err := s.f.step("get " + kindOf(key)); err != nil {
		return nil, state.Absent, err
	}
	return s.Store.Get(ctx, key)
}

func (s faultyState) CompareAndSwap(ctx context.Context, key string, old state.Version, value []byte) (state.Version, error) {
	if err := s.f.step("set " + kindOf(key)); err != nil {
		return state.Absent, err
	}
	return s.Store.CompareAndSwap(ctx, key, old, value)
}

func (s faultyState) Delete(ctx context.Context, key string, old state.Version) error {
	if err := s.f.step("delete " + kindOf(key)); err != nil {
		return err
	}
	return s.Store.Delete(ctx, key, old)
}

func (s faultyState) Keys(ctx context.Context, prefix string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		if err := s.f.step("keys " + kindOf(prefix)); err != nil {
			yield("", err)
			return
		}
		s.Store.Keys(ctx, prefix)(yield)
	}
}

func kindOf(key string) string {
	kind, _, _ := strings.Cut(strings.TrimPrefix(key, "purgatory/"), "/")
	return kind
}

// spoken is what is logged, and what observers are told.
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

// Each call of the relay, of git and of what is kept fails once, in a life with a restart:
// it is told, and in the end all is as if nothing had failed.
func TestEachFailureIsToldAndMadeUpFor(t *testing.T) {
	var whole string
	for n := 0; ; n++ {
		last := false
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, purgatory.Config{})
			var said spoken
			w.cfg.Logger = slog.New(slog.NewTextHandler(&said, nil))
			w.cfg.Observe = func(o purgatory.Observation) { _, _ = fmt.Fprintln(&said, o) }
			f := &faults{n: n}
			w.host, w.state = faultyRelay{w.relay, f}, faultyState{w.state, f}
			w.git.FailWith(func(op string) error { return f.step("git " + op) })
			told := false
			try := func(do func() error) { // whoever asks asks again
				if err := do(); err != nil {
					require.ErrorIs(t, err, errDisk)
					told = true
					require.NoError(t, do())
				}
			}
			open := func() {
				try(func() error {
					p, err := purgatory.Open(t.Context(), w.host, w.git, w.git, w.state, w.cfg)
					w.p = p
					return err
				})
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan struct{})
				go func() {
					defer close(done)
					_ = w.p.Run(ctx)
				}()
				w.stop = func() {
					cancel()
					<-done
					require.Empty(t, w.p.Left(), "%d: %s", n, f.failed())
				}
				synctest.Wait()
			}
			submit := func(ev *nostrEvent) {
				try(func() error {
					_, err := w.p.Submit(t.Context(), ev, false)
					return err
				})
			}
			open()
			w.git.Serve(clone("a.example/r.git"), serving(1, 2))
			first := []*nostrEvent{announce(alice, now()-100, "a.example/r.git"), says(alice, now()-100, "main", 1), pull(carol, repoOf(alice), 2, filters.KindPullRequest)}
			for _, ev := range first {
				submit(ev)
			}
			wait(3 * time.Minute)
			w.git.Serve(clone("a.example/r.git"), fetchtest.Server{})
			moved := says(alice, now(), "main", 3, "dev", 2)
			submit(moved)
			wait(time.Minute)
			w.stop()
			open()
			try(func() error {
				_, err := w.p.Submit(t.Context(), announce(bob, now()-50, "b.example/r.git"), false)
				return err
			})
			wait(time.Minute)
			w.git.Serve(clone("a.example/r.git"), serving(1, 2, 3))
			wait(2 * time.Hour)
			for _, ev := range append(first, moved) {
				require.True(t, w.relay.has(ev), "%d: %s: %v", n, f.failed(), ev.Kind)
			}
			now := fmt.Sprint(w.git.RefsOf(repoOf(alice)), w.git.RefsOf(repoOf(bob)), w.p.Status().Waiting)
			w.stop()
			require.Empty(t, w.git.Broken())
			if n == 0 {
				whole = now
			}
			require.Equal(t, whole, now, "%d: %s", n, f.failed())
			last = n > 0 && f.failed() == ""
			if n > 0 && !last && !told && !said.has(errDisk.Error()) {
				t.Errorf("%d: not told: %s", n, f.failed())
			}
		})
		if last {
			t.Log(n, "calls")
			require.Greater(t, n, 50)
			break
		}
	}
}
