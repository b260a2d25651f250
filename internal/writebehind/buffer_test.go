package writebehind

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/graspsync/graspsync/state"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// of is a value; nil is none.
func of(b []byte) Value { return func() ([]byte, bool) { return b, b != nil } }

func one(key string, value ...byte) Change { return Change{key, of(value)} }

// many are so many changes, with a value each.
func many(prefix string, n int) (out []Change) {
	for i := range n {
		out = append(out, one(fmt.Sprintf("%s/%04d", prefix, i), 1))
	}
	return out
}

func putAll(b *Buffer, changes []Change) {
	for _, c := range changes {
		b.Put(c.Key, c.Value)
	}
}

// complete fills in what a test leaves open.
func complete(cfg Config) Config {
	if cfg.Delay == 0 {
		cfg.Delay = 3 * time.Second
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = time.Minute
	}
	if cfg.MaxValue == 0 {
		cfg.MaxValue = 4 << 20
	}
	if cfg.MaxQueue == 0 {
		cfg.MaxQueue = 250_000
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Dropped == nil {
		cfg.Dropped = func(string, int) {}
	}
	return cfg
}

// running returns a Buffer that has loaded and runs until the returned function is called.
func running(t *testing.T, store state.Store, cfg Config) (*Buffer, func()) {
	t.Helper()
	b := New(store, complete(cfg))
	require.NoError(t, b.Load(t.Context(), "", func(string, []byte) (bool, error) { return true, nil }))
	ctx, cancel := context.WithCancel(t.Context())
	go b.Run(ctx)
	return b, func() { cancel(); <-b.ended }
}

var errDisk = errors.New("input/output error")

// timed notes when a store was written, and which keys.
type timed struct {
	*state.Memory
	began time.Time

	mu sync.Mutex
	// guarded by mu
	slow  time.Duration
	log   []string
	fails map[string]error // by key; "": all
	now   int
	most  int
}

func (s *timed) enter(key string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log = append(s.log, fmt.Sprint(time.Since(s.began), " ", key))
	s.now++
	s.most = max(s.most, s.now)
	err := s.fails[""]
	if err == nil {
		err = s.fails[key]
	}
	return err
}

func (s *timed) leave() {
	s.mu.Lock()
	slow := s.slow
	s.mu.Unlock()
	time.Sleep(slow)
	s.mu.Lock()
	s.now--
	s.mu.Unlock()
}

func (s *timed) CompareAndSwap(ctx context.Context, key string, old state.Version, v []byte) (state.Version, error) {
	err := s.enter(key)
	defer s.leave()
	if err != nil {
		return state.Absent, err
	}
	return s.Memory.CompareAndSwap(ctx, key, old, v)
}

func (s *timed) set(fails map[string]error, slow ...time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fails = fails
	if len(slow) > 0 {
		s.slow = slow[0]
	}
}

func (s *timed) take() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.log
	s.log = nil
	return out
}

// timing returns a Buffer whose store notes when it is written.
func timing(t *testing.T, slow time.Duration, cfg Config) (*Buffer, *timed, func()) {
	t.Helper()
	s := &timed{Memory: state.NewMemory(), slow: slow, began: time.Now()}
	b, stop := running(t, s, cfg)
	synctest.Wait()
	return b, s, stop
}

func after(t *testing.T, d time.Duration) {
	t.Helper()
	time.Sleep(d)
	synctest.Wait()
}

// What nobody waits for is written three seconds after the first change, all of it together,
// and ten seconds after it could not be; what somebody waits for is written at once.
func TestWhenThingsAreWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, s, stop := timing(t, 0, Config{})
		defer stop()
		put := func(key string, value byte) { b.Put(key, of([]byte{value})) }
		put("a", 1)
		after(t, 2*time.Second)
		put("b", 1)
		put("a", 2)
		require.NoError(t, b.Save(t.Context(), one("c", 1)))
		require.Equal(t, []string{"2s c"}, s.take())
		after(t, time.Second-1)
		require.Empty(t, s.take())
		after(t, 1)
		require.ElementsMatch(t, []string{"3s a", "3s b"}, s.take())
		after(t, time.Hour-3*time.Second)
		require.Empty(t, s.take())

		put("a", 3)
		put("b", 3)
		require.NoError(t, b.Flush(t.Context()))
		require.ElementsMatch(t, []string{"1h0m0s a", "1h0m0s b"}, s.take())
		after(t, time.Minute)
		require.Empty(t, s.take(), "there was nothing else")

		s.set(map[string]error{"": errDisk})
		put("a", 4)
		after(t, 12*time.Second)
		require.Equal(t, []string{"1h1m3s a"}, s.take())
		put("b", 4) // goes with the other one
		after(t, time.Second)
		require.ElementsMatch(t, []string{"1h1m13s a", "1h1m13s b"}, s.take())
		s.set(nil)
		after(t, 10*time.Second)
		twice := []string{"1h1m23s a", "1h1m23s a", "1h1m23s b", "1h1m23s b"}
		require.ElementsMatch(t, twice, s.take(), "what is there had to be looked up")
		after(t, time.Hour)
		require.Empty(t, s.take())

		s.set(map[string]error{"": state.ErrFull}) // what is no room for is not tried again
		put("a", 5)
		require.ErrorIs(t, b.Flush(t.Context()), state.ErrFull)
		require.Len(t, s.take(), 1)
		after(t, time.Hour)
		require.Empty(t, s.take())
	})
}

