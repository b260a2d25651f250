package sync

import (
	"context"
	"iter"
	"testing"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/eventtest"
	"github.com/graspsync/graspsync/nip34"
)

// shown is a Store that is told when all was read, and says whether that was all.
type shown struct {
	*twinStore
	read func()
	end  error
}

// Events implements [Store].
func (s *shown) Events(ctx context.Context, f nostr.Filter) iter.Seq2[graspsync.Event, error] {
	return func(yield func(graspsync.Event, error) bool) {
		for ev, err := range s.twinStore.Events(ctx, f) {
			if ev.Kind != graspsync.KindAnnouncement {
				continue // it was not read
			}
			if !yield(ev, err) {
				return
			}
		}
		s.read()
		if s.end != nil {
			yield(graspsync.Event{}, s.end)
		}
	}
}

// What the index panics over costs itself, where a scan keeps what it did not read as well.
func TestIndexPanicsOverWhatIsKept(t *testing.T) {
	for _, end := range []error{nil, ErrIncomplete} {
		store := &shown{twinStore: &twinStore{}, read: func() {}, end: end}
		x := newWholeIndex(store, listsByName, nip34.Identity{})
		var panics []string
		x.panicked = func(whose string, _ any) { panics = append(panics, whose) }
		for i := range 3 {
			for _, ev := range []*nostr.Event{
				testAnnouncement(i, i, "x", 1, "ours"), testEvent(100+i, 1621, 9, 1, tagRepo(testRepo(i, "x"))),
				testEvent(200+i, 1111, 9, 1, tagEvent(100+i)),
			} {
				require.True(t, store.save(ev))
				x.stored(eventtest.Of(ev))
			}
		}
		store.read = func() { // what breaks is half of what is kept
			if end == nil {
				x.pending.tables.descent.nodes = nil
				return
			}
			x.pending.tables.repos[testRepo(1, "x")] = nil
		}
		s, err := scanOf(t, x)
		require.NoError(t, err)
		require.NotNil(t, s)
		require.NotEmpty(t, panics)
		for _, whose := range panics {
			require.Equal(t, whoseIndex, whose)
		}
		if end != nil {
			require.NotNil(t, s.tables.roots.get(testID(100)))
			require.Nil(t, s.tables.roots.get(testID(101)))
			require.NotNil(t, s.tables.roots.get(testID(102)))
		}
	}
}

// A policy that panics has given no verdict: what is known of an announcement stays, whether it
// is ours or not, nothing is removed for it, and it is asked again.
func TestPanicOfListsIsNoVerdict(t *testing.T) {
	store, fails := &twinStore{}, false
	var panics []string
	x := newWholeIndex(store, func(a *nip34.Announcement) bool {
		if fails {
			panic("the database is gone")
		}
		return listsByName(a)
	}, nip34.Identity{})
	x.panicked = func(whose string, _ any) { panics = append(panics, whose) }
	scan := func() indexChange {
		t.Helper()
		s, err := scanOf(t, x)
		require.NoError(t, err)
		c, ok := x.replaceAll(s)
		require.True(t, ok)
		return c
	}
	store.save(testAnnouncement(1, 1, "x", 1, "ours"))
	store.save(testAnnouncement(2, 2, "x", 1, "foreign"))
	require.False(t, scan().broken)
	require.True(t, x.complete)
	ours, foreign := testRepo(1, "x"), testRepo(2, "x")
	was := x.announcement(ours)
	require.NotNil(t, was)

	fails = true
	for _, ev := range []*nostr.Event{testAnnouncement(11, 1, "x", 2, "ours"), testAnnouncement(13, 3, "x", 2, "ours")} {
		store.save(ev)
		c := x.stored(eventtest.Of(ev))
		require.True(t, c.broken, "it is asked again soon")
		require.Empty(t, c.repos)
	}
	require.Same(t, was, x.announcement(ours))
	for range 2 {
		c := scan()
		require.True(t, c.broken)
		require.Empty(t, c.repos)
		require.Same(t, was, x.announcement(ours))
		require.True(t, x.Left(foreign))
		require.False(t, x.Left(testRepo(3, "x")), "nobody knows what it is")
		require.False(t, x.complete, "nothing is removed before it is known")
	}
	require.Len(t, panics, 2+2*3)
	for _, whose := range panics {
		require.Equal(t, "policy", whose)
	}

	fails = false
	require.False(t, scan().broken)
	require.True(t, x.complete)
	require.Equal(t, testID(11), x.announcement(ours).ID)
	require.NotNil(t, x.announcement(testRepo(3, "x")))
	require.True(t, x.Left(foreign))

	fails = true
	x.stored(eventtest.Of(testEvent(20, graspsync.KindDeletion, 1, 5, nostr.Tag{"a", ours.String()})))
	x.stored(eventtest.Of(testAnnouncement(21, 1, "x", 4, "ours")))
	require.Nil(t, x.announcement(ours), "what is deleted does not come back")
}
