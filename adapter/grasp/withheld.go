package grasp

import (
	"context"

	"github.com/fiatjaf/eventstore"
	"github.com/fiatjaf/khatru"
	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/rules"
)

// withheld keeps clients from getting deletions and requests to vanish that rules are against. These have to
// stay in the store, or what they removed would come back, and anybody can write anything into them.
type withheld struct {
	book *rules.Book
	page int // events that a query gives at most
}

type query = func(ctx context.Context, f nostr.Filter) (chan *nostr.Event, error)

// mostPages is how many pages are read in place of what is withheld, for one answer.
const mostPages = 16

// wire has a relay withhold them from answers, reconciliations and those who listen.
func (w withheld) wire(relay *khatru.Relay) {
	for i, q := range relay.QueryEvents {
		relay.QueryEvents[i] = func(ctx context.Context, f nostr.Filter) (chan *nostr.Event, error) {
			if khatru.IsInternalCall(ctx) {
				return q(ctx, f)
			}
			events, err := w.answer(ctx, q, f)
			if err != nil {
				return nil, err
			}
			ch := make(chan *nostr.Event, len(events))
			for _, e := range events {
				ch <- e
			}
			close(ch)
			return ch, nil
		}
	}
	relay.PreventBroadcast = append(relay.PreventBroadcast, func(_ *khatru.WebSocket, e *nostr.Event) bool { return w.is(e) })
}

func (w withheld) is(e *nostr.Event) bool {
	if e.Kind != graspsync.KindDeletion && e.Kind != graspsync.KindVanish {
		return false
	}
	ev, err := graspsync.ParseEvent(e)
	return err == nil && w.book.Withholds(ev)
}

// answer is what a client gets for a filter. As many as it asks for, though some were withheld: a page that
// is not full is taken for the last one.
func (w withheld) answer(ctx context.Context, q query, f nostr.Filter) ([]*nostr.Event, error) {
	a := answer{withheld: w, seen: make(map[string]bool)}
	got, err := a.ask(ctx, q, f)
	all := eventstore.IsNegentropySession(ctx) || f.Limit <= 0 || nostr.GetTheoreticalLimit(f) >= 0
	if err != nil || len(a.events) == len(a.seen) || all {
		return a.events, err
	}
	most := f.Limit
	f.Limit = max(f.Limit, w.page)
	for range mostPages {
		known := len(a.seen)
		if got, err = a.ask(ctx, q, f); err != nil {
			return nil, err
		}
		fresh := len(a.seen) > known
		if len(a.events) >= most || got == 0 || !fresh && got < f.Limit {
			break
		}
		until := a.oldest
		if !fresh { // a second has more than a page
			until--
		}
		f.Until = &until
	}
	return a.events[:min(len(a.events), most)], nil
}

// answer is one that is being put together.
type answer struct {
	withheld
	seen   map[string]bool
	events []*nostr.Event
	oldest nostr.Timestamp // of what was seen
}

// ask adds what a query gives, and returns how many these are.
func (a *answer) ask(ctx context.Context, q query, f nostr.Filter) (got int, err error) {
	ch, err := q(ctx, f)
	if err != nil || ch == nil {
		return 0, err
	}
	for e := range ch {
		if got++; got == 1 || e.CreatedAt < a.oldest {
			a.oldest = e.CreatedAt
		}
		if a.seen[e.ID] {
			continue
		}
		if a.seen[e.ID] = true; !a.is(e) {
			a.events = append(a.events, e)
		}
	}
	return got, nil
}