// At most 64 calls of the store are under way, and after 256 it is looked whether there is
// more that somebody waits for.
func TestHowMuchIsWrittenAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, s, stop := timing(t, time.Second, Config{})
		defer stop()
		putAll(b, many("a", 512))
		require.NoError(t, b.Flush(t.Context()))
		require.Equal(t, 8*time.Second, time.Since(s.began), "in eight turns")
		synctest.Wait()
		require.Equal(t, 64, s.most)
		putAll(b, many("b", 512))
		after(t, 3*time.Second+8*time.Second-1)
		require.Len(t, s.take(), 1024)
		s.mu.Lock()
		require.Equal(t, 64, s.now)
		s.mu.Unlock()
		after(t, 1)
		require.Zero(t, s.now)

		putAll(b, many("c", 600))
		after(t, 3500*time.Millisecond)
		began := time.Now()
		require.NoError(t, b.Save(t.Context(), many("d", 1)...))
		require.Equal(t, 4500*time.Millisecond, time.Since(began), "behind 256")
		after(t, 6*time.Second)
		require.Len(t, s.take(), 601)
	})
}

// reports are what a Buffer has said and counted.
type reports struct {
	mu      sync.Mutex
	text    strings.Builder // guarded by mu
	dropped map[string]int  // guarded by mu
}

// Write implements [io.Writer].
func (r *reports) Write(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.Write(b)
}

func (r *reports) drop(reason string, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.dropped == nil {
		r.dropped = make(map[string]int)
	}
	r.dropped[reason] += n
}

func (r *reports) log() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.String()
}

func (r *reports) counts() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.dropped)
}

// That the store fails is said once a minute, not at our end, and counted by reason.
func TestWhatIsSaidOfAStoreThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r reports
		b, s, stop := timing(t, 0, Config{Logger: slog.New(slog.NewTextHandler(&r, nil)), Dropped: r.drop})
		s.set(map[string]error{"": errDisk})
		b.Put("a", of([]byte{1}))
		after(t, 3*time.Second)
		lines := func() int { return strings.Count(r.log(), "\n") }
		require.Equal(t, 1, lines())
		for _, part := range []string{
			"level=ERROR", "what is to survive a restart could not be written", "key=a",
			`error="writing: input/output error"`,
		} {
			require.Contains(t, r.log(), part)
		}
		for minute := range 3 {
			after(t, time.Minute-1)
			require.Equal(t, 1+minute, lines())
			after(t, 1)
			require.Equal(t, 2+minute, lines())
		}
		require.Empty(t, r.counts())
		s.set(map[string]error{"": state.ErrFull})
		after(t, time.Hour)
		require.Equal(t, map[string]int{"full": 1}, r.counts())
		require.Equal(t, 4, lines())
		b.Put("a", of(make([]byte, 4<<20+1)))
		after(t, time.Hour)
		require.Equal(t, map[string]int{"full": 1, "size": 1}, r.counts())
		require.Equal(t, 4, lines(), "that is not the store's")
		s.set(map[string]error{"": errDisk}, time.Second)
		b.Put("a", of([]byte{2}))
		after(t, 3500*time.Millisecond)
		stop()
		require.Equal(t, 4, lines(), "we end")
	})
}

