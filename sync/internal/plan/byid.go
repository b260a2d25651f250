package plan

import (
	"cmp"
	"slices"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/filters"
	"github.com/graspsync/graspsync/sync/internal/lazy"
)

const (
	maxUnserved  = 1_000 // ids of one relay requested from other relays per unservedTime, because a relay may invent ids
	maxAsked     = 2     // number of other relays
	unservedTime = time.Hour
)

type byIDState struct {
	queue      []graspsync.EventID
	known      map[graspsync.EventID]struct{} // queued or in a batch
	unserved   int                            // announced but not served, since unservedAt
	unservedAt time.Time
}

func (in Named) apply(p *Plan) {
	if r := p.relays[in.Relay]; r != nil {
		p.fetch(r, in.IDs)
	} else {
		p.fetchAnywhere(in.IDs)
	}
}

func (in Unserved) apply(p *Plan) {
	if r := p.relays[in.Relay]; r != nil {
		p.askOthers(r, in.IDs)
	}
}

// fetchAnywhere requests ids from the connected relays with the most items, or from the next relay
// that connects.
func (p *Plan) fetchAnywhere(ids []graspsync.EventID) {
	if len(p.connected) == 0 {
		room := min(len(ids), max(0, p.cfg.MaxNamed-len(p.unassigned)))
		p.unassigned = append(p.unassigned, ids[:room]...)
		p.dropped("id_queue", len(ids)-room)
		return
	}
	items := make(map[*relayState]int, len(p.connected))
	for r := range p.connected {
		items[r] = len(r.history.items)
	}
	for _, r := range best(items) {
		p.fetch(r, ids)
	}
}

func best(scores map[*relayState]int) []*relayState {
	all := sortedBy(scores, func(a, b *relayState) int { return cmp.Or(cmp.Compare(scores[b], scores[a]), byName(a, b)) })
	return all[:min(maxAsked, len(all))]
}

func (p *Plan) fetch(r *relayState, ids []graspsync.EventID) {
	dropped := 0
	for _, id := range ids {
		if _, ok := r.byID.known[id]; ok {
			continue
		}
		if len(r.byID.known) >= p.cfg.MaxNamed {
			dropped++
			continue
		}
		lazy.Put(&r.byID.known, id, struct{}{})
		r.byID.queue = append(r.byID.queue, id)
	}
	p.dropped("id_queue", dropped)
	p.markDirty(r)
}

// askOthers requests ids that r announced and did not serve. It asks the relays that share most
// repositories with r, in at most half of their queues.
func (p *Plan) askOthers(r *relayState, ids []graspsync.EventID) {
	if p.now.Sub(r.byID.unservedAt) >= unservedTime {
		r.byID.unservedAt, r.byID.unserved = p.now, 0
	}
	shared := make(map[*relayState]int)
	for it := range r.history.items {
		if in := &p.repos.infos[it]; in.kind == itemRepo {
			for _, o := range in.repo.relays {
				if o != r && o.dial.connected {
					shared[o]++
				}
			}
		}
	}
	announced := len(ids)
	ids = ids[:min(maxUnserved-r.byID.unserved, announced)]
	r.byID.unserved += len(ids)
	p.dropped("id_queue", announced-len(ids))
	for _, o := range best(shared) {
		room := min(len(ids), max(0, p.cfg.MaxNamed/2-len(o.byID.known)))
		if p.dropped("id_queue", len(ids)-room); room > 0 {
			p.fetch(o, ids[:room])
		}
	}
}

func (p *Plan) startByID(r *relayState) bool {
	s := &r.byID
	if len(s.queue) == 0 || r.pending.waiting(NamedIDs) > 0 {
		return false
	}
	b := &batch{Batch: Batch{Kind: NamedIDs}, ids: slices.Clone(s.queue[:min(p.cfg.NamedIDs, len(s.queue))])}
	if s.queue = s.queue[len(b.ids):]; len(s.queue) == 0 {
		s.queue = nil
	}
	for _, f := range filters.ByID(b.ids, len(b.ids)) {
		f.Limit = 0
		b.Queries = append(b.Queries, Query{Filter: f, NoNegentropy: true})
	}
	p.begin(r, b)
	return true
}
