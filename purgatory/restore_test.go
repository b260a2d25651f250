package purgatory_test

import (
	"context"
	"errors"
	"iter"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/eventtest"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/purgatory/fetchtest"
	"github.com/graspsync/graspsync/state"
)

type objects = map[nip34.RefName]nip34.ObjectID

// at returns main and dev at these objects; 0 means absent.
func at(main, dev int) objects {
	out := make(objects)
	for name, n := range map[string]int{"main": main, "dev": dev} {
		if n > 0 {
			out[branch(name)] = object(n)
		}
	}
	return out
}

// mishap is a git that dies in its nth transaction, with or without the process.
type mishap struct {
	mu   sync.Mutex
	nth  int
	life *life // nil: the process survives
}

func (m *mishap) fail(op string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.life != nil && m.life.dead.Load() {
		return errDead
	}
	if op != "align" {
		return nil
	}
	if m.nth--; m.nth != 0 {
		return nil
	}
	if m.life != nil {
		m.life.dead.Store(true)
	}
	return fetchtest.ErrHalfDone
}

// doubtful is a relay that fails reads for a while.
type doubtful struct {
	*relay
	broken atomic.Bool
}

func newDoubtful(relay *relay, broken bool) *doubtful {
	r := &doubtful{relay: relay}
	r.broken.Store(broken)
	return r
}

func (r *doubtful) Events(ctx context.Context, f nostrFilter) iter.Seq2[graspsync.Event, error] {
	if r.broken.Load() && asks(f) == "announcements" {
		return func(yield func(graspsync.Event, error) bool) { yield(graspsync.Event{}, errors.New("no such table")) }
	}
	return r.relay.Events(ctx, f)
}

func catchUp(t *testing.T, p *purgatory.Purgatory, ev *nostrEvent) {
	t.Helper()
	_, err := p.Submit(t.Context(), eventtest.Of(ev), graspsync.Source{Kind: graspsync.CatchUp})
	require.NoError(t, err)
}

// family stores announcements of alice and bob that list each other, and a state of alice: main is
// at 1, dev at 2. Their repositories also have the objects 3 and 4.
func (w *world) family() []graspsync.RepoRef {
	both := []graspsync.RepoRef{repoOf(alice), repoOf(bob)}
	w.relay.put(
		listing(alice, now()-500, bob),
		listing(bob, now()-500, alice),
		says(alice, now()-400, "main", 1, "dev", 2))
	for _, ref := range both {
		w.git.Put(ref, object(1), object(2), object(3), object(4))
		w.git.Push(ref, at(1, 2))
	}
	return both
}

// halfDone makes the process die in the transaction of a state: main is at 3, dev at 2. With first
// there were no refs before.
func halfDone(t *testing.T, w *world, first bool) (announcement, state *nostrEvent) {
	announcement = announce(alice, now()-500)
	if first {
		w.held(announcement)
	} else {
		w.relay.put(announcement, says(alice, now()-400, "main", 1, "dev", 2))
		w.git.Put(repoOf(alice), object(1), object(2))
		w.git.Push(repoOf(alice), at(1, 2))
	}
	w.stop()
	l := &life{}
	m := &mishap{nth: 1, life: l}
	w.git.Put(repoOf(alice), object(3), object(4))
	p, stop := w.again(mortalRelay{w.relay, l}, mortalStore{w.state, l})
	w.git.FailWith(m.fail)
	state = says(alice, now(), "main", 3, "dev", 4)
	catchUp(t, p, state)
	wait(time.Second)
	require.True(t, l.dead.Load())
	stop()
	w.git.FailWith(nil)
	require.True(t, w.git.Locked(repoOf(alice)))
	return announcement, state
}

// The process dies in a transaction of refs. Open leaves either the complete change or none, and no
// lock. The change is completed if the state is still held, and undone if no state decides or that
// cannot be found out.
func TestPromiseP34_HalfDoneIsEndedOrTakenBack(t *testing.T) {
	for name, c := range map[string]struct {
		first, deleted, unreadable bool
		want                       objects
	}{
		"the first state waits":               {true, false, false, at(3, 4)},
		"the first state is deleted":          {true, true, false, at(0, 0)},
		"the first state, relay out of order": {true, false, true, at(0, 0)},
		"the state waits":                     {false, false, false, at(3, 4)},
		"the state is deleted":                {false, true, false, at(1, 2)},
		"the state, relay out of order":       {false, true, true, at(1, 2)},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, purgatory.Config{}, func(t *testing.T, w *world) {
				announcement, state := halfDone(t, w, c.first)
				half := w.git.RefsOf(repoOf(alice))
				require.False(t, maps.Equal(half, at(3, 4)) || maps.Equal(half, at(0, 0)) || maps.Equal(half, at(1, 2)), half)
				if c.deleted {
					w.relay.put(alice.Event(now(), graspsync.KindDeletion, "", nostrTag{"e", state.ID}))
				}
				r := newDoubtful(w.relay, c.unreadable)
				_, err := purgatory.Open(t.Context(), r, w.git, w.git, w.git, w.state, purgatory.Config{})
				require.NoError(t, err)
				require.Equal(t, c.want, w.git.RefsOf(repoOf(alice)))
				require.False(t, w.git.Locked(repoOf(alice)))
				require.Equal(t, len(c.want) > 0, w.relay.has(announcement), "served with data, or not")
				w.start()
				wait(time.Minute)
				require.Equal(t, !c.deleted, w.relay.has(state), "in the end")
				require.Zero(t, w.journals(), "nothing is left of the journal")
			})
		})
	}
}

