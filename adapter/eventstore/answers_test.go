package eventstoreadapter_test

import (
	"cmp"
	"context"
	"testing"

	"github.com/fiatjaf/eventstore"
	"github.com/fiatjaf/eventstore/badger"
	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	eventstoreadapter "github.com/graspsync/graspsync/adapter/eventstore"
	"github.com/graspsync/graspsync/internal/backendcaps"
)

// metered is a badger that counts queries.
type metered struct {
	*badger.BadgerBackend
	page           int // that it is asked for; 0: MaxLimit
	queries, given int
}

func (b *metered) QueryEvents(ctx context.Context, f nostr.Filter) (chan *nostr.Event, error) {
	b.queries++
	ch, err := b.BadgerBackend.QueryEvents(ctx, f)
	if err != nil {
		return nil, err
	}
	var events []*nostr.Event
	for e := range ch {
		events = append(events, e)
	}
	b.given += len(events)
	out := make(chan *nostr.Event, len(events))
	for _, e := range events {
		out <- e
	}
	close(out)
	return out, nil
}

func (b *metered) Caps() backendcaps.Caps {
	return backendcaps.Caps{
		Page: cmp.Or(b.page, b.MaxLimit), Exempt: b.MaxLimitNegentropy, Prefixes: true,
		Indexed: func(name, value string) bool { return len(name) == 1 && value != "" && len(value) <= 100 },
	}
}

// answer returns the ids that a client receives.
func answer(t *testing.T, s *eventstoreadapter.Store, f nostr.Filter) []string {
	t.Helper()
	ch, err := s.Query(t.Context(), f)
	require.NoError(t, err)
	ids := []string{}
	for e := range ch {
		ids = append(ids, e.ID)
	}
	return ids
}

func onSliceAndBadger(t *testing.T, test func(t *testing.T, s *eventstoreadapter.Store)) {
	for name, db := range map[string]eventstore.Store{
		"slicestore": newSlice(t, 0), "badger": newBadger(t, 0), "badger with a small page": newBadger(t, 100),
	} {
		t.Run(name, func(t *testing.T) { test(t, newStore(t, db, eventstoreadapter.Config{NoSync: true})) })
	}
}

// Times beyond 32 bits work. Before, badger truncated them, and a client whose clock counts
// milliseconds received no events or a wrong count.
func TestTimesBeyond32Bits(t *testing.T) {
	onSliceAndBadger(t, func(t *testing.T, s *eventstoreadapter.Store) {
		e := event(alice, 1, start)
		save(t, s, e)
		for name, c := range map[string]struct {
			since, until *nostr.Timestamp
			want         []string
		}{
			"until then":  {until: ptr(1000 * start), want: []string{e.ID}},
			"since then":  {since: ptr(1000 * start), want: []string{}},
			"until never": {until: ptr(nostr.Timestamp(-1)), want: []string{}},
			"since ever":  {since: ptr(nostr.Timestamp(-1)), want: []string{e.ID}},
			"until 2106":  {until: ptr(nostr.Timestamp(1<<32 - 1)), want: []string{e.ID}},
			"since 2106":  {since: ptr(nostr.Timestamp(1<<32 - 1)), want: []string{}},
			"until 2^32":  {until: ptr(nostr.Timestamp(1 << 32)), want: []string{e.ID}},
			"since 2^32":  {since: ptr(nostr.Timestamp(1 << 32)), want: []string{}},
		} {
			f := nostr.Filter{Kinds: []int{1}, Since: c.since, Until: c.until}
			assert.Equal(t, c.want, answer(t, s, f), name)
		}
	})
}