// What somebody waits for is told whoever waits, the first error of several; values as long
// as they may be are written.
func TestWhatIsToldWhoWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, s, stop := timing(t, 0, Config{MaxValue: 100})
		full, disk := errors.New("full"), errors.New("disk")
		s.set(map[string]error{"x/0001": full, "x/0002": disk})
		changes := many("x", 4)
		err := b.Save(t.Context(), changes...)
		require.ErrorIs(t, err, full)
		require.NotErrorIs(t, err, disk)
		s.set(map[string]error{"x/0002": disk})
		require.ErrorIs(t, b.Save(t.Context(), changes...), disk)
		require.ErrorIs(t, b.Flush(t.Context()), disk)
		s.set(nil)
		require.NoError(t, b.Save(t.Context(), Change{"y", of(make([]byte, 100))}))
		err = b.Save(t.Context(), Change{"y", of(make([]byte, 101))})
		require.ErrorIs(t, err, ErrTooLong)
		require.ErrorContains(t, err, "101 bytes")
		require.NoError(t, b.Save(t.Context()), "nothing is saved at once")
		stop()
		b.Put("x", of([]byte{1}))
		require.ErrorIs(t, b.Flush(t.Context()), ErrEnded)
		for range 100 { // what was written before the end was
			done := make(chan error, 1)
			done <- nil
			require.NoError(t, b.await(t.Context(), done))
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(disk)
		b = New(s, complete(Config{}))
		err = b.Save(ctx, changes...)
		require.ErrorIs(t, err, disk)
		require.ErrorContains(t, err, "saving: ")
	})
}

// A store that hangs is waited for as long as it may take.
func TestStoreThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, stop := running(t, hangingStore{state.NewMemory()}, Config{Timeout: 7 * time.Second})
		defer stop()
		began := time.Now()
		require.ErrorIs(t, b.Save(t.Context(), one("x", 1)), context.DeadlineExceeded)
		require.Equal(t, 7*time.Second, time.Since(began))
	})
}

type hangingStore struct{ *state.Memory }

func (hangingStore) CompareAndSwap(ctx context.Context, _ string, _ state.Version, _ []byte) (state.Version, error) {
	<-ctx.Done()
	return state.Absent, ctx.Err()
}

// shaky is a store whose calls fail before or after they have done what they should, and
// to which others write, too.
type shaky struct {
	*state.Memory

	mu    sync.Mutex
	rng   *rand.Rand // guarded by mu
	calm  bool       // guarded by mu
	calls int        // guarded by mu
}

func (s *shaky) strike(ctx context.Context, key string, call func() error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	if s.calm {
		return call()
	}
	switch s.rng.IntN(6) {
	case 0:
		return errDisk
	case 1:
		_ = call()
		return errDisk
	case 2:
		_, version, _ := s.Memory.Get(ctx, key)
		_, _ = s.Memory.CompareAndSwap(ctx, key, version, []byte("somebody else's"))
	case 3:
		if _, version, err := s.Memory.Get(ctx, key); err == nil {
			_ = s.Memory.Delete(ctx, key, version)
		}
	}
	return call()
}

func (s *shaky) CompareAndSwap(ctx context.Context, key string, old state.Version, v []byte) (version state.Version, err error) {
	err = s.strike(ctx, key, func() (err error) { version, err = s.Memory.CompareAndSwap(ctx, key, old, v); return err })
	return version, err
}

func (s *shaky) Delete(ctx context.Context, key string, old state.Version) error {
	return s.strike(ctx, key, func() error { return s.Memory.Delete(ctx, key, old) })
}

func (s *shaky) Get(ctx context.Context, key string) (value []byte, version state.Version, err error) {
	err = s.strike(ctx, key, func() (err error) { value, version, err = s.Memory.Get(ctx, key); return err })
	return value, version, err
}

