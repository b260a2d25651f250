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
			for !w.Done() {
				until := nostr.Timestamp(100)
				if f := w.Next(); f.Until != nil {
					until = *f.Until
					require.GreaterOrEqual(t, until, nostr.Timestamp(0), "relays refuse negative times")
				}
				for _, ev := range answer(w.Pages(), until) {
					w.Saw(ev.id, ev.at)
				}
				w.End(false, false)
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
	w.End(false, false)
	for range 1000 {
		require.True(t, w.Saw(next(), 100), "more than is remembered: new, but no progress")
	}
	w.End(false, false)
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
		for !w.Done() {
			f := w.Next()
			page, _, _ := r.answer(f)
			for _, ev := range page {
				if f.Until == nil || ev.at <= *f.Until {
					w.Saw(ev.id, ev.at)
					got[ev.id] = true
				}
			}
			w.End(false, false)
			require.Less(t, w.Pages(), 2000)
		}
		require.Zero(t, len(missed(r, got)), "lost with seed %d", seed)
	}
}
