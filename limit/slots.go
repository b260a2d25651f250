package limit

import (
	"container/list"
	"context"
	"errors"
	"sync"
)

// ErrTooLarge reports a request for more units than one stranger may have.
var ErrTooLarge = errors.New("more than one stranger's part")

// Slots is a number of units (processes, bytes) that strangers use temporarily. A stranger has at
// most its part, even if other strangers use nothing, and a group at most [GroupParts] parts.
// Waiting strangers are served round-robin, a group as one. Slots is safe for concurrent use.
type Slots struct {
	total, part int64

	mu sync.Mutex
	// guarded by mu
	used    int64
	holders map[ownerKey]int64 // units in use, by stranger and by group
	ring    list.List          // of *queue, next to be served first
	queues  map[string]*queue  // by queueName
}

// queue contains the waiting callers of one stranger or group in order of arrival.
type queue struct {
	name        string
	waiting     list.List // of *Slot
	ringElement *list.Element
}

// Slot is a number of units in use or requested.
type Slot struct {
	slots   *Slots
	who     Stranger
	granted func(*Slot) // called when the units are granted

	// guarded by slots.mu
	units        int64
	queueElement *list.Element // in its queue
}

// NewSlots returns total units, of which one stranger may use part at a time.
func NewSlots(total, part int64) *Slots {
	return &Slots{
		total: total, part: min(part, total),
		holders: make(map[ownerKey]int64), queues: make(map[string]*queue),
	}
}

// Acquire waits for units. It returns [ErrTooLarge] if units exceeds the part (the total for the
// zero Stranger), or the cause of ctx. The caller must call Release.
func (s *Slots) Acquire(ctx context.Context, who Stranger, units int64) (*Slot, error) {
	maxUnits := s.part
	if who == (Stranger{}) {
		maxUnits = s.total
	}
	if units > maxUnits {
		return nil, ErrTooLarge
	}
	ready := make(chan struct{})
	slot := &Slot{slots: s, who: who, units: units, granted: func(*Slot) { close(ready) }}
	s.mu.Lock()
	s.enqueue(slot)
	s.serve()
	s.mu.Unlock()
	select {
	case <-ready:
		return slot, nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-ready: // free units are granted even if ctx has ended
		return slot, nil
	default:
	}
	s.dequeue(slot)
	s.serve() // the units may have been reserved for this caller
	return nil, context.Cause(ctx)
}

// TryAcquire returns nil if the units are not free, exceed the stranger's part, or are wanted by a
// waiting caller.
func (s *Slots) TryAcquire(who Stranger, units int64) *Slot {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	slot, _ := s.Acquire(ctx, who, units)
	return slot
}

// Queue is an Acquire that does not block. It calls granted when the units are in use, possibly
// before Queue returns. granted must neither block nor use the slots.
func (s *Slots) Queue(who Stranger, units int64, granted func(*Slot)) {
	if who != (Stranger{}) && units > s.part || units > s.total {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.enqueue(&Slot{slots: s, who: who, units: units, granted: granted})
	s.serve()
}

// Release returns the units. Later calls do nothing.
func (l *Slot) Release() { l.Shrink(0) }

// Shrink returns units until left units remain.
func (l *Slot) Shrink(left int64) {
	l.slots.mu.Lock()
	defer l.slots.mu.Unlock()
	if left < l.units {
		l.slots.addUse(l, left-l.units)
		l.units = left
		l.slots.serve()
	}
}

// HasWaiter reports whether a caller within its own part waits. A slow holder should then release its
// slot.
func (l *Slot) HasWaiter() bool {
	s := l.slots
	s.mu.Lock()
	defer s.mu.Unlock()
	for e := s.ring.Front(); e != nil; e = e.Next() {
		if s.next(e.Value.(*queue)) != nil {
			return true
		}
	}
	return false
}

// Stats returns the units in use and the number of waiting callers.
func (s *Slots) Stats() (used int64, waiting int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, q := range s.queues {
		waiting += q.waiting.Len()
	}
	return s.used, waiting
}

// The caller of the methods below holds mu.

func (s *Slots) enqueue(slot *Slot) {
	name := slot.who.queueName()
	q := s.queues[name]
	if q == nil {
		q = &queue{name: name}
		q.ringElement = s.ring.PushBack(q)
		s.queues[name] = q
	}
	slot.queueElement = q.waiting.PushBack(slot)
}

func (s *Slots) dequeue(slot *Slot) {
	q := s.queues[slot.who.queueName()]
	q.waiting.Remove(slot.queueElement)
	if q.waiting.Len() == 0 {
		s.ring.Remove(q.ringElement)
		delete(s.queues, q.name)
	}
}

// serve grants units round-robin. If the next caller needs more units than are free, they are
// reserved for it, because otherwise small requests would overtake it forever.
func (s *Slots) serve() {
	for e := s.ring.Front(); e != nil; {
		q := e.Value.(*queue)
		slot := s.next(q)
		if slot == nil {
			e = e.Next()
			continue
		}
		if slot.units > s.total-s.used {
			return
		}
		s.addUse(slot, slot.units)
		s.ring.MoveToBack(e)
		s.dequeue(slot)
		slot.granted(slot)
		e = s.ring.Front()
	}
}

// next returns the first caller of a queue that is within its part, or nil.
func (s *Slots) next(q *queue) *Slot {
	for e := q.waiting.Front(); e != nil; e = e.Next() {
		if slot := e.Value.(*Slot); s.fits(slot) {
			return slot
		}
	}
	return nil
}

// fits reports whether a request keeps the parts of its stranger and group.
func (s *Slots) fits(slot *Slot) bool {
	for k, parts := range slot.who.keys() {
		if s.holders[k]+slot.units > parts*s.part {
			return false
		}
	}
	return true
}

func (s *Slots) addUse(slot *Slot, units int64) {
	s.used += units
	for k := range slot.who.keys() {
		if s.holders[k] += units; s.holders[k] == 0 {
			delete(s.holders, k)
		}
	}
}