// witnessed is a relay that calls a function before it stores a state.
type witnessed struct {
	*relay
	look func()
}

func (r witnessed) Save(ctx context.Context, ev graspsync.Event) error {
	if ev.Kind == graspsync.KindState {
		r.look()
	}
	return r.relay.Save(ctx, ev)
}

// The process dies while the refs of two related repositories move. Both must be repaired before the
// first release, because otherwise the state would be served while half of its refs are moved.
func TestTwoHalfDoneRepositoriesOfAFamily(t *testing.T) {
	run(t, purgatory.Config{}, func(t *testing.T, w *world) {
		both := w.family()
		w.stop()
		l := &life{}
		p, stop := w.again(mortalRelay{w.relay, l}, mortalStore{w.state, l})
		w.git.FailWith(func(op string) error {
			switch {
			case l.dead.Load():
				return errDead
			case op == "align":
				return fetchtest.ErrHalfDone
			}
			return nil
		})
		catchUp(t, p, says(alice, now(), "main", 3, "dev", 4))
		wait(time.Second)
		l.dead.Store(true)
		stop()
		w.git.FailWith(nil)
		for _, ref := range both {
			require.True(t, w.git.Locked(ref))
		}
		saved := 0
		_, err := purgatory.Open(t.Context(), witnessed{w.relay, func() {
			saved++
			for _, ref := range both {
				require.Contains(t, []any{at(1, 2), at(3, 4)}, w.git.RefsOf(ref))
				require.False(t, w.git.Locked(ref))
			}
		}}, w.git, w.git, w.git, w.state, purgatory.Config{})
		require.NoError(t, err)
		require.Equal(t, 1, saved)
		w.start()
	})
}

// clinging is a store that fails to delete journals while it is on.
type clinging struct {
	state.Store
	on atomic.Bool
}

func (s *clinging) Delete(ctx context.Context, keys ...string) error {
	if s.on.Load() && strings.HasPrefix(keys[0], "purgatory/aligning/") {
		return errors.New("input/output error")
	}
	return s.Store.Delete(ctx, keys...)
}

// journals returns the number of journals on the disk.
func (w *world) journals() (n int) {
	for _, err := range w.state.Each(w.t.Context(), "purgatory/aligning/") {
		require.NoError(w.t, err)
		n++
	}
	return n
}

// again opens and runs the state on the disk with another relay and store.
func (w *world) again(relay purgatory.Relay, store state.Store) (p *purgatory.Purgatory, stop func()) {
	p, err := purgatory.Open(w.t.Context(), relay, w.git, w.git, w.git, store, purgatory.Config{})
	require.NoError(w.t, err)
	ctx, cancel := context.WithCancel(w.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = p.Run(ctx)
	}()
	synctest.Wait()
	return p, func() {
		cancel()
		<-done
	}
}

// A journal of a complete change that cannot be deleted is deleted later. Until then no push is
// accepted, because a later start would undo the push.
func TestJournalThatCouldNotBeStruckOff(t *testing.T) {
	for _, fails := range []time.Duration{time.Millisecond, 20 * time.Minute} {
		run(t, purgatory.Config{}, func(t *testing.T, w *world) {
			ref := repoOf(alice)
			w.relay.put(announce(alice, now()-500), says(alice, now()-400, "main", 1, "dev", 2))
			w.git.Put(ref, object(1), object(2), object(3), object(4))
			w.git.Push(ref, at(1, 2))
			w.stop()
			store := &clinging{Store: w.state}
			p, stop := w.again(w.relay, store)
			store.on.Store(true)
			state := says(alice, now()-300, "main", 3, "dev", 4)
			catchUp(t, p, state)
			wait(fails)
			require.Equal(t, at(3, 4), w.git.RefsOf(ref))
			_, err := p.AuthorizedState(t.Context(), ref)
			require.ErrorIs(t, err, purgatory.ErrInUse, "whoever pushes comes after that")
			require.Equal(t, 1, w.journals())
			store.on.Store(false)
			wait(5*time.Minute + 10*time.Second)
			require.Zero(t, w.journals())
			require.Equal(t, at(3, 4), w.git.RefsOf(ref), "nothing was taken back")
			require.True(t, w.relay.has(state))
			_, err = p.AuthorizedState(t.Context(), ref)
			require.NoError(t, err)
			stop()
			w.start()
		})
	}
}

