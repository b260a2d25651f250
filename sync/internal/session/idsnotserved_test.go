package session

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/sync/internal/plan"
	"github.com/graspsync/graspsync/sync/internal/relaylimits"
	"github.com/graspsync/graspsync/sync/wire"
)

// idsAtMost makes a relay return nothing for requests of more than n ids.
func (w *world) idsAtMost(most int) {
	w.refuse = func(r wire.Request) bool {
		if r.Type != wire.TypeReq || len(r.Filters[0].IDs) <= most {
			return false
		}
		w.say(eose(r.Sub))
		return true
	}
}

// If a relay returns nothing for too many ids, a few are tried until events arrive, and the others
// follow in requests of that size.
func TestFewIDsAreTried(t *testing.T) {
	for _, n := range []int{6, 20, 101, 135, 260, 610, 3_010} {
		for _, most := range []int{5, 7, 50, 100, 200} {
			w := honest(t, offersNeg, 500, spaced(n, time.Second), nil)
			w.idsAtMost(most)
			d, b := w.fetchAll(plan.History, tagging("x"))
			require.Equal(t, plan.Complete, d.Result, "%d, %d", n, most)
			require.Zero(t, w.missing(b), "%d, %d", n, most)
			require.Zero(t, d.Report.Pages, "%d, %d", n, most)
			if n > 250 {
				require.LessOrEqual(t, w.s.terms.idChunk, most, "%d, %d", n, most)
				require.Less(t, w.sent[wire.TypeReq], 8+10+2*n/max(leastPage, most/2), "%d, %d", n, most)
			}
		}
	}
}

// Events with ids that are never served are fetched by pages, in every part of a query, and not
// reconciled again.
func TestPagesInsteadOfIDs(t *testing.T) {
	for name, w := range map[string]*world{
		"at once":     honest(t, offersNeg, 500, spaced(600, time.Second), nil),
		"in windows":  honest(t, negTooLarge, 500, spaced(600, time.Hour), nil),
		"in parts":    honest(t, offersNeg, 500, spaced(600, time.Second), func(c *Config) { c.NegIDs = 100 }),
		"in a second": honest(t, offersNeg, 50, crowd(200, 4, 4, 20)[:200], nil),
	} {
		t.Run(name, func(t *testing.T) {
			w.negMax = 250
			w.idsAtMost(0)
			f := tagging("x")
			if name == "in a second" {
				f = rootsFilter(4, 1617, 1618, 1619, 1620)
			}
			d, b := w.fetchAll(plan.History, f)
			require.Equal(t, plan.Complete, d.Result)
			require.Zero(t, w.missing(b))
			require.Zero(t, d.Report.Missing, "it has them")
			require.False(t, w.s.history.reconciling.offered)
		})
	}
}

// Pages are requested once for invented ids, and not again for the same ids. After many invented
// ids they are never requested for this reason.
func TestMadeUpIDsCostPagesOnce(t *testing.T) {
	for _, made := range []int{3, 300, 3_000} {
		w := honest(t, offersNeg, 500, spaced(4_010, time.Second), nil)
		w.madeUp = true
		for i, ev := range w.events {
			w.hidden[ev.ID], w.held[ev.ID] = i < made, i >= made
		}
		d, _ := w.fetchAll(plan.History, tagging("x"))
		assert.Equal(t, plan.Gaps, d.Result)
		assert.Equal(t, made, d.Report.Missing)
		assert.InDelta(t, float64(4_010-made)/500, d.Report.Pages, 3)
		d, _ = w.fetchAll(plan.DailyHistory, tagging("x"))
		assert.Equal(t, plan.Gaps, d.Result)
		assert.Equal(t, made, d.Report.Missing)
		assert.Zero(t, d.Report.Pages, "of %d", made)
		assert.True(t, w.s.history.reconciling.offered, "what it has can be had")
		assert.Less(t, w.sent[wire.TypeReq], 60)
	}
}

// The number of stored invented ids is limited, and they expire after a day.
func TestPhantomsAreBounded(t *testing.T) {
	var p phantoms
	ids := func(from, n int) (out []graspsync.EventID) {
		for i := range n {
			out = append(out, eventID(from+i))
		}
		return out
	}
	require.True(t, p.add(ids(0, 3), start))
	require.False(t, p.add(ids(0, 3), start.Add(48*time.Hour)), "those few are known")
	require.True(t, p.add(ids(0, 2*maxPhantoms), start.Add(48*time.Hour)))
	require.Len(t, p.ids, maxPhantoms)
	require.True(t, p.add(ids(9_000, 1), start.Add(48*time.Hour)), "the day is over")
	require.True(t, p.add(ids(20_000, maxPhantoms), start.Add(48*time.Hour)))
	require.False(t, p.add(ids(30_000, 1), start.Add(48*time.Hour+relaylimits.Believed-1)))
	require.True(t, p.add(ids(30_000, 1), start.Add(48*time.Hour+relaylimits.Believed)))
}
