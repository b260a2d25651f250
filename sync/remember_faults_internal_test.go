package sync

import (
	"context"
	"errors"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/health"
	"github.com/graspsync/graspsync/internal/eventtest"
	"github.com/graspsync/graspsync/internal/racetest"
	"github.com/graspsync/graspsync/nip34"
	kept "github.com/graspsync/graspsync/state"
	"github.com/graspsync/graspsync/sync/internal/lazy"
	"github.com/graspsync/graspsync/sync/internal/memory"
	"github.com/graspsync/graspsync/sync/internal/pending"
	"github.com/graspsync/graspsync/sync/internal/relaylimits"
)

// faultyState fails, or hangs, where it is told to.
type faultyState struct {
	*kept.Memory

	mu    sync.Mutex
	calls int                          // guarded by mu
	fails func(n int, key string) bool // guarded by mu; nil: never
	hangs bool                         // guarded by mu: instead of failing
}

func (f *faultyState) set(fails func(n int, key string) bool, hangs bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls, f.fails, f.hangs = 0, fails, hangs
}

func (f *faultyState) call(ctx context.Context, key string) error {
	f.mu.Lock()
	f.calls++
	fails, hangs := f.fails != nil && f.fails(f.calls, key), f.hangs
	f.mu.Unlock()
	switch {
	case fails && hangs:
		<-ctx.Done()
		return ctx.Err()
	case fails:
		return errFault
	}
	return nil
}

func (f *faultyState) Get(ctx context.Context, key string) ([]byte, error) {
	if err := f.call(ctx, key); err != nil {
		return nil, err
	}
	return f.Memory.Get(ctx, key)
}

func (f *faultyState) Put(ctx context.Context, records ...kept.Record) error {
	var errs []error
	for _, r := range records {
		if err := f.call(ctx, r.Key); err != nil {
			errs = append(errs, err)
		}
	}
	switch len(errs) {
	case 0:
	case len(records):
		return errs[0]
	default: // it takes each of the others alone
		return kept.ErrFull
	}
	return f.Memory.Put(ctx, records...)
}

func (f *faultyState) Delete(ctx context.Context, keys ...string) error {
	for _, key := range keys {
		if err := f.call(ctx, key); err != nil {
			return err
		}
	}
	return f.Memory.Delete(ctx, keys...)
}

func (f *faultyState) Each(ctx context.Context, prefix string) iter.Seq2[kept.Record, error] {
	return func(yield func(kept.Record, error) bool) {
		for r, err := range f.Memory.Each(ctx, prefix) {
			if cerr := f.call(ctx, r.Key); cerr != nil {
				yield(kept.Record{}, cerr)
				return
			}
			if !yield(r, err) {
				return
			}
		}
	}
}

// all returns all keys that there are.
func (f *faultyState) all(t *testing.T) (keys []string) {
	t.Helper()
	for r, err := range f.Memory.Each(t.Context(), "") {
		require.NoError(t, err)
		if strings.HasPrefix(r.Key, "sync/chunks/rejected/") { // which of the chunks is at random
			r.Key = "sync/chunks/rejected/0000"
		}
		keys = append(keys, r.Key)
	}
	return keys
}

// keptPlan is the plan's side of what is kept.
type keptPlan struct {
	changed []graspsync.RelayURL
	items   []memory.Kept
	marks   map[graspsync.RelayURL]time.Time
	asked   [][]graspsync.RelayURL
}

func (k *keptPlan) Changed() []graspsync.RelayURL {
	changed := k.changed
	k.changed = nil
	return changed
}

func (k *keptPlan) Kept(only ...graspsync.RelayURL) []memory.Kept {
	k.asked = append(k.asked, only)
	return k.items
}

func (k *keptPlan) Marks() iter.Seq2[graspsync.RelayURL, time.Time] { return maps.All(k.marks) }

// keepingNowhere is a Transport that has something to keep.
type keepingNowhere struct {
	nowhere
	chunks [][]byte
}

func (k *keepingNowhere) Export() [][]byte       { return k.chunks }
func (k *keepingNowhere) Import(chunks [][]byte) { k.chunks = chunks }

// remembering is a manager that keeps things, of which nothing runs but that.
type remembering struct {
	*sayer
	r         *remember
	transport *keepingNowhere
}

