package filters_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/filters"
)

// A relay that ignores until gives its newest page for ever. That must end, and
// must not pass for a complete answer.
func TestWalkRelayThatIgnoresUntil(t *testing.T) {
	r := newModel(10, seconds(1, 100)...)
	newest := slices.Clone(r.events[:10])
	r.before = func([]stamp) []stamp { return newest }
	w := filters.NewWalk(nostr.Filter{}, filters.WalkStart{})
	run(t, r, w)
	assert.LessOrEqual(t, w.Pages(), 3)
	assert.Equal(t, []nostr.Timestamp{91}, w.Gaps())
	assert.False(t, w.Complete())

	resumed := filters.NewWalk(nostr.Filter{}, filters.WalkStart{Until: 50})
	run(t, r, resumed)
	assert.Equal(t, []nostr.Timestamp{50}, resumed.Gaps())
}

// A relay that ignores limits and caps is paged through, too.
func TestWalkRelayThatIgnoresLimit(t *testing.T) {
	for _, limit := range []int{1, 7, 99, 100, 101, 250} {
		r := newModel(1000, seconds(1, 200)...)
		all := r.events
		w := filters.NewWalk(nostr.Filter{}, filters.WalkStart{Limit: limit})
		got := map[graspsync.EventID]bool{}
		for step := filters.StepMore; step == filters.StepMore; {
			f := w.Next()
			for _, ev := range all {
				if f.Until == nil || ev.at <= *f.Until {
					w.Saw(ev.id, ev.at)
					got[ev.id] = true
				}
			}
			step = w.End(false, false)
			require.LessOrEqual(t, w.Pages(), 200)
		}
		assert.Empty(t, missed(r, got), "limit %d", limit)
	}
}

// The same id for ever, at whatever time: the walk ends.
func TestWalkHostileRelay(t *testing.T) {
	for name, answer := range map[string]func(page int, until nostr.Timestamp) []stamp{
		"one event for ever": func(int, nostr.Timestamp) []stamp { return []stamp{{50, graspsync.EventID{1}}} },
		"the same second":    func(_ int, until nostr.Timestamp) []stamp { return []stamp{{until, graspsync.EventID{1}}} },
		"from the future":    func(int, nostr.Timestamp) []stamp { return []stamp{{math.MaxInt64, graspsync.EventID{1}}} },
		"before 1970": func(int, nostr.Timestamp) []stamp {
			return []stamp{{-1, graspsync.EventID{1}}, {math.MinInt64, graspsync.EventID{2}}}
		},
		"up and down": func(page int, until nostr.Timestamp) []stamp {
			return []stamp{{until, graspsync.EventID{1}}, {until - 1, graspsync.EventID{2}}, {until, graspsync.EventID{3}}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := filters.NewWalk(nostr.Filter{Until: ts(100)}, filters.WalkStart{})
			if name == "from the future" {
				w = filters.NewWalk(nostr.Filter{}, filters.WalkStart{})
			}
			for step := filters.StepMore; step == filters.StepMore; {
				until := nostr.Timestamp(100)
				if f := w.Next(); f.Until != nil {
					until = *f.Until
					require.GreaterOrEqual(t, until, nostr.Timestamp(0), "relays refuse negative times")
				}
				for _, ev := range answer(w.Pages(), until) {
					w.Saw(ev.id, ev.at)
				}
				step = w.End(false, false)
				require.LessOrEqual(t, w.Pages(), 400)
			}
		})
	}
}

// A second without end: memory is bounded, the second is a gap, and the walk goes
// on.
func TestWalkBoundsMemoryOfASecond(t *testing.T) {
	w := filters.NewWalk(nostr.Filter{Until: ts(100)}, filters.WalkStart{})
	var id graspsync.EventID
	next := func() graspsync.EventID {
		for i := range id {
			if id[i]++; id[i] != 0 {
				break
			}
		}
		return id
	}
	for range 1 << 16 {
		require.True(t, w.Saw(next(), 100))
	}
	require.Equal(t, filters.StepMore, w.End(false, false))
	for range 1000 {
		require.True(t, w.Saw(next(), 100), "more than is remembered: new, but no progress")
	}
	assert.Equal(t, filters.StepMore, w.End(false, false))
	assert.EqualValues(t, 99, w.Until())
	assert.Equal(t, []nostr.Timestamp{100}, w.Gaps())
}