// The process dies while refs follow a stored state, and at the next start the relay or the disk
// fails for a moment. The repository is released again soon, although no event is held for it.
func TestRecoveryThatFailsIsDoneAgain(t *testing.T) {
	for _, what := range []string{"relay", "disk"} {
		run(t, purgatory.Config{}, func(t *testing.T, w *world) {
			w.family()
			w.stop()
			l := &life{}
			p, stop := w.again(mortalRelay{w.relay, l}, mortalStore{w.state, l})
			_, unlock, err := w.git.Lock(t.Context(), repoOf(bob)) // it follows later
			require.NoError(t, err)
			st := says(alice, now(), "main", 3, "dev", 4)
			catchUp(t, p, st)
			wait(3 * time.Second)
			require.True(t, w.relay.has(st))
			w.git.FailWith((&mishap{nth: 1, life: l}).fail)
			unlock()
			wait(time.Minute)
			require.True(t, l.dead.Load())
			stop()
			w.git.FailWith(nil)
			relay, store := newDoubtful(w.relay, what == "relay"), &clinging{Store: w.state}
			store.on.Store(what == "disk")
			_, stop = w.again(relay, store)
			require.Equal(t, at(1, 2), w.git.RefsOf(repoOf(bob)))
			require.Equal(t, what == "disk", w.journals() > 0)
			wait(2 * time.Second)
			require.Equal(t, at(1, 2), w.git.RefsOf(repoOf(bob)), "it fails again")
			relay.broken.Store(false)
			store.on.Store(false)
			wait(5 * time.Second)
			require.Equal(t, at(3, 4), w.git.RefsOf(repoOf(bob)))
			require.Zero(t, w.journals())
			stop()
			w.start()
		})
	}
}

// Git dies in a transaction, for example for lack of memory, and the process survives. The next
// release removes the locks and undoes the partial change. Before, the repository was blocked until
// a restart.
func TestGitDiesInATransaction(t *testing.T) {
	for nth := 1; nth <= 2; nth++ {
		run(t, purgatory.Config{}, func(t *testing.T, w *world) {
			w.relay.put(announce(alice, now()-500), says(alice, now()-400, "main", 1, "dev", 2))
			w.git.Put(repoOf(alice), object(1), object(2), object(3), object(4), object(5))
			w.git.Push(repoOf(alice), at(1, 2))
			w.git.FailWith((&mishap{nth: 1}).fail)
			p, s := pull(bob, repoOf(alice), 5, graspsync.KindPullRequest), says(alice, now(), "main", 3, "dev", 4)
			if nth == 2 {
				p, s = s, p
			}
			w.held(p)
			wait(time.Millisecond)
			require.True(t, w.git.Locked(repoOf(alice)))
			wait(time.Minute)
			require.True(t, w.relay.has(p))
			w.held(s)
			wait(time.Minute)
			require.True(t, w.relay.has(s))
			require.False(t, w.git.Locked(repoOf(alice)))
		})
	}
}

// If a crash leaves two versions of an announcement on the disk, Open deletes the older one. If
// that fails, Open returns an error, because the older one would return after the newer one.
func TestReplacedOnTheDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old, newer := announce(alice, now()-100), announce(alice, now())
		disk := state.NewMemory()
		for _, ev := range []*nostrEvent{old, newer} {
			w := newWorld(t, purgatory.Config{})
			w.start()
			w.held(ev)
			for r, err := range w.state.Each(t.Context(), "purgatory/entry/") {
				require.NoError(t, err)
				err = disk.Put(t.Context(), state.Record{Key: r.Key, Value: r.Value})
				require.NoError(t, err)
			}
			w.stop()
		}
		left := func() (n int) {
			for _, err := range disk.Each(t.Context(), "purgatory/entry/") {
				require.NoError(t, err)
				n++
			}
			return n
		}
		require.Equal(t, 2, left())
		w := newWorld(t, purgatory.Config{})
		f := &faults{}
		for n, done := 1, false; !done; n++ {
			*f = faults{n: n}
			_, err := purgatory.Open(t.Context(), w.relay, w.git, w.git, w.git, faultyState{disk, f}, w.cfg)
			if done = f.what == ""; done {
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, errDisk, f.failed())
			}
		}
		require.Equal(t, 1, left())
		w.state = disk
		w.start()
		require.Equal(t, 1, w.p.Status().Announcements)
		wait(25 * time.Hour)
		require.Zero(t, w.p.Status().Announcements)
		w.stop()
	})
}
