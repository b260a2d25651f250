package gate

import (
	"context"
	"sync"
	"time"
)

// openRequests is the unanswered messages and open subscriptions of a connection, by the ids of the
// client and by the numbers that the relay knows.
type openRequests struct {
	mu sync.Mutex
	// guarded by mu
	number      uint64
	reqs        map[string]*sub // REQ by the client's id
	negs        map[string]*sub // NEG-OPEN by the client's id
	byNumber    map[uint64]*sub
	events      []*pending // unanswered EVENT and AUTH, the oldest first
	waiting     map[*pending]struct{}
	allAnswered chan struct{} // closed when the client is gone and the relay has answered everything
	ended       bool
}

// sub is a subscription, count or reconciliation.
type sub struct {
	label   string
	number  uint64
	name    []byte // as JSON
	key     string
	filters int
	weight  int        // units in its table
	done    bool       // the relay has answered
	closed  bool       // by the client or for want of room
	pending []*pending // unanswered messages, the oldest first
	// sent is the ids of up to maxSent events that the client has got before EOSE, if the Gate
	// keeps the subscription, because each filter is queried separately.
	sent map[string]struct{}

	// set before it is in a table, read-only
	timer  *time.Timer             // of a reconciliation
	viaTap bool                    // the Gate keeps it, and the relay does not know it
	ctx    context.Context         //nolint:containedctx // it lasts as long as the subscription; nil if it is not own
	stop   context.CancelCauseFunc // ends ctx

	liveFilters []liveFilter // guarded by the mutex of liveSubs; none until the hooks have accepted the filters
}

// pending is an unanswered message with the slots that it occupies.
type pending struct {
	once, sharedOnce sync.Once
	shared, slot     func() // release the slots shared with other clients, and that of the connection
	timer            *time.Timer
}

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

// byName returns the subscriptions of a label, or nil. The caller holds mu.
func (t *openRequests) byName(label string) map[string]*sub {
	switch label {
	case labelReq, labelClose:
		return t.reqs
	case labelNegOpen, labelNegMsg, labelNegClose:
		return t.negs
	}
	return nil
}

func (t *openRequests) find(r request) *sub {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.byName(r.label)[r.name]
}

func (t *openRequests) subscriptions() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.reqs)
}

func (t *openRequests) add(p *pending) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.waiting[p] = struct{}{}
	p.timer = time.AfterFunc(answerBy, p.finish) // for a relay that does not answer
}

// answered also records that no answer will come.
func (t *openRequests) answered(p *pending) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.waiting, p)
	if t.ended && len(t.waiting) == 0 {
		close(t.allAnswered)
		t.ended = false
	}
}

func (t *openRequests) addEvent(p *pending) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.events = append(t.events, p)
}

// open numbers a subscription. It returns false if the subscription was evicted before.
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

// continueNeg returns the reconciliation of one more message, or nil.
func (t *openRequests) continueNeg(r request, p *pending) *sub {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.negs[r.name]
	if s != nil {
		s.pending = append(s.pending, p)
		s.timer.Reset(answerBy)
	}
	return s
}

// close reports whether a subscription was open, and whether the relay must be told now. A relay
// that has not answered yet is told after its answer, because it may handle REQ and CLOSE in any
// order.
func (t *openRequests) close(s *sub) (open, tell bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s.closed {
		return false, false
	}
	s.closed = true
	t.removeName(s)
	if !s.done || len(s.pending) > 0 {
		return true, false
	}
	delete(t.byNumber, s.number)
	return true, true
}

// The caller holds mu.
func (t *openRequests) removeName(s *sub) {
	if names := t.byName(s.label); names[s.key] == s {
		delete(names, s.key)
	}
}

func (t *openRequests) takePending(s *sub) []*pending {
	t.mu.Lock()
	defer t.mu.Unlock()
	left := s.pending
	s.pending = nil
	return left
}

func (t *openRequests) waits(number uint64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.byNumber[number]
	return s != nil && !s.closed && len(s.pending) > 0
}

// maxSent is the maximum number of remembered events of an answer. More may be sent twice.
const maxSent = 10_000

// isWanted records the event.
func (t *openRequests) isWanted(s *sub, id string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return s.isWanted(id)
}

// The caller holds mu.
func (s *sub) isWanted(id string) bool {
	_, had := s.sent[id]
	if s.sent != nil && len(s.sent) < maxSent {
		s.sent[id] = struct{}{}
	}
	return !s.closed && !had
}

type outcome struct {
	send  []byte   // to the client; nil: nothing
	p     *pending // the message that it answers
	begun *pending // the message whose answer it begins or continues
	s     *sub     // the subscription that it belongs to
	ended bool     // the relay has ended the subscription
	close bool     // the subscription must be closed at the relay
}

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
		return v // the client has closed it
	}
	if !s.closed {
		v.send = a.as(s.name)
	}
	if a.label == labelEvent {
		if len(s.pending) > 0 {
			v.begun = s.pending[0]
		}
		return v
	}
	v.s, s.done, s.sent = s, true, nil
	if len(s.pending) > 0 {
		v.p, s.pending = s.pending[0], s.pending[1:]
	}
	v.ended = a.label == labelClosed || a.label == labelCount || a.label == labelNegErr
	v.close = s.closed && !v.ended || a.label == labelClosed // khatru keeps the filters before a refused one
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

// claim returns the ids of the open subscriptions that have not got an event yet.
func (t *openRequests) claim(subs []*sub, event string) (names [][]byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range subs {
		if s.isWanted(event) {
			names = append(names, s.name)
		}
	}
	return names
}

// end closes all subscriptions. The returned channel is closed when the relay has answered
// everything.
func (t *openRequests) end() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range t.byNumber {
		if !s.closed {
			s.closed = true
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
