package plan

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
)

// Two filters of one batch have the same role: both continue at the lesser progress.
func TestResumeOfSplitFilters(t *testing.T) {
	p, u := newPlan(defaults()), relayURL(t, "a")
	var c Changes
	for i := range 60 {
		c.Repos = append(c.Repos, full(repoRef(string(rune('A'+i))), []graspsync.RelayURL{u}).Repos...)
	}
	p.Step(start, c)
	b := only[Start](connect(t, p, start, u))[1].Batch
	require.Len(t, b.Queries, 5)
	end := Done{Relay: u, Epoch: 1, Batch: b.ID, Result: Failed, Cursors: []Cursor{CursorDone, CursorDone, CursorDone, 100, CursorDone}}
	p.Step(start, end)
	wake, _ := p.NextWake()
	b = only[Start](p.Step(wake, Tick{}))[0].Batch
	require.Len(t, b.Queries, 2)
	assert.EqualValues(t, 100, b.Queries[0].Until)
	assert.EqualValues(t, 100, b.Queries[1].Until)
}
