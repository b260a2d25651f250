package memory

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/health"
	"github.com/graspsync/graspsync/internal/writebehind"
	"github.com/graspsync/graspsync/state"
	"github.com/graspsync/graspsync/sync/internal/relaylimits"
)

func TestDefaults(t *testing.T) {
	plain := func(c Config) Config {
		require.NotNil(t, c.Logger)
		c.Dropped("x", 1)
		c.Logger, c.Dropped = nil, nil
		return c
	}
	require.Equal(t, Config{
		Delay: 3 * time.Second, Timeout: time.Minute, MaxValue: 4 << 20, MaxQueue: 250_000, Keep: 720 * time.Hour,
	}, plain(Config{}.withDefaults()))
	set := Config{Delay: 1, Timeout: 2, MaxValue: 3, MaxQueue: 4, Keep: 5}
	require.Equal(t, set, plain(set.withDefaults()))
	logger, dropped := slog.New(slog.DiscardHandler), 0
	set.Logger, set.Dropped = logger, func(_ string, n int) { dropped += n }
	got := set.withDefaults()
	got.Dropped("x", 7)
	require.Equal(t, 7, dropped)
	require.Same(t, logger, got.Logger)
}

// Marks that were cut off anywhere are told from whole ones.
func TestMarksThatWereCut(t *testing.T) {
	u, v := relay(t, 1), relay(t, 2)
	at := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	whole := encodeMarks([]mark{{u, at, 7}, {v, at.Add(time.Hour), 8}})
	one := 1 + 2 + len(u.String()) + 8 + 8
	require.Len(t, whole, 2*one-1)
	for n := range len(whole) + 1 {
		got, err := decodeMarks(whole[:n:n])
		switch n {
		case 0:
			require.ErrorIs(t, err, errVersion)
		case 1:
			require.NoError(t, err)
			require.Empty(t, got)
		case one:
			require.NoError(t, err)
			require.Equal(t, map[graspsync.RelayURL]mark{u: {u, at, 7}}, got)
		case len(whole):
			require.NoError(t, err)
			require.Equal(t, map[graspsync.RelayURL]mark{u: {u, at, 7}, v: {v, at.Add(time.Hour), 8}}, got)
		default:
			require.ErrorIs(t, err, errLength, n)
		}
	}
	whole[0]++
	_, err := decodeMarks(whole)
	require.ErrorIs(t, err, errVersion)
}

// The first time that can be kept is a millisecond after 1970, the last is the year 3000.
func TestTimesThatCanBeKept(t *testing.T) {
	last := time.Date(3000, 1, 1, 0, 0, 0, 0, time.UTC)
	for ms, want := range map[int64]time.Time{
		-1: {}, 0: {}, 1: time.UnixMilli(1).UTC(), last.UnixMilli(): last, last.UnixMilli() + 1: {},
	} {
		b := appendTime(nil, time.UnixMilli(ms))
		require.Equal(t, want, parseTime(b), ms)
	}
	require.Equal(t, make([]byte, 8), appendTime(nil, time.Time{}))
	require.True(t, parseTime(make([]byte, 8)).IsZero())
}

// A mark that is a minute ahead is borne, and is now; nothing is said of no items.
func TestPlausible(t *testing.T) {
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	for ahead, want := range map[time.Duration]bool{-1: true, 0: true, 1: true, time.Minute: true, time.Minute + 1: false} {
		k := Kept{Mark: now.Add(ahead), PassAt: now.Add(24 * time.Hour), Items: []uint64{0}}
		require.Equal(t, want, plausible(&k, now), ahead)
		if want {
			require.Equal(t, now.Add(min(ahead, 0)), k.Mark)
			require.Equal(t, now, k.PassAt)
		}
	}
	require.False(t, plausible(&Kept{Items: []uint64{1}}, now))
	require.False(t, plausible(&Kept{Mark: now}, now))
}

// fate is what becomes of something that was kept.
type fate int

const (
	used    fate = iota
	left         // what is not understood may be of a later version
	gone         // removed, since it is of no use
	dropped      // removed, counted and said, since it can't be what we wrote
)

