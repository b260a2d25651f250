package plan

import (
	"crypto/sha256"
	"encoding/binary"
	"iter"
	"slices"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
)

// Kept is what of a relay is worth keeping over a restart.
type Kept struct {
	Relay graspsync.RelayURL
	// Mark is a moment of our clock at which everything that the relay had for Items
	// was here and dealt with.
	Mark time.Time
	// PassAt is when the last pass over the whole history began.
	PassAt time.Time
	// Items are the confirmed ones, ascending. Each is the first 8 bytes (big endian)
	// of SHA-256(salt ‖ kind byte ‖ value), where kind and value are 1 and nothing for
	// layer 1, 2 and the address (30617:...) for a repository, 3 and the 32 bytes of
	// the id for a root event, 4 and the address for the states of a repository, 5 and
	// nothing for a layer 1 of announcements alone: what was confirmed with states is
	// not taken for what was confirmed without, nor the other way around.
	Items []uint64
}

// restored is a Kept that waits for the first connection.
type restored struct {
	mark, passAt time.Time
	items        []uint64 // ascending
}

// checkpointState is what of one relay survives a restart, besides its items.
type checkpointState struct {
	restored  *restored // until the first connection
	mark      time.Time // everything confirmed was complete and durable then
	dirty     bool      // something else than the mark has changed
	unsettled bool      // of what the relay sent some was not dealt with at the last Settled
}

// restore takes in what was kept. What is too old to be of use is left out: such
// relays are fetched from in full.
func (p *Plan) restore(now time.Time, in Restore) {
	p.restored = make(map[graspsync.RelayURL]*restored)
	p.restoredAt = now
	for _, k := range in.Relays {
		if k.Mark.After(now) || now.Sub(k.Mark) > p.cfg.QuickReconnect || len(p.restored) >= p.cfg.MaxRelays {
			continue
		}
		items := k.Items
		if !slices.IsSorted(items) {
			items = slices.Sorted(slices.Values(items))
		}
		p.restored[k.Relay] = &restored{mark: k.Mark, passAt: k.PassAt, items: items}
	}
	for _, k := range in.Tenures {
		if !k.Since.After(now) {
			p.owners.tenures[k.Owner] = tenure{since: k.Since.Round(0), goneAt: now.Round(0)}
		}
	}
	p.standing = make(map[graspsync.RelayURL]Standing)
	for _, k := range in.Known {
		if len(p.standing) < p.cfg.MaxRelays && (k.Good || !k.UsefulAt.IsZero()) {
			p.standing[k.Relay] = k
		}
	}
	for _, r := range p.relays {
		if r.dial.aliveAt.IsZero() {
			p.recall(r)
		}
	}
}

// recall gives a relay that becomes known what was kept of it.
func (p *Plan) recall(r *relay) {
	if k, ok := p.restored[r.url]; ok {
		r.checkpoint.restored = k
		delete(p.restored, r.url)
	}
	if k, ok := p.standing[r.url]; ok {
		p.setGood(r, r.dial.good || k.Good)
		if r.dial.usefulAt.Before(k.UsefulAt) {
			r.dial.usefulAt = k.UsefulAt
		}
		delete(p.standing, r.url)
	}
}

// reconnectKept makes the first connection after a restart one that was lost at the
// mark, if that is not too long ago: the items kept are confirmed then. All others
// are fetched from the start.
func (p *Plan) reconnectKept(r *relay, now time.Time) {
	k := r.checkpoint.restored
	r.checkpoint.restored = nil
	if k == nil || !r.dial.aliveAt.IsZero() || k.mark.After(now) || now.Sub(k.mark) > p.cfg.QuickReconnect {
		return
	}
	for it := range r.history.items {
		if _, ok := slices.BinarySearch(k.items, p.hash(it)); ok {
			r.set(it, confirmed)
		}
	}
	r.dial.aliveAt, r.checkpoint.mark = k.mark, k.mark
	r.pass.at = k.passAt
	if r.pass.at.IsZero() || r.pass.at.After(now) {
		r.pass.at = now
	}
	r.pass.dueAt = p.nextPass(r.pass.at)
}

