package grasp

import (
	"context"
	"errors"

	"github.com/fiatjaf/eventstore"
	"github.com/fiatjaf/khatru"
	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
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

// fullAnswer is how large an answer is that nothing is added to, in bytes of text: the store cuts its own there.
const fullAnswer = 8 << 20

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

// page is what a client gets that reads by pages. As many as it asks for, though some were withheld, however many
// these are: a page that is not full, or is empty, is taken for the last one.
func (w withheld) page(ctx context.Context, q query, f nostr.Filter) (chan *nostr.Event, error) {
	a := answer{withheld: w}
	fresh, err := a.ask(ctx, q, f)
	if err != nil {
		return nil, err
	}
	if len(a.events) < fresh {
		if err := a.fill(ctx, q, f); err != nil {
			return nil, err
		}
	}
	return w.give(ctx, a.events), nil
}

// answer is a page that is being put together.
type answer struct {
	withheld
	events []*nostr.Event
	bytes  int                 // of their texts
	until  nostr.Timestamp     // of the oldest that was given
	seen   map[string]struct{} // what was given of that second
	done   bool                // nothing was given the last time
}

// fill reads on in place of what is withheld, until there is nothing more: that an answer is short says nothing, as the
// store may have cut it.
func (a *answer) fill(ctx context.Context, q query, f nostr.Filter) error {
	wanted := f.Limit
	if wanted <= 0 {
		wanted = a.most
	}
	f.Limit = max(wanted, a.most)
	for !a.done && len(a.events) < wanted && a.bytes < fullAnswer {
		f.Until = &a.until
		fresh, err := a.ask(ctx, q, f)
		if err != nil {
			return err
		}
		if fresh == 0 && !a.done { // there is no more of that second, or it has more than a page
			if err := a.second(ctx, f); err != nil {
				return err
			}
			a.until--
			a.seen = nil
		}
	}
	a.events = a.events[:min(len(a.events), wanted)]
	return nil
}

// second adds what is served of a second that pages come to no end of, as far as the store can tell.
func (a *answer) second(ctx context.Context, f nostr.Filter) error {
	if f.Search != "" { // of which a Store knows nothing
		return nil
	}
	at := a.until
	f.Since, f.Until, f.Limit = &at, &at, 0
	given := make(map[string]bool)
	for _, e := range a.events {
		given[e.ID] = true
	}
	for e, err := range a.store.Events(ctx, f) {
		if errors.Is(err, relaysync.ErrIncomplete) {
			return nil
		}
		if err != nil {
			return err
		}
		if given[e.Event.ID] || a.is(e.Event) {
			continue
		}
		a.events = append(a.events, e.Event)
		if a.bytes += len(e.Content); a.bytes >= fullAnswer {
			return nil
		}
	}
	return nil
}

// ask adds what a query gives, and returns how many of these were not given before.
func (a *answer) ask(ctx context.Context, q query, f nostr.Filter) (fresh int, err error) {
	ch, err := q(ctx, f)
	if err != nil || ch == nil {
		a.done = true
		return 0, err
	}
	a.done = true
	oldest, before := a.until, a.seen
	seen := make(map[string]struct{})
	for e := range ch {
		if a.done || e.CreatedAt < oldest {
			oldest = e.CreatedAt
			clear(seen)
		}
		a.done = false
		if e.CreatedAt == oldest {
			seen[e.ID] = struct{}{}
		}
		if _, known := before[e.ID]; known {
			continue
		}
		if fresh++; !a.is(e) {
			a.events = append(a.events, e)
			a.bytes += len(e.Content)
		}
	}
	a.until, a.seen = oldest, seen
	return fresh, ctx.Err() // what ended the answer too early
}
