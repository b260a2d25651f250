package remoteadapter

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/wire"
)

// maxExtra is the number of events beyond the limit of a request after which the relay is disconnected.
const maxExtra = 5_000

// exchange calls talk with the connection, which talk has alone. A connection of an earlier exchange may
// have ended, so talk is repeated if it could send nothing. connected is false if there was none.
func (s *Store) exchange(ctx context.Context, talk func(context.Context, relaysync.Conn) error) (connected bool, err error) {
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-s.open.Done():
		return false, ErrClosed
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
	ctx, stop := context.WithTimeout(ctx, s.cfg.fixed.timeout)
	defer stop()
	defer context.AfterFunc(s.open, stop)()
	for used := s.conn != nil; s.open.Err() == nil; used = false {
		if s.conn == nil {
			if s.conn, err = s.transport.Dial(ctx, s.relay); err != nil {
				s.conn = nil
				break
			}
		}
		s.sent = false
		if err = talk(ctx, s.conn); err == nil {
			return true, nil
		}
		_ = s.conn.Close() // releases its resources
		s.conn = nil
		switch {
		case s.open.Err() != nil:
		case ctx.Err() != nil:
			return true, context.Cause(ctx)
		case !used || s.sent:
			return true, fmt.Errorf("%w: %w", errLost, err)
		}
	}
	if s.open.Err() != nil {
		return false, ErrClosed
	}
	return false, fmt.Errorf("connecting to %s: %w", s.relay, err)
}

func (s *Store) send(ctx context.Context, r wire.Request) error {
	err := s.conn.Send(ctx, r)
	s.sent = s.sent || err == nil
	return err
}

// Close ends the connection and all waiting calls.
func (s *Store) Close() error {
	s.end()
	s.turn <- struct{}{}
	defer func() { <-s.turn }()
	c := s.conn
	if s.conn = nil; c == nil {
		return nil
	}
	return c.Close()
}

type page struct {
	events       []graspsync.Event
	finish, more bool // NIP-67
}

func (s *Store) page(ctx context.Context, f nostr.Filter) (p page, err error) {
	var refused error
	_, err = s.exchange(ctx, func(ctx context.Context, c relaysync.Conn) error {
		p = page{}
		s.number++
		sub := "store" + strconv.Itoa(s.number)
		if err := s.send(ctx, wire.Request{Type: wire.TypeReq, Sub: sub, Filters: []nostr.Filter{f}}); err != nil {
			return err
		}
		for len(p.events) <= f.Limit+maxExtra {
			m, err := c.Receive(ctx)
			switch {
			case err != nil:
				return err
			case m.Sub != sub:
			case m.Type == wire.TypeEvent && !m.Event.IsZero():
				p.events = append(p.events, m.Event)
			case m.Type == wire.TypeEOSE:
				p.finish, p.more = m.Hint == wire.HintFinish, m.Hint == wire.HintMore
				return s.send(ctx, wire.Request{Type: wire.TypeClose, Sub: sub})
			case m.Type == wire.TypeClosed:
				refused = fmt.Errorf("%w: %q", ErrRefused, m.Text)
				return nil
			}
		}
		return fmt.Errorf("%w: an answer without end", ErrIncomplete)
	})
	return p, errors.Join(err, refused)
}

func (s *Store) publish(ctx context.Context, events []graspsync.Incoming) ([]graspsync.Outcome, error) {
	out := make([]graspsync.Outcome, len(events))
	connected, err := s.exchange(ctx, func(ctx context.Context, c relaysync.Conn) error {
		waiting := make(map[graspsync.EventID][]int) // an event that was sent twice gets two answers
		for i, in := range events {
			if out[i].Result != 0 {
				continue
			}
			err := graspsync.ErrEvent
			if !in.Event.IsZero() {
				err = s.send(ctx, wire.Request{Type: wire.TypePublish, Event: in.Event.Event})
			}
			switch {
			case err == nil:
				waiting[in.Event.ID] = append(waiting[in.Event.ID], i)
			case in.Event.IsZero(), errors.Is(err, relaysync.ErrMessageTooLarge):
				out[i] = graspsync.Outcome{Result: graspsync.Refused, Err: err}
			default:
				return err
			}
		}
		for len(waiting) > 0 {
			m, err := c.Receive(ctx)
			if err != nil {
				return err
			}
			at := waiting[m.ID]
			if m.Type != wire.TypeOK || len(at) == 0 {
				continue
			}
			out[at[0]] = outcomeOf(m.Accepted, m.Text)
			if waiting[m.ID] = at[1:]; len(at) == 1 {
				delete(waiting, m.ID)
			}
		}
		return nil
	})
	if !connected {
		return nil, err
	}
	for i := range out {
		if out[i].Result == 0 {
			out[i] = graspsync.Outcome{Result: graspsync.Failed, Err: err}
		}
	}
	return out, nil
}
