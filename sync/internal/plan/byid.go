package plan

import (
	"cmp"
	"slices"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/filters"
)

const (
	maxNamedTries = 3
	maxUnserved   = 1_000 // ids of one relay that are requested from others, per unservedTime, because a relay may invent ids
	maxAsked      = 2     // number of other relays
	unservedTime  = time.Hour
)

type byID struct {
	*core
	repos   *repoSyncIndex
	pending *pendingSyncIndex
	dialer  *dialer

	unassigned []graspsync.EventID
}

type byIDState struct {
	queue      []wantedID
	known      map[graspsync.EventID]struct{} // queued or in flight; nil: none
	unserved   int                            // announced but not served, since unservedAt
	unservedAt time.Time
}

type wantedID struct {
	id    graspsync.EventID
	tries int
}

func (by *byID) named(r *relayState, ids []graspsync.EventID) {
	if r == nil {
		by.fetchAnywhere(ids)
		return
	}
	by.fetch(r, ids)
}

// fetchAnywhere requests ids from the connected relays with the most items, or from the next relay
// that connects.
func (by *byID) fetchAnywhere(ids []graspsync.EventID) {
	if len(by.dialer.connected) == 0 {
		room := min(len(ids), max(0, by.cfg.MaxNamed-len(by.unassigned)))
		by.unassigned = append(by.unassigned, ids[:room]...)
		by.countDropped(len(ids) - room)
		return
	}
	items := make(map[*relayState]int, len(by.dialer.connected))
	for r := range by.dialer.connected {
		items[r] = len(r.history.items)
	}
	for _, r := range best(items) {
		by.fetch(r, ids)
	}
}

// best returns the relays with the highest scores, at most maxAsked.
func best(scores map[*relayState]int) []*relayState {
	all := sortedBy(scores, func(a, b *relayState) int { return cmp.Or(cmp.Compare(scores[b], scores[a]), byName(a, b)) })
	return all[:min(maxAsked, len(all))]
}

func (by *byID) assign() {
	if ids := by.unassigned; len(ids) > 0 {
		by.unassigned = nil
		by.fetchAnywhere(ids)
	}
}

func (by *byID) fetch(r *relayState, ids []graspsync.EventID) {
	if r.byID.known == nil {
		r.byID.known = make(map[graspsync.EventID]struct{})
	}
	dropped := 0
	for _, id := range ids {
		if _, ok := r.byID.known[id]; ok {
			continue
		}
		if len(r.byID.known) >= by.cfg.MaxNamed {
			dropped++
			continue
		}
		r.byID.known[id] = struct{}{}
		r.byID.queue = append(r.byID.queue, wantedID{id: id})
	}
	by.countDropped(dropped)
	r.byID.endIfEmpty()
	by.markDirty(r)
}

func (by *byID) countDropped(n int) {
	if n > 0 {
		by.emit(Dropped{Reason: "id_queue", Count: n})
	}
}

func (by *byID) reassign(r *relayState) {
	if ids := sortedBy(r.byID.known, graspsync.EventID.Compare); len(ids) > 0 {
		by.fetchAnywhere(ids)
	}
}

// unserved requests ids that a relay announced and did not serve from the relays with the most
// repositories in common, in at most half of their queues.
func (by *byID) unserved(r *relayState, ids []graspsync.EventID, now time.Time) {
	if now.Sub(r.byID.unservedAt) >= unservedTime {
		r.byID.unservedAt, r.byID.unserved = now, 0
	}
	shared := make(map[*relayState]int)
	for it := range r.history.items {
		if in := &by.repos.infos[it]; in.kind == itemRepo {
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
	by.countDropped(announced - len(ids))
	for _, o := range best(shared) {
		room := min(len(ids), max(0, by.cfg.MaxNamed/2-len(o.byID.known)))
		if by.countDropped(len(ids) - room); room > 0 {
			by.fetch(o, ids[:room])
		}
	}
}

func (by *byID) due(r *relayState, _ time.Time) bool {
	return len(r.byID.queue) > 0 && !r.pending.parks(by)
}

func (by *byID) start(r *relayState, now time.Time) {
	n := &r.byID
	b := &batch{of: by, kind: NamedIDs, named: slices.Clone(n.queue[:min(by.cfg.NamedIDs, len(n.queue))])}
	n.queue = slices.Delete(n.queue, 0, len(b.named))
	ids := make([]graspsync.EventID, len(b.named))
	for i, id := range b.named {
		ids[i] = id.id
	}
	fs := filters.ByID(ids, by.cfg.NamedIDs)
	for i := range fs {
		fs[i].Limit = 0
	}
	qs := by.pending.queries(r, fs, 0, nil)
	if len(qs) == 0 {
		by.done(r, b)
		return
	}
	for i := range qs {
		qs[i].NoNegentropy = true
	}
	by.pending.start(r, b, qs, now)
}

func (by *byID) done(r *relayState, b *batch) {
	for _, id := range b.named {
		delete(r.byID.known, id.id)
	}
	r.byID.endIfEmpty()
}

// failed queues the ids again, at most maxNamedTries times if the relay is the cause.
func (by *byID) failed(r *relayState, b *batch, in Done) {
	dropped := 0
	for _, id := range b.named {
		if !in.Unsaved {
			id.tries++
		}
		if in.Result == Refused || id.tries >= maxNamedTries {
			delete(r.byID.known, id.id)
			dropped++
			continue
		}
		r.byID.queue = append(r.byID.queue, id)
	}
	r.byID.endIfEmpty()
	by.countDropped(dropped)
}

func (s *byIDState) endIfEmpty() {
	if len(s.known) == 0 {
		s.queue, s.known = nil, nil
	}
}
