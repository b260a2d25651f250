package memory

import (
	"bytes"
	"encoding/json"
	"fmt"
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

// Truncated marks are detected at any length.
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

// fate is the treatment of a stored value.
type fate int

const (
	used    fate = iota
	left         // kept, because a later version may have written it
	gone         // removed as obsolete
	dropped      // removed, counted and logged as invalid
)

// Every stored value is used, left alone or removed. Invalid values are counted and logged.
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
			err   error // with dropped; nil: any error
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
			for _, part := range []string{"level=WARN", "stored value dropped", "key=" + c.key, "error="} {
				require.Contains(t, r.log(), part, name)
			}
			if c.err != nil {
				require.Contains(t, r.log(), c.err.Error(), name)
			}
		}
	})
}

// holding returns a store with these records.
func holding(t *testing.T, values map[string][]byte) *state.Memory {
	t.Helper()
	store := state.NewMemory()
	for key, value := range values {
		err := store.Put(t.Context(), state.Record{Key: key, Value: value})
		require.NoError(t, err)
	}
	return store
}

// reports are the log and the counts of a Memory.
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
