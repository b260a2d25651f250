package plan

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
)

func TestMerge(t *testing.T) {
	a, q, del := filterRole{tag: "a"}, filterRole{tag: "q"}, filterRole{tag: "a", deletion: true}
	for _, tc := range []struct {
		name  string
		old   *batchProgress
		roles []filterRole
		got   []Cursor
		daily bool
		want  *batchProgress
	}{
		{"nothing", nil, []filterRole{a, q}, []Cursor{CursorStart, CursorStart}, false, nil},
		{"nothing said", nil, []filterRole{a, q}, nil, false, nil},
		{"one of two", nil, []filterRole{a, q}, []Cursor{7, CursorStart}, false, &batchProgress{at: map[filterRole]Cursor{a: 7, q: CursorStart}}},
		{"too few", nil, []filterRole{a, q}, []Cursor{CursorDone}, false, &batchProgress{at: map[filterRole]Cursor{a: CursorDone, q: CursorStart}}},
		{"same role, one done", nil, []filterRole{del, del}, []Cursor{CursorDone, 5}, false, &batchProgress{at: map[filterRole]Cursor{del: 5}}},
		{"same role, other way", nil, []filterRole{del, del}, []Cursor{5, CursorDone}, false, &batchProgress{at: map[filterRole]Cursor{del: 5}}},
		{"same role, one nowhere", nil, []filterRole{del, del}, []Cursor{5, CursorStart}, false, nil},
		{"same role, both somewhere", nil, []filterRole{del, del}, []Cursor{5, 9}, false, &batchProgress{at: map[filterRole]Cursor{del: 9}}},
		{"what was done stays done", &batchProgress{at: map[filterRole]Cursor{a: CursorDone, q: 9}}, []filterRole{q}, []Cursor{4}, false,
			&batchProgress{at: map[filterRole]Cursor{a: CursorDone, q: 4}}},
		{"daily without progress", &batchProgress{daily: true}, []filterRole{a}, []Cursor{CursorStart}, true,
			&batchProgress{daily: true, at: map[filterRole]Cursor{a: CursorStart}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			assert.Equal(t, tc.want, merge(tc.old, tc.roles, tc.got, tc.daily))
		})
	}
}

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
