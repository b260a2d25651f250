package filters_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/filters"
)

// Elsewhere paging stopped at a page that looked short, because only events that
// were new and wanted had been counted.
func TestTrapH1_CountedAtTheWire(t *testing.T) {
	r := newModel(10, seconds(1, 100)...)
	wanted := func(ev stamp) bool { return ev.at%7 == 0 }
	w := filters.NewWalk(nostr.Filter{}, filters.WalkStart{})
	kept := 0
	for !w.Done() {
		page, complete, more := r.answer(w.Next())
		for _, ev := range page {
			// The walk is told of each, whatever becomes of it afterwards.
			if w.Saw(ev.id, ev.at) && wanted(ev) {
				kept++
			}
		}
		w.End(complete, more)
	}
	assert.Equal(t, 14, kept)
	assert.Equal(t, 10, w.PageSize(), "the size of the relay's page, not of what was kept")

	// A second walk finds events that are all known to the caller, and goes to
	// its end all the same.
	again := filters.NewWalk(nostr.Filter{}, filters.WalkStart{PageSize: w.PageSize()})
	assert.Empty(t, missed(r, run(t, r, again)))
	assert.Equal(t, w.Pages(), again.Pages())
}

// Elsewhere until was taken to be exclusive (oldest - 1): what the page had cut
// off in its last second was lost.
func TestTrapH5_BoundarySecondIsNotLost(t *testing.T) {
	r := newModel(4, 9, 8, 7, 6, 6, 6, 5) // the first page ends in the middle of 6
	w := filters.NewWalk(nostr.Filter{}, filters.WalkStart{})
	assert.Empty(t, missed(r, run(t, r, w)))
	assert.Empty(t, w.Gaps())
}

// Elsewhere until was inclusive, and more events in one second than a page holds
// were asked for again and again.
func TestTrapH5_FullSecondDoesNotLoop(t *testing.T) {
	for _, size := range []int{20, 100, 500} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			times := slices.Repeat([]nostr.Timestamp{1000}, 5000)
			r := newModel(size, append(times, append(seconds(1, 30), 2000)...)...)
			w := filters.NewWalk(nostr.Filter{}, filters.WalkStart{})
			got := run(t, r, w)
			assert.Equal(t, []nostr.Timestamp{1000}, w.Gaps(), "what can't be had is said")
			for _, ev := range missed(r, got) {
				require.EqualValues(t, 1000, ev.at, "nothing else is lost")
			}
			assert.LessOrEqual(t, w.Pages(), 4+(30+size)/(size-1)+2)
		})
	}
}

// Elsewhere "75 events mean there is more" was built in, above the relay's own
// limit, so paging never began.
func TestTrapH5_NoFixedThreshold(t *testing.T) {
	for _, size := range []int{1, 2, 3, 74, 75, 76, 499, 500, 501, 1000} {
		r := newModel(size, seconds(1, 1200)...)
		w := filters.NewWalk(nostr.Filter{}, filters.WalkStart{})
		assert.Empty(t, missed(r, run(t, r, w)), "cap %d", size)
	}
}

func TestWalkFinishHintEndsAtOnce(t *testing.T) {
	r := newModel(10, seconds(1, 5)...)
	r.nip67 = true
	w := filters.NewWalk(nostr.Filter{}, filters.WalkStart{})
	assert.Empty(t, missed(r, run(t, r, w)))
	assert.Equal(t, 1, w.Pages())
	assert.True(t, w.Complete())
	assert.False(t, w.Saw(graspsync.EventID{1}, 3), "after the end nothing is new")
}

func TestWalkRepeatsABrokenPage(t *testing.T) {
	r := newModel(4, seconds(11, 20)...)
	w := filters.NewWalk(nostr.Filter{}, filters.WalkStart{})
	page, _, _ := r.answer(w.Next())
	for _, ev := range page {
		w.Saw(ev.id, ev.at)
	}
	assert.Zero(t, w.Until(), "a page counts when it has ended")
	w.End(false, false)
	assert.EqualValues(t, 17, w.Until())

	first := w.Next()
	page, _, _ = r.answer(first)
	for _, ev := range page[:3] { // then the connection is lost
		w.Saw(ev.id, ev.at)
	}
	assert.EqualValues(t, 17, w.Until())
	assert.Equal(t, 4, w.PageSize())
	second := w.Next()
	assert.Equal(t, first, second)
	for _, ev := range page {
		w.Saw(ev.id, ev.at)
	}
	w.End(false, false)
	assert.Equal(t, 4, w.PageSize(), "the part that came twice is not one large page")
	assert.EqualValues(t, 14, w.Until())

	// Another walk, after a restart, goes on from the cursor.
	resumed := filters.NewWalk(nostr.Filter{}, filters.WalkStart{Until: w.Until(), PageSize: w.PageSize()})
	got := run(t, r, resumed)
	for _, ev := range missed(r, got) {
		assert.Greater(t, ev.at, nostr.Timestamp(14))
	}
}
