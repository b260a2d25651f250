package purgatory

import (
	"maps"
	"slices"

	"github.com/graspsync/graspsync/egress"
	"github.com/graspsync/graspsync/filters"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/internal/ledger"
)

// urls returns where git data of a repository can be had: what the announcements of
// all maintainers name, also of those whose repositories are not ours, and then what only the
// pull requests that wait name, which anybody can write. Of each only the first
// [Config.MaxClones] count.
func (p *Purgatory) urls(g *group, r *repository) (own, strangers []egress.URL) {
	seen := make(map[egress.URL]struct{})
	add := func(to *[]egress.URL, us []egress.URL) {
		for _, u := range us[:min(len(us), p.cfg.MaxClones)] {
			if _, again := seen[u]; !again && !p.cfg.Identity.IsClone(u) {
				seen[u] = struct{}{}
				*to = append(*to, u)
			}
		}
	}
	for _, a := range g.all {
		if r.isMember(a.Ref.Owner) {
			add(&own, a.Clones)
		}
	}
	for _, member := range slices.SortedFunc(maps.Keys(r.members), filters.PubKey.Compare) {
		if a := g.family.Announcement(member); a != nil {
			add(&own, a.Clones)
		}
	}
	for _, h := range g.pulls {
		if slices.Contains(h.pull.Repos, r.ref) {
			add(&strangers, h.pull.Clones)
		}
	}
	return own, strangers
}

// beyond is how many clone URLs of an event are not hunted: those that were not even
// read, and the rest beyond the bound.
func (p *Purgatory) beyond(us []egress.URL, unread int) int {
	return unread + max(0, len(us)-p.cfg.MaxClones)
}

// countClones counts the clone URLs of an event that are not hunted.
func (p *Purgatory) countClones(e ledger.Entry) {
	switch e.Class {
	case ledger.Announcement:
		p.stats.dropSome("clones", p.beyond(e.Announces.Clones, e.Announces.DroppedClones))
	case ledger.PullRequest:
		if pr, err := nip34.ParsePullRequest(e.Event); err == nil {
			p.stats.dropSome("clones", p.beyond(pr.Clones, pr.DroppedClones))
		}
	}
}
