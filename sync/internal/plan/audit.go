package plan

import (
	"math"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync/filters"
)

// A relay may hide events in NIP-77, so each pass fetches one random window of the past by pages.
const (
	auditNewest = time.Hour                // minimum age of the end of a window
	auditOldest = 3 * 365 * 24 * time.Hour // maximum age
	auditLeast  = 24 * time.Hour           // minimum length of a window, else an eighth of its age
)

func (p *Plan) startAudit(r *relayState) bool {
	if !r.auditDue || r.busy() {
		return false
	}
	r.auditDue = false
	var items []Item
	for it, st := range r.history.items {
		if st == confirmed {
			items = append(items, it)
		}
	}
	groups := p.repos.groups(items)
	if len(groups) == 0 {
		return true
	}
	b := &batch{Batch: Batch{Kind: Audit, Queries: p.queries(groups[p.rng.IntN(len(groups))], 0)}}
	since, until := p.auditWindow()
	for i := range b.Queries {
		b.Queries[i].NoNegentropy = true
		b.Queries[i].Filter = filters.Between(b.Queries[i].Filter, &since, &until, 0)
	}
	p.begin(r, b)
	return true
}

// auditWindow returns a random window, uniform on a logarithmic scale of age, because most events
// are recent.
func (p *Plan) auditWindow() (since, until nostr.Timestamp) {
	ages := math.Log(float64(auditOldest) / float64(auditNewest))
	age := time.Duration(float64(auditNewest) * math.Exp(p.rng.Float64()*ages))
	end := p.now.Add(-age)
	return nostr.Timestamp(end.Add(-max(auditLeast, age/8)).Unix()), nostr.Timestamp(end.Unix())
}
