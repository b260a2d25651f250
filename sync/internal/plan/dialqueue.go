package plan

import "container/list"

// lines are the relays that wait for their turn to be dialed. Owners take turns, however many relays each of
// them lists. A relay waits in the line of each owner that lists it, and is dialed at the first of these turns.
// Bootstrap relays come before all others.
type dialQueue struct {
	operator dialOwner // who names the bootstrap relays
	owners   list.List // of *owner with waiting relays, the next one to be served first
}

// turnState is where a relay waits for its turn to be dialed.
type dialTurn struct {
	places map[*dialOwner]*list.Element // its places in the lines of owners; empty if it does not wait
}

func (s *dialTurn) waits() bool { return len(s.places) > 0 }

// add puts a relay at the end of the lines of those who list it.
func (l *dialQueue) add(r *relayState) {
	r.turn.places = make(map[*dialOwner]*list.Element)
	if r.bootstrap {
		l.join(r, &l.operator)
		return
	}
	for _, o := range sortedBy(r.listed.owners, func(a, b *dialOwner) int { return a.key.Compare(b.key) }) {
		l.join(r, o)
	}
}

// join puts a relay that waits at the end of the line of one more owner.
func (l *dialQueue) join(r *relayState, o *dialOwner) {
	r.turn.places[o] = o.waiting.PushBack(r)
	switch {
	case o.turn != nil:
	case o == &l.operator:
		o.turn = l.owners.PushFront(o)
	default:
		o.turn = l.owners.PushBack(o)
	}
}

// quit takes a relay out of the line of an owner.
func (l *dialQueue) quit(r *relayState, o *dialOwner) {
	place := r.turn.places[o]
	if place == nil {
		return
	}
	delete(r.turn.places, o)
	if o.waiting.Remove(place); o.waiting.Len() == 0 {
		l.owners.Remove(o.turn)
		o.turn = nil
	}
}

// leave takes a relay out of all lines.
func (l *dialQueue) leave(r *relayState) {
	for o := range r.turn.places {
		l.quit(r, o)
	}
}

// served takes out a relay whose turn it was, by the turn of an owner, who is the last one then.
func (l *dialQueue) served(r *relayState, o *dialOwner) {
	l.leave(r)
	if o.turn != nil && o != &l.operator {
		l.owners.MoveToBack(o.turn)
	}
}
