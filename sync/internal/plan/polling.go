package plan

import (
	"slices"
	"time"

	"github.com/graspsync/graspsync/filters"
)

// Items without room in live subscriptions are requested in turn. Layer 4 gets one request per
// rotateEvery, because anyone can add to it.
const rotateEvery = time.Minute

// pollState outlives connections.
type pollState struct {
	groups []*pollGroup
	at     [tiers]time.Time
}

type pollGroup struct {
	items []Item
	tier  tier
	since time.Time // all events before it were fetched
}

// ofTier returns the groups of a tier, longest wait first.
func (l *pollState) ofTier(t tier) (groups []*pollGroup) {
	for _, g := range l.groups {
		if g.tier == t {
			groups = append(groups, g)
		}
	}
	slices.SortStableFunc(groups, func(a, b *pollGroup) int { return a.since.Compare(b.since) })
	return groups
}

// repoll sets the polled items. A catch-up fetches events of the previous items since the last poll.
func (p *Plan) repoll(r *relayState, items []Item) {
	for t := range tiers {
		var polled []Item
		groups := r.live.poll.ofTier(t)
		for _, g := range groups {
			polled = append(polled, g.items...)
		}
		if len(polled) > 0 {
			p.catchUp(r, polled, p.since(groups[0].since))
		}
	}
	r.live.poll.groups = nil
	p.poll(r, items)
}

func (p *Plan) poll(r *relayState, items []Item) {
	l := &r.live.poll
	for _, g := range p.repos.groups(items) {
		kind := p.repos.infos[g[0]].kind
		if n := len(l.groups); n > 0 {
			last := l.groups[n-1]
			alike := len(last.items) > 0 && kind == p.repos.infos[last.items[0]].kind
			if alike && len(last.items)+len(g) <= filters.MaxValues {
				last.items = append(last.items, g...)
				continue
			}
		}
		l.groups = append(l.groups, &pollGroup{items: g, tier: p.repos.tier(g[0]), since: p.now})
	}
	for t := range tiers {
		if n := len(l.ofTier(t)); n > 0 && l.at[t].Before(p.now) {
			l.at[t] = p.now.Add(p.pollWait(t, n))
		}
	}
}

func (p *Plan) pollWait(t tier, n int) time.Duration {
	if t == threadTier {
		return p.withJitter(rotateEvery)
	}
	return p.withJitter(p.cfg.PollEvery * 10 / 11 / time.Duration(n))
}

func (p *Plan) startPoll(r *relayState) bool {
	for t, at := range r.live.poll.at {
		if p.now.Before(at) || tier(t) == threadTier && !r.threadsMayRun() {
			continue
		}
		groups := r.live.poll.ofTier(tier(t))
		i := slices.IndexFunc(groups, func(g *pollGroup) bool {
			return !slices.ContainsFunc(r.pending.all(), func(b *batch) bool { return b.poll == g })
		})
		if i < 0 {
			continue
		}
		r.live.poll.at[t] = p.now.Add(p.pollWait(tier(t), len(groups)))
		g := groups[i]
		g.items = slices.DeleteFunc(g.items, func(it Item) bool { return r.history.items[it] == 0 })
		items := slices.DeleteFunc(slices.Clone(g.items), func(it Item) bool { return r.history.items[it] == todo })
		p.begin(r, &batch{Batch: Batch{Kind: Recent, Queries: p.queries(items, p.since(g.since))}, items: items, poll: g, thread: g.tier == threadTier})
		return true
	}
	return false
}