// Everything that a store may hold is used, left alone, or removed; what can't have been
// written by us is counted and said.
func TestWhatBecomesOfWhatIsStored(t *testing.T) {
	const host = "sync/host/"
	u := relay(t, 1)
	synctest.Test(t, func(t *testing.T) {
		now := time.Now().UTC()
		js := func(v any) []byte {
			b, err := json.Marshal(v)
			require.NoError(t, err)
			return b
		}
		padded := func(n int, v any) []byte {
			b := js(v)
			return append(b, bytes.Repeat([]byte(" "), n-len(b))...)
		}
		record := func(age time.Duration) health.Record { return health.Record{LastAttempt: now.Add(-age)} }
		facts := func(until time.Duration) (f relaylimits.Facts) {
			f.Learn(relaylimits.PageSize, 5, now.Add(until))
			return f
		}
		aside := func(n int, until time.Duration) (out []relaylimits.Aside) {
			for i := range n {
				out = append(out, relaylimits.Aside{Tag: "e", Value: fmt.Sprint(i), Until: now.Add(until)})
			}
			return out
		}
		items := func(items ...uint64) []byte { return encodeKept(Kept{Mark: now, Items: items}) }
		at := func(mark time.Time) []byte { return encodeKept(Kept{Mark: mark, Items: []uint64{1}}) }
		const month = 30 * 24 * time.Hour
		url := u.String()
		whole := func(b []byte, n int) []byte { return append(b[:len(b):len(b)], make([]byte, n)...) }
		for _, c := range []struct {
			key   string
			value []byte
			want  fate
			err   error // with dropped; nil: any
		}{
			{"sync/health/" + url, js(record(month)), used, nil},
			{"sync/health/" + url, js(record(month + 1)), gone, nil},
			{"sync/health/" + url, padded(8192, record(0)), used, nil},
			{"sync/health/" + url, padded(8193, record(0)), dropped, errLength},
			{"sync/health/" + url, []byte("{"), dropped, nil},
			{"sync/health/nonsense", js(record(0)), dropped, nil},
			{"sync/health/WSS://relay1.example", js(record(0)), dropped, errSpelling},
			{host + "h.example", js(record(month)), used, nil},
			{host + "h.example", js(record(month + 1)), gone, nil},
			{host + "h.example", []byte("["), dropped, nil},
			{host + strings.Repeat("h", 255), js(record(0)), used, nil},
			{host + strings.Repeat("h", 256), js(record(0)), dropped, errLength},
			{"sync/learned/" + url, js(facts(1)), used, nil},
			{"sync/learned/" + url, js(facts(0)), gone, nil},
			{"sync/learned/" + url, js(relaylimits.Facts{}), gone, nil},
			{"sync/learned/" + url, padded(8192, facts(time.Hour)), used, nil},
			{"sync/learned/" + url, padded(8193, facts(time.Hour)), dropped, errLength},
			{"sync/learned/" + url, []byte("[]"), dropped, nil},
			{"sync/set_aside/" + url, js(aside(1, 1)), used, nil},
			{"sync/set_aside/" + url, js(aside(1, 0)), gone, nil},
			{"sync/set_aside/" + url, js(aside(0, 0)), gone, nil},
			{"sync/set_aside/" + url, js(aside(1000, time.Hour)), used, nil},
			{"sync/set_aside/" + url, js(aside(1001, time.Hour)), dropped, errLength},
			{"sync/set_aside/" + url, []byte("{}"), dropped, nil},
			{"sync/kept/" + url, items(0), used, nil},
			{"sync/kept/" + url, items(1, 2, 1<<63), used, nil},
			{"sync/kept/" + url, items(), gone, nil},
			{"sync/kept/" + url, items()[:16], dropped, errLength},
			{"sync/kept/" + url, whole(items(1), 1), dropped, errLength},
			{"sync/kept/" + url, whole(items(1), 7), dropped, errLength},
			{"sync/kept/" + url, items(1, 1), dropped, errOrder},
			{"sync/kept/" + url, items(2, 1), dropped, errOrder},
			{"sync/kept/" + url, []byte{}, dropped, errVersion},
			{"sync/kept/" + url, []byte{2}, dropped, errVersion},
			{"sync/kept/" + url, whole([]byte{2}, 24), dropped, errVersion},
			{"sync/kept/" + url, at(time.Time{}), gone, nil},
			{"sync/kept/" + url, at(now.Add(-month)), used, nil},
			{"sync/kept/" + url, at(now.Add(-month - time.Millisecond)), gone, nil},
			{"sync/kept/" + url, at(now.Add(time.Minute)), used, nil},
			{"sync/kept/" + url, at(now.Add(time.Minute + time.Millisecond)), gone, nil},
			{"sync/chunks/x/0000", []byte{1}, used, nil},
			{"sync/chunks/x/9999", []byte{1}, used, nil},
			{"sync/chunks/x/9999", make([]byte, 200_000), used, nil},
			{"sync/chunks/x/9999", make([]byte, 200_001), dropped, writebehind.ErrTooLong},
			{"sync/chunks/x/10000", []byte{1}, dropped, errLength},
			{"sync/chunks/x/001", []byte{1}, dropped, errLength},
			{"sync/chunks/x/000a", []byte{1}, dropped, errLength},
			{"sync/chunks/x", []byte{1}, dropped, errLength},
			{"sync/chunks//0001", []byte{1}, dropped, errLength},
			{"sync/marks", encodeMarks(nil), left, nil},
			{"sync/marks", []byte{7}, dropped, errVersion},
			{"sync/marks", []byte{1, 0}, dropped, errLength},
			{"sync/later/invention", []byte{7}, left, nil},
			{"another/key", []byte{7}, left, nil},
		} {
			name := fmt.Sprintf("%s of %d bytes: %.60q", c.key, len(c.value), c.value)
			store := holding(t, map[string][]byte{saltKey: []byte("0123456789abcdef"), c.key: c.value})
			var r reports
			m, l, stop := running(t, store, Config{
				MaxValue: 200_000, Dropped: r.drop, Logger: slog.New(slog.NewTextHandler(&r, nil)),
			})
			require.NoError(t, m.Flush(t.Context()))
			stop()
			n := len(l.Health) + len(l.Hosts) + len(l.Facts) + len(l.SetAside) + len(l.Kept) + len(l.Chunks)
			require.Equal(t, map[fate]int{used: 1}[c.want], n, name)
			require.Equal(t, "0123456789abcdef", string(l.Salt))
			_, err := store.Get(t.Context(), c.key)
			if c.want == used || c.want == left {
				require.NoError(t, err, name)
			} else {
				require.ErrorIs(t, err, state.ErrNotFound, name)
			}
			if c.want != dropped {
				require.Empty(t, r.counts(), name)
				require.Empty(t, r.log(), name)
				continue
			}
			require.Equal(t, map[string]int{"memory_unreadable": 1}, r.counts(), name)
			for _, part := range []string{"level=WARN", "something that was kept can't be used", "key=" + c.key, "error="} {
				require.Contains(t, r.log(), part, name)
			}
			if c.err != nil {
				require.Contains(t, r.log(), c.err.Error(), name)
			}
		}
	})
}