func newRemembering(t *testing.T, st kept.Store) *remembering {
	t.Helper()
	k := &remembering{sayer: newSayer(t, Config{State: st, fixed: constants{StoreTimeout: 10 * time.Second}}), transport: &keepingNowhere{}}
	k.l.env.conn.transport = struct{ Transport }{k.transport} // nothing is lost on the way through another
	k.r = newRemember(k.l.m.cfg, nip34.Identity{}, k.l.env.health, k.l.m.ingest.absences.rejected, k.l.env.conn.transport, k.l.m.report)
	k.l.m.remember, k.l.env.remember, k.l.env.conn.remember = k.r, k.r, k.r
	return k
}

// start begins to keep things, until end, or the end of the test.
func (k *remembering) start(ctx context.Context, t *testing.T) (end func()) {
	t.Helper()
	end = sync.OnceFunc(k.r.start(ctx))
	t.Cleanup(end)
	return end
}

// answer has the loop take in what it was told.
func (k *remembering) answer(t *testing.T) {
	t.Helper()
	synctest.Wait()
	for _, msg := range k.l.m.inbox.take() {
		k.l.handle(t.Context(), msg)
	}
}

// saysOf returns the lines that were logged with a message.
func (k *remembering) saysOf(msg string) (out []string) {
	for _, line := range k.lines() {
		if strings.Contains(line, `msg="`+msg) {
			out = append(out, line)
		}
	}
	return out
}

// keepingBadly is a Transport that panics when it is asked for what is to be kept, or given it.
type keepingBadly struct{ nowhere }

func (keepingBadly) Export() [][]byte { panic("no \x1b") }
func (keepingBadly) Import([][]byte)  { panic("no \x1b") }

// A panic of a stranger's Transport ended the process: before anything was synced, or a minute
// after. Now what it had kept stays, and everything else is kept and taken over.
func TestTransportThatPanicsOverWhatIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := &faultyState{Memory: kept.NewMemory()}
		before := newRemembering(t, st)
		before.transport.chunks = [][]byte{[]byte("mine")}
		end := before.start(t.Context(), t)
		before.l.keep(t.Context())
		before.answer(t)
		end()

		k := newRemembering(t, st)
		k.r = newRemember(k.l.m.cfg, nip34.Identity{}, k.l.env.health, k.l.m.ingest.absences.rejected, keepingBadly{}, k.l.m.report)
		k.l.m.remember, k.l.env.remember = k.r, k.r
		end = k.start(t.Context(), t)
		require.Len(t, k.saysOf("what the transport kept could not be given back to it"), 1)
		p := &keptPlan{marks: map[graspsync.RelayURL]time.Time{testURL(t, sayerRelay): time.Now().UTC()}}
		k.l.keeper = p
		k.l.keep(t.Context())
		k.answer(t)
		require.Equal(t, unkept{}, k.r.pending, "the plan rests on none of that")
		k.l.keepAll()
		says := k.saysOf("the transport did not say what is to be kept")
		require.Len(t, says, 2)
		require.Contains(t, says[0], `transport panicked: no \\x1b`)
		require.Equal(t, map[string]uint64{"transport": 3}, k.l.m.report.panics)
		end()

		next := newRemembering(t, st)
		next.r.recall(t.Context())
		require.Equal(t, [][]byte{[]byte("mine")}, next.transport.chunks)
	})
}

