package remoteadapter

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/wire"
)

// mostExtra is how many events more than asked for an answer may have.
const mostExtra = 5_000

// page is the answer to one request. All of it is gathered before anybody sees it, so
// that whoever reads slowly, or asks for something else meanwhile, holds up nobody.
type page struct {
	events       []graspsync.Event
	limit        int
	finish, more bool // NIP-67
	err          error
	done         chan struct{}
}

// verdict is the OK of one event.
type verdict struct {
	id      graspsync.EventID
	outcome graspsync.Outcome
	done    chan struct{}
}

// link is one connection. A goroutine reads from it.
type link struct {
	conn    relaysync.Conn
	sending chan struct{} // one slot: who has it sends
	ended   chan struct{} // closed with err set

	mu sync.Mutex
	// guarded by mu
	number int
	pages  map[string]*page
	oks    map[graspsync.EventID][]*verdict
	err    error
}

// connection returns the link, making one if there is none that stands.
func (s *Store) connection(ctx context.Context) (*link, error) {
	select {
	case s.dialing <- struct{}{}:
		defer func() { <-s.dialing }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if s.open.Err() != nil {
		return nil, ErrClosed
	}
	if s.link != nil && !s.link.hasEnded() {
		return s.link, nil
	}
	ctx, stop := context.WithTimeout(ctx, s.cfg.fixed.timeout)
	defer stop()
	defer context.AfterFunc(s.open, stop)()
	c, err := s.transport.Dial(ctx, s.relay)
	if err != nil && s.open.Err() != nil {
		return nil, ErrClosed
	}
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", s.relay, err)
	}
	s.link = &link{
		conn: c, sending: make(chan struct{}, 1), ended: make(chan struct{}),
		pages: make(map[string]*page), oks: make(map[graspsync.EventID][]*verdict),
	}
	go s.link.read()
	return s.link, nil
}

// Close ends the connection and whatever waits for an answer. No goroutine is left.
// It may be called again.
func (s *Store) Close() error {
	s.end()
	s.dialing <- struct{}{}
	defer func() { <-s.dialing }()
	l := s.link
	if s.link = nil; l == nil {
		return nil
	}
	err := l.conn.Close()
	<-l.ended
	return err
}

func (l *link) hasEnded() bool {
	select {
	case <-l.ended:
		return true
	default:
		return false
	}
}

// read takes in messages until the connection ends.
func (l *link) read() {
	for {
		m, err := l.conn.Receive(context.Background())
		if err != nil {
			l.end(err)
			return
		}
		l.receive(m)
	}
}

func (l *link) end(err error) {
	_ = l.conn.Close() // it has ended
	l.mu.Lock()
	defer l.mu.Unlock()
	l.err = fmt.Errorf("%w: %w", errLost, err)
	close(l.ended)
}

func (l *link) receive(m wire.Message) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch m.Type {
	case wire.TypeEvent:
		p := l.pages[m.Sub]
		if p == nil || m.Event.IsZero() {
			return
		}
		if p.events = append(p.events, m.Event); len(p.events) > p.limit+mostExtra {
			p.err = fmt.Errorf("%w: an answer without end", ErrIncomplete)
			l.finish(m.Sub, p)
		}
	case wire.TypeEOSE:
		if p := l.pages[m.Sub]; p != nil {
			p.finish, p.more = m.Hint == wire.HintFinish, m.Hint == wire.HintMore
			l.finish(m.Sub, p)
		}
	case wire.TypeClosed:
		if p := l.pages[m.Sub]; p != nil {
			p.err = fmt.Errorf("%w: %q", ErrRefused, m.Text)
			l.finish(m.Sub, p)
		}
	case wire.TypeOK:
		waits := l.oks[m.ID] // an event that was sent twice is answered twice, in order
		if len(waits) == 0 {
			return
		}
		waits[0].outcome = outcomeOf(m.Accepted, m.Text)
		close(waits[0].done)
		if l.oks[m.ID] = waits[1:]; len(waits) == 1 {
			delete(l.oks, m.ID)
		}
	}
}

// finish ends a request. l.mu is held.
func (l *link) finish(sub string, p *page) {
	delete(l.pages, sub)
	close(p.done)
}

// send sends one message at a time.
func (l *link) send(ctx context.Context, r wire.Request) error {
	select {
	case l.sending <- struct{}{}:
		defer func() { <-l.sending }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if err := l.conn.Send(ctx, r); err != nil {
		if errors.Is(err, relaysync.ErrMessageTooLarge) {
			return fmt.Errorf("sending: %w", err)
		}
		_ = l.conn.Close() // the first error is final
		return fmt.Errorf("%w: sending: %w", errLost, err)
	}
	return nil
}

// page asks for one page.
func (s *Store) page(ctx context.Context, f nostr.Filter) (*page, error) {
	select {
	case s.places <- struct{}{}:
		defer func() { <-s.places }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	l, err := s.connection(ctx)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithTimeout(ctx, s.cfg.fixed.timeout)
	defer stop()
	p := &page{limit: f.Limit, done: make(chan struct{})}
	sub := l.open(p)
	defer l.forget(sub)
	if err := l.send(ctx, wire.Request{Type: wire.TypeReq, Sub: sub, Filters: []nostr.Filter{f}}); err != nil {
		return nil, err
	}
	select {
	case <-p.done:
	case <-l.ended:
		return nil, l.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if p.err != nil {
		return nil, p.err
	}
	return p, l.send(ctx, wire.Request{Type: wire.TypeClose, Sub: sub})
}

func (l *link) open(p *page) (sub string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.number++
	sub = "store" + strconv.Itoa(l.number)
	l.pages[sub] = p
	return sub
}

func (l *link) forget(sub string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.pages, sub)
}

// publish sends an event.
func (l *link) publish(ctx context.Context, ev graspsync.Event) (*verdict, error) {
	if ev.IsZero() {
		return nil, fmt.Errorf("%w: none", graspsync.ErrEvent)
	}
	v := &verdict{id: ev.ID, done: make(chan struct{})}
	l.mu.Lock()
	l.oks[v.id] = append(l.oks[v.id], v)
	l.mu.Unlock()
	if err := l.send(ctx, wire.Request{Type: wire.TypePublish, Event: ev.Event}); err != nil {
		l.giveUp(v)
		return nil, err
	}
	return v, nil
}

// giveUp waits for an OK no more.
func (l *link) giveUp(v *verdict) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.oks[v.id] = slices.DeleteFunc(l.oks[v.id], func(o *verdict) bool { return o == v })
	if len(l.oks[v.id]) == 0 {
		delete(l.oks, v.id)
	}
}

// wait waits for the OK.
func (v *verdict) wait(ctx context.Context, l *link) graspsync.Outcome {
	select {
	case <-v.done:
		return v.outcome
	case <-l.ended:
		return graspsync.Outcome{Result: graspsync.Failed, Err: l.err}
	case <-ctx.Done():
		l.giveUp(v)
		return graspsync.Outcome{Result: graspsync.Failed, Err: context.Cause(ctx)}
	}
}
