package sync

import (
	"cmp"
	"slices"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/filters"
	"github.com/graspsync/graspsync/sync/internal/shares"
)

// has reports whether an event needs no second look.
func (r *rejected) has(id graspsync.EventID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.get(id)
	return e != nil && e.flags&fateAsked == 0 && !r.due(e, time.Now())
}

// forget has an event looked at again. That it was accepted once stays known.
func (r *rejected) forget(id graspsync.EventID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	el, ok := r.byID[id]
	if !ok {
		return
	}
	if e := entryOf(el); e.flags&fateAccepted != 0 {
		r.release1(e)
		e.flags = e.flags&^(fateJudged|fateLater) | fateAsked
		return
	}
	r.remove(el)
}

// owe remembers of an event that could not be saved that it is wanted again.
func (r *rejected) owe(n note) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	e := r.entry(n.id, r.relays.number(n.incoming.Source.Relay), now)
	if e.createdAt == noTime {
		e.createdAt, e.kind = n.incoming.Event.CreatedAt, int32(n.incoming.Event.Kind) //nolint:gosec // a kind that does not fit matches no filter
	}
	r.release1(e)
	e.flags = e.flags&^(fateJudged|fateLater) | fateAsked
	r.shrink(now)
}

// stored takes note that an event is in the Store now.
func (r *rejected) stored(id graspsync.EventID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	el, ok := r.byID[id]
	switch {
	case !ok:
	case entryOf(el).flags&fateAccepted == 0:
		r.remove(el)
	default:
		r.unhold(entryOf(el))
		entryOf(el).flags &^= fateJudged | fateAsked | fateLater
	}
}

// arrived returns what depends on any of the keys: whole events in the order in
// which they came, and the ids of the others by the relay that brought them, which
// count as forgotten.
func (r *rejected) arrived(keys []depKey) (whole []*waitingEvent, ask map[graspsync.RelayURL][]graspsync.EventID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.shrink(time.Now())
	for _, k := range keys {
		for _, e := range r.waitingFor(k) {
			if e.whole != nil {
				whole = append(whole, r.release1(e))
				e.flags |= fateJudged
			} else if e.flags&fateAsked == 0 {
				e.flags |= fateAsked
				u := r.relays.url(e.relay)
				put(&ask, u, append(ask[u], e.id))
			}
		}
	}
	sortWaiting(whole)
	return whole, ask
}

// waitingFor returns the entries that wait for a key.
func (r *rejected) waitingFor(k depKey) (all []*remembered) {
	first := r.byDep[k]
	for d := first; d != nil; {
		all = append(all, d.of)
		if d = d.next; d == first {
			break
		}
	}
	return all
}

// idle reports whether nothing waits for anything.
func (r *rejected) idle() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.byDep) == 0
}

// awaits reports whether something waits for a key.
func (r *rejected) awaits(k depKey) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.byDep[k] != nil
}

// wanted returns the ids that an earlier process wanted again and did not get, by the
// relay that had them. What there was no room for has its turn later.
func (r *rejected) wanted() (ask map[graspsync.RelayURL][]graspsync.EventID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for el := r.order.Front(); el != nil; el = el.Next() {
		if e := entryOf(el); e.flags&fateAsked != 0 && e.flags&fateLater == 0 {
			u := r.relays.url(e.relay)
			put(&ask, u, append(ask[u], e.id))
		}
	}
	return ask
}

// here takes note that an event is stored after all.
func (r *rejected) here(id graspsync.EventID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if el, ok := r.byID[id]; ok {
		entryOf(el).flags &^= fateAsked
	}
}

// inTurn returns whole events for which there was no room, at most so many, that were last
// judged at a time or before: those that were longest ago, of each relay no more than its part
// if others have some. They are kept.
func (r *rejected) inTurn(most int, last, now time.Time) (turn []*waitingEvent) {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := &r.later
	of := make(map[shares.Owner]int)
	part := most / max(1, h.owners.Owners())
	for round := range 2 { // in the second one, whoever has more
		for el := h.queue.Front(); el != nil && len(turn) < most; {
			w, next := wholeOf(el), el.Next()
			if w.since.After(last) {
				break
			}
			if relay := w.entry.relay; round > 0 || of[relay] < part {
				of[relay]++
				w.since = now
				h.queue.MoveToBack(el)
				turn = append(turn, w)
			}
			el = next
		}
	}
	return turn
}

// tries is how often there was no room for an event.
func (r *rejected) tries(id graspsync.EventID) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e := r.get(id); e != nil {
		return e.flags.tries()
	}
	return 0
}

