package pending_test

import (
	"fmt"
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
		Most: most, Waiting: waiting, WaitingBytes: 1 << 20, KeepFor: 7 * 24 * time.Hour,
	})
}

// A relay host that fills the index loses its own oldest ids and events.
func TestRelayHostsShare(t *testing.T) {
	r := index(30, 9)
	for i := range 3 {
		n := note(t, i, 1)
		n.Whole = true
		r.Add(n)
	}
	var dropped pending.Dropped
	for i := 100; i < 300; i++ {
		n := note(t, i, 2)
		n.Whole = true
		d := r.Add(n)
		dropped.Remembered += d.Remembered
		dropped.Waiting += d.Waiting
	}
	require.Equal(t, pending.Dropped{Remembered: 173, Waiting: 194}, dropped)
	for i := range 3 {
		s, known := r.Look(id(i))
		require.True(t, known && s.Whole != nil)
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
	keys := len(r.EventKeys(nostr.Filter{}))
	require.True(t, 10 < keys && keys <= 30, keys)
}

// Events that wait for dependencies leave the room for unsaved events, or a stranger who fills the
// index would make the batches fail that contain an event that cannot be saved.
func TestUnsavedEventsHaveRoomBesideOthers(t *testing.T) {
	r := index(100, 9)
	for i := range 20 {
		n := note(t, i, 1, graspsync.OnEvent(id(1000)))
		n.Whole = true
		r.Add(n)
	}
	for i := 100; i < 109; i++ {
		require.True(t, r.HasRoom(100), i)
		n := note(t, i, 2)
		n.Unsaved = true
		r.Add(n)
	}
	require.False(t, r.HasRoom(100), "all places are taken by unsaved events")
	r.Forget(id(108))
	require.True(t, r.HasRoom(1<<20-900))
	require.False(t, r.HasRoom(1<<20))
	for i := 100; i < 108; i++ {
		r.Forget(id(i))
	}
	require.True(t, r.HasRoom(1<<20))
}

// Each change of an exported value counts, or it would be lost by a restart, after which unsaved
// events are due. Export returns nothing if nothing has changed.
func TestExportFollowsEachChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, version := index(3, 0), uint64(0)
		dep := graspsync.OnEvent(id(1000))
		unsaved := note(t, 2, 1)
		unsaved.Unsaved = true
		for i, change := range []func(){
			func() {},
			func() { r.Add(note(t, 1, 1, dep)) },
			func() { r.Arrived(pending.KeysOf([]graspsync.Dependency{dep})) },
			func() { r.Add(unsaved) },
			func() { time.Sleep(time.Hour); r.Overdue(9, time.Now()) },
			func() { r.Forget(id(2)) },
			func() { r.Add(note(t, 1, 1, dep)) },
			func() { r.Anything() },
		} {
			change()
			chunks, next := r.Export(version)
			require.Len(t, chunks, 256, i)
			require.NotEqual(t, version, next, i)
			version = next
			restored := index(3, 0)
			_, err := restored.Restore(chunks)
			require.NoError(t, err)
			ask, _ := restored.Overdue(9, time.Now())
			require.Equal(t, i == 3 || i == 4, len(ask) == 1, i)
			r.InTurn(9, time.Now(), time.Time{})
			r.Overdue(9, time.Time{})
			chunks, next = r.Export(version)
			require.Empty(t, chunks, i)
			require.Equal(t, version, next, i)
		}
	})
}
