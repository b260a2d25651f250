package egress

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Names that lead to an address of a stranger's and to that of an honest relay as well, and
// fail at the former 20 times a day, kept the relay from ever being tried.
func TestFailuresElsewhereLeaveAttempts(t *testing.T) {
	b, err := NewBudget(BudgetConfig{})
	require.NoError(t, err)
	l, now := &b.ledger, time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	honest := netip.MustParsePrefix("8.8.8.8/32")
	var open []*ticket
	waited, longest, since := 0, time.Duration(0), now
	for n := range 12 * 60 * 24 * 7 {
		at := now.Add(time.Duration(n) * 5 * time.Second)
		for _, k := range open {
			l.end(k, at)
		}
		open = nil
		for i := range 4 {
			own := netip.MustParsePrefix(fmt.Sprintf("9.9.9.%d/32", i))
			if k, err := l.begin(fmt.Sprintf("n%d.example", n), own, []netip.Prefix{own, honest}, at); err == nil {
				open = append(open, k)
			}
		}
		if n == 0 {
			continue
		}
		if k, err := l.begin("honest.example", honest, []netip.Prefix{honest}, at); err == nil {
			longest, since, waited = max(longest, at.Sub(since)), at, waited+1
			l.end(k, at)
		}
	}
	t.Logf("tried %d times in a week, the longest wait was %v", waited, longest)
	assert.Greater(t, waited, 7)
	assert.Less(t, longest, 3*24*time.Hour)
}