// Whichever part of what is to survive can't be written: the others are, and what the plan has
// confirmed once the memory of rejected events is durable that it rests on, then or later. The
// next process finds all of it.
func TestWhatIsKeptWhateverFails(t *testing.T) {
	u, gone, host := testURL(t, sayerRelay), testURL(t, "wss://gone.example"), "a.example"
	everything := []string{
		"sync/chunks/basis/0000", "sync/chunks/rejected/0000", "sync/chunks/transport/0000", "sync/health/" + u.String(), "sync/host/" + host,
		"sync/kept/" + u.String(), "sync/learned/" + u.String(), "sync/marks", "sync/salt", "sync/set_aside/" + u.String(),
	}
	for _, fault := range []string{
		"none", "sync/chunks/rejected", "sync/chunks/transport", "sync/health", "sync/host", "sync/kept", "sync/learned",
		"sync/marks", "sync/set_aside", "sync/",
	} {
		for _, atEnd := range []bool{false, true} {
			t.Run(strings.ReplaceAll(fault, "/", " "), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					time.Sleep(24 * time.Hour)
					st := &faultyState{Memory: kept.NewMemory()}
					k := newRemembering(t, st)
					k.transport.chunks = [][]byte{[]byte("mine")}
					end := k.start(t.Context(), t)
					time.Sleep(time.Minute)
					c := k.conn(t, u)
					until := time.Now().Add(time.Hour).UTC()
					c.stats.learn(relaylimits.MaxFilters, 7, until)
					c.stats.setAside(relaylimits.Value{Tag: "t", Value: "x"}, until)
					k.l.m.ingest.absences.note(pending.Note{Incoming: graspsync.Incoming{Event: eventtest.Of(testEvent(1, 1, 1, 1))}, ID: testID(1)})
					mark := time.Now().Add(-time.Minute).UTC()
					p := &keptPlan{
						changed: []graspsync.RelayURL{u, gone}, items: []memory.Kept{{Relay: u, Mark: mark, Items: []uint64{5}}},
						marks: map[graspsync.RelayURL]time.Time{u: mark.Add(time.Second)},
					}
					k.l.keeper = p
					if fault != "none" {
						st.set(func(_ int, key string) bool { return strings.HasPrefix(key, fault) }, false)
					}
					if atEnd {
						k.l.keepAll()
					} else {
						k.l.keep(t.Context())
						require.True(t, k.r.busy)
						k.l.keep(t.Context())
						require.Len(t, p.asked, 1, "one at a time")
						k.answer(t)
						require.False(t, k.r.busy)
					}
					require.Equal(t, [][]graspsync.RelayURL{{u, gone}}, p.asked)
					unsafe := fault == "sync/chunks/rejected" || fault == "sync/"
					if unsafe { // it waits
						require.Len(t, k.r.pending.kept, 2)
						require.Nil(t, k.r.pending.kept[gone])
						require.Equal(t, p.items[0], *k.r.pending.kept[u])
						require.Equal(t, p.marks, k.r.pending.marks)
					} else {
						require.Equal(t, unkept{}, k.r.pending)
					}
					time.Sleep(30 * time.Second) // after a fault all waits for ten
					want := slices.DeleteFunc(slices.Clone(everything), func(key string) bool {
						return strings.HasPrefix(key, fault) && key != "sync/salt" && key != "sync/chunks/basis/0000" ||
							unsafe && (strings.HasPrefix(key, "sync/kept") || key == "sync/marks")
					})
					require.Equal(t, want, st.all(t))
					if unsafe || fault != "none" {
						// Once it can be written all is, without the plan saying it again.
						st.set(nil, false)
						if !atEnd {
							k.l.keep(t.Context())
							k.answer(t)
						} else {
							k.l.keepAll()
						}
						time.Sleep(time.Minute)
						require.Equal(t, everything, st.all(t))
					}
					k.lines()
					end()
					require.Empty(t, k.saysOf("not all that is to survive"))

					next := newRemembering(t, st)
					next.r.recall(t.Context())
					require.Equal(t, []byte("mine"), next.transport.chunks[0])
					_, known := next.l.env.health.Export(u)
					require.True(t, known)
					_, known = next.l.env.health.ExportHost(host)
					require.True(t, known)
					require.True(t, next.l.m.ingest.absences.rejected.Has(testID(1)))
					require.Len(t, next.r.kept, 1)
					require.Equal(t, []uint64{5}, next.r.kept[0].Items)
					require.True(t, mark.Add(time.Second).Equal(next.r.kept[0].Mark), "the newer mark")
					require.Equal(t, k.r.salt, next.r.salt)
					s := next.r.stats(u)
					require.Equal(t, 7, s.observed.Facts.Value(relaylimits.MaxFilters, time.Now()))
					require.Len(t, s.allAside(), 1)
					require.Empty(t, next.r.facts, "it is the relay's now")
					require.Empty(t, next.r.aside)
					require.Empty(t, next.r.stats(u).allAside())
					require.Empty(t, next.lines())

					// What is forgotten leaves nothing but how its relay behaved.
					lazy.Put(&next.r.pending.kept, u, &p.items[0])
					lazy.Put(&next.r.pending.marks, u, mark)
					next.r.forget(u)
					require.Empty(t, next.r.pending.kept)
					require.Empty(t, next.r.pending.marks)
					finish := make(chan struct{})
					ctx, cancel := context.WithCancel(t.Context())
					go func() { next.r.memory.Run(ctx); close(finish) }()
					time.Sleep(time.Minute)
					cancel()
					<-finish
					left := strings.Join(st.all(t), " ")
					require.Contains(t, left, "sync/health/"+u.String())
					for _, key := range []string{"sync/kept", "sync/learned", "sync/set_aside"} {
						require.NotContains(t, left, key)
					}
				})
			})
		}
	}
}

