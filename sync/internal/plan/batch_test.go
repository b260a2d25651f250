package plan

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
)

func TestMerge(t *testing.T) {
	a, q, del := role{tag: "a"}, role{tag: "q"}, role{tag: "a", deletion: true}
	for _, tc := range []struct {
		name  string
		old   *cursors
		roles []role
		got   []Cursor
		daily bool
		want  *cursors
	}{
		{"nothing", nil, []role{a, q}, []Cursor{CursorStart, CursorStart}, false, nil},
		{"nothing said", nil, []role{a, q}, nil, false, nil},
		{"one of two", nil, []role{a, q}, []Cursor{7, CursorStart}, false, &cursors{at: map[role]Cursor{a: 7, q: CursorStart}}},
		{"too few", nil, []role{a, q}, []Cursor{CursorDone}, false, &cursors{at: map[role]Cursor{a: CursorDone, q: CursorStart}}},
		{"same role, one done", nil, []role{del, del}, []Cursor{CursorDone, 5}, false, &cursors{at: map[role]Cursor{del: 5}}},
		{"same role, other way", nil, []role{del, del}, []Cursor{5, CursorDone}, false, &cursors{at: map[role]Cursor{del: 5}}},
		{"same role, one nowhere", nil, []role{del, del}, []Cursor{5, CursorStart}, false, nil},
		{"same role, both somewhere", nil, []role{del, del}, []Cursor{5, 9}, false, &cursors{at: map[role]Cursor{del: 9}}},
		{"what was done stays done", &cursors{at: map[role]Cursor{a: CursorDone, q: 9}}, []role{q}, []Cursor{4}, false,
			&cursors{at: map[role]Cursor{a: CursorDone, q: 4}}},
		{"daily without progress", &cursors{daily: true}, []role{a}, []Cursor{CursorStart}, true,
			&cursors{daily: true, at: map[role]Cursor{a: CursorStart}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			assert.Equal(t, tc.want, merge(tc.old, tc.roles, tc.got, tc.daily))
		})
	}
}

// Two filters of one batch have the same role: both go on where the worse had got to.
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