// onSettled moves the marks of the relays whose connections stand.
func (p *Plan) onSettled(now time.Time, in Settled) {
	p.settledAt = in.At
	for r := range p.connected {
		if _, r.checkpoint.unsettled = in.Except[r.url]; !r.checkpoint.unsettled && !r.dial.connectedAt.After(in.At) {
			r.moveMark(p.completeUntil(r, in.At))
		}
	}
	p.owners.dropGone(now)
	if now.Sub(p.restoredAt) > p.cfg.QuickReconnect {
		p.restored, p.standing = nil, nil // nobody wants these relays any more
	}
}

// moveMark moves a mark forward.
func (r *relay) moveMark(to time.Time) {
	if to.After(r.checkpoint.mark) {
		r.checkpoint.dirty = r.checkpoint.dirty || r.checkpoint.mark.IsZero()
		r.checkpoint.mark = to
	}
}

// completeUntil returns up to when everything confirmed is complete, if all that was
// received before at is dealt with: what may have been missed, and what is polled,
// is complete up to an earlier moment.
func (p *Plan) completeUntil(r *relay, at time.Time) time.Time {
	earlier := func(t time.Time) {
		if !t.IsZero() && t.Before(at) {
			at = t
		}
	}
	if r.catchUp.since != 0 {
		earlier(r.catchUp.since.Time().UTC().Add(p.cfg.Overlap))
	}
	earlier(r.live.postponed)
	if r.live.poll != nil {
		earlier(r.live.poll.oldest())
	}
	return at
}

// markLost sets the mark of a connection that was last known to stand at aliveAt:
// what was settled later is not known to be complete.
func (p *Plan) markLost(r *relay, aliveAt time.Time) {
	switch {
	case r.checkpoint.mark.IsZero():
	case aliveAt.Before(r.checkpoint.mark):
		r.checkpoint.mark = aliveAt
		r.checkpoint.dirty = true
	case !r.checkpoint.unsettled && p.settledAt.After(r.checkpoint.mark):
		at := p.settledAt
		if aliveAt.Before(at) {
			at = aliveAt
		}
		r.moveMark(p.completeUntil(r, at))
	}
}

// Kept returns what is worth keeping of these relays, or of all if none is named,
// ordered by URL. A relay that is asked for and not in the answer has nothing (any
// more). Items are hashed once; the cost is that of going through the items of the
// relays asked for.
func (p *Plan) Kept(only ...graspsync.RelayURL) []Kept {
	if len(only) == 0 {
		only = sortedBy(p.relays, graspsync.RelayURL.Compare)
		for u := range p.restored {
			only = append(only, u)
		}
		clear(p.changed)
	}
	var out []Kept
	for _, u := range only {
		delete(p.changed, u)
		r, known := p.relays[u]
		switch {
		case known:
			r.checkpoint.dirty = false
			if k, ok := p.keptOf(r); ok {
				out = append(out, k)
			}
		case p.restored[u] != nil:
			out = append(out, p.restored[u].kept(u))
		}
	}
	slices.SortFunc(out, func(a, b Kept) int { return a.Relay.Compare(b.Relay) })
	return out
}

func (k *restored) kept(u graspsync.RelayURL) Kept {
	return Kept{Relay: u, Mark: k.mark, PassAt: k.passAt, Items: k.items}
}

func (p *Plan) keptOf(r *relay) (Kept, bool) {
	if r.checkpoint.restored != nil {
		return r.checkpoint.restored.kept(r.url), true
	}
	if r.checkpoint.mark.IsZero() || r.history.ofStatus[confirmed] == 0 {
		return Kept{}, false
	}
	k := Kept{Relay: r.url, Mark: r.checkpoint.mark, PassAt: r.pass.at, Items: make([]uint64, 0, r.history.ofStatus[confirmed])}
	for it, st := range r.history.items {
		if st == confirmed {
			k.Items = append(k.Items, p.hash(it))
		}
	}
	slices.Sort(k.Items)
	return k, true
}

