package writebehind

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
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

// of returns a Value; nil deletes the record.
func of(b []byte) Value { return func() ([]byte, bool) { return b, b != nil } }

func one(key string, value ...byte) Change { return Change{key, of(value)} }

// complete sets defaults for a test.
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

// running returns a loaded Buffer that runs until the returned function is called.
func running(t *testing.T, store state.Store, cfg Config) (*Buffer, func()) {
	t.Helper()
	b := New(store, complete(cfg))
	require.NoError(t, b.Load(t.Context(), "", func(string, []byte) {}))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { b.Run(ctx); close(ended) }()
	return b, func() { cancel(); <-ended }
}

// stored returns the value of a key, or nil.
func stored(t *testing.T, s *state.Memory, key string) (value []byte) {
	t.Helper()
	for r, err := range s.Each(t.Context(), key) {
		require.NoError(t, err)
		value = r.Value
	}
	return value
}

var errDisk = errors.New("input/output error")

// timed records the time and keys of each write.
type timed struct {
	*state.Memory
	began time.Time

	mu sync.Mutex
	// guarded by mu
	slow  time.Duration
	log   []string
	fails map[string]error // by key; "": all keys
}

func (s *timed) enter(keys []string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log = append(s.log, fmt.Sprint(time.Since(s.began), " ", strings.Join(keys, " ")))
	for _, key := range append(keys, "") {
		if err := s.fails[key]; err != nil {
			return err
		}
	}
	return nil
}

func (s *timed) pause() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.slow
}

func (s *timed) Put(ctx context.Context, records ...state.Record) error {
	var keys []string
	for _, r := range records {
		keys = append(keys, r.Key)
	}
	slices.Sort(keys)
	err := s.enter(keys)
	time.Sleep(s.pause())
	if err != nil {
		return err
	}
	return s.Memory.Put(ctx, records...)
}

func (s *timed) take() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.log
	s.log = nil
	return out
}

func after(t *testing.T, d time.Duration) {
	t.Helper()
	time.Sleep(d)
	synctest.Wait()
}

// A call of a store that hangs ends at the timeout.
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

func (hangingStore) Put(ctx context.Context, _ ...state.Record) error {
	<-ctx.Done()
	return ctx.Err()
}

// shaky is a store whose calls fail before or after they take effect.
type shaky struct {
	*state.Memory

	mu   sync.Mutex
	rng  *rand.Rand // guarded by mu
	calm bool       // guarded by mu
}

func (s *shaky) strike(call func() error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.calm {
		switch s.rng.IntN(4) {
		case 0:
			return errDisk
		case 1:
			return errors.Join(call(), errDisk)
		}
	}
	return call()
}

func (s *shaky) Put(ctx context.Context, records ...state.Record) error {
	return s.strike(func() error { return s.Memory.Put(ctx, records...) })
}

func (s *shaky) Delete(ctx context.Context, keys ...string) error {
	return s.strike(func() error { return s.Memory.Delete(ctx, keys...) })
}

// For any failures of the store, the last change of each key is stored after the store works again,
// and each confirmed change was durable.
func TestNewestValueSurvivesFailures(t *testing.T) {
	for seed := range uint64(60) {
		synctest.Test(t, func(t *testing.T) {
			s := &shaky{Memory: state.NewMemory(), rng: rand.New(rand.NewPCG(seed, 3)), calm: true}
			b, stop := running(t, s, Config{})
			defer stop()
			require.NoError(t, b.Flush(t.Context()))
			rng := rand.New(rand.NewPCG(seed, 4))
			want := make(map[string][]byte)
			check := func(name string) {
				require.Equal(t, want[name], stored(t, s.Memory, name))
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

// The newest of many changes is written with its value at the time of the write. Equal values,
// including loaded values, are not written again. Removed keys are deleted.
func TestNewestIsWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := state.NewMemory()
		for _, key := range []string{"a", "b", "x"} {
			require.NoError(t, store.Put(t.Context(), state.Record{Key: key, Value: []byte{1}}))
		}
		s := &timed{Memory: store, began: time.Now()}
		b := New(s, complete(Config{}))
		var seen []string
		require.NoError(t, b.Load(t.Context(), "", func(key string, value []byte) {
			seen = append(seen, fmt.Sprintf("%s%x", key, value))
		}))
		require.Equal(t, []string{"a01", "b01", "x01"}, seen)
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
		require.Equal(t, []string{"0s a gone"}, s.take())
		has := make(map[string]byte)
		for r, err := range store.Each(t.Context(), "") {
			require.NoError(t, err)
			has[r.Key] = r.Value[0]
		}
		require.Equal(t, map[string]byte{"a": 7, "b": 1, "gone": 1}, has)
	})
}

// A panic of the store ended the process.
func TestStoreThatPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &panicking{Memory: state.NewMemory(), left: 1}
		b, stop := running(t, store, Config{})
		defer stop()
		require.ErrorContains(t, b.Save(t.Context(), one("a", 1)), "panic: no such page")
		require.NoError(t, b.Save(t.Context(), one("b", 1)))
		after(t, retryPause)
		require.Equal(t, []byte{1}, stored(t, store.Memory, "a"))
		after(t, time.Hour)
		b.Put("c", of([]byte{1}))
		after(t, b.cfg.Delay)
		require.Equal(t, []byte{1}, stored(t, store.Memory, "c"), "no failure is left")
	})
}

type panicking struct {
	*state.Memory
	left int // panics
}

func (s *panicking) Put(ctx context.Context, records ...state.Record) error {
	if s.left > 0 {
		s.left--
		panic("no such page")
	}
	return s.Memory.Put(ctx, records...)
}