// However the store fails: what was told last is what is kept once it works again, and what
// somebody was told to be durable was so.
func TestWhateverFailsTheLastWordIsKept(t *testing.T) {
	for seed := range uint64(60) {
		synctest.Test(t, func(t *testing.T) {
			s := &shaky{Memory: state.NewMemory(), rng: rand.New(rand.NewPCG(seed, 3)), calm: true}
			b, stop := running(t, s, Config{})
			defer stop()
			require.NoError(t, b.Flush(t.Context()))
			rng := rand.New(rand.NewPCG(seed, 4))
			want := make(map[string][]byte)
			check := func(name string) {
				value, _, err := s.Memory.Get(t.Context(), name)
				if want[name] == nil {
					require.ErrorIs(t, err, state.ErrNotFound)
				} else {
					require.NoError(t, err)
					require.Equal(t, want[name], value)
				}
			}
			calm := func(yes bool) {
				s.mu.Lock()
				defer s.mu.Unlock()
				s.calm = yes
			}
			for range 4 {
				calm(false)
				for range 30 {
					name := string(rune('a' + rng.IntN(5)))
					want[name] = nil
					if rng.IntN(3) > 0 {
						want[name] = []byte{byte(rng.IntN(3))} //nolint:gosec // small
					}
					if rng.IntN(2) == 0 {
						b.Put(name, of(want[name]))
					} else if b.Save(t.Context(), Change{name, of(want[name])}) == nil {
						check(name)
					}
					after(t, time.Duration(rng.IntN(5_000))*time.Millisecond)
				}
				calm(true)
				after(t, time.Minute)
				for name := range maps.Keys(want) {
					b.Put(name, of(want[name]))
				}
				require.NoError(t, b.Flush(t.Context()))
				for name := range maps.Keys(want) {
					check(name)
				}
			}
		})
	}
}

// There is room for so many changes, and for no more; a key that waits has its place.
func TestHowMuchThereIsRoomFor(t *testing.T) {
	var r reports
	b := New(state.NewMemory(), complete(Config{MaxQueue: 3, Dropped: r.drop}))
	for _, key := range []string{"a", "b", "c", "c"} {
		require.True(t, b.Put(key, of([]byte{1})))
	}
	require.Empty(t, r.counts())
	require.False(t, b.Put("d", of([]byte{1})))
	require.ErrorIs(t, b.Save(t.Context(), one("d", 1)), ErrFull)
	require.Equal(t, map[string]int{"queue": 2}, r.counts())
}

// Of many changes the newest is written, as it is at that time; what is the same is not
// written again, also if it was there at the start; what is no more is removed.
func TestNewestIsWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := state.NewMemory()
		for _, key := range []string{"a", "b", "gone", "x"} {
			_, err := store.CompareAndSwap(t.Context(), key, state.Absent, []byte{1})
			require.NoError(t, err)
		}
		s := &timed{Memory: store, began: time.Now()}
		b := New(s, complete(Config{}))
		var seen []string
		require.NoError(t, b.Load(t.Context(), "", func(key string, value []byte) (bool, error) {
			seen = append(seen, fmt.Sprintf("%s%x", key, value))
			if key != "gone" {
				return true, nil
			}
			_, version, err := store.Get(t.Context(), key)
			require.NoError(t, err)
			return false, store.Delete(t.Context(), key, version)
		}))
		require.Equal(t, []string{"a01", "b01", "gone01", "x01"}, seen)
		go b.Run(t.Context())
		now := byte(0)
		for range 100 {
			b.Put("a", func() ([]byte, bool) { return []byte{now}, true })
		}
		now = 7
		b.Put("b", of([]byte{1}))
		b.Put("gone", of([]byte{1}))
		b.Put("x", of(nil))
		b.Put("never", of(nil))
		require.NoError(t, b.Flush(t.Context()))
		require.ElementsMatch(t, []string{"0s a", "0s gone"}, s.take())
		has := make(map[string]byte)
		for key, err := range store.Keys(t.Context(), "") {
			require.NoError(t, err)
			value, _, err := store.Get(t.Context(), key)
			require.NoError(t, err)
			has[key] = value[0]
		}
		require.Equal(t, map[string]byte{"a": 7, "b": 1, "gone": 1}, has)
	})
}

// What can't be read, and what who reads it does not want to go on with, ends a Load.
func TestLoadThatFails(t *testing.T) {
	store := state.NewMemory()
	_, err := store.CompareAndSwap(t.Context(), "a", state.Absent, nil)
	require.NoError(t, err)
	b := New(store, complete(Config{}))
	require.Equal(t, errDisk, b.Load(t.Context(), "", func(string, []byte) (bool, error) { return true, errDisk }))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err = b.Load(ctx, "", func(string, []byte) (bool, error) { return true, nil })
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorContains(t, err, "reading what was kept: ")
	require.NoError(t, b.Load(t.Context(), "b", func(string, []byte) (bool, error) { return true, errDisk }))
}

// What the store has no room for is written once it has, if that is wanted, and is not counted
// as dropped.
func TestWhatThereIsNoRoomForIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r reports
		b, s, stop := timing(t, 0, Config{RetryFull: true, Dropped: r.drop})
		defer stop()
		s.set(map[string]error{"": state.ErrFull})
		require.ErrorIs(t, b.Save(t.Context(), one("a", 1)), state.ErrFull)
		after(t, 10*time.Second)
		require.Equal(t, []string{"0s a", "10s a"}, s.take())
		s.set(nil)
		after(t, 10*time.Second)
		_, _, err := s.Get(t.Context(), "a")
		require.NoError(t, err)
		require.Empty(t, r.counts())
	})
}

