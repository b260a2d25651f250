package plan

import (
	"slices"
	"time"

	"github.com/graspsync/graspsync"
)

// RelayStatus is what is known of one relay, for people and for metrics.
type RelayStatus struct {
	Relay     graspsync.RelayURL
	Phase     Phase
	Bootstrap bool
	Repos     int // repositories that list it
	Wanted    int // items, layer 1 included
	InFlight  int
	Confirmed int
	// Descendants are asked about besides; of these so many are followed live.
	Descendants     int `json:",omitempty"`
	DescendantsLive int `json:",omitempty"`
	LiveSubs        int // standing subscriptions
	LiveFilters     int
	Unfollowed      int // filters that found no room in the subscriptions, or that the relay refuses
	LiveMethod      LiveMethod
	// Examples are up to three repositories that list it.
	Examples  []graspsync.RepoRef
	Named     int // ids that wait to be fetched by name, or are fetched
	Gaps      int // batches of this pass that ended with gaps
	Parked    int // batches that wait to be tried again
	Batches   int // under way
	RetryAt   time.Time
	CoolUntil time.Time
	DailyAt   time.Time
	PassAt    time.Time // when the last pass over history began
}

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

// Status returns the status of every known relay, ordered by URL.
func (p *Plan) Status() []RelayStatus {
	relays := p.relays.inOrder()
	out := make([]RelayStatus, 0, len(relays))
	for _, r := range relays {
		out = append(out, p.status(r))
	}
	return out
}

func (p *Plan) status(r *relayState) RelayStatus {
	descendants, apart, descFilters := r.threads.counts()
	return RelayStatus{
		Relay:       r.url,
		Phase:       r.phase(),
		Bootstrap:   r.bootstrap,
		Repos:       r.listed.repos,
		Wanted:      r.history.items.Len(),
		InFlight:    r.history.ofStatus[inFlight],
		Confirmed:   r.history.ofStatus[confirmed],
		LiveSubs:    len(r.live.subs) + r.threads.liveSubs(),
		LiveFilters: r.live.filters + descFilters,
		Descendants: descendants, DescendantsLive: descendants - apart,
		Unfollowed: r.live.unfollowed + r.live.tooLarge + r.live.restingFilters() + len(r.live.lost),
		LiveMethod: r.live.method(),
		Examples:   slices.Clone(p.repos.examples(r)),
		Named:      r.byID.count(),
		Gaps:       r.pending.gaps,
		Parked:     len(r.history.parked) + len(r.catchUp.parked),
		Batches:    len(r.pending.open),
		RetryAt:    r.dial.retryAt,
		CoolUntil:  r.coolUntil,
		DailyAt:    r.pass.dueAt,
		PassAt:     r.pass.at,
	}
}

// RepoStatus returns the status of a repository, false for one that is not wanted.
// It costs time in proportion to its roots and relays.
func (p *Plan) RepoStatus(ref graspsync.RepoRef) (RepoStatus, bool) {
	r, ok := p.repos.byRef[ref]
	if !ok || r.level == LevelNone {
		return RepoStatus{}, false
	}
	s := RepoStatus{Ref: r.ref, Level: r.level, Roots: r.roots.Len(), RootsInRotation: len(r.untracked)}
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
	s := RelayItems{Relay: rel.url, Phase: rel.phase(), Live: rel.dial.connected && rel.live.unfollowed+rel.live.tooLarge == 0}
	for it := range rel.live.missing.All() {
		s.Live = s.Live && !r.wants(it)
	}
	s.Live = s.Live && !slices.ContainsFunc(p.repos.itemsOfAll(rel, rel.live.lost.Spell()), r.wants)
	count := func(it Item) {
		switch rel.history.items.Get(it) {
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
	for it := range r.roots.All() {
		count(it)
	}
	return s
}

// Follows reports whether everything of a repository is wanted of a relay.
func (p *Plan) Follows(ref graspsync.RepoRef, u graspsync.RelayURL) bool {
	r, rel := p.repos.byRef[ref], p.relays.byURL[u]
	return r != nil && rel != nil && r.follows(rel)
}

// Refs returns the repositories that are wanted, in order.
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

// Repos returns how many repositories are followed in full, and how many root
// events are known.
func (p *Plan) Repos() (full, roots int) {
	return p.repos.full, p.repos.roots.Len()
}

// RootsInRotation returns how many root events are not followed but asked about in
// turn.
func (p *Plan) RootsInRotation() (n int) {
	for r := range p.repos.overfull {
		n += len(r.untracked)
	}
	return n
}