// holding returns a store that holds so much.
func holding(t *testing.T, values map[string][]byte) *state.Memory {
	t.Helper()
	store := state.NewMemory()
	for key, value := range values {
		err := store.Put(t.Context(), state.Record{Key: key, Value: value})
		require.NoError(t, err)
	}
	return store
}

// A salt of another length is none: what was hashed with it means nothing any more.
func TestSaltThatIsNone(t *testing.T) {
	kept := keptPrefix + relay(t, 1).String()
	for _, n := range []int{0, 15, 16, 17} {
		store := holding(t, map[string][]byte{
			saltKey: make([]byte, n), kept: encodeKept(Kept{Mark: time.Now(), Items: []uint64{1}}),
		})
		m, l, stop := running(t, store, Config{})
		require.NoError(t, m.Flush(t.Context()))
		stop()
		require.Equal(t, n == 16, bytes.Equal(l.Salt, make([]byte, 16)))
		require.Len(t, l.Kept, map[int]int{16: 1}[n])
		value, err := store.Get(t.Context(), saltKey)
		require.NoError(t, err)
		require.Equal(t, l.Salt, value)
		_, err = store.Get(t.Context(), kept)
		require.Equal(t, n != 16, errors.Is(err, state.ErrNotFound))
	}
}

// A mark counts if it is newer than the one of what it was made for.
func TestOlderMark(t *testing.T) {
	now := time.Now().UTC().Truncate(time.Millisecond)
	u := relay(t, 1)
	k := encodeKept(Kept{Mark: now.Add(-time.Hour), Items: []uint64{1}})
	for of, id := range map[bool]uint64{true: identity(k), false: identity(k) + 1} {
		for ago := range 4 {
			at := now.Add(-time.Duration(ago) * 30 * time.Minute)
			store := holding(t, map[string][]byte{
				saltKey: make([]byte, 16), keptPrefix + u.String(): k, marksKey: encodeMarks([]mark{{u, at, id}}),
			})
			l, err := New(store, Config{}).Load(t.Context())
			require.NoError(t, err)
			want := now.Add(-time.Hour)
			if of && ago < 2 {
				want = at
			}
			require.Equal(t, want, l.Kept[0].Mark)
		}
	}
}

