package plan

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/filters"
)

const (
	maxNamedTries = 3     // before an id is dropped
	maxUnserved   = 1_000 // ids of one relay asked of others, in unservedTime
	maxAsked      = 2     // others
	// unservedTime is for what a relay announces and does not serve: it may have made
	// that up, and has others asked for it.
	unservedTime = time.Hour
)

// byIDState is what is to be fetched from a relay by id. It survives connections.
type byIDState struct {
	ids        *idQueue  // nil: nothing
	unserved   int       // ids that the relay announced and did not serve, asked of others since
	unservedAt time.Time // that time
}

// idQueue is what a relay is to be asked for by id.
type idQueue struct {
	queue   []wantedID
	known   map[graspsync.EventID]struct{} // waiting or in flight
	retryAt time.Time
}

type wantedID struct {
	id    graspsync.EventID
	tries int
}

func (p *Plan) onNamed(in Named) {
	if r, ok := p.relays[in.Relay]; ok {
		p.name(r, in.IDs)
		return
	}
	p.nameAnywhere(in.IDs)
}

// nameAnywhere asks for ids that nobody knows the relay of, or whose relay is gone:
// those relays of which most is wanted, or the next one that is connected.
func (p *Plan) nameAnywhere(ids []graspsync.EventID) {
	if len(p.connected) == 0 {
		room := min(len(ids), max(0, p.cfg.MaxNamed-len(p.homeless)))
		p.homeless = append(p.homeless, ids[:room]...)
		p.droppedNamed(len(ids) - room)
		return
	}
	relays := make([]*relay, 0, len(p.connected))
	for r := range p.connected {
		relays = append(relays, r)
	}
	slices.SortFunc(relays, func(a, b *relay) int {
		return cmp.Or(cmp.Compare(len(b.history.items), len(a.history.items)), graspsync.RelayURL.Compare(a.url, b.url))
	})
	for _, r := range relays[:min(maxAsked, len(relays))] {
		p.name(r, ids)
	}
}

// nameHomeless asks for what waits for a connection, now that there is one.
func (p *Plan) nameHomeless() {
	if ids := p.homeless; len(ids) > 0 {
		p.homeless = nil
		p.nameAnywhere(ids)
	}
}

// name queues ids for a relay, as far as there is room.
func (p *Plan) name(r *relay, ids []graspsync.EventID) {
	if r.byID.ids == nil {
		r.byID.ids = &idQueue{known: make(map[graspsync.EventID]struct{})}
	}
	dropped := 0
	for _, id := range ids {
		if _, ok := r.byID.ids.known[id]; ok {
			continue
		}
		if len(r.byID.ids.known) >= p.cfg.MaxNamed {
			dropped++
			continue
		}
		r.byID.ids.known[id] = struct{}{}
		r.byID.ids.queue = append(r.byID.ids.queue, wantedID{id: id})
	}
	p.droppedNamed(dropped)
	r.byID.ids.endIfEmpty(r)
	p.touch(r)
}

// endIfEmpty lets go of a queue that holds nothing.
func (n *idQueue) endIfEmpty(r *relay) {
	if len(n.known) == 0 {
		r.byID.ids = nil
	}
}

func (p *Plan) droppedNamed(n int) {
	if n > 0 {
		p.emit(Dropped{Reason: "named", Count: n})
	}
}

// dropNamed has others asked for what a relay that is forgotten will not be.
func (p *Plan) dropNamed(r *relay) {
	if r.byID.ids == nil {
		return
	}
	ids := slices.SortedFunc(maps.Keys(r.byID.ids.known), graspsync.EventID.Compare)
	r.byID.ids = nil
	p.nameAnywhere(ids)
}

// namedDue reports whether there are ids to ask for now.
func (r *relay) namedDue(now time.Time) bool {
	return r.byID.ids != nil && len(r.byID.ids.queue) > 0 && !now.Before(r.byID.ids.retryAt)
}

func (p *Plan) startNamed(r *relay, now time.Time) {
	n := r.byID.ids
	b := &batch{kind: NamedIDs, named: slices.Clone(n.queue[:min(p.cfg.NamedIDs, len(n.queue))])}
	n.queue = slices.Delete(n.queue, 0, len(b.named))
	n.retryAt = time.Time{}
	ids := make([]graspsync.EventID, len(b.named))
	for i, id := range b.named {
		ids[i] = id.id
	}
	fs := filters.ByID(ids, p.cfg.NamedIDs)
	for i := range fs {
		fs[i].Limit = 0
	}
	var qs []Query
	if qs, b.roles = p.queries(r, fs, 0, nil); len(qs) == 0 {
		p.namedDone(r, b)
		return
	}
	for i := range qs {
		qs[i].NoNegentropy = true
	}
	p.start(r, b, qs, now)
}

// namedDone forgets the ids of a batch: what the relay has of them is here.
func (p *Plan) namedDone(r *relay, b *batch) {
	for _, id := range b.named {
		delete(r.byID.ids.known, id.id)
	}
	r.byID.ids.endIfEmpty(r)
}

// namedFailed has the ids of a batch asked for again: a few times, if it is the relay
// that fails.
func (p *Plan) namedFailed(r *relay, b *batch, until time.Time, in Done) {
	dropped := 0
	for _, id := range b.named {
		if !in.Unsaved {
			id.tries++
		}
		if in.Result == Refused || id.tries >= maxNamedTries {
			delete(r.byID.ids.known, id.id)
			dropped++
			continue
		}
		r.byID.ids.queue = append(r.byID.ids.queue, id)
	}
	r.byID.ids.retryAt = until
	r.byID.ids.endIfEmpty(r)
	p.droppedNamed(dropped)
}

// namedLost gives back what was in flight when the connection ended.
func (r *relay) namedLost(b *batch) {
	r.byID.ids.queue = append(slices.Clone(b.named), r.byID.ids.queue...)
	r.byID.ids.retryAt = time.Time{}
}

// onUnserved asks other connected relays for what one has announced and not served:
// those that have most repositories in common with it. Of each relay that is so much,
// and it leaves half of their room to what is known to exist.
func (p *Plan) onUnserved(now time.Time, in Unserved) {
	r, ok := p.relays[in.Relay]
	if !ok {
		return
	}
	if now.Sub(r.byID.unservedAt) >= unservedTime {
		r.byID.unservedAt, r.byID.unserved = now, 0
	}
	common := make(map[*relay]int)
	for it := range r.history.items {
		if in := &p.want.infos[it]; in.kind == itemRepo {
			for _, o := range in.repo.relays {
				if o != r && o.dial.connected {
					common[o]++
				}
			}
		}
	}
	others := make([]*relay, 0, len(common))
	for o := range common {
		others = append(others, o)
	}
	slices.SortFunc(others, func(a, b *relay) int {
		return cmp.Or(cmp.Compare(common[b], common[a]), graspsync.RelayURL.Compare(a.url, b.url))
	})
	ids := in.IDs[:min(maxUnserved-r.byID.unserved, len(in.IDs))]
	r.byID.unserved += len(ids)
	p.droppedNamed(len(in.IDs) - len(ids))
	for _, o := range others[:min(maxAsked, len(others))] {
		room := min(len(ids), max(0, p.cfg.MaxNamed/2-o.namedCount()))
		if p.droppedNamed(len(ids) - room); room > 0 {
			p.name(o, ids[:room])
		}
	}
}
