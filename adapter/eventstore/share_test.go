package eventstoreadapter_test

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fiatjaf/eventstore"
	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	eventstoreadapter "github.com/graspsync/graspsync/adapter/eventstore"
	"github.com/graspsync/graspsync/adapter/internal/asker"
	"github.com/graspsync/graspsync/internal/backendcaps"
	"github.com/graspsync/graspsync/internal/racetest"
	"github.com/graspsync/graspsync/limit"
)

// endless is a badger with any number of events with a tag, none of the requested kind.
type endless struct {
	eventstore.Store
	traits backendcaps.Caps
	t      *testing.T
	given  int
}

func (b *endless) Caps() backendcaps.Caps { return b.traits }

func (b *endless) QueryEvents(_ context.Context, f nostr.Filter) (chan *nostr.Event, error) {
	if f.Tags != nil {
		require.Empty(b.t, f.Kinds, "what it holds against the rest it reads without end, and says nothing of it")
		require.Empty(b.t, f.Authors)
		require.Len(b.t, f.Tags, 1)
	}
	at := start
	if f.Until != nil {
		at = *f.Until
	}
	ch := make(chan *nostr.Event, f.Limit)
	one := event(alice, 1, at, nostr.Tag{"a", "30617:" + alice + ":repo"}, nostr.Tag{"e", alice})
	for i := range f.Limit {
		e := *one
		e.CreatedAt -= nostr.Timestamp(i)
		e.ID = fmt.Sprintf("%064x", e.CreatedAt) // not its hash, of which half a million take seconds
		ch <- &e
	}
	b.given += f.Limit
	close(ch)
	return ch, nil
}

// The cost of one query is bounded. Before, badger read without end while filtering after the
// look-up, other clients waited, and bounded answers contained events that do not match.
func TestWhatOneQuestionCosts(t *testing.T) {
	racetest.Amounts(t)
	b := &endless{traits: (&metered{BadgerBackend: newBadger(t, 0)}).Caps(), t: t}
	s := newStore(t, b, eventstoreadapter.Config{NoSync: true})
	address := "30617:" + alice + ":repo"
	for name, f := range map[string]nostr.Filter{
		"a kind":    {Kinds: []int{9999}, Tags: nostr.TagMap{"a": {address}}, Limit: 1},
		"an author": {Authors: []string{bob}, Tags: nostr.TagMap{"e": {alice}}, Limit: 500},
		"two tags":  {Tags: nostr.TagMap{"a": {address}, "e": {bob}}},
	} {
		t.Run(name, func(t *testing.T) {
			b.t, b.given = t, 0
			_, err := s.Query(t.Context(), f)
			require.ErrorIs(t, err, eventstoreadapter.ErrTooMuch)
			require.LessOrEqual(t, b.given, 510_000)
		})
	}
}

// slow is a backend that takes a second per query.
type slow struct {
	eventstore.Store
	traits    backendcaps.Caps
	now, most atomic.Int64
}

func (b *slow) Caps() backendcaps.Caps { return b.traits }

func (b *slow) QueryEvents(context.Context, nostr.Filter) (chan *nostr.Event, error) {
	raise(&b.most, b.now.Add(1))
	ch := make(chan *nostr.Event)
	time.AfterFunc(time.Second, func() {
		b.now.Add(-1)
		close(ch)
	})
	return ch, nil
}

// Places are shared by client. Before, a client that disconnected could have any number of queries
// in the backend, and a busy client delayed all others.
func TestPlacesAreSharedByClient(t *testing.T) {
	db := newBadger(t, 0)
	synctest.Test(t, func(t *testing.T) {
		b := &slow{traits: (&metered{BadgerBackend: db}).Caps()}
		s := newStore(t, b, eventstoreadapter.Config{NoSync: true})
		ask := func(ctx context.Context) {
			ch, err := s.Query(ctx, nostr.Filter{Kinds: []int{1}})
			if err != nil {
				return
			}
			for range ch {
			}
		}
		mallory := asker.For(t.Context(), limit.Stranger{ID: "mallory"}, nil)
		for range 100 {
			ctx, leave := context.WithTimeout(mallory, 50*time.Millisecond)
			go func() {
				defer leave()
				ask(ctx)
			}()
		}
		time.Sleep(100 * time.Millisecond)
		places := int64(max(4, runtime.GOMAXPROCS(0)))
		require.LessOrEqual(t, b.most.Load(), places, "left, and read all the same")
		for range 100 {
			go ask(mallory)
		}
		time.Sleep(2 * time.Second)
		require.LessOrEqual(t, b.most.Load(), places)
		began := time.Now()
		ask(asker.For(t.Context(), limit.Stranger{ID: "alice"}, nil))
		require.LessOrEqual(t, time.Since(began), 2*time.Second)
		time.Sleep(5 * time.Minute)
	})
}
