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
			require.Contains(t, s.tables.roots, testID(100))
			require.NotContains(t, s.tables.roots, testID(101))
			require.Contains(t, s.tables.roots, testID(102))
		}
	}
}
