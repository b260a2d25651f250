package plan

import (
	"slices"

	"github.com/graspsync/graspsync"
)

// RepoStatus is what is known of one repository.
type RepoStatus struct {
	Ref   graspsync.RepoRef
	Level Level
	Roots int // patches, pull requests and issues that are followed
	// RootsInRotation are those that are only asked about in turn.
	RootsInRotation int
	Relays          []RelayItems

	// Items of the repository, its roots, and its states where layer 1 has none, over
	// all relays: a root that is wanted of three relays counts three times.
	Wanted, InFlight, Confirmed int
}

// RelayItems is what one relay has to do with a repository.
type RelayItems struct {
	Relay                       graspsync.RelayURL
	Phase                       Phase
	Wanted, InFlight, Confirmed int
	// Live: it is connected, and all that is wanted of the repository is followed.
	Live bool
}

// RepoStatus returns the status of a repository, false for one that is not wanted.
// It costs time in proportion to its roots and relays.
func (p *Plan) RepoStatus(ref graspsync.RepoRef) (RepoStatus, bool) {
	r, ok := p.want.repos[ref]
	if !ok || r.level == LevelNone {
		return RepoStatus{}, false
	}
	s := RepoStatus{Ref: r.ref, Level: r.level, Roots: len(r.roots), RootsInRotation: len(r.rest)}
	for _, rel := range r.relays {
		items := p.relayItems(r, rel)
		s.Wanted += items.Wanted
		s.InFlight += items.InFlight
		s.Confirmed += items.Confirmed
		s.Relays = append(s.Relays, items)
	}
	return s, true
}

// Follows reports whether everything of a repository is wanted of a relay.
func (p *Plan) Follows(ref graspsync.RepoRef, u graspsync.RelayURL) bool {
	r, rel := p.want.repos[ref], p.known.relays[u]
	return r != nil && rel != nil && r.follows(rel)
}

func (p *Plan) relayItems(r *repo, rel *relay) RelayItems {
	s := RelayItems{Relay: rel.url, Phase: rel.phase(), Live: rel.dial.connected && rel.live.unfollowed+rel.live.tooLarge == 0}
	for it := range rel.live.missing {
		s.Live = s.Live && !r.wants(it)
	}
	s.Live = s.Live && !slices.ContainsFunc(p.want.itemsOfAll(rel, rel.live.lost), r.wants)
	count := func(it Item) {
		switch rel.history.items[it] {
		case todo:
			s.Wanted++
		case inFlight:
			s.Wanted++
			s.InFlight++
		case confirmed:
			s.Wanted++
			s.Confirmed++
		}
	}
	if r.states != 0 {
		count(r.states)
	}
	if r.level != LevelFull {
		return s
	}
	count(r.item)
	for it := range r.roots {
		count(it)
	}
	return s
}

// Refs returns the repositories that are wanted, in order.
func (p *Plan) Refs() []graspsync.RepoRef {
	refs := make([]graspsync.RepoRef, 0, len(p.want.repos))
	for ref, r := range p.want.repos {
		if r.level != LevelNone {
			refs = append(refs, ref)
		}
	}
	slices.SortFunc(refs, graspsync.RepoRef.Compare)
	return refs
}
