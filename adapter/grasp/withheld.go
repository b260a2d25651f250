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
	most int // events that a query gives at most
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
	return err == nil && w.book.Withholds(ev)
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

// page is what a client gets that reads by pages. As many as it asks for, though some were withheld: a page
// that is not full, or is empty, is taken for the last one.
func (w withheld) page(ctx context.Context, q query, f nostr.Filter) (chan *nostr.Event, error) {
	a := answer{withheld: w, seen: make(map[string]bool)}
	if _, err := a.ask(ctx, q, f); err != nil {
		return nil, err
	}
	if len(a.events) < len(a.seen) {
		if err := a.fill(ctx, q, f); err != nil {
			return nil, err
		}
	}
	ch := make(chan *nostr.Event, len(a.events))
	for _, e := range a.events {
		ch <- e
	}
	close(ch)
	return ch, nil
}

// answer is a page that is being put together.
type answer struct {
	withheld
	seen   map[string]bool
	events []*nostr.Event
	oldest nostr.Timestamp // of what was seen
}

// fill reads on in place of what is withheld.
func (a *answer) fill(ctx context.Context, q query, f nostr.Filter) error {
	wanted := f.Limit
	if wanted <= 0 {
		wanted = a.most
	}
	f.Limit = max(wanted, a.most)
	for range mostPages {
		known := len(a.seen)
		got, err := a.ask(ctx, q, f)
		if err != nil {
			return err
		}
		fresh := len(a.seen) > known
		if len(a.events) >= wanted || got == 0 || !fresh && got < f.Limit {
			break
		}
		until := a.oldest
		if !fresh { // a second has more than a page
			until--
		}
		f.Until = &until
	}
	a.events = a.events[:min(len(a.events), wanted)]
	return nil
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
