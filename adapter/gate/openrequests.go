package gate

import (
	"context"
	"sync"
	"time"
)

// table is what a connection has asked the relay for, by the names that the client has given and by
// those that the relay knows. It says what is to be done.
type openRequests struct {
	mu sync.Mutex
	// guarded by mu
	number      uint64
	reqs        map[string]*sub // by name: REQ
	negs        map[string]*sub // NEG-OPEN
	byNumber    map[uint64]*sub
	events      []*pending // EVENT and AUTH that have no answer, the oldest first
	waiting     map[*pending]struct{}
	allAnswered chan struct{} // closed: the client has gone, and nothing is left to be answered
	ended       bool
	unread      int // bytes of stored events that were let through and have not been read, about
}

// sub is what a client has a name for.
type sub struct {
	label     string
	number    uint64
	name      []byte // as it is written
	key       string
	filters   int
	weight    int           // units that it takes up in its table
	done      bool          // the relay has answered: stored events have come
	closed    bool          // the client wants no more of it
	abandoned chan struct{} // closed: what is left of the answer is for nobody
	sent      *sentEvents   // what has come of it
	unread    []int         // bytes of its events that were let through, the first one first
	pending   []*pending    // what has no answer, the oldest first

	// set before it is in a table, read-only
	timer  *time.Timer             // of a reconciliation
	viaTap bool                    // the relay does not know of it
	ctx    context.Context         //nolint:containedctx // it lasts as long as the subscription; nil if it is not own
	stop   context.CancelCauseFunc // ends ctx

	liveFilters []liveFilter // guarded by the mutex of live; none: it does not hear
}

// pending is a message that has no answer yet, and what it takes up.
type pending struct {
	once, sharedOnce sync.Once
	shared, slot     func() // give back what strangers share, and what is the connection's
	timer            *time.Timer
}

// idle gives back what is for others while the relay has nothing to do for the message.
func (p *pending) releaseShared() { p.sharedOnce.Do(p.shared) }

func (p *pending) finish() {
	p.once.Do(func() {
		p.timer.Stop()
		p.releaseShared()
		p.slot()
	})
}

func newOpenRequests() *openRequests {
	return &openRequests{
		reqs: make(map[string]*sub), negs: make(map[string]*sub), byNumber: make(map[uint64]*sub), waiting: make(map[*pending]struct{}),
		allAnswered: make(chan struct{}),
	}
}

// of is where names of a label are; nil: they are not kept. It is called with mu held.
func (t *openRequests) byName(label string) map[string]*sub {
	switch label {
	case labelReq, labelClose:
		return t.reqs
	case labelNegOpen, labelNegMsg, labelNegClose:
		return t.negs
	}
	return nil
}

// named is the subscription that a message is about, if there is one.
func (t *openRequests) find(r request) *sub {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.byName(r.label)[r.name]
}

// subscriptions returns the number of subscriptions that are open.
func (t *openRequests) subscriptions() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.reqs)
}

// wait notes a message that the relay is to answer.
func (t *openRequests) add(p *pending) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.waiting[p] = struct{}{}
	p.timer = time.AfterFunc(answerBy, p.finish) // the relay owes one answer to each, but who knows
}

// answered notes that a message has its answer, or won't have one.
func (t *openRequests) answered(p *pending) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.waiting, p)
	if t.ended && len(t.waiting) == 0 {
		close(t.allAnswered)
		t.ended = false
	}
}

// event notes that an event was handed on.
func (t *openRequests) addEvent(p *pending) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.events = append(t.events, p)
}

// open gives a subscription a number. It reports false if that was closed already, since others needed its room.
func (t *openRequests) open(s *sub, p *pending) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s.closed {
		return false
	}
	t.number++
	s.number, s.pending = t.number, []*pending{p}
	t.byNumber[s.number] = s
	if names := t.byName(s.label); names != nil {
		names[s.key] = s
	}
	return true
}

