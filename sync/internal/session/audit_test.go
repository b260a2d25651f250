package session

import (
	"testing"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/assert"

	"github.com/graspsync/graspsync/filters"
	"github.com/graspsync/graspsync/sync/internal/plan"
	"github.com/graspsync/graspsync/sync/wire"
)

// auditAll audits all events of a world's relay.
func (w *world) auditAll() Done {
	w.nextID++
	b := &worldBatch{Batch: batchOf(w.nextID, plan.Audit, tagging("x")), got: make(map[string]bool), held: make(map[string]bool)}
	since, until := nostr.Timestamp(start.Add(-2*time.Hour).Unix()), nostr.Timestamp(start.Unix())
	b.Queries[0].Filter = filters.Between(b.Queries[0].Filter, &since, &until, 0)
	b.Queries[0].NoNegentropy = true
	w.batches[b.ID] = b
	w.do("audit", w.s.Fetch(w.now, b.Batch))
	w.finish()
	return w.dones[len(w.dones)-1]
}

// An audit compares pages with NIP-77. A relay that shows all events passes.
func TestAuditOfWhatIsShown(t *testing.T) {
	w := honest(t, offersNeg, 500, spaced(610, time.Second), nil)
	d := w.auditAll()
	assert.Equal(t, plan.Complete, d.Result)
	assert.False(t, d.Report.Disproved)
	assert.Equal(t, 1, w.sent[wire.TypeNegOpen])
	assert.True(t, w.s.reconciling.offered)
	assert.Less(t, d.Report.Events, 620, "but for what is in two pages nothing comes twice")
}

// NIP-77 is wrong if it hides events that pages contain before and after it.
func TestAuditOfWhatIsHidden(t *testing.T) {
	for _, hides := range []int{1, 610} {
		w := honest(t, offersNeg, 500, spaced(610, time.Second), nil)
		w.hide(hides)
		d := w.auditAll()
		assert.Equal(t, plan.Complete, d.Result)
		assert.True(t, d.Report.Disproved, "%d", hides)
		assert.False(t, w.s.reconciling.offered)
	}
}

// hide makes NIP-77 hide the newest n events.
func (w *world) hide(n int) {
	w.unshown = make(map[string]bool)
	for _, ev := range w.events[:n] {
		w.unshown[ev.ID] = true
	}
}

// Events deleted after their page, or published after NIP-77, prove nothing. Neither does a set cut
// at a round number.
func TestAuditProvesNothing(t *testing.T) {
	w := honest(t, offersNeg, 500, spaced(610, time.Second), nil)
	w.hide(5)
	w.refuse = func(wire.Request) bool {
		if w.sent[wire.TypeNegOpen] > 0 && len(w.events) == 610 {
			w.events = w.events[5:]
		}
		return false
	}
	assert.False(t, w.auditAll().Report.Disproved, "it was deleted meanwhile")
	assert.Len(t, w.events, 605, "it was asked for again")
	assert.True(t, w.s.reconciling.offered)

	w = honest(t, offersNeg, 500, spaced(610, time.Second), nil)
	w.negCap = 50
	assert.False(t, w.auditAll().Report.Disproved, "it reconciles the newest 50")

	w = honest(t, refusesNegErr, 500, spaced(610, time.Second), nil)
	assert.False(t, w.auditAll().Report.Disproved, "it does not reconcile")
}
