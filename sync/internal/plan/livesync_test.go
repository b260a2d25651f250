package plan

import (
	"testing"

	"github.com/graspsync/graspsync"
)

// hubOf returns a plan with a connected relay that has confirmed everything of one repository with
// n root events.
func hubOf(t *testing.T, n int) (p *Plan, u graspsync.RelayURL) {
	t.Helper()
	p, u = newPlan(defaults()), relayURL(t, "a")
	roots := make([]int, n)
	for i := range roots {
		roots[i] = i
	}
	p.Step(start, full(repoRef("one"), []graspsync.RelayURL{u}, roots...))
	settle(p, start, u, connect(t, p, start, u))
	return p, u
}
