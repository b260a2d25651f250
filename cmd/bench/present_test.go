package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/sync/memstore"
)

// needed returns the size of the missing events plus a small amount.
func TestNeeded(t *testing.T) {
	r := newTestRun(t)
	d, err := openDataset(r.cache, testEvents(1000), 1)
	require.NoError(t, err)
	for _, but := range []int{0, 1, 10} {
		s := memstore.New()
		missing, err := fill(t.Context(), s, d, but)
		require.NoError(t, err)
		require.Equal(t, len(d.ids), s.Len()+missing)
		weight := int64(0)
		for ev, err := range d.events() {
			require.NoError(t, err)
			has, err := s.Has(t.Context(), []graspsync.EventID{ev.ID})
			require.NoError(t, err)
			if !has[0] {
				weight += int64(len(ev.String()))
			}
		}
		need, err := needed(r, s, d)
		require.NoError(t, err)
		require.Greater(t, need, weight)
		require.Less(t, need, weight+int64(len(d.ids))*300+2000)
		if but == 0 {
			require.Less(t, need, int64(2000))
		}
	}
}
