package memory

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/health"
	"github.com/graspsync/graspsync/internal/backoff"
	"github.com/graspsync/graspsync/internal/writebehind"
	"github.com/graspsync/graspsync/state"
	"github.com/graspsync/graspsync/sync/internal/relaylimits"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func relay(t testing.TB, n int) graspsync.RelayURL {
	t.Helper()
	u, err := graspsync.ParseRelayURL(fmt.Sprintf("wss://relay%d.example", n))
	require.NoError(t, err)
	return u
}

// notebook is a store that counts its writes.
type notebook struct {
	*state.Memory
	writes atomic.Int64
}

func newNotebook() *notebook { return &notebook{Memory: state.NewMemory()} }

func (n *notebook) Put(ctx context.Context, records ...state.Record) error {
	n.writes.Add(int64(len(records)))
	return n.Memory.Put(ctx, records...)
}

func (n *notebook) Delete(ctx context.Context, keys ...string) error {
	n.writes.Add(int64(len(keys)))
	return n.Memory.Delete(ctx, keys...)
}

func (n *notebook) count() int { return int(n.writes.Load()) }

// running returns a loaded Memory that runs until the returned function is called.
func usual(changes ...func(c *writebehind.Config)) writebehind.Config {
	c := writebehind.Config{
		Delay: 3 * time.Second, Timeout: time.Minute, MaxValue: 4 << 20, MaxQueue: 250_000,
		Logger: slog.New(slog.DiscardHandler), Dropped: func(string, int) {},
	}
	for _, change := range changes {
		change(&c)
	}
	return c
}

func running(t *testing.T, store state.Store, cfg writebehind.Config) (*Memory, Loaded, func()) {
	t.Helper()
	m := New(store, cfg)
	loaded, err := m.Load(t.Context())
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { m.Run(ctx); close(ended) }()
	return m, loaded, func() { cancel(); <-ended }
}

// entries counts the records of a store.
func entries(t *testing.T, s state.Store) (n int) {
	t.Helper()
	for _, err := range s.Each(t.Context(), "") {
		require.NoError(t, err)
		n++
	}
	return n
}

func of(u graspsync.RelayURL, r health.Record) Record {
	return OfRelay(u, func(graspsync.RelayURL) (health.Record, bool) { return r, true })
}

func TestEverythingComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newNotebook()
		m, first, stop := running(t, store, usual())
		require.Len(t, first.Salt, SaltSize)
		u, v := relay(t, 1), relay(t, 2)
		now := time.Now().UTC().Truncate(time.Millisecond)
		record := health.Record{Record: backoff.Record{Failures: 3, LastAttempt: now}, LastError: "x"}
		var facts relaylimits.Facts
		facts.Learn(relaylimits.MaxFilters, 7, now.Add(time.Hour))
		m.Health(of(u, record), OfHost("h.example", func(string) (health.Record, bool) { return record, true }))
		m.Learned(u, relaylimits.Learned{Facts: facts, Excluded: []relaylimits.ExcludedValue{{Value: relaylimits.Value{Tag: "e", Text: "past"}, Until: now.Add(-1)}, {Value: relaylimits.Value{Tag: "e", Text: "poison"}, Until: now.Add(time.Hour)}}})
		m.Kept(Kept{Relay: u, Mark: now, PassAt: now.Add(-time.Hour), Items: []uint64{1, 5, 1 << 63}})
		m.Kept(Kept{Relay: v, Mark: now, Items: []uint64{2}})
		synctest.Wait()
		require.Zero(t, store.count(), "nobody waits")
		time.Sleep(2 * time.Minute)
		require.NoError(t, m.SaveChunks(t.Context(), "rejected", [][]byte{[]byte("a"), []byte("b"), {}}))
		n := store.count()
		require.Equal(t, 9, n)
		require.NoError(t, m.SaveChunks(t.Context(), "rejected", [][]byte{[]byte("a"), []byte("c")}))
		m.Learned(u, relaylimits.Learned{Facts: facts, Excluded: []relaylimits.ExcludedValue{{Value: relaylimits.Value{Tag: "e", Text: "past"}, Until: now.Add(-1)}, {Value: relaylimits.Value{Tag: "e", Text: "poison"}, Until: now.Add(time.Hour)}}})
		require.NoError(t, m.Flush(t.Context()))
		require.Equal(t, n+2, store.count(), "what is the same is not written again")
		stop()

		m, got, stop := running(t, store, usual())
		require.Equal(t, Loaded{
			Salt:    first.Salt,
			Health:  map[graspsync.RelayURL]health.Record{u: record},
			Hosts:   map[string]health.Record{"h.example": record},
			Learned: map[graspsync.RelayURL]relaylimits.Learned{u: {Facts: facts, Excluded: []relaylimits.ExcludedValue{{Value: relaylimits.Value{Tag: "e", Text: "poison"}, Until: now.Add(time.Hour)}}}},
			Kept: []Kept{
				{Relay: u, Mark: now, PassAt: now.Add(-time.Hour), Items: []uint64{1, 5, 1 << 63}},
				{Relay: v, Mark: now, Items: []uint64{2}},
			},
			Chunks: map[string][][]byte{"rejected": {[]byte("a"), []byte("c")}},
		}, got)
		m.Forget(u)
		m.NothingKept(v)
		none := func(graspsync.RelayURL) (health.Record, bool) { return health.Record{}, false }
		m.Health(OfRelay(u, none), OfHost("h.example", func(string) (health.Record, bool) { return health.Record{}, false }))
		require.NoError(t, m.SaveChunks(t.Context(), "rejected", nil))
		require.NoError(t, m.Flush(t.Context()))
		stop()
		_, got, stop = running(t, store, usual())
		require.Equal(t, first.Salt, got.Salt)
		require.Empty(t, got.Health)
		require.Empty(t, got.Hosts)
		require.Empty(t, got.Learned)
		require.Empty(t, got.Kept)
		require.Empty(t, got.Chunks)
		stop()
	})
}

