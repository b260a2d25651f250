package plan

import "container/list"

// dialQueue contains the relays that wait for a dial. Owners take turns, regardless of the number
// of their relays. A relay waits in the queue of each owner that lists it, and is dialed at the
// first turn of any of them. Bootstrap relays come first.
type dialQueue struct {
	operator dialOwner // the owner of the bootstrap relays
	owners   list.List // of *dialOwner with waiting relays, in order
}

// dialTurn contains the places of a relay in the dialQueue.
type dialTurn struct {
	places map[*dialOwner]*list.Element // by owner; empty if it does not wait
}

func (s *dialTurn) waits() bool { return len(s.places) > 0 }

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

// join queues a waiting relay for one more owner.
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

func (l *dialQueue) leave(r *relayState) {
	for o := range r.turn.places {
		l.quit(r, o)
	}
}

// served removes a relay that used the turn of an owner. The owner moves to the end of the queue.
func (l *dialQueue) served(r *relayState, o *dialOwner) {
	l.leave(r)
	if o.turn != nil && o != &l.operator {
		l.owners.MoveToBack(o.turn)
	}
}
