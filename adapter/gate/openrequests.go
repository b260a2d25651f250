package gate

import (
	"context"
	"sync"
	"time"

	"github.com/nbd-wtf/go-nostr"
)

// openRequests is the unanswered messages and open subscriptions of a connection.
type openRequests struct {
	mu sync.Mutex
	// guarded by mu
	number   uint64
	reqs     map[string]*sub // REQ by name
	negs     map[string]*sub // NEG-OPEN by name
	byNumber map[uint64]*sub
	events   []*pending // unanswered EVENT and AUTH, the oldest first
}

// sub is a subscription, count or reconciliation.
type sub struct {
	label   string
	name    []byte // the client's id as JSON
	number  uint64
	done    bool       // the relay has answered
	closed  bool       // by the client or by a limit
	pending []*pending // unanswered messages, the oldest first

	// set before it is in a table, read-only
	timer *time.Timer        // of a reconciliation
	stop  context.CancelFunc // ends a subscription that the Gate keeps; nil: the relay keeps it

	liveFilters []nostr.Filter // guarded by the mutex of liveSubs; none until the hooks have accepted the filters
}

// pending is an unanswered message with the slots that it occupies.
type pending struct {
	releaseShared func() // of the slots shared with other clients
	finish        func() // releases all slots
	timer         *time.Timer
}

func newOpenRequests() *openRequests {
	return &openRequests{reqs: make(map[string]*sub), negs: make(map[string]*sub), byNumber: make(map[uint64]*sub)}
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
	return t.byName(r.label)[string(r.name)]
}

func (t *openRequests) subscriptions() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.reqs)
}

func (t *openRequests) addEvent(p *pending) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.events = append(t.events, p)
}

func (t *openRequests) open(s *sub, p *pending) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s.closed { // evicted
		return false
	}
	t.number++
	s.number, s.pending = t.number, []*pending{p}
	t.byNumber[s.number] = s
	if names := t.byName(s.label); names != nil {
		names[string(s.name)] = s
	}
	return true
}

func (t *openRequests) continueNeg(r request, p *pending) *sub {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.negs[string(r.name)]
	if s != nil {
		s.pending = append(s.pending, p)
		s.timer.Reset(answerBy)
	}
	return s
}

// close closes a subscription, and reports whether it was open. tell: the relay is told now. Otherwise
// it is told after its answer, because CLOSE could overtake the REQ.
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
	if names := t.byName(s.label); names[string(s.name)] == s {
		delete(names, string(s.name))
	}
}

func (t *openRequests) waits(number uint64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.byNumber[number]
	return s != nil && !s.closed && len(s.pending) > 0
}

type outcome struct {
	send     []byte     // to the client; nil: nothing
	answered []*pending // the messages that it answers
	begun    *pending   // the message whose answer it begins or continues
	gone     *sub       // the subscription that it ends
	close    *sub       // the subscription to close at the relay
}

func (t *openRequests) applyAnswer(message []byte) (v outcome) {
	a := readAnswer(message)
	t.mu.Lock()
	defer t.mu.Unlock()
	if a.number == 0 {
		if len(t.events) > 0 && a.label == labelOK {
			v.answered, t.events = t.events[:1:1], t.events[1:]
		}
		v.send = message
		return v
	}
	s := t.byNumber[a.number]
	if s == nil {
		return v
	}
	if !s.closed {
		v.send = a.as(s.name)
	}
	n := min(1, len(s.pending))
	if a.label == labelEvent {
		if n > 0 {
			v.begun = s.pending[0]
		}
		return v
	}
	s.done = true
	ended := a.label == labelClosed || a.label == labelCount || a.label == labelNegErr
	if s.closed && !ended || a.label == labelClosed { // khatru keeps the filters before a refused one
		v.close = s
	}
	switch {
	case ended || s.closed:
		t.removeName(s)
		delete(t.byNumber, a.number)
		v.gone, n = s, len(s.pending)
	case s.label == labelNegOpen:
		s.timer.Reset(negKept)
	}
	v.answered, s.pending = s.pending[:n], s.pending[n:]
	return v
}

func (t *openRequests) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range t.byNumber {
		s.closed = true
		if s.stop != nil {
			s.stop()
		}
	}
}

// forget returns the subscriptions that the relay has not ended.
func (t *openRequests) forget() map[uint64]*sub {
	t.mu.Lock()
	defer t.mu.Unlock()
	subs := t.byNumber
	t.byNumber = nil
	return subs
}
