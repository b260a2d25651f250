package grasp

import (
	"context"

	"github.com/fiatjaf/khatru"
	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	eventstoreadapter "github.com/graspsync/graspsync/adapter/eventstore"
	"github.com/graspsync/graspsync/rules"
)

// withheld keeps clients from getting deletions and requests to vanish that rules are against. These have to
// stay in the store, or what they removed would come back, and anybody can write anything into them.
type withheld struct{ book *rules.Book }

type query = func(ctx context.Context, f nostr.Filter) (chan *nostr.Event, error)

// wire has a relay withhold them from answers, reconciliations and those who listen.
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
	_, is := w.book.Withholds(e)
	return is
}

// stream is all that a query gives, as it comes. The store withholds by itself where that has a page be full; other hooks
// of the relay do not.
func (w withheld) stream(ctx context.Context, q query, f nostr.Filter) (chan *nostr.Event, error) {
	found, err := q(ctx, f)
	if err != nil || found == nil {
		return nil, err
	}
	served := make(chan *nostr.Event)
	go func() {
		defer close(served)
		for e := range found { // to its end, or who fills it would wait
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
