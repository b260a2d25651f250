package purgatory

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
)

// Whether pushes have moved refs is asked of up to 64 entries under the lock of what waits: it
// had cost a copy of all these refs, 97 ms for 200 repositories with 5,000 each.
func TestIsPushed(t *testing.T) {
	f, ref := newFindings(), graspsync.RepoRef{Identifier: "x"}
	require.False(t, f.isPushed(ref))
	var names []nip34.RefName
	for i := range 5000 {
		name, err := nip34.ParseRefName(fmt.Sprint("refs/heads/", i))
		require.NoError(t, err)
		names = append(names, name)
	}
	f.movedBy(ref, names)
	require.True(t, f.isPushed(ref))
	require.False(t, f.isPushed(graspsync.RepoRef{Identifier: "y"}))
	require.Zero(t, testing.AllocsPerRun(1000, func() { f.isPushed(ref) }))
	require.Len(t, f.pushedTo(ref), len(names))
}