// goesOn notes one more message of a reconciliation, if there is one of that name.
func (t *openRequests) continueNeg(r request, p *pending) *sub {
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
func (t *openRequests) close(s *sub) (open, tell bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s.closed {
		return false, false
	}
	s.closed = true
	close(s.abandoned)
	t.dropUnread(s)
	t.removeName(s)
	if !s.done || len(s.pending) > 0 {
		return true, false
	}
	delete(t.byNumber, s.number)
	return true, true
}

// unname forgets the name of a subscription. It is called with mu held.
func (t *openRequests) removeName(s *sub) {
	if names := t.byName(s.label); names[s.key] == s {
		delete(names, s.key)
	}
}

// left is what has no answer of a subscription that is over.
func (t *openRequests) takePending(s *sub) []*pending {
	t.mu.Lock()
	defer t.mu.Unlock()
	left := s.pending
	s.pending = nil
	return left
}

// lets reports whether an event of so many bytes, which was stored, may come: one for which there is
// room, or that nobody reads. Else it tells for what it waits.
func (t *openRequests) admitStored(number uint64, size int, room func(coming int) bool) (ok bool, s *sub, p *pending) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s = t.byNumber[number]
	switch {
	case s == nil || s.closed || len(s.pending) == 0:
		return true, nil, nil
	case !room(t.unread):
		return false, s, s.pending[0]
	}
	t.unread += size
	s.unread = append(s.unread, size)
	return true, nil, nil
}

// stop has nothing more come of an answer. It is called with mu held.
func (t *openRequests) dropUnread(s *sub) {
	for _, n := range s.unread {
		t.unread -= n
	}
	s.unread = nil
}

func (t *openRequests) unreadBytes() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.unread
}

// verdict is what is to be done about a message of the relay.
type outcome struct {
	send  []byte   // to the client; nil: nothing
	p     *pending // what it has answered
	s     *sub     // what it is about
	ended bool     // the relay has nothing more of it
	close bool     // the relay has it open, and is to end it
}

// hears notes a message of the relay.
func (t *openRequests) applyAnswer(message []byte) (v outcome) {
	a := readAnswer(message)
	t.mu.Lock()
	defer t.mu.Unlock()
	if a.number == 0 {
		if len(t.events) > 0 && a.label == labelOK {
			v.p, t.events = t.events[0], t.events[1:]
		}
		v.send = message
		return v
	}
	s := t.byNumber[a.number]
	if s == nil {
		return v // of what the client has closed it hears nothing
	}
	if !s.closed {
		v.send = a.as(s.name)
	}
	if a.label == labelEvent {
		if len(s.unread) > 0 {
			t.unread -= s.unread[0]
			s.unread = s.unread[1:]
		}
		if s.sent != nil {
			if d, found := digestOf(a.rest); found && s.sent.isRepeated(d) {
				v.send = nil
			}
		}
		return v
	}
	t.dropUnread(s)
	s.sent.endStored()
	v.s, s.done = s, true
	if len(s.pending) > 0 {
		v.p, s.pending = s.pending[0], s.pending[1:]
	}
	v.ended = a.label == labelClosed || a.label == labelCount || a.label == labelNegErr
	v.close = s.closed && !v.ended || a.label == labelClosed // khatru keeps the filters before the one that it refuses
	if v.ended {
		t.removeName(s)
	}
	if v.ended || s.closed {
		delete(t.byNumber, a.number)
	}
	if s.label == labelNegOpen && !v.ended && !s.closed {
		s.timer.Reset(negKept)
	}
	return v
}

// live returns the names of those subscriptions that are to get an event which was published: they are open, and
// have not had it.
func (t *openRequests) claim(subs []*sub, event string) (names [][]byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range subs {
		if !s.closed && (len(event) < len(digest{}) || !s.sent.isRepeated(digest([]byte(event[:len(digest{})])))) {
			names = append(names, s.name)
		}
	}
	return names
}

// end has nothing more said to the client, which has gone, and nothing more of what it has asked for
// wait for it. What is returned is closed when the relay has answered all of that.
func (t *openRequests) end() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range t.byNumber {
		if !s.closed {
			s.closed = true
			close(s.abandoned)
			t.dropUnread(s)
			if s.stop != nil {
				s.stop(nil)
			}
		}
	}
	if t.ended = len(t.waiting) > 0; !t.ended {
		close(t.allAnswered)
	}
	return t.allAnswered
}

// forget empties the table.
func (t *openRequests) forget() (subs []*sub, left []*pending) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for p := range t.waiting {
		left = append(left, p)
	}
	for _, s := range t.byNumber {
		subs = append(subs, s)
	}
	clear(t.byNumber)
	return subs, left
}
