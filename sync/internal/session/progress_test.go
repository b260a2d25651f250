package session

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
)

// Ids that the relay lacks are all counted and listed up to a limit.
func TestReportCompared(t *testing.T) {
	var r Report
	ids := make([][32]byte, 700)
	for i := range ids {
		ids[i] = eventID(i)
	}
	r.compared(ids)
	r.compared(ids)
	r.compared(nil)
	r.compared(ids)
	require.Equal(t, 4, r.Reconciled)
	require.Equal(t, 2_100, r.LackingAll)
	require.Len(t, r.Lacking, 1_000)
	require.Equal(t, graspsync.EventID(ids[0]), r.Lacking[700])
}
