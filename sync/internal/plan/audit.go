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
	auditLeast  = 24 * time.Hour           // minimum length of a window; an eighth of its age if that is more
)

type audit struct {
	*core
	repos   *repoSyncIndex
	pending *pendingSyncIndex
}

type auditState struct {
	reconciles bool
	due        bool
}

func (a *audit) due(r *relayState, _ time.Time) bool { return r.audit.due && !r.busy() }

func (a *audit) start(r *relayState, now time.Time) {
	r.audit.due = false
	items := make([]Item, 0, len(r.history.items))
	for it, st := range r.history.items {
		if st == confirmed {
			items = append(items, it)
		}
	}
	groups := a.repos.groups(items, nil)
	if len(groups) == 0 {
		return
	}
	g := groups[a.rng.IntN(len(groups))]
	since, until := a.window(now)
	qs := a.pending.queries(r, a.repos.itemFilters(g.items), since, nil)
	if len(qs) == 0 {
		return
	}
	for i := range qs {
		qs[i].NoNegentropy = true
		qs[i].Filter = filters.Between(qs[i].Filter, &since, &until, 0)
	}
	a.pending.start(r, &batch{of: a, kind: Audit}, qs, now)
}

// window returns a random window, uniform on a logarithmic scale of age, because most events are
// recent.
func (a *audit) window(now time.Time) (since, until nostr.Timestamp) {
	ages := math.Log(float64(auditOldest) / float64(auditNewest))
	age := time.Duration(float64(auditNewest) * math.Exp(a.rng.Float64()*ages))
	end := now.Add(-age)
	return nostr.Timestamp(end.Add(-max(auditLeast, age/8)).Unix()), nostr.Timestamp(end.Unix())
}

func (a *audit) done(*relayState, *batch) {}

func (a *audit) failed(*relayState, *batch, Done) {}
