package purgatory

import (
	"maps"
	"slices"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/internal/ledger"
)

// mostOwn is how many times MaxClones the clone URLs are that the announcements of all
// who have a say in a repository name together: there may be 257 of them.
const mostOwn = 4

// rotates is how long those whose URLs there is no room for wait for others to have their turn.
const rotates = time.Hour

// urls returns where git data of a repository can be had: what the announcements of
// all maintainers name, also of those whose repositories are not ours, and then what only the
// pull requests that wait name, which anybody can write. Of each only the first
// MaxClones count. Where there is no room for those of all maintainers each has one in
// turn: first the owner, then those whose states wait, then the others, of whom those come first
// each hour who had none in the one before.
func (p *Purgatory) urls(g *group, r *repository) (own, strangers []graspsync.URL) {
	seen := make(map[graspsync.URL]struct{})
	usable := func(us []graspsync.URL) (out []graspsync.URL) {
		for _, u := range us[:min(len(us), p.cfg.fixed.MaxClones)] {
			if _, again := seen[u]; !again && !p.cfg.Identity.IsClone(u) {
				seen[u] = struct{}{}
				out = append(out, u)
			}
		}
		return out
	}
	of := make(map[graspsync.PubKey][]graspsync.URL)
	add := func(a *nip34.Announcement) {
		us := usable(a.Clones)
		own = append(own, us...)
		of[a.Ref.Owner] = append(of[a.Ref.Owner], us...)
	}
	for _, a := range g.all {
		if r.isMember(a.Ref.Owner) {
			add(a)
		}
	}
	members := slices.SortedFunc(maps.Keys(r.members), graspsync.PubKey.Compare)
	for _, member := range members {
		if a := g.family.Announcement(member); a != nil {
			add(a)
		}
	}
	if most := mostOwn * p.cfg.fixed.MaxClones; len(own) > most {
		p.stats.dropSome("clones", len(own)-most)
		own = inTurn(of, inOrder(g, r, members, most), most)
	}
	for _, h := range g.pulls {
		if slices.Contains(h.pull.Repos, r.ref) {
			strangers = append(strangers, usable(h.pull.Clones)...)
		}
	}
	return own, strangers
}

// inOrder returns the maintainers of a repository as their URLs have their turns.
func inOrder(g *group, r *repository, members []graspsync.PubKey, most int) []graspsync.PubKey {
	first := int(time.Now().Unix()/int64(rotates/time.Second)%int64(len(members))) * max(1, most/2) % len(members)
	out := slices.Concat(members[first:], members[:first])
	writes := make(map[graspsync.PubKey]struct{})
	for _, h := range g.states {
		writes[h.state.Ref.Owner] = struct{}{}
	}
	rank := func(who graspsync.PubKey) int {
		_, is := writes[who]
		switch {
		case who == r.ref.Owner:
			return 0
		case is:
			return 1
		}
		return 2
	}
	slices.SortStableFunc(out, func(a, b graspsync.PubKey) int { return rank(a) - rank(b) })
	return out
}

// inTurn returns so many of the URLs of some, one of each in turn.
func inTurn(of map[graspsync.PubKey][]graspsync.URL, order []graspsync.PubKey, most int) (out []graspsync.URL) {
	for round := 0; len(out) < most; round++ {
		before := len(out)
		for _, who := range order {
			if us := of[who]; round < len(us) && len(out) < most {
				out = append(out, us[round])
			}
		}
		if len(out) == before {
			break
		}
	}
	return out
}

// beyond is how many clone URLs of an event are not hunted: those that were not even
// read, and the rest beyond the bound.
func (p *Purgatory) beyond(us []graspsync.URL, unread int) int {
	return unread + max(0, len(us)-p.cfg.fixed.MaxClones)
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
