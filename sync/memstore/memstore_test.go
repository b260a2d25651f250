package memstore_test

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/eventtest"
	"github.com/graspsync/graspsync/nip34"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/memstore"
	"github.com/graspsync/graspsync/sync/storetest"
)

const start nostr.Timestamp = 1_700_000_000

var alice = strings.Repeat("a1", 32)

var serial int

func event(kind int, at nostr.Timestamp, tags ...nostr.Tag) *nostr.Event {
	serial++
	e := &nostr.Event{PubKey: alice, Kind: kind, CreatedAt: at, Tags: tags, Content: fmt.Sprint(serial)}
	e.ID = e.GetID()
	return e
}

func save(t testing.TB, s *memstore.Store, events ...*nostr.Event) []graspsync.Outcome {
	t.Helper()
	in := make([]graspsync.Incoming, len(events))
	for i, e := range events {
		in[i] = graspsync.Incoming{Event: eventtest.Of(e)}
	}
	outcomes, err := s.Save(t.Context(), in)
	require.NoError(t, err)
	return outcomes
}

func idOf(t testing.TB, e *nostr.Event) graspsync.EventID {
	t.Helper()
	id, err := graspsync.ParseEventID(e.ID)
	require.NoError(t, err)
	return id
}

func TestSuite(t *testing.T) {
	identity, err := nip34.ParseIdentity("grasp.example")
	require.NoError(t, err)
	storetest.RunAs(t, identity, func(*testing.T) relaysync.Store { return memstore.New(memstore.WithIdentity(identity)) })
}

// D4: an identifier was cut at its first colon, and a deletion of its address removed another
// repository.
func TestTrapD4_ColonsInIdentifiers(t *testing.T) {
	s := memstore.New()
	short, long := event(30617, start, nostr.Tag{"d", "a"}), event(30617, start, nostr.Tag{"d", "a:b:c"})
	save(t, s, short, long, event(5, start, nostr.Tag{"a", "30617:" + alice + ":a:b:c"}))
	has, err := s.Has(t.Context(), []graspsync.EventID{idOf(t, short), idOf(t, long)})
	require.NoError(t, err)
	assert.Equal(t, []bool{true, false}, has)
}

// H9: an older version was counted as stored and broadcast.
func TestTrapH9_OlderVersionIsSuperseded(t *testing.T) {
	s := memstore.New()
	d := nostr.Tag{"d", "repo"}
	outcomes := save(t, s, event(30617, start+1, d), event(30617, start, d))
	assert.Equal(t, graspsync.Stored, outcomes[0].Result)
	assert.Equal(t, graspsync.Superseded, outcomes[1].Result)
}

// Only the service that it names executes a request to vanish. After its removal it covers nothing.
func TestVanishNamesUs(t *testing.T) {
	us, err := nip34.ParseIdentity("grasp.example")
	require.NoError(t, err)
	note := &nostr.Event{ID: strings.Repeat("1", 64), PubKey: alice, Kind: 1, CreatedAt: start}
	request := &nostr.Event{
		ID: strings.Repeat("2", 64), PubKey: alice, Kind: graspsync.KindVanish, CreatedAt: start,
		Tags: nostr.Tags{{"relay", "wss://GRASP.example/"}},
	}
	for _, s := range []*memstore.Store{memstore.New(memstore.WithIdentity(us)), memstore.New()} {
		want := graspsync.Deleted
		if _, err := s.Save(t.Context(), []graspsync.Incoming{{Event: eventtest.Of(note)}, {Event: eventtest.Of(request)}}); err != nil || s.Len() == 2 {
			want = graspsync.Duplicate
		}
		got, err := s.Save(t.Context(), []graspsync.Incoming{{Event: eventtest.Of(note)}})
		require.NoError(t, err)
		require.Equal(t, want, got[0].Result)
		require.Equal(t, want == graspsync.Deleted, s.Len() == 1)
		require.NoError(t, s.Remove(t.Context(), eventtest.Of(request)))
		covered, err := s.Deleted(t.Context(), eventtest.Of(note))
		require.NoError(t, err)
		require.False(t, covered)
	}
}

// A client may repeat a value many times. Each repetition cost a list of events.
func TestRepeatedValuesCostLittle(t *testing.T) {
	s := memstore.New()
	for range 1_000 {
		save(t, s, event(1, start))
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for _, err := range s.Keys(t.Context(), nostr.Filter{Kinds: slices.Repeat([]int{1}, 5_000)}) {
		require.NoError(t, err)
	}
	runtime.ReadMemStats(&after)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(5<<20))
}
