package plan

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// Who has never proven to be of use gives way first, then who serves nobody, and of those who
// are alike whoever was connected first.
func TestWhoGivesWayFirst(t *testing.T) {
	want := []*relay{
		{dial: dialState{unproven: true, epoch: 5}},
		{dial: dialState{unproven: true, epoch: 9}, claim: claimState{servedBy: 1}},
		{dial: dialState{epoch: 2}}, {dial: dialState{epoch: 8}},
		{dial: dialState{epoch: 1}, claim: claimState{servedBy: 3}},
		{dial: dialState{epoch: 7}, claim: claimState{servedBy: 1}},
	}
	for range 20 {
		got := slices.Clone(want)
		rand.Shuffle(len(got), func(i, j int) { got[i], got[j] = got[j], got[i] })
		slices.SortFunc(got, compareRoom)
		require.Equal(t, want, got)
	}
}

// Eight times as many attempts as are made at once may wait on, but no more than a third of
// the connections.
func TestSilentMost(t *testing.T) {
	for _, c := range []struct{ dials, connections, want int }{{1, 300, 8}, {12, 300, 96}, {13, 300, 100}, {13, 312, 104}, {100, 10, 3}} {
		d := &dialer{common: &common{cfg: Config{MaxDials: c.dials, MaxConnections: c.connections}}}
		require.Equal(t, c.want, d.silentMost(), c)
	}
}