// Some relays send an event that is published while a page is under way on the
// same subscription, before EOSE and however old it is. If the oldest event
// counted, everything between it and the real end of the page would be lost.
func TestWalkEventsThatComeInBetween(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 8))
		r := newModel(1000, seconds(1000, 1000+nostr.Timestamp(rng.IntN(300)))...)
		if seed%2 == 0 { // a cap of its own: then only what comes last is mistaken
			r.cap = 20
		}
		strays := 0
		r.before = func(page []stamp) []stamp {
			for range rng.IntN(4) {
				at := nostr.Timestamp(rng.IntN(1000)) // older than all that is stored
				where := rng.IntN(len(page) + 1)
				if r.cap < 50 && where == len(page) {
					continue
				}
				page = slices.Insert(page, where, stamp{at, number32[graspsync.EventID](-1 - strays)})
				strays++
			}
			return page
		}
		w := filters.NewWalk(nostr.Filter{}, filters.WalkStart{Limit: 50})
		got := map[graspsync.EventID]bool{}
		for step := filters.StepMore; step == filters.StepMore; {
			f := w.Next()
			page, _, _ := r.answer(f)
			for _, ev := range page {
				if f.Until == nil || ev.at <= *f.Until {
					w.Saw(ev.id, ev.at)
					got[ev.id] = true
				}
			}
			step = w.End(false, false)
			require.Less(t, w.Pages(), 2000)
		}
		require.Zero(t, len(missed(r, got)), "lost with seed %d", seed)
	}
}

// A page size learned from other filters is too large for this one. The full
// second shows all the same, by what is below it.
func TestWalkPageSizeOfOtherFilters(t *testing.T) {
	times := slices.Repeat([]nostr.Timestamp{100}, 30)
	r := newModel(20, append(times, 50)...)
	w := filters.NewWalk(nostr.Filter{}, filters.WalkStart{PageSize: 500})
	got := run(t, r, w)
	assert.Len(t, missed(r, got), 10)
	assert.Equal(t, []nostr.Timestamp{100}, w.Gaps())
	assert.Equal(t, 500, w.PageSize())

	// A small second with nothing below it is not in doubt.
	r = newModel(20, 100, 100)
	w = filters.NewWalk(nostr.Filter{}, filters.WalkStart{PageSize: 500})
	run(t, r, w)
	assert.True(t, w.Complete())
}

// What comes in between is no part of the page: if it were, later pages would look
// smaller than this one, and a second that was cut would pass for complete.
func TestWalkPageSizeWithoutEventsInBetween(t *testing.T) {
	r := newModel(5, 30, 29, 28, 27, 26, 20, 20, 20, 20, 20, 20)
	w := filters.NewWalk(nostr.Filter{}, filters.WalkStart{})
	page, _, _ := r.answer(w.Next())
	for _, ev := range slices.Insert(page, 2, stamp{3, graspsync.EventID{1}}) {
		w.Saw(ev.id, ev.at)
	}
	require.Equal(t, filters.StepMore, w.End(false, false))
	assert.Equal(t, 5, w.PageSize())
	assert.EqualValues(t, 26, w.Until())
	run(t, r, w)
	assert.Equal(t, []nostr.Timestamp{20}, w.Gaps())
}

// The relay would give more, but was not asked for more.
func TestWalkSecondLargerThanTheLimit(t *testing.T) {
	r := newModel(1000, slices.Repeat([]nostr.Timestamp{100}, 30)...)
	w := filters.NewWalk(nostr.Filter{}, filters.WalkStart{Limit: 20, PageSize: 1000})
	assert.Len(t, missed(r, run(t, r, w)), 10)
	assert.Equal(t, []nostr.Timestamp{100}, w.Gaps())
}
