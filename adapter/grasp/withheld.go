package grasp

import (
	"context"
	"iter"

	"github.com/fiatjaf/eventstore"
	"github.com/fiatjaf/khatru"
	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/adapter/internal/embedding"
	"github.com/graspsync/graspsync/rules"
	relaysync "github.com/graspsync/graspsync/sync"
)

// withheld keeps clients from getting deletions and requests to vanish that rules are against. These have to
// stay in the store, or what they removed would come back, and anybody can write anything into them.
type withheld struct {
	book  *rules.Book
	store relaysync.Store
	most  int // events that a query gives at most
	// give has a client read an answer.
	give func(ctx context.Context, events []*nostr.Event) chan *nostr.Event
}

type query = func(ctx context.Context, f nostr.Filter) (chan *nostr.Event, error)

// wire has a relay withhold them from answers, reconciliations and those who listen.
func (w withheld) wire(relay *khatru.Relay) {
	for i, q := range relay.QueryEvents {
		relay.QueryEvents[i] = func(ctx context.Context, f nostr.Filter) (chan *nostr.Event, error) {
			if khatru.IsInternalCall(ctx) {
				return q(ctx, f)
			}
			if eventstore.IsNegentropySession(ctx) || nostr.GetTheoreticalLimit(f) >= 0 {
				return w.stream(ctx, q, f)
			}
			return w.page(ctx, q, f)
		}
	}
	relay.PreventBroadcast = append(relay.PreventBroadcast, func(_ *khatru.WebSocket, e *nostr.Event) bool { return w.is(e) })
}

func (w withheld) is(e *nostr.Event) bool {
	if e.Kind != graspsync.KindDeletion && e.Kind != graspsync.KindVanish {
		return false
	}
	ev, err := graspsync.ParseEvent(e)
	if err != nil {
		return false
	}
	_, is := w.book.Withholds(ev)
	return is
}

// stream is all that a query gives, as it comes: nobody takes it for a page.
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

// page is what a client gets that reads by pages.
func (w withheld) page(ctx context.Context, q query, f nostr.Filter) (chan *nostr.Event, error) {
	events, err := embedding.Withholding[*nostr.Event]{
		Is: w.is, Of: func(e *nostr.Event) (string, nostr.Timestamp, int) { return e.ID, e.CreatedAt, len(e.Content) },
		Second: func(ctx context.Context, at nostr.Timestamp) iter.Seq2[*nostr.Event, error] {
			return w.second(ctx, f, at)
		},
	}.Page(ctx, func(ctx context.Context, until *nostr.Timestamp, limit int) (events []*nostr.Event, err error) {
		f := f
		f.Limit = limit
		if until != nil {
			f.Until = until
		}
		found, err := q(ctx, f)
		if err != nil || found == nil {
			return nil, err
		}
		for e := range found {
			events = append(events, e)
		}
		return events, nil
	}, f.Limit, w.most)
	if err != nil {
		return nil, err
	}
	return w.give(ctx, events), nil
}

// second is all of a second that matches.
func (w withheld) second(ctx context.Context, f nostr.Filter, at nostr.Timestamp) iter.Seq2[*nostr.Event, error] {
	return func(yield func(*nostr.Event, error) bool) {
		if f.Search != "" { // of which a Store knows nothing
			return
		}
		f.Since, f.Until, f.Limit = &at, &at, 0
		for e, err := range w.store.Events(ctx, f) {
			if !yield(e.Event, err) {
				return
			}
		}
	}
}
