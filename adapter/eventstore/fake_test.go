package eventstoreadapter_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/fiatjaf/eventstore"
	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/backendcaps"
	"github.com/graspsync/graspsync/internal/eventtest"
)

// fake is like slicestore, with strictness and faults set by its fields.
type fake struct {
	mu     sync.Mutex
	events []*nostr.Event // newest first, lowest id first

	limit  int // most events of one answer
	query  func(ctx context.Context, f nostr.Filter) (chan *nostr.Event, error)
	save   func(e *nostr.Event) error
	remove func(e *nostr.Event) error

	queries int
	given   int // events of all answers
}

var _ eventstore.Store = (*fake)(nil)

func (b *fake) Caps() backendcaps.Caps {
	return backendcaps.Caps{Page: max(b.limit, 1), Memory: true, Indexed: func(string, string) bool { return true }}
}

func (b *fake) Init() error { return nil }
func (b *fake) Close()      {}

func (b *fake) QueryEvents(ctx context.Context, f nostr.Filter) (chan *nostr.Event, error) {
	if b.query != nil {
		return b.query(ctx, f)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.queries++
	limit := b.limit
	if 0 < f.Limit && f.Limit <= b.limit {
		limit = f.Limit
	}
	var found []*nostr.Event
	for _, e := range b.events {
		if len(found) < limit && f.Matches(e) {
			found = append(found, e)
		}
	}
	b.given += len(found)
	ch := make(chan *nostr.Event)
	go func() {
		defer close(ch)
		for _, e := range found {
			ch <- e
		}
	}()
	return ch, nil
}

func (b *fake) SaveEvent(_ context.Context, e *nostr.Event) error {
	if b.save != nil {
		if err := b.save(e); err != nil {
			return err
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	at, found := slices.BinarySearchFunc(b.events, e, func(a, e *nostr.Event) int {
		if a.CreatedAt != e.CreatedAt {
			return int(e.CreatedAt - a.CreatedAt)
		}
		return strings.Compare(a.ID, e.ID)
	})
	if found {
		return eventstore.ErrDupEvent
	}
	b.events = slices.Insert(b.events, at, e)
	return nil
}

func (b *fake) DeleteEvent(_ context.Context, e *nostr.Event) error {
	if b.remove != nil {
		if err := b.remove(e); err != nil {
			return err
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.events = slices.DeleteFunc(b.events, func(o *nostr.Event) bool { return o.ID == e.ID })
	return nil
}

func (b *fake) ReplaceEvent(context.Context, *nostr.Event) error { panic("never to be used") }

// counting is a fake that can count.
type counting struct {
	*fake
	err error
}

func (b counting) CountEvents(_ context.Context, f nostr.Filter) (int64, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := int64(0)
	for _, e := range b.events {
		if f.Matches(e) {
			n++
		}
	}
	return n, b.err
}

const start nostr.Timestamp = 1_700_000_000

var (
	alice = strings.Repeat("a1", 32)
	bob   = strings.Repeat("b0", 32)
)

var serial int

func event(author string, kind int, at nostr.Timestamp, tags ...nostr.Tag) *nostr.Event {
	serial++
	e := &nostr.Event{
		PubKey: author, Kind: kind, CreatedAt: at, Tags: append(nostr.Tags{}, tags...),
		Content: fmt.Sprint("event ", serial), Sig: strings.Repeat("0", 128),
	}
	e.ID = e.GetID()
	return e
}

func incoming(events ...*nostr.Event) []graspsync.Incoming {
	in := make([]graspsync.Incoming, len(events))
	for i, e := range events {
		in[i] = graspsync.Incoming{Event: eventtest.Of(e)}
	}
	return in
}

func idOf(e *nostr.Event) graspsync.EventID {
	id, err := graspsync.ParseEventID(e.ID)
	if err != nil {
		panic(err)
	}
	return id
}
