package nostrlib_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fiatjaf.com/nostr"
	"fiatjaf.com/nostr/eventstore"
	"fiatjaf.com/nostr/eventstore/boltdb"
	"fiatjaf.com/nostr/eventstore/slicestore"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	eventstoreadapter "github.com/graspsync/graspsync/adapter/eventstore"
	"github.com/graspsync/graspsync/adapter/nostrlib"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/storetest"
)

func newSlice(t testing.TB) *slicestore.SliceStore {
	t.Helper()
	db := &slicestore.SliceStore{}
	require.NoError(t, db.Init())
	return db
}

func newBolt(t testing.TB) *boltdb.BoltBackend {
	t.Helper()
	db := &boltdb.BoltBackend{Path: filepath.Join(t.TempDir(), "events")}
	require.NoError(t, db.Init())
	db.DB.NoSync = true // tests need no durability
	t.Cleanup(db.Close)
	return db
}

func newStore(t testing.TB, db eventstore.Store, cfg nostrlib.Config) *nostrlib.Store {
	t.Helper()
	s, err := nostrlib.NewStore(db, cfg)
	require.NoError(t, err)
	return s
}

func TestSuiteSlicestore(t *testing.T) {
	storetest.Run(t, func(t *testing.T) relaysync.Store { return newStore(t, newSlice(t), nostrlib.Config{}) })
}

func TestSuiteBoltdb(t *testing.T) {
	storetest.Run(t, func(t *testing.T) relaysync.Store { return newStore(t, newBolt(t), nostrlib.Config{}) })
}

func TestDurableBoltdb(t *testing.T) {
	storetest.RunDurable(t, func(t *testing.T, folder string) (relaysync.Store, func()) {
		t.Helper()
		db := &boltdb.BoltBackend{Path: filepath.Join(folder, "events")}
		require.NoError(t, db.Init())
		return newStore(t, db, nostrlib.Config{}), db.Close
	})
}

// wrapped is a type that embeds a backend, for example to count or log.
type wrapped struct{ eventstore.Store }

// A struct that embeds a supported backend is accepted, any other backend is refused.
func TestForeignBackend(t *testing.T) {
	require.Equal(t, 1000, newStore(t, wrapped{newBolt(t)}, nostrlib.Config{}).PageSize())
	_, err := nostrlib.NewStore(wrapped{}, nostrlib.Config{})
	require.ErrorIs(t, err, eventstoreadapter.ErrUnsupported)
	require.ErrorContains(t, err, "boltdb, lmdb or slicestore")
}

const start = 1_700_000_000

func event(kind nostr.Kind, at nostr.Timestamp, content string, tags ...nostr.Tag) nostr.Event {
	e := nostr.Event{PubKey: nostr.PubKey{0xa1}, Kind: kind, CreatedAt: at, Tags: append(nostr.Tags{}, tags...), Content: content}
	e.SetID()
	return e
}

func save(t testing.TB, s *nostrlib.Store, e nostr.Event) graspsync.Outcome {
	t.Helper()
	ours, err := nostrlib.FromEvent(e)
	require.NoError(t, err)
	outcomes, err := s.Save(t.Context(), []graspsync.Incoming{{Event: ours}})
	require.NoError(t, err)
	return outcomes[0]
}

// The binary encoding of boltdb loses an event without an error if its tags exceed 64 KiB and a
// long tag is at a certain position.
func TestEventsThatDoNotFit(t *testing.T) {
	long := strings.Repeat("x", 60_000)
	many := make([]nostr.Tag, 2000) // like a state with many refs
	for i := range many {
		many[i] = nostr.Tag{fmt.Sprintf("refs/heads/branch-%d", i), strings.Repeat("a1", 20)}
	}
	for name, c := range map[string]struct {
		event nostr.Event
		fits  bool
	}{
		"many refs":     {event(30618, start, "", many...), true},
		"one long tag":  {event(1, start, "a", nostr.Tag{"t", long, long}), false},
		"the last ones": {event(1, start, "b", nostr.Tag{"t", long}, nostr.Tag{"t", long}), false},
		"long content":  {event(1, start, strings.Repeat("x", 65_536)), false},
		"many values":   {event(1, start, "c", slices.Repeat(nostr.Tag{"t"}, 256)), false},
		"the largest":   {event(1, start, strings.Repeat("x", 65_535), slices.Repeat(nostr.Tag{"t"}, 255)), true},
	} {
		s := newStore(t, newBolt(t), nostrlib.Config{})
		o := save(t, s, c.event)
		if !c.fits {
			require.Equal(t, graspsync.Refused, o.Result, name)
			continue
		}
		require.Equal(t, graspsync.Stored, o.Result, "%s: %v", name, o.Err)
		got, err := s.Query(t.Context(), nostr.Filter{IDs: []nostr.ID{c.event.ID}}, 10)
		require.NoError(t, err)
		require.Equal(t, []nostr.Event{c.event}, got, name)
	}
}