// Whichever call of the State fails when it is read: that is said once, and what could be read
// is used.
func TestEachFaultOfRecalling(t *testing.T) {
	racetest.Amounts(t)
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(24 * time.Hour)
		st := &faultyState{Memory: kept.NewMemory()}
		k := newRemembering(t, st)
		k.transport.chunks = [][]byte{[]byte("mine")}
		end := k.start(t.Context(), t)
		for _, name := range []string{"a", "b", "c"} {
			k.conn(t, testURL(t, "wss://"+name+".example"))
		}
		k.l.keepAll()
		synctest.Wait() // until it is noted what rejections are judged by
		end()
		over, stop := context.WithCancel(t.Context())
		stop()
		st.set(func(int, string) bool { return true }, true)
		stopped := newRemembering(t, st)
		stopped.r.recall(over)
		require.Empty(t, stopped.lines(), "it is to end: that is no failure")
		recall := func(fails func(int, string) bool, hangs bool) (*remembering, int) {
			st.set(fails, hangs)
			next := newRemembering(t, st)
			next.r.recall(t.Context())
			relays := 0
			for range next.l.env.health.All() {
				relays++
			}
			return next, relays
		}
		next, relays := recall(nil, false)
		require.Equal(t, 3, relays)
		require.Equal(t, [][]byte{[]byte("mine")}, next.transport.chunks)
		require.Empty(t, next.lines())
		calls := st.calls
		require.Greater(t, calls, 7)
		before := 0
		for n := 1; n <= calls; n++ {
			next, relays = recall(func(i int, _ string) bool { return i == n }, false)
			require.Equal(t, []string{
				`level=ERROR msg="what was kept over the restart could not be read" error="loading records: disk on fire"`,
			}, next.lines())
			require.GreaterOrEqual(t, relays, before, "what comes before is read")
			require.NotEmpty(t, next.r.salt)
			before = relays
		}
		require.Equal(t, 3, before)
		began := time.Now()
		next, _ = recall(func(int, string) bool { return true }, true)
		require.Equal(t, 10*time.Second, time.Since(began), "it is waited for as long as any call")
		require.Len(t, next.saysOf("what was kept over the restart could not be read"), 1)
		st.set(nil, false)
		err := st.Memory.Put(t.Context(), kept.Record{Key: "sync/chunks/rejected/0007", Value: []byte("damaged")})
		require.NoError(t, err)
		next, _ = recall(nil, false)
		require.Len(t, next.saysOf("a part of what is remembered of rejected events could not be read"), 1)
	})
}

// What can't be written at the end is said, and waited for two seconds, twice.
func TestLastWordsAreShort(t *testing.T) {
	for _, hangs := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			st := &faultyState{Memory: kept.NewMemory()}
			k := newRemembering(t, st)
			k.transport.chunks = [][]byte{[]byte("mine")}
			ctx, cancel := context.WithCancel(t.Context())
			end := k.start(ctx, t)
			cancel() // what is to be kept is, all the same
			time.Sleep(time.Minute)
			k.conn(t, testURL(t, sayerRelay))
			p := &keptPlan{}
			k.l.keeper = p
			k.l.m.ingest.absences.note(pending.Note{Incoming: graspsync.Incoming{Event: eventtest.Of(testEvent(1, 1, 1, 1))}, ID: testID(1)})
			k.lines()
			st.set(func(int, string) bool { return true }, hangs)
			began := time.Now()
			k.l.keepAll()
			took := map[bool]time.Duration{true: 2 * time.Second}[hangs]
			require.Equal(t, took, time.Since(began))
			end()
			require.Equal(t, 2*took, time.Since(began))
			said := k.saysOf("not all that is to survive a restart could be written")
			require.Len(t, said, 1)
			require.Contains(t, said[0], "level=ERROR")
			require.NotContains(t, strings.Join(st.all(t), " "), "health")
		})
	}
}