// Values unused for longer than Keep are removed.
func TestOldThingsGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newNotebook()
		m, _, stop := running(t, store, usual())
		var f relaylimits.Facts
		f.Learn(relaylimits.NoNegentropy, 1, time.Now().Add(4*time.Hour))
		m.Health(of(relay(t, 1), health.Record{Record: backoff.Record{LastAttempt: time.Now()}}))
		m.Learned(relay(t, 1), relaylimits.Learned{Facts: f})
		m.Kept(Kept{Relay: relay(t, 1), Mark: time.Now(), Items: []uint64{1}})
		require.NoError(t, m.Flush(t.Context()))
		stop()
		time.Sleep(31 * 24 * time.Hour)
		m, l, stop := running(t, store, usual())
		require.Empty(t, l.Health)
		require.Empty(t, l.Learned)
		require.Empty(t, l.Kept)
		require.NoError(t, m.Flush(t.Context()))
		stop()
		require.Equal(t, 1, entries(t, store), "the salt")
	})
}

// Any content of the store is loaded safely.
func FuzzLoad(f *testing.F) {
	now := time.Now()
	var facts relaylimits.Facts
	facts.Learn(relaylimits.PageSize, 500, now.Add(time.Hour))
	for _, v := range []any{health.Record{Record: backoff.Record{Failures: 1, LastAttempt: now}}, relaylimits.Learned{Facts: facts, Excluded: []relaylimits.ExcludedValue{{Value: relaylimits.Value{Tag: "e", Text: "x"}, Until: now.Add(time.Hour)}}}} {
		b, _ := encode(v)
		f.Add("wss://a.example", b)
	}
	b, _ := encode(keptRecord{Mark: now, Items: make([]byte, 16)})
	f.Add("wss://a.example", b)
	f.Add("rejected/0003", []byte("x"))
	f.Add("x", make([]byte, SaltSize))
	f.Fuzz(func(t *testing.T, name string, value []byte) {
		store := state.NewMemory()
		for _, key := range []string{
			saltKey, healthPrefix + name, learnedPrefix + name, keptPrefix + name,
			hostPrefix + name, chunksPrefix + name, prefix + name,
		} {
			if state.CheckKey(key) != nil {
				continue
			}
			err := store.Put(t.Context(), state.Record{Key: key, Value: value})
			require.NoError(t, err)
		}
		m := New(store, usual())
		l, err := m.Load(t.Context())
		require.NoError(t, err)
		require.Len(t, l.Salt, SaltSize)
		tracker, err := health.NewTracker(health.Config{})
		require.NoError(t, err)
		for u, r := range l.Health {
			tracker.Import(u, r)
		}
		for _, k := range l.Kept {
			require.True(t, slices.IsSorted(k.Items))
			require.False(t, k.Mark.After(time.Now()))
		}
		for _, c := range l.Chunks {
			require.LessOrEqual(t, len(c), maxChunks)
		}
		for _, f := range l.Learned {
			require.False(t, f.Empty(time.Now()))
		}
	})
}
