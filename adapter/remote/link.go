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

const mostExtra = 5_000

type answer struct {
	key string // subscription or event id
	// events of a request, of which limit were requested
	events       []graspsync.Event
	limit        int
	finish, more bool // NIP-67

	outcome graspsync.Outcome // of an event
	err     error
	done    chan struct{}
}

type link struct {
	conn    relaysync.Conn
	sending chan struct{} // its one slot is held while sending
	ended   chan struct{} // closed after err was set

	mu sync.Mutex
	// guarded by mu
	number  int                  // of requests
	waiting map[string][]*answer // by key; an event that was sent twice gets two answers

	err error // read-only after ended was closed
}

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
	s.link = &link{conn: c, sending: make(chan struct{}, 1), ended: make(chan struct{}), waiting: make(map[string][]*answer)}
	go s.link.read()
	return s.link, nil
}

// Close ends the connection and all waiting calls.
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
	m, err := l.conn.Receive(context.Background())
	for err == nil {
		l.receive(m)
		m, err = l.conn.Receive(context.Background())
	}
	_ = l.conn.Close() // releases its resources
	l.err = fmt.Errorf("%w: %w", errLost, err)
	close(l.ended)
}

func (l *link) receive(m wire.Message) {
	l.mu.Lock()
	defer l.mu.Unlock()
	key := m.Sub
	if m.Type == wire.TypeOK {
		key = m.ID.String()
	}
	if len(l.waiting[key]) == 0 {
		return
	}
	a := l.waiting[key][0]
	switch m.Type {
	case wire.TypeEvent:
		if m.Event.IsZero() {
			return
		}
		if a.events = append(a.events, m.Event); len(a.events) <= a.limit+mostExtra {
			return
		}
		a.err = fmt.Errorf("%w: an answer without end", ErrIncomplete)
	case wire.TypeEOSE:
		a.finish, a.more = m.Hint == wire.HintFinish, m.Hint == wire.HintMore
	case wire.TypeClosed:
		a.err = fmt.Errorf("%w: %q", ErrRefused, m.Text)
	case wire.TypeOK:
		a.outcome = outcomeOf(m.Accepted, m.Text)
	default:
		return
	}
	l.remove(a)
	close(a.done)
}

func (l *link) ask(ctx context.Context, key string, r wire.Request) (*answer, error) {
	a := &answer{key: key, done: make(chan struct{})}
	l.mu.Lock()
	if key == "" {
		l.number++
		a.key = "store" + strconv.Itoa(l.number)
		a.limit, r.Sub = r.Filters[0].Limit, a.key
	}
	l.waiting[a.key] = append(l.waiting[a.key], a)
	l.mu.Unlock()
	if err := l.send(ctx, r); err != nil {
		l.forget(a)
		return nil, err
	}
	return a, nil
}

func (l *link) wait(ctx context.Context, a *answer) error {
	select {
	case <-a.done:
		return a.err
	case <-l.ended:
		return l.err
	case <-ctx.Done():
		l.forget(a)
		return context.Cause(ctx)
	}
}

func (l *link) forget(a *answer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.remove(a)
}

func (l *link) remove(a *answer) {
	l.waiting[a.key] = slices.DeleteFunc(l.waiting[a.key], func(o *answer) bool { return o == a })
	if len(l.waiting[a.key]) == 0 {
		delete(l.waiting, a.key)
	}
}

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

func (s *Store) page(ctx context.Context, f nostr.Filter) (*answer, error) {
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
	a, err := l.ask(ctx, "", wire.Request{Type: wire.TypeReq, Filters: []nostr.Filter{f}})
	if err != nil {
		return nil, err
	}
	if err := l.wait(ctx, a); err != nil {
		return nil, err
	}
	return a, l.send(ctx, wire.Request{Type: wire.TypeClose, Sub: a.key})
}
