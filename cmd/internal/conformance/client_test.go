package conformance

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/coder/websocket"
	"github.com/nbd-wtf/go-nostr"
)

// client is a sequential connection to a relay. Closing go-nostr's client has a data race.
type client struct{ conn *websocket.Conn }

func dial(ctx context.Context, at string) (client, error) {
	conn, _, err := websocket.Dial(ctx, "ws://"+at, nil)
	if err == nil {
		conn.SetReadLimit(-1)
	}
	return client{conn}, err
}

func (c client) close() { _ = c.conn.CloseNow() }

// publish publishes an event and fails if the relay refuses it.
func (c client) publish(ctx context.Context, ev *nostr.Event) error {
	return c.ask(ctx, []any{"EVENT", ev}, func(answer nostr.Envelope) (bool, error) {
		ok, is := answer.(*nostr.OKEnvelope)
		if !is || ok.EventID != ev.ID {
			return false, nil
		}
		if !ok.OK {
			return true, fmt.Errorf("refused: %s", ok.Reason)
		}
		return true, nil
	})
}

// query returns stored events.
func (c client) query(ctx context.Context, filter nostr.Filter) (events []nostr.Event, err error) {
	err = c.ask(ctx, []any{"REQ", "q", filter}, func(answer nostr.Envelope) (bool, error) {
		switch answer := answer.(type) {
		case *nostr.EventEnvelope:
			events = append(events, answer.Event)
		case *nostr.EOSEEnvelope:
			return true, nil
		case *nostr.ClosedEnvelope:
			if answer.Reason != "" { // else it belongs to the previous query
				return true, fmt.Errorf("closed: %s", answer.Reason)
			}
		}
		return false, nil
	})
	if err == nil {
		err = c.send(ctx, []any{"CLOSE", "q"})
	}
	return events, err
}

func (c client) send(ctx context.Context, message []any) error {
	text, err := json.Marshal(message)
	if err != nil {
		return err
	}
	return c.conn.Write(ctx, websocket.MessageText, text)
}

// ask sends a message and reads until the answer.
func (c client) ask(ctx context.Context, message []any, is func(nostr.Envelope) (bool, error)) error {
	if err := c.send(ctx, message); err != nil {
		return err
	}
	for {
		_, text, err := c.conn.Read(ctx)
		if err != nil {
			return err
		}
		answer, err := nostr.NewMessageParser().ParseMessage(string(text))
		if err != nil {
			continue // unknown messages are no answer
		}
		if done, err := is(answer); done {
			return err
		}
	}
}
