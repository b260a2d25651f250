package eventstoreadapter

import (
	"context"
	"fmt"
	"testing"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
)

// noting has events of one second, and notes how many it is asked for.
type noting struct {
	events []*nostr.Event
	asked  []int
	counts int
}

func (*noting) Init() error { return nil }
func (*noting) Close()      {}

func (*noting) SaveEvent(context.Context, *nostr.Event) error    { return nil }
func (*noting) DeleteEvent(context.Context, *nostr.Event) error  { return nil }
func (*noting) ReplaceEvent(context.Context, *nostr.Event) error { return nil }

func (b *noting) QueryEvents(_ context.Context, f nostr.Filter) (chan *nostr.Event, error) {
	b.asked = append(b.asked, f.Limit)
	ch := make(chan *nostr.Event, len(b.events))
	for _, e := range b.events[:min(f.Limit, len(b.events))] {
		ch <- e
	}
	close(ch)
	return ch, nil
}

func (b *noting) CountEvents(context.Context, nostr.Filter) (int64, error) {
	b.counts++
	return int64(len(b.events)), nil
}

// Each walk asked for a page of 1000 events, for which badger made room, of which most were few.
func TestFewEventsAreAskedForFirst(t *testing.T) {
	for name, c := range map[string]struct {
		kinds []int
		there int
		asked []int
		rare  bool
	}{
		"few":                   {kinds: []int{1}, there: 3, asked: []int{fewEvents}},
		"more":                  {kinds: []int{1}, there: 100, asked: []int{fewEvents, 1000}},
		"as many as a few":      {kinds: []int{1}, there: fewEvents, asked: []int{fewEvents, 1000}},
		"of two kinds, counted": {kinds: []int{1, 2}, there: 40, asked: []int{40 + 40/8 + 16}},
		"none":                  {kinds: []int{1}, asked: []int{fewEvents}},
		"rare, and none":        {kinds: []int{1}, rare: true}, // two transactions of badger, where one does
		"rare":                  {kinds: []int{1}, there: 1, asked: []int{fewEvents}, rare: true},
	} {
		t.Run(name, func(t *testing.T) {
			b := &noting{}
			for i := range c.there {
				e := &nostr.Event{Kind: 1, CreatedAt: 1_700_000_000, Content: fmt.Sprint(i), PubKey: fmt.Sprintf("%064d", 1), Sig: fmt.Sprintf("%0128d", 1)}
				e.ID = e.GetID()
				b.events = append(b.events, e)
			}
			p := profile{page: 1000, indexed: indexedCompactly}
			had := 0
			w := &walk{
				guard: newGuard(b, p, nil), page: 1000, batch: 1000, seen: make(map[graspsync.EventID]struct{}),
				yield: func(graspsync.Event) bool { had++; return true }, rare: c.rare,
			}
			require.NoError(t, w.run(t.Context(), nostr.Filter{Kinds: c.kinds}))
			assert.Equal(t, c.there, had)
			assert.Equal(t, c.asked, b.asked)
			assert.LessOrEqual(t, b.counts, 1)
		})
	}
}
