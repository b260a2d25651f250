package plan

import (
	"slices"
	"time"

	"github.com/graspsync/graspsync/filters"
)

// RelayStatus is what is known of one relay, for people and for metrics.
type RelayStatus struct {
	Relay       filters.RelayURL
	Phase       Phase
	Bootstrap   bool
	Repos       int // repositories that list it
	Wanted      int // items, layer 1 included
	InFlight    int
	Confirmed   int
	LiveSubs    int // standing subscriptions
	LiveFilters int
	Unfollowed  int // filters that found no room in the subscriptions
	LiveMethod  LiveMethod
	// Examples are up to three repositories that list it.
	Examples  []filters.RepoRef
	Named     int // ids that wait to be fetched by name, or are fetched
	Gaps      int // batches of this pass that ended with gaps
	Parked    int // batches that wait to be tried again
	Batches   int // under way
	RetryAt   time.Time
	CoolUntil time.Time
	DailyAt   time.Time
	PassAt    time.Time // when the last pass over history began
}

// Status returns the status of every known relay, ordered by URL.
func (p *Plan) Status() []RelayStatus {
	out := make([]RelayStatus, 0, len(p.relays))
	for _, r := range p.relays {
		out = append(out, RelayStatus{
			Relay:       r.url,
			Phase:       r.phase(),
			Bootstrap:   r.bootstrap,
			Repos:       r.listedBy,
			Wanted:      len(r.items),
			InFlight:    r.ofStatus[inFlight],
			Confirmed:   r.ofStatus[confirmed],
			LiveSubs:    len(r.live.subs),
			LiveFilters: r.live.filters,
			Unfollowed:  r.live.unfollowed + r.live.tooLarge,
			LiveMethod:  r.live.method(),
			Examples:    slices.Clone(p.examples(r)),
			Named:       r.namedCount(),
			Gaps:        r.gaps,
			Parked:      len(r.parked),
			Batches:     len(r.batches),
			RetryAt:     r.retryAt,
			CoolUntil:   r.coolUntil,
			DailyAt:     r.dailyAt,
			PassAt:      r.passAt,
		})
	}
	slices.SortFunc(out, func(a, b RelayStatus) int { return compareURL(a.Relay, b.Relay) })
	return out
}

func compareURL(a, b filters.RelayURL) int {
	x, y := a.String(), b.String()
	switch {
	case x < y:
		return -1
	case x > y:
		return 1
	}
	return 0
}

// Repos returns how many repositories are followed in full, and how many root
// events are known.
func (p *Plan) Repos() (full, roots int) {
	for _, r := range p.want.repos {
		if r.level == LevelFull {
			full++
		}
	}
	return full, len(p.want.roots)
}

// maxExamples is how many of the repositories that list a relay are named.
const maxExamples = 3

// lists and unlists note that a repository lists a relay, or no longer does.
func (p *Plan) lists(r *repo, rel *relay) {
	rel.listedBy++
	p.owners.list(r, rel)
	if len(rel.examples) < maxExamples {
		rel.examples = append(rel.examples, r.ref)
	}
}

func (p *Plan) unlists(r *repo, rel *relay) {
	rel.listedBy--
	p.owners.unlist(r, rel)
	rel.examples = slices.DeleteFunc(rel.examples, func(ref filters.RepoRef) bool { return ref == r.ref })
}

// examples returns some of the repositories that list a relay. Others are looked for
// when one of them does no longer.
func (p *Plan) examples(rel *relay) []filters.RepoRef {
	if len(rel.examples) < min(maxExamples, rel.listedBy) {
		rel.examples = rel.examples[:0]
		for _, ref := range sortedBy(p.want.repos, filters.RepoRef.Compare) {
			if slices.Contains(p.want.repos[ref].relays, rel) && len(rel.examples) < maxExamples {
				rel.examples = append(rel.examples, ref)
			}
		}
	}
	return rel.examples
}

func (r *relay) namedCount() int {
	if r.named == nil {
		return 0
	}
	return len(r.named.known)
}
