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

// mostExtra is the maximum number of events above the requested limit.
const mostExtra = 5_000

// page is the complete answer to one request. It is buffered, so that a slow reader does not block
// other requests.
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

// link is one connection with a goroutine that reads.
type link struct {
	conn    relaysync.Conn
	sending chan struct{} // its one slot is held while sending
	ended   chan struct{} // closed after err was set

	mu sync.Mutex
	// guarded by mu
	number int
	pages  map[string]*page
	oks    map[graspsync.EventID][]*verdict
	err    error
}

// connection returns the current link, or a new one if it has ended.
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

// Close ends the connection and all waiting calls. No goroutine remains. Close is idempotent.
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
	_ = l.conn.Close() // releases its resources
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
		waits := l.oks[m.ID] // an event that was sent twice gets two replies
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

// finish ends a request. The caller holds mu.
func (l *link) finish(sub string, p *page) {
	delete(l.pages, sub)
	close(p.done)
}

// send sends a message after the messages before it.
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

// page requests one page.
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

// giveUp stops waiting for an OK.
func (l *link) giveUp(v *verdict) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.oks[v.id] = slices.DeleteFunc(l.oks[v.id], func(o *verdict) bool { return o == v })
	if len(l.oks[v.id]) == 0 {
		delete(l.oks, v.id)
	}
}

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
