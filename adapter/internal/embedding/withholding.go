package embedding

import (
	"context"
	"errors"
	"iter"

	"github.com/nbd-wtf/go-nostr"

	relaysync "github.com/graspsync/graspsync/sync"
)

// Withholding puts answers together of which some is kept from clients. E is an event as a relay has it.
type Withholding[E any] struct {
	// Is says what is withheld.
	Is func(E) bool
	// Of tells the id of an event, its time, and how large its text is.
	Of func(E) (id string, at nostr.Timestamp, bytes int)
	// Second gives all of a second that matches, as far as the store can tell.
	Second func(ctx context.Context, at nostr.Timestamp) iter.Seq2[E, error]
}

// Query gives the newest events that match, at most so many, up to a time, if there is one: nil is for all, as the client
// has asked.
type Query[E any] func(ctx context.Context, until *nostr.Timestamp, limit int) ([]E, error)

// fullAnswer is how large an answer is that nothing is added to, in bytes of text: the store cuts its own there.
const fullAnswer = 8 << 20

// Page is what a client gets that reads by pages: as many as it wants, though some were withheld, however many
// these are. A page that is not full, or is empty, is taken for the last one. most is how many a query gives at most.
func (w Withholding[E]) Page(ctx context.Context, query Query[E], wanted, most int) ([]E, error) {
	p := page[E]{Withholding: w, query: query}
	fresh, err := p.ask(ctx, nil, wanted)
	if err != nil {
		return nil, err
	}
	if len(p.events) < fresh {
		if err := p.fill(ctx, wanted, most); err != nil {
			return nil, err
		}
	}
	return p.events, nil
}

// page is one that is being put together.
type page[E any] struct {
	Withholding[E]
	query  Query[E]
	events []E
	bytes  int                 // of their texts
	until  nostr.Timestamp     // of the oldest that was given
	seen   map[string]struct{} // what was given of that second
	done   bool                // nothing was given the last time
}

// fill reads on in place of what is withheld, until there is nothing more: that an answer is short says nothing, as the
// store may have cut it.
func (p *page[E]) fill(ctx context.Context, wanted, most int) error {
	if wanted <= 0 {
		wanted = most
	}
	for !p.done && len(p.events) < wanted && p.bytes < fullAnswer {
		until := p.until
		fresh, err := p.ask(ctx, &until, max(wanted, most))
		if err != nil {
			return err
		}
		if fresh == 0 && !p.done { // there is no more of that second, or it has more than a page
			if err := p.second(ctx); err != nil {
				return err
			}
			p.until--
			p.seen = nil
		}
	}
	p.events = p.events[:min(len(p.events), wanted)]
	return nil
}

// second adds what is served of a second that pages come to no end of.
func (p *page[E]) second(ctx context.Context) error {
	given := make(map[string]bool)
	for _, e := range p.events {
		id, _, _ := p.Of(e)
		given[id] = true
	}
	for e, err := range p.Second(ctx, p.until) {
		if errors.Is(err, relaysync.ErrIncomplete) {
			return nil
		}
		if err != nil {
			return err
		}
		id, _, bytes := p.Of(e)
		if given[id] || p.Is(e) {
			continue
		}
		p.events = append(p.events, e)
		if p.bytes += bytes; p.bytes >= fullAnswer {
			return nil
		}
	}
	return nil
}

// ask adds what the query gives, and returns how many of these were not given before.
func (p *page[E]) ask(ctx context.Context, until *nostr.Timestamp, limit int) (fresh int, err error) {
	p.done = true
	found, err := p.query(ctx, until, limit)
	if err != nil {
		return 0, err
	}
	oldest, before := p.until, p.seen
	seen := make(map[string]struct{})
	for _, e := range found {
		id, at, bytes := p.Of(e)
		if p.done || at < oldest {
			oldest = at
			clear(seen)
		}
		p.done = false
		if at == oldest {
			seen[id] = struct{}{}
		}
		if _, known := before[id]; known {
			continue
		}
		if fresh++; !p.Is(e) {
			p.events = append(p.events, e)
			p.bytes += bytes
		}
	}
	p.until, p.seen = oldest, seen
	return fresh, ctx.Err() // what ended the answer too early
}