// judging takes an event out of those for which there was no room: it is judged or saved
// again until that works. How often there was none is remembered.
func (r *rejected) judging(id graspsync.EventID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if el, ok := r.byID[id]; ok {
		e := entryOf(el)
		r.unhold(e)
		e.flags |= fateJudged
	}
}

// overdue returns ids of events for which there was no room and of which only the id is
// left, by the relay that had them: of each at most so many. They count as forgotten.
// any is false if there is nothing at all for which there was no room.
func (r *rejected) overdue(most int) (ask map[graspsync.RelayURL][]graspsync.EventID, any bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	for el := r.order.Front(); el != nil; el = el.Next() {
		e := entryOf(el)
		if e.flags&fateLater == 0 {
			continue
		}
		any = true
		u := r.relays.url(e.relay)
		if e.flags&fateAsked == 0 && e.flags.tries() <= laterAsks && r.due(e, now) && len(ask[u]) < most {
			e.flags |= fateAsked
			put(&ask, u, append(ask[u], e.id))
		}
	}
	return ask, any
}

func sortWaiting(whole []*waitingEvent) {
	slices.SortFunc(whole, func(a, b *waitingEvent) int { return cmp.Compare(a.seq, b.seq) })
}

// anything returns all whole events that wait for something, and forgets the others
// that do: it is not known what has arrived.
func (r *rejected) anything() (whole []*waitingEvent) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for el := r.order.Front(); el != nil; el = el.Next() {
		e := entryOf(el)
		if len(e.deps) == 0 || e.flags&fateAccepted != 0 {
			continue
		}
		if w := r.release1(e); w != nil {
			whole = append(whole, w)
			e.flags |= fateJudged
		} else {
			e.flags |= fateAsked
		}
	}
	sortWaiting(whole)
	return whole
}

// addressesOf returns the keys of the replaceable events among ids that this author
// wrote.
func (r *rejected) addressesOf(ids []graspsync.EventID, author graspsync.PubKey) (keys []depKey) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, id := range ids {
		e := r.get(id)
		if e == nil || e.author != shortKey(author) {
			continue
		}
		for _, d := range e.deps {
			keys = append(keys, d.key)
		}
	}
	return keys
}

// waiting is how many events wait whole.
func (r *rejected) waiting() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.wait.queue.Len()
}

// stamps returns what is known to match a filter: of filters that name nothing but
// kinds and a time everything remembered, of others what is still whole. Every event
// that comes waits for the lock, so that nothing is matched under it but kinds and times.
func (r *rejected) stamps(f nostr.Filter) (out []graspsync.Stamp) {
	if f.IDs == nil && f.Authors == nil && len(f.Tags) == 0 {
		return r.stampsByKind(f)
	}
	match := filters.Compile([]nostr.Filter{f})
	for _, w := range r.whole() {
		if match.Match(w.ev) {
			out = append(out, w.stamp)
		}
	}
	return out
}

func (r *rejected) stampsByKind(f nostr.Filter) (out []graspsync.Stamp) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	for el := r.order.Front(); el != nil; el = el.Next() {
		e := entryOf(el)
		switch {
		case f.Kinds != nil && !slices.Contains(f.Kinds, int(e.kind)):
		case f.Since != nil && e.createdAt < *f.Since, f.Until != nil && e.createdAt > *f.Until:
		case r.counts(e, now):
			out = append(out, e.stamp())
		}
	}
	return out
}

// wholeStamp is a remembered event of which more than the stamp is left.
type wholeStamp struct {
	stamp graspsync.Stamp
	ev    *nostr.Event
}

// whole returns what is whole and known to be dealt with.
func (r *rejected) whole() []wholeStamp {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	out := make([]wholeStamp, 0, r.wait.queue.Len()+r.fresh.queue.Len()+r.later.queue.Len())
	for _, in := range []*holding{&r.wait, &r.fresh, &r.later} {
		for el := in.queue.Front(); el != nil; el = el.Next() {
			if w := wholeOf(el); r.counts(w.entry, now) {
				out = append(out, wholeStamp{w.entry.stamp(), w.incoming.Event})
			}
		}
	}
	return out
}

// counts reports whether an entry says that an event is known, and when it was made.
func (r *rejected) counts(e *remembered, now time.Time) bool {
	return e.flags&fateAsked == 0 && e.createdAt >= 0 && !r.old(e, now) && !r.due(e, now)
}

func (e *remembered) stamp() graspsync.Stamp {
	return graspsync.Stamp{CreatedAt: e.createdAt, ID: e.id}
}
