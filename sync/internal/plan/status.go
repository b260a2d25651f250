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

// Status returns the status of every known relay, ordered by URL.
func (p *Plan) Status() []RelayStatus {
	relays := p.known.inOrder()
	out := make([]RelayStatus, 0, len(relays))
	for _, r := range relays {
		descendants, apart, descFilters := r.descendants.counts()
		out = append(out, RelayStatus{
			Relay:       r.url,
			Phase:       r.phase(),
			Bootstrap:   r.bootstrap,
			Repos:       r.claim.listedBy,
			Wanted:      len(r.history.items),
			InFlight:    r.history.ofStatus[inFlight],
			Confirmed:   r.history.ofStatus[confirmed],
			LiveSubs:    len(r.live.subs) + r.descendants.live(),
			LiveFilters: r.live.filters + descFilters,
			Descendants: descendants, DescendantsLive: descendants - apart,
			Unfollowed: r.live.unfollowed + r.live.tooLarge + r.live.restingFilters(),
			LiveMethod: r.live.method(),
			Examples:   slices.Clone(p.want.examples(r)),
			Named:      r.byID.count(),
			Gaps:       r.batches.gaps,
			Parked:     len(r.history.parked) + len(r.catchUp.parked),
			Batches:    len(r.batches.open),
			RetryAt:    r.dial.retryAt,
			CoolUntil:  r.coolUntil,
			DailyAt:    r.pass.dueAt,
			PassAt:     r.pass.at,
		})
	}
	return out
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
func (t *targets) lists(r *repo, rel *relay, by side) {
	rel.claim.listedBy++
	t.owners.list(r, rel, by)
	if len(rel.claim.examples) < maxExamples {
		rel.claim.examples = append(rel.claim.examples, r.ref)
	}
}

func (t *targets) unlists(r *repo, rel *relay, by side) {
	rel.claim.listedBy--
	t.owners.unlist(r, rel, by)
	rel.claim.examples = slices.DeleteFunc(rel.claim.examples, func(ref graspsync.RepoRef) bool { return ref == r.ref })
}

// examples returns some of the repositories that list a relay. Others are looked for
// when one of them does no longer.
func (w *want) examples(rel *relay) []graspsync.RepoRef {
	if len(rel.claim.examples) < min(maxExamples, rel.claim.listedBy) {
		rel.claim.examples = rel.claim.examples[:0]
		for ref, r := range w.repos {
			if !slices.Contains(r.relays, rel) {
				continue
			}
			i, _ := slices.BinarySearchFunc(rel.claim.examples, ref, graspsync.RepoRef.Compare)
			all := slices.Insert(rel.claim.examples, i, ref)
			rel.claim.examples = all[:min(len(all), maxExamples)] // the first ones, whatever order the map has
		}
	}
	return rel.claim.examples
}
