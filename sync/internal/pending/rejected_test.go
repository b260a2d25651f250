package pending_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/eventtest"
	"github.com/graspsync/graspsync/sync/internal/pending"
)

func id(n int) graspsync.EventID { return graspsync.EventID{0: byte(n >> 8), 1: byte(n), 2: 1} }

func relay(t *testing.T, n int) graspsync.RelayURL {
	u, err := graspsync.ParseRelayURL(fmt.Sprintf("wss://r%d.example", n))
	require.NoError(t, err)
	return u
}

// note returns a Note for an event of a relay.
func note(t *testing.T, n, from int, deps ...graspsync.Dependency) pending.Note {
	ev := eventtest.Of(&nostr.Event{ID: id(n).String(), Kind: graspsync.KindState, CreatedAt: nostr.Timestamp(n)})
	return pending.Note{
		Incoming: graspsync.Incoming{Event: ev, Source: graspsync.Source{Kind: graspsync.Live, Relay: relay(t, from)}},
		ID:       id(n), Size: 100, Deps: pending.KeysOf(deps),
	}
}

func index(most, waiting int) *pending.RejectedIndex {
	return pending.NewRejectedIndex(pending.Config{
		Most: most, Waiting: waiting, WaitingBytes: 1 << 20, KeepFor: 7 * 24 * time.Hour, WholeFor: 2 * time.Minute,
	})
}

// A relay host that fills the index loses its own oldest ids and events.
func TestRelayHostsShare(t *testing.T) {
	r := index(30, 9)
	for i := range 3 {
		n := note(t, i, 1)
		n.Waits = true
		r.Add(n)
	}
	var dropped pending.Dropped
	for i := 100; i < 300; i++ {
		n := note(t, i, 2)
		n.Waits = true
		d := r.Add(n)
		dropped.Remembered += d.Remembered
		dropped.Waiting += d.Waiting
	}
	require.Equal(t, pending.Dropped{Remembered: 173, Waiting: 194}, dropped)
	for i := range 3 {
		s, known := r.Look(id(i))
		require.True(t, known && s.Waits)
	}
	require.False(t, r.Has(id(272)))
	require.True(t, r.Has(id(273)))
	for i := 400; i < 500; i++ { // dependencies count as well
		n := note(t, i, 3)
		for k := range 100 {
			n.Deps = append(n.Deps, pending.Key(1000*i+k))
		}
		r.Add(n)
	}
	require.True(t, r.Has(id(0)))
	for i := range 3 {
		r.Forget(id(i))
	}
	require.LessOrEqual(t, r.Len(), 30)
}

// An event without room is judged again in turn. If only the id is left, it is requested after an
// hour.
func TestWithoutRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := index(100, 2)
		for i := range 3 {
			n := note(t, i, 1)
			n.Later = true
			r.Add(n)
			time.Sleep(time.Second)
		}
		require.Equal(t, pending.Held{Later: 2}, r.Held())
		time.Sleep(time.Minute)
		turn, _ := r.InTurn(1, time.Now(), time.Time{}, time.Time{})
		require.Equal(t, id(1), turn[0].ID)
		time.Sleep(time.Second)
		turn, next := r.InTurn(2, time.Now(), time.Time{}, time.Time{})
		require.Equal(t, id(2), turn[0].ID)
		require.Len(t, turn, 1)
		require.Equal(t, time.Now().Add(59*time.Second), next)
		turn, _ = r.InTurn(2, time.Now(), time.Now().Add(-time.Second/2), time.Time{})
		require.Equal(t, id(1), turn[0].ID, "there may be room")
		ask, _, any := r.Overdue(10)
		require.True(t, any)
		require.Empty(t, ask)
		time.Sleep(2 * time.Hour)
		require.False(t, r.Has(id(0)))
		ask, _, _ = r.Overdue(10)
		require.Equal(t, map[graspsync.RelayURL][]graspsync.EventID{relay(t, 1): {id(0)}}, ask)
		ask, _, _ = r.Overdue(10)
		require.Empty(t, ask)
	})
}

// Ids survive a restart with all their data. A damaged chunk is skipped.
func TestRestart(t *testing.T) {
	r := index(1_000, 10)
	on := graspsync.OnEvent(id(999))
	for i := range 500 {
		n := note(t, i, i%3, on, graspsync.OnEvent(id(600+i)))
		n.Accepted, n.Later = i%2 == 0, i == 7
		r.Add(n)
	}
	r.Want(note(t, 8, 2))
	n := note(t, 9, 2)
	n.Unsaved, n.Due = true, time.Now()
	r.Add(n)
	before := r.Export()
	r.Add(note(t, 500, 1))
	changed := 0
	for i, c := range r.Export() {
		if !slices.Equal(c, before[i]) {
			changed++
		}
	}
	require.Equal(t, 1, changed, "chunks that are written for one id")
	next := index(1_000, 10)
	d, err := next.Restore(r.Export())
	require.NoError(t, err)
	require.Zero(t, d)
	for i := range 501 {
		a, _ := r.Look(id(i))
		b, known := next.Look(id(i))
		require.True(t, known)
		a.Whole, a.Later = nil, false
		if i == 7 || i == 9 {
			a.Seen, b.Seen = time.Time{}, time.Time{} // it is due now
		}
		require.Equal(t, a, b)
		require.Equal(t, r.Dependencies(id(i)), next.Dependencies(id(i)))
	}
	require.Equal(t, map[graspsync.RelayURL][]graspsync.EventID{relay(t, 2): {id(8)}}, next.Wanted())

	chunk := slices.MaxFunc(before, func(a, b []byte) int { return len(a) - len(b) })
	for n := range chunk {
		some := index(1_000, 10)
		_, err := some.Restore([][]byte{chunk[:n], nil, {1, 2}})
		require.Error(t, err, "the last one")
		flipped := slices.Clone(chunk)
		flipped[n] ^= 0xff
		_, _ = some.Restore([][]byte{flipped})
	}
}