// Changed returns the relays of which more than the mark has changed since Kept was
// last asked for them, ordered by URL: their items, when their pass began, or
// whether there is anything at all. [Plan.Marks] has the marks.
func (p *Plan) Changed() []graspsync.RelayURL {
	out := sortedBy(p.changed, graspsync.RelayURL.Compare)
	for u, r := range p.relays {
		if _, also := p.changed[u]; r.checkpoint.dirty && !also {
			out = append(out, u)
		}
	}
	slices.SortFunc(out, graspsync.RelayURL.Compare)
	return out
}

// Marks returns the marks of all relays of which something is kept, in no order.
func (p *Plan) Marks() iter.Seq2[graspsync.RelayURL, time.Time] {
	return func(yield func(graspsync.RelayURL, time.Time) bool) {
		for u, r := range p.relays {
			mark := r.checkpoint.mark
			if r.checkpoint.restored != nil {
				mark = r.checkpoint.restored.mark
			} else if r.history.ofStatus[confirmed] == 0 {
				continue
			}
			if !mark.IsZero() && !yield(u, mark) {
				return
			}
		}
	}
}

// hash returns the hash of an item. It is remembered: the same item is confirmed on
// several relays.
func (p *Plan) hash(it Item) uint64 {
	w := &p.want
	if n := len(w.infos) - len(w.hashes); n > 0 {
		w.hashes = append(w.hashes, make([]uint64, n)...)
	}
	if w.hashes[it] == 0 {
		in := &w.infos[it]
		kind := [itemKinds]byte{itemLayer1: 1, itemRepo: 2, itemRoot: 3, itemStates: 4}[in.kind]
		if in.kind == itemLayer1 && w.narrow {
			kind = 5
		}
		b := append(slices.Clone(p.cfg.Salt), kind)
		switch in.kind {
		case itemRepo, itemStates:
			b = append(b, in.repo.ref.String()...)
		case itemRoot:
			b = append(b, in.root[:]...)
		}
		sum := sha256.Sum256(b)
		w.hashes[it] = binary.BigEndian.Uint64(sum[:])
	}
	return w.hashes[it]
}

// onClockJumped makes what depends on our clock conservative again. After a step
// back the times noted before lie ahead of those that events bear: whatever is
// fetched since then is fetched since earlier. What is known to be complete starts
// anew with the next Settled.
func (p *Plan) onClockJumped(now time.Time, in ClockJumped) {
	back := max(0, -in.By)
	earlier := func(t *time.Time) {
		if !t.IsZero() {
			*t = t.Add(-back)
		}
	}
	p.settledAt = time.Time{}
	p.owners.jumped(in.By, now)
	for _, r := range p.relays {
		r.claim.since = r.claim.since.Add(in.By)
	}
	for _, k := range p.restored {
		earlier(&k.mark)
	}
	for _, u := range sortedBy(p.relays, graspsync.RelayURL.Compare) {
		r := p.relays[u]
		r.checkpoint.dirty = r.checkpoint.dirty || !r.checkpoint.mark.IsZero()
		r.checkpoint.mark = time.Time{}
		if r.checkpoint.restored != nil {
			earlier(&r.checkpoint.restored.mark)
		}
		earlier(&r.dial.aliveAt)
		earlier(&r.dial.absentSince)
		earlier(&r.live.postponed)
		if r.live.poll != nil {
			for _, g := range r.live.poll.groups {
				earlier(&g.since)
			}
		}
		if r.descendants != nil {
			for _, g := range r.descendants.groups {
				earlier(&g.since)
				earlier(&g.begun)
				earlier(&g.floor)
			}
		}
		for _, b := range r.batches.open {
			earlier(&b.begun)
		}
		if r.catchUp.since != 0 && back > 0 {
			r.catchUp.since -= nostr.Timestamp(back / time.Second)
			r.catchUp.missedAll = true
			if r.dial.connected && !r.catchUp.missed { // what is under way looks since a wrong time
				p.queueCatchUp(r)
				p.touch(r)
			}
		}
	}
}
