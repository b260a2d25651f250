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

// followed returns the root events in the open filters.
func followed(p *Plan, u graspsync.RelayURL) map[graspsync.EventID]bool {
	out := make(map[graspsync.EventID]bool)
	for _, s := range p.relays.byURL[u].live.subs {
		for _, f := range s.filters {
			for _, v := range f.Tags["E"] {
				if id, err := graspsync.ParseEventID(v); err == nil {
					out[id] = true
				}
			}
		}
	}
	return out
}