// What is set aside on a disk for longer than anything is believed is so for as long as that.
func TestWhatIsSetAsideForTooLong(t *testing.T) {
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	for until, want := range map[time.Duration]time.Duration{
		720*time.Hour - 1: 720*time.Hour - 1, 720 * time.Hour: 720 * time.Hour, 720*time.Hour + 1: 720 * time.Hour,
	} {
		b, ok := encode([]relaylimits.Aside{{Tag: "e", Value: "x", Until: now.Add(until)}})
		require.True(t, ok)
		got, err := decodeSetAside(b, now)
		require.NoError(t, err)
		require.Equal(t, []relaylimits.Aside{{Tag: "e", Value: "x", Until: now.Add(want)}}, got)
	}
}

// unread is a store whose n-th record can't be read.
type unread struct {
	*state.Memory
	fail int
}

var errDisk = errors.New("input/output error")

func (s *unread) Each(ctx context.Context, prefix string) iter.Seq2[state.Record, error] {
	return func(yield func(state.Record, error) bool) {
		n := 0
		for r, err := range s.Memory.Each(ctx, prefix) {
			if n++; n == s.fail {
				yield(state.Record{}, errDisk)
				return
			}
			if !yield(r, err) {
				return
			}
		}
	}
}

// The records that were read before the store failed are used.
func TestStoreThatCannotBeRead(t *testing.T) {
	values := map[string][]byte{saltKey: make([]byte, 16)}
	for i := range 4 {
		values[chunkKey("x", i)] = []byte{byte(i)} //nolint:gosec // small
	}
	for n := 1; n <= 6; n++ {
		l, err := New(&unread{Memory: holding(t, values), fail: n}, Config{}).Load(t.Context())
		if n == 6 {
			require.NoError(t, err)
			require.Equal(t, map[string][][]byte{"x": {{0}, {1}, {2}, {3}}}, l.Chunks)
			break
		}
		require.ErrorIs(t, err, errDisk)
		require.ErrorContains(t, err, "loading records: ")
		require.Len(t, l.Chunks["x"], min(4, n-1))
		require.Len(t, l.Salt, SaltSize)
	}
}

// reports are what a Memory has said and counted.
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

// There is room for so many changes, chunks and values, and for no more.
func TestHowMuchThereIsRoomFor(t *testing.T) {
	var r reports
	cfg := Config{MaxQueue: 3, Dropped: r.drop}
	m := New(state.NewMemory(), cfg)
	u := relay(t, 1)
	m.Chunks("x", [][]byte{{1}, {2}})
	m.Facts(u, relaylimits.Facts{})
	m.Facts(u, relaylimits.Facts{}) // it has its place
	require.Empty(t, r.counts())
	m.Chunks("y", [][]byte{{1}})
	require.Equal(t, map[string]int{"memory_queue": 1}, r.counts())

	r.dropped = nil
	store := state.NewMemory()
	m, _, stop := running(t, store, Config{Dropped: r.drop})
	defer stop()
	chunks := make([][]byte, 10_002)
	for i := range chunks {
		chunks[i] = []byte{1}
	}
	require.NoError(t, m.SaveChunks(t.Context(), "x", chunks[:10_000]))
	require.Empty(t, r.counts())
	require.NoError(t, m.SaveChunks(t.Context(), "x", chunks))
	require.Equal(t, map[string]int{"memory_chunks": 2}, r.counts())
	require.NoError(t, m.Flush(t.Context()))
	require.Equal(t, 10_001, entries(t, store), "and the salt")

	for n, want := range map[int]int{0: 0, 1: 1, 1000: 1000, 1001: 1000} {
		m.SetAside(u, make([]relaylimits.Aside, n))
		require.NoError(t, m.Flush(t.Context()))
		b, err := store.Get(t.Context(), setAsidePrefix+u.String())
		require.Equal(t, n == 0, errors.Is(err, state.ErrNotFound))
		var values []relaylimits.Aside
		if n > 0 {
			require.NoError(t, json.Unmarshal(b, &values))
		}
		require.Len(t, values, want)
	}
}
