package plan

import (
	"math"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync/filters"
)

// A relay may lie in NIP-77: say that both have the same, and hold something back.
// So with each pass one window of the past is fetched by pages for one group of
// items, drawn at random: who lies often is found out soon, for next to no traffic.
const (
	auditNewest = time.Hour                // a window ends so long ago at least
	auditOldest = 3 * 365 * 24 * time.Hour // and at most
	auditLeast  = 24 * time.Hour           // how long it is, or an eighth of its age if that is more
)

// audit is what has a window of the past fetched by pages.
type audit struct {
	*core
	repos   *repoSyncIndex
	pending *pendingSyncIndex
}

// auditState is whether a relay is to be audited.
type auditState struct {
	reconciles bool // it was reconciled with
	due        bool
}

func (a *audit) due(r *relayState, _ time.Time) bool { return r.audit.due && !r.busy() }

// start starts the audit that is due.
func (a *audit) start(r *relayState, now time.Time) {
	r.audit.due = false
	items := make([]Item, 0, r.history.items.Len())
	for it, st := range r.history.items.All() {
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
	qs, roles := a.pending.queries(r, a.repos.itemFilters(g.items), since, nil)
	if len(qs) == 0 {
		return
	}
	for i := range qs {
		qs[i].NoNegentropy = true
		qs[i].Filter = filters.Between(qs[i].Filter, &since, &until, 0)
	}
	a.pending.start(r, &batch{of: a, kind: Audit, roles: roles}, qs, now)
}

// window draws a window: of any age alike on a logarithmic scale, since most of
// what there is is recent.
func (a *audit) window(now time.Time) (since, until nostr.Timestamp) {
	ages := math.Log(float64(auditOldest) / float64(auditNewest))
	age := time.Duration(float64(auditNewest) * math.Exp(a.rng.Float64()*ages))
	end := now.Add(-age)
	return nostr.Timestamp(end.Add(-max(auditLeast, age/8)).Unix()), nostr.Timestamp(end.Unix())
}

func (a *audit) done(*relayState, *batch, bool) {}

func (a *audit) failed(*relayState, *batch, Done, time.Time) {}

func (a *audit) lost(*relayState, *batch, []Cursor) {}
