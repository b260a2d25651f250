package gate

import (
	"context"
	"sync"
	"time"
)

// table is what a connection has asked the relay for, by the names that the client has given and by
// those that the relay knows. It says what is to be done.
type table struct {
	mu sync.Mutex
	// guarded by mu
	number  uint64
	reqs    map[string]*sub // by name: REQ
	negs    map[string]*sub // NEG-OPEN
	ours    map[uint64]*sub
	events  []*pending // EVENT and AUTH that have no answer, the oldest first
	waiting map[*pending]struct{}
	settled chan struct{} // closed: the client has gone, and nothing is left to be answered
	ended   bool
	coming  int // bytes of stored events that were let through and have not been read, about
}

// sub is what a client has a name for.
type sub struct {
	label   string
	number  uint64
	name    []byte // as it is written
	key     string
	filters int
	weight  int           // units that it takes up in its table
	done    bool          // the relay has answered: stored events have come
	closed  bool          // the client wants no more of it
	unread  chan struct{} // closed: what is left of the answer is for nobody
	told    *told         // what has come of it
	coming  []int         // bytes of its events that were let through, the first one first
	pending []*pending    // what has no answer, the oldest first

	// set before it is in a table, read-only
	timer *time.Timer             // of a reconciliation
	own   bool                    // the relay does not know of it
	ctx   context.Context         //nolint:containedctx // it lasts as long as the subscription; nil if it is not own
	stop  context.CancelCauseFunc // ends ctx

	hears []listening // guarded by the mutex of live; none: it does not hear
}

// pending is a message that has no answer yet, and what it takes up.
type pending struct {
	once, spent  sync.Once
	shared, slot func() // give back what strangers share, and what is the connection's
	timer        *time.Timer
}

// idle gives back what is for others while the relay has nothing to do for the message.
func (p *pending) idle() { p.spent.Do(p.shared) }

func (p *pending) over() {
	p.once.Do(func() {
		p.timer.Stop()
		p.idle()
		p.slot()
	})
}

func newTable() *table {
	return &table{
		reqs: make(map[string]*sub), negs: make(map[string]*sub), ours: make(map[uint64]*sub), waiting: make(map[*pending]struct{}),
		settled: make(chan struct{}),
	}
}

// of is where names of a label are; nil: they are not kept. It is called with mu held.
func (t *table) of(label string) map[string]*sub {
	switch label {
	case labelReq, labelClose:
		return t.reqs
	case labelNegOpen, labelNegMsg, labelNegClose:
		return t.negs
	}
	return nil
}

// named is the subscription that a message is about, if there is one.
func (t *table) named(r request) *sub {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.of(r.label)[r.name]
}

// subscriptions returns the number of subscriptions that are open.
func (t *table) subscriptions() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.reqs)
}

// wait notes a message that the relay is to answer.
func (t *table) wait(p *pending) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.waiting[p] = struct{}{}
	p.timer = time.AfterFunc(answerBy, p.over) // the relay owes one answer to each, but who knows
}

// answered notes that a message has its answer, or won't have one.
func (t *table) answered(p *pending) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.waiting, p)
	if t.ended && len(t.waiting) == 0 {
		close(t.settled)
		t.ended = false
	}
}

// event notes that an event was handed on.
func (t *table) event(p *pending) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.events = append(t.events, p)
}

// open gives a subscription a number. It reports false if that was closed already, since others needed its room.
func (t *table) open(s *sub, p *pending) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s.closed {
		return false
	}
	t.number++
	s.number, s.pending = t.number, []*pending{p}
	t.ours[s.number] = s
	if names := t.of(s.label); names != nil {
		names[s.key] = s
	}
	return true
}

// goesOn notes one more message of a reconciliation, if there is one of that name.
func (t *table) goesOn(r request, p *pending) *sub {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.negs[r.name]
	if s != nil {
		s.pending = append(s.pending, p)
		s.timer.Reset(answerBy) // it is in use
	}
	return s
}

// close ends a subscription, and reports whether it was open. The relay is told once it has answered: what
// closes and what opens may be dealt with in any order.
func (t *table) close(s *sub) (open, tell bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s.closed {
		return false, false
	}
	s.closed = true
	close(s.unread)
	t.stop(s)
	t.unname(s)
	if !s.done || len(s.pending) > 0 {
		return true, false
	}
	delete(t.ours, s.number)
	return true, true
}