// A Flush while something was being written returned at once: whoever ended Run after it cut
// that off.
func TestFlushWaitsForWhatIsBeingWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, s, stop := timing(t, time.Second, Config{})
		defer stop()
		b.Put("a", of([]byte{1}))
		after(t, 3500*time.Millisecond)
		require.Len(t, s.take(), 1)
		require.NoError(t, b.Flush(t.Context()))
		require.Equal(t, 4*time.Second, time.Since(s.began))
		_, _, err := s.Get(t.Context(), "a")
		require.NoError(t, err)
		s.set(map[string]error{"a": errDisk})
		b.Put("a", of([]byte{2}))
		after(t, 3500*time.Millisecond)
		b.Put("a", of([]byte{3}))
		require.ErrorIs(t, b.Flush(t.Context()), errDisk, "it is told what becomes of it")
	})
}

// Each failure put off all that nobody waited for: if something failed every few seconds, that
// was never written.
func TestWhatFailsKeepsNothingElseFromBeingWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, s, stop := timing(t, 0, Config{})
		defer stop()
		s.set(map[string]error{"bad": errDisk})
		b.Put("good", of([]byte{1}))
		for range 5 {
			require.ErrorIs(t, b.Save(t.Context(), one("bad", 1)), errDisk)
			after(t, time.Second)
		}
		_, _, err := s.Get(t.Context(), "good")
		require.NoError(t, err)
		require.Contains(t, s.take(), "3s good")
	})
}

// What nobody waits for was never written while somebody always waited for something else.
func TestWhoWaitsKeepsNothingElseFromBeingWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, store, stop := timing(t, time.Second, Config{Delay: time.Second})
		defer stop()
		ctx, cancel := context.WithCancel(t.Context())
		var savers sync.WaitGroup
		for _, key := range []string{"a", "b", "c"} {
			savers.Go(func() {
				for i := byte(0); ctx.Err() == nil; i++ {
					_ = b.Save(ctx, one(key, i)) // ends with ctx
					time.Sleep(300 * time.Millisecond)
				}
			})
		}
		putAll(b, many("lazy", 100))
		time.Sleep(6 * time.Second)
		n := 0
		for _, err := range store.Keys(t.Context(), "lazy") {
			require.NoError(t, err)
			n++
		}
		require.Equal(t, 100, n)
		cancel()
		savers.Wait()
	})
}

// One value that failed again and again put off many others each time.
func TestOneThatFailsPutsOffNoOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, store, stop := timing(t, time.Millisecond, Config{Delay: time.Second})
		defer stop()
		store.set(map[string]error{"all/0007": errDisk})
		putAll(b, many("all", 5_000))
		time.Sleep(2 * time.Second)
		n := 0
		for _, err := range store.Keys(t.Context(), "all") {
			require.NoError(t, err)
			n++
		}
		require.Equal(t, 4_999, n)
		store.set(nil)
		time.Sleep(9 * time.Second)
		_, _, err := store.Get(t.Context(), "all/0007")
		require.ErrorIs(t, err, state.ErrNotFound, "after a pause")
		time.Sleep(time.Second)
		_, _, err = store.Get(t.Context(), "all/0007")
		require.NoError(t, err)
	})
}

// A store that panicked ended the process: it is the only thing of an operator's that did.
func TestStoreThatPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &panicking{Memory: state.NewMemory(), left: 1}
		b, stop := running(t, store, Config{})
		defer stop()
		require.ErrorContains(t, b.Save(t.Context(), one("a", 1)), "panic: no such page")
		require.NoError(t, b.Save(t.Context(), one("b", 1)))
		after(t, retryPause)
		value, _, err := store.Get(t.Context(), "a")
		require.NoError(t, err)
		require.Equal(t, []byte{1}, value)
	})
}

type panicking struct {
	*state.Memory
	left int // panics
}

func (s *panicking) CompareAndSwap(ctx context.Context, key string, old state.Version, v []byte) (state.Version, error) {
	if s.left > 0 {
		s.left--
		panic("no such page")
	}
	return s.Memory.CompareAndSwap(ctx, key, old, v)
}
