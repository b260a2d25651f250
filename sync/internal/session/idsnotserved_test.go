package session

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/sync/internal/plan"
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
