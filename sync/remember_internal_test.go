package sync

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/sync/internal/allowance"
)

// Of relays that nobody lists any more the allowances are kept that are used up: those that
// are full again go first, then any, and never more than must.
func TestSpentAllowancesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r remember
		relay := func(n int) graspsync.RelayURL {
			u, err := graspsync.ParseRelayURL(fmt.Sprintf("wss://r%d.example", n))
			require.NoError(t, err)
			return u
		}
		forget := func(n int, owes int64) {
			s := &relayStats{allowance: allowance.New(1<<20, 1<<10), work: newWork(1 << 20)}
			if owes > 0 {
				s.work.owe(owes, true)
			}
			r.setAllowances(relay(n), s, time.Now())
		}
		forget(0, 0)
		require.Empty(t, r.spent, "it has all of it")
		for n := range mostSpent - 1 {
			forget(n, 500_000)
		}
		forget(mostSpent, 10)
		require.Len(t, r.spent, mostSpent)
		time.Sleep(time.Second)
		forget(mostSpent+1, 500_000)
		require.Len(t, r.spent, mostSpent)
		require.NotContains(t, r.spent, relay(mostSpent), "it has all of it again")
		require.Contains(t, r.spent, relay(mostSpent+1))
		forget(mostSpent+2, 500_000)
		require.Len(t, r.spent, mostSpent)
		require.Contains(t, r.spent, relay(mostSpent+2))
	})
}