// A query on slicestore includes events at since, and no events that match only in part.
func TestQuery(t *testing.T) {
	for name, db := range map[string]eventstore.Store{"slicestore": newSlice(t), "boltdb": newBolt(t)} {
		s := newStore(t, db, nostrlib.Config{})
		id := strings.Repeat("a1", 32)
		early, late := event(1, start, "early", nostr.Tag{"e", id}), event(1, start+1, "late", nostr.Tag{"e", id[:63] + "2"})
		for _, e := range []nostr.Event{early, late} {
			require.Equal(t, graspsync.Stored, save(t, s, e).Result)
		}
		ask := func(f nostr.Filter, most int, want ...nostr.Event) {
			t.Helper()
			got, err := s.Query(t.Context(), f, most)
			require.NoError(t, err, name)
			require.ElementsMatch(t, want, got, name)
		}
		ask(nostr.Filter{Since: start}, 10, late, early)
		ask(nostr.Filter{Since: start + 1}, 10, late)
		ask(nostr.Filter{Until: start}, 10, early)
		ask(nostr.Filter{}, 1, late)
		ask(nostr.Filter{Limit: 1}, 10, late)
		ask(nostr.Filter{Limit: 10}, 1, late)
		ask(nostr.Filter{LimitZero: true}, 10)
		ask(nostr.Filter{Tags: nostr.TagMap{"e": {id}}}, 10, early)
		ask(nostr.Filter{Tags: nostr.TagMap{"": {id}}}, 10)
		ask(nostr.Filter{Kinds: []nostr.Kind{}}, 10)
		ask(nostr.Filter{IDs: []nostr.ID{{1}}}, 10) // boltdb counts all events for this filter
		all, err := s.Reconciled(t.Context(), nostr.Filter{Limit: 1})
		require.NoError(t, err)
		require.ElementsMatch(t, []graspsync.EventKey{
			{CreatedAt: start, ID: graspsync.EventID(early.ID)}, {CreatedAt: start + 1, ID: graspsync.EventID(late.ID)},
		}, all, name)
	}
}

// Backends do not return errors of queries.
func TestClosedBackend(t *testing.T) {
	db := newBolt(t)
	s := newStore(t, db, nostrlib.Config{})
	e := event(1, start, "x")
	save(t, s, e)
	db.Close()
	for _, f := range []nostr.Filter{{}, {IDs: []nostr.ID{e.ID}}, {Kinds: []nostr.Kind{1}}} {
		_, err := s.Query(t.Context(), f, 10)
		require.ErrorIs(t, err, eventstoreadapter.ErrBackend)
	}
	_, err := s.Has(t.Context(), []graspsync.EventID{graspsync.EventID(e.ID)})
	require.ErrorIs(t, err, eventstoreadapter.ErrBackend)
	require.NoError(t, s.Close())
	_, err = s.Query(t.Context(), nostr.Filter{}, 10)
	require.ErrorIs(t, err, eventstoreadapter.ErrClosed)
	_, err = nostrlib.NewStore(nil, nostrlib.Config{})
	require.Error(t, err)
	_, err = nostrlib.NewStore((*boltdb.BoltBackend)(nil), nostrlib.Config{})
	require.Error(t, err)
}

// The additional kind in queries, which lifts a limit, made another author's events of that kind
// hide profiles.
func TestKindOfNoneHidesNothing(t *testing.T) {
	for name, db := range map[string]eventstore.Store{"slicestore": newSlice(t), "boltdb": newBolt(t)} {
		s := newStore(t, db, nostrlib.Config{})
		profile := event(0, start, "profile")
		require.NoError(t, db.SaveEvent(profile))
		other := nostr.PubKey{0xb0}
		for i := range 30 {
			e := nostr.Event{PubKey: other, Kind: 65535, CreatedAt: start + 1, Tags: nostr.Tags{}, Content: fmt.Sprint(i)}
			e.SetID()
			require.NoError(t, db.SaveEvent(e))
		}
		got, err := s.Query(t.Context(), nostr.Filter{Kinds: []nostr.Kind{0}, Authors: []nostr.PubKey{profile.PubKey, other}}, 10)
		require.NoError(t, err)
		require.Equal(t, []nostr.Event{profile}, got, name)
	}
}

// A client never receives more events than it asks for or the relay allows.
func TestQueryHasNoMoreThanItsLimit(t *testing.T) {
	for name, db := range map[string]eventstore.Store{"slicestore": newSlice(t), "boltdb": newBolt(t)} {
		s := newStore(t, db, nostrlib.Config{})
		var ids []nostr.ID
		for i := range 50 {
			e := event(1, nostr.Timestamp(start-i), "")
			require.NoError(t, db.SaveEvent(e))
			ids = append(ids, e.ID)
		}
		for _, c := range []struct{ limit, most, want int }{{1, 10, 1}, {0, 10, 10}, {20, 10, 10}, {0, 500, 50}} {
			got, err := s.Query(t.Context(), nostr.Filter{IDs: ids, Limit: c.limit}, c.most)
			require.NoError(t, err)
			require.Len(t, got, c.want, name)
			require.Equal(t, ids[0], got[0].ID, "%s: the newest", name)
		}
	}
}