// unname forgets the name of a subscription. It is called with mu held.
func (t *table) unname(s *sub) {
	if names := t.of(s.label); names[s.key] == s {
		delete(names, s.key)
	}
}

// left is what has no answer of a subscription that is over.
func (t *table) left(s *sub) []*pending {
	t.mu.Lock()
	defer t.mu.Unlock()
	left := s.pending
	s.pending = nil
	return left
}

// lets reports whether an event of so many bytes, which was stored, may come: one for which there is
// room, or that nobody reads. Else it tells for what it waits.
func (t *table) lets(number uint64, size int, room func(coming int) bool) (ok bool, s *sub, p *pending) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s = t.ours[number]
	switch {
	case s == nil || s.closed || len(s.pending) == 0:
		return true, nil, nil
	case !room(t.coming):
		return false, s, s.pending[0]
	}
	t.coming += size
	s.coming = append(s.coming, size)
	return true, nil, nil
}

// stop has nothing more come of an answer. It is called with mu held.
func (t *table) stop(s *sub) {
	for _, n := range s.coming {
		t.coming -= n
	}
	s.coming = nil
}

func (t *table) comes() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.coming
}

// verdict is what is to be done about a message of the relay.
type verdict struct {
	say  []byte   // to the client; nil: nothing
	p    *pending // what it has answered
	s    *sub     // what it is about
	over bool     // the relay has nothing more of it
	tell bool     // the relay has it open, and is to end it
}

// hears notes a message of the relay.
func (t *table) hears(message []byte) (v verdict) {
	a := readAnswer(message)
	t.mu.Lock()
	defer t.mu.Unlock()
	if a.number == 0 {
		if len(t.events) > 0 && a.label == labelOK {
			v.p, t.events = t.events[0], t.events[1:]
		}
		v.say = message
		return v
	}
	s := t.ours[a.number]
	if s == nil {
		return v // of what the client has closed it hears nothing
	}
	if !s.closed {
		v.say = a.as(s.name)
	}
	if a.label == labelEvent {
		if len(s.coming) > 0 {
			t.coming -= s.coming[0]
			s.coming = s.coming[1:]
		}
		if s.told != nil {
			if d, found := digestOf(a.rest); found && s.told.again(d) {
				v.say = nil
			}
		}
		return v
	}
	t.stop(s)
	s.told.answered()
	v.s, s.done = s, true
	if len(s.pending) > 0 {
		v.p, s.pending = s.pending[0], s.pending[1:]
	}
	v.over = a.label == labelClosed || a.label == labelCount || a.label == labelNegErr
	v.tell = s.closed && !v.over || a.label == labelClosed // khatru keeps the filters before the one that it refuses
	if v.over {
		t.unname(s)
	}
	if v.over || s.closed {
		delete(t.ours, a.number)
	}
	if s.label == labelNegOpen && !v.over && !s.closed {
		s.timer.Reset(negKept)
	}
	return v
}

// live returns the names of those subscriptions that are to get an event which was published: they are open, and
// have not had it.
func (t *table) live(subs []*sub, event string) (names [][]byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range subs {
		if !s.closed && (len(event) < len(digest{}) || !s.told.again(digest([]byte(event[:len(digest{})])))) {
			names = append(names, s.name)
		}
	}
	return names
}

// end has nothing more said to the client, which has gone, and nothing more of what it has asked for
// wait for it. What is returned is closed when the relay has answered all of that.
func (t *table) end() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range t.ours {
		if !s.closed {
			s.closed = true
			close(s.unread)
			t.stop(s)
			if s.stop != nil {
				s.stop(nil)
			}
		}
	}
	if t.ended = len(t.waiting) > 0; !t.ended {
		close(t.settled)
	}
	return t.settled
}

// forget empties the table.
func (t *table) forget() (subs []*sub, left []*pending) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for p := range t.waiting {
		left = append(left, p)
	}
	for _, s := range t.ours {
		subs = append(subs, s)
	}
	clear(t.ours)
	return subs, left
}
