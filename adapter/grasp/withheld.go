package grasp

import (
	"context"

	"github.com/fiatjaf/khatru"
	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	eventstoreadapter "github.com/graspsync/graspsync/adapter/eventstore"
	"github.com/graspsync/graspsync/rules"
)

// withheld hides deletions and requests to vanish that rules block from clients. They stay stored,
// because otherwise the removed events would come back. They are hidden, because anybody can write
// any content into them.
type withheld struct{ book *rules.RuleSet }

type query = func(ctx context.Context, f nostr.Filter) (chan *nostr.Event, error)

// wire adds the filter to answers, reconciliations (NIP-77) and broadcasts of a relay.
func (w withheld) wire(relay *khatru.Relay) {
	for i, q := range relay.QueryEvents {
		relay.QueryEvents[i] = func(ctx context.Context, f nostr.Filter) (chan *nostr.Event, error) {
			if khatru.IsInternalCall(ctx) {
				return q(ctx, f)
			}
			return w.stream(eventstoreadapter.Without(ctx, w.names), q, f)
		}
	}
	relay.PreventBroadcast = append(relay.PreventBroadcast, func(_ *khatru.WebSocket, e *nostr.Event) bool { return w.is(e) })
}

func (w withheld) is(e *nostr.Event) bool {
	ev, err := graspsync.ParseEvent(e)
	return err == nil && w.names(ev)
}

func (w withheld) names(e graspsync.Event) bool {
	if e.Kind != graspsync.KindDeletion && e.Kind != graspsync.KindVanish {
		return false
	}
	_, is := w.book.Hides(e)
	return is
}

// stream filters the answer of a query. The store already filters its own answers, so that pages
// are full; other QueryEvents hooks do not.
func (w withheld) stream(ctx context.Context, q query, f nostr.Filter) (chan *nostr.Event, error) {
	found, err := q(ctx, f)
	if err != nil || found == nil {
		return nil, err
	}
	served := make(chan *nostr.Event)
	go func() {
		defer close(served)
		for e := range found { // to the end, or the sender would block
			if w.is(e) {
				continue
			}
			select {
			case served <- e:
			case <-ctx.Done():
			}
		}
	}()
	return served, nil
}
