package plan

import (
	"maps"
	"slices"
	"time"

	"github.com/graspsync/graspsync"
)

// RelayStatus is the status of one relay.
type RelayStatus struct {
	Relay       graspsync.RelayURL
	Phase       Phase
	Bootstrap   bool
	Repos       int // that list it
	Wanted      int // items, with layer 1
	InFlight    int
	Confirmed   int
	Descendants int `json:",omitempty"`
	LiveSubs    int // open subscriptions
	LiveFilters int
	Unfollowed  int // filters without room or refused
	LiveMethod  LiveMethod
	Gaps        int // batches of this pass with gaps
	Parked      int // failed batches that wait
	RetryAt     time.Time
}

// RepoStatus is the status of one repository.
type RepoStatus struct {
	Ref    graspsync.RepoRef
	Level  Level
	Roots  int // followed patches, pull requests and issues
	Relays []RelayItems

	// Wanted, InFlight and Confirmed count the items of the repository once per relay.
	Wanted, InFlight, Confirmed int
}

// RelayItems is the status of a repository on one relay.
type RelayItems struct {
	Relay                       graspsync.RelayURL
	Phase                       Phase
	Wanted, InFlight, Confirmed int
	// Live: the relay is connected and all its items are followed.
	Live bool
}

// Status returns the status of all relays, ordered by URL.
func (p *Plan) Status() []RelayStatus {
	out := make([]RelayStatus, 0, len(p.relays))
	for _, r := range slices.SortedFunc(maps.Values(p.relays), byName) {
		out = append(out, p.status(r))
	}
	return out
}

func (p *Plan) status(r *relayState) RelayStatus {
	of := &r.history.ofStatus
	wanted := of[todo] + of[again] + of[inFlight] + of[confirmed]
	return RelayStatus{
		Relay:       r.url,
		Phase:       r.phase(),
		Bootstrap:   r.bootstrap,
		Repos:       r.listed.repos,
		Wanted:      wanted,
		InFlight:    of[inFlight],
		Confirmed:   of[confirmed],
		LiveSubs:    len(r.live.subs),
		LiveFilters: r.live.filters(),
		Descendants: len(r.history.items) - wanted,
		Unfollowed:  r.live.unfollowed + r.live.tooLarge + r.live.refusedFilters + len(r.live.lost),
		LiveMethod:  r.live.method(),
		Gaps:        r.pending.gaps,
		Parked:      r.pending.waiting(),
		RetryAt:     r.dial.retryAt,
	}
}

// RepoStatus returns the status of a repository, and false if it is not wanted.
func (p *Plan) RepoStatus(ref graspsync.RepoRef) (RepoStatus, bool) {
	r, ok := p.repos.byRef[ref]
	if !ok || r.level == LevelNone {
		return RepoStatus{}, false
	}
	s := RepoStatus{Ref: r.ref, Level: r.level, Roots: len(r.threads[mainTier])}
	for _, rel := range r.relays {
		items := p.relayItems(r, rel)
		s.Wanted += items.Wanted
		s.InFlight += items.InFlight
		s.Confirmed += items.Confirmed
		s.Relays = append(s.Relays, items)
	}
	return s, true
}

func (p *Plan) relayItems(r *repo, rel *relayState) RelayItems {
	l := &rel.live
	s := RelayItems{Relay: rel.url, Phase: rel.phase()}
	s.Live = rel.dial.connected && l.unfollowed+l.tooLarge+len(l.missing)+len(l.lost) == 0
	count := func(it Item) {
		switch rel.history.items[it] {
		case todo, again:
			s.Wanted++
		case inFlight:
			s.Wanted++
			s.InFlight++
		case confirmed:
			s.Wanted++
			s.Confirmed++
		}
	}
	if r.level != LevelFull {
		return s
	}
	count(r.item)
	for it := range r.threads[mainTier] {
		count(it)
	}
	return s
}

// Refs returns the wanted repositories in order.
func (p *Plan) Refs() []graspsync.RepoRef {
	refs := make([]graspsync.RepoRef, 0, len(p.repos.byRef))
	for ref, r := range p.repos.byRef {
		if r.level != LevelNone {
			refs = append(refs, ref)
		}
	}
	slices.SortFunc(refs, graspsync.RepoRef.Compare)
	return refs
}

// Repos returns the number of repositories at LevelFull and of known root events.
func (p *Plan) Repos() (full, roots int) {
	for _, r := range p.repos.byRef {
		if r.level == LevelFull {
			full++
		}
	}
	for _, in := range p.repos.infos {
		if in.kind == itemRoot {
			roots++
		}
	}
	return full, roots
}