// Without a State nothing is kept, and nothing waits for that.
func TestNothingIsKeptWithoutAState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newRemembering(t, nil)
		u := testURL(t, sayerRelay)
		end := k.start(t.Context(), t)
		p := &keptPlan{changed: []graspsync.RelayURL{u}}
		k.l.keeper = p
		c := k.conn(t, u)
		k.l.keep(t.Context())
		k.l.keepAll()
		k.r.forget(u)
		k.r.relay(u, c.stats)
		k.r.health(u)
		require.NoError(t, k.r.beforeDial(t.Context(), u))
		require.Empty(t, p.asked)
		require.False(t, k.r.busy)
		end()
		require.Empty(t, k.lines())
	})
}

// An attempt that can't be made durable is made to relays only that are known to be some; the
// others are tried a minute later, or when it is their time.
func TestAttemptsThatCanNotBeSaved(t *testing.T) {
	for _, known := range []bool{false, true} {
		for _, hangs := range []bool{false, true} {
			for _, key := range []string{"", "sync/health", "sync/host"} {
				synctest.Test(t, func(t *testing.T) {
					time.Sleep(24 * time.Hour)
					st := &faultyState{Memory: kept.NewMemory()}
					k := newRemembering(t, st)
					u := testURL(t, sayerRelay)
					if known {
						k.l.env.health.Import(u, health.Record{Proven: true, LastSuccess: time.Now().Add(-time.Hour), LastAttempt: time.Now().Add(-time.Hour)})
					}
					end := k.start(t.Context(), t)
					k.l.env.health.Attempt(u)
					if key != "" {
						st.set(func(_ int, k string) bool { return strings.HasPrefix(k, key) }, hangs)
					}
					began := time.Now()
					err := k.r.beforeDial(t.Context(), u)
					took := time.Duration(0)
					if key != "" && hangs {
						took = 10 * time.Second
					}
					require.Equal(t, took, time.Since(began))
					if key == "" || known {
						require.NoError(t, err)
					} else {
						require.ErrorIs(t, err, errUnsaved)
						require.Equal(t, !hangs, errors.Is(err, errFault))
					}
					if key == "" {
						require.Contains(t, st.all(t), "sync/health/"+u.String())
						require.Contains(t, st.all(t), "sync/host/a.example")
					}
					st.set(nil, false)
					end()
				})
			}
		}
	}
	synctest.Test(t, func(t *testing.T) {
		k := newRemembering(t, nil)
		u := testURL(t, sayerRelay)
		k.l.env.health.Attempt(u)
		require.Equal(t, time.Now().Add(time.Minute), k.l.notSaved(u))
		r, _ := k.l.env.health.Export(u)
		require.False(t, r.Dialing)
		k.l.env.health.Attempt(u)
		k.l.env.health.Hostile(u)
		at := k.l.env.health.NextAttempt(u)
		require.Equal(t, at, k.l.notSaved(u))
		time.Sleep(time.Until(at) - time.Minute)
		require.Equal(t, at, k.l.notSaved(u))
		time.Sleep(time.Nanosecond)
		require.Equal(t, at.Add(1), k.l.notSaved(u))
	})
}

// The health of what is connected is kept without being asked, of what is not if it was.
func TestWhoseHealthIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := &faultyState{Memory: kept.NewMemory()}
		k := newRemembering(t, st)
		end := k.start(t.Context(), t)
		u, other := testURL(t, sayerRelay), testURL(t, "wss://other.example")
		k.conn(t, u)
		k.conn(t, other)
		delete(k.l.conns, other)
		k.l.keep(t.Context())
		k.answer(t)
		time.Sleep(time.Minute)
		keys := strings.Join(st.all(t), " ")
		require.Contains(t, keys, "sync/health/"+u.String())
		require.NotContains(t, keys, "other.example")
		require.NotContains(t, keys, "learned", "nothing was")
		require.NotContains(t, keys, "set_aside")
		k.r.relay(other, nil)
		time.Sleep(time.Minute)
		require.Contains(t, st.all(t), "sync/health/"+other.String())
		k.l.keepAll()
		end()
	})
}
