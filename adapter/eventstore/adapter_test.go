package eventstoreadapter_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"

	"github.com/fiatjaf/eventstore"
	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	eventstoreadapter "github.com/graspsync/graspsync/adapter/eventstore"
	"github.com/graspsync/graspsync/internal/eventtest"
	relaysync "github.com/graspsync/graspsync/sync"
)

func save(t testing.TB, s relaysync.Store, events ...*nostr.Event) []graspsync.Outcome {
	t.Helper()
	outcomes, err := s.Save(t.Context(), incoming(events...))
	require.NoError(t, err)
	require.Len(t, outcomes, len(events))
	return outcomes
}

func results(outcomes []graspsync.Outcome) []graspsync.Result {
	r := make([]graspsync.Result, len(outcomes))
	for i, o := range outcomes {
		r[i] = o.Result
	}
	return r
}

func read(ctx context.Context, s relaysync.Store, f nostr.Filter) (ids []string, err error) {
	for e, err := range s.Events(ctx, f) {
		if err != nil {
			return ids, err
		}
		ids = append(ids, e.ID.String())
	}
	return ids, nil
}

func TestNew(t *testing.T) {
	_, err := eventstoreadapter.New(nil, eventstoreadapter.Config{})
	require.Error(t, err)
}

func TestUnstorable(t *testing.T) {
	s := newStore(t, newBadger(t, 0), eventstoreadapter.Config{})
	good := func(change func(e *nostr.Event)) *nostr.Event {
		e := event(alice, 1, start)
		change(e)
		return e
	}
	events := []*nostr.Event{
		nil,
		good(func(e *nostr.Event) { e.Sig = "00" }),
		good(func(e *nostr.Event) { e.Kind = -1 }),
		good(func(e *nostr.Event) { e.Kind = math.MaxUint16 + 1 }),
		good(func(e *nostr.Event) { e.CreatedAt = -1 }),
		good(func(e *nostr.Event) { e.CreatedAt = math.MaxUint32 }),
		good(func(e *nostr.Event) { e.Content = strings.Repeat("x", math.MaxUint16+1) }),
		good(func(e *nostr.Event) { e.Tags = nostr.Tags{make(nostr.Tag, 256)} }),
		good(func(e *nostr.Event) { e.Tags = nostr.Tags{{"x", strings.Repeat("x", math.MaxUint16+1)}} }),
	}
	for i, o := range save(t, s, events...) {
		assert.Equal(t, graspsync.Refused, o.Result, i)
		assert.ErrorIs(t, o.Err, eventstoreadapter.ErrUnstorable, i)
	}
}

type syncing struct {
	*fake
	err   error
	syncs *int
}

func (b syncing) Sync() error {
	*b.syncs++
	return b.err
}

func TestSync(t *testing.T) {
	n := 0
	db := syncing{fake: &fake{limit: 100}, syncs: &n}
	s := newStore(t, db, eventstoreadapter.Config{})
	save(t, s, event(alice, 1, start), event(alice, 1, start))
	assert.Equal(t, 1, n, "once for a batch")
	save(t, s, event(alice, 20001, start))
	assert.Equal(t, 1, n, "not for nothing")
	db.err = errors.New("disk is full")
	_, err := newStore(t, db, eventstoreadapter.Config{}).Save(t.Context(), incoming(event(alice, 1, start)))
	require.ErrorIs(t, err, eventstoreadapter.ErrBackend)
	save(t, newStore(t, db, eventstoreadapter.Config{NoSync: true}), event(alice, 1, start))
	assert.Equal(t, 2, n)
}

func TestReplaceIsAtomic(t *testing.T) {
	db := newBadger(t, 0)
	s := newStore(t, db, eventstoreadapter.Config{})
	var versions []*nostr.Event
	for i := range 200 {
		versions = append(versions, event(alice, 30617, start+nostr.Timestamp(i/2), nostr.Tag{"d", "repo"}))
	}
	var wg sync.WaitGroup
	for n := range 4 {
		wg.Go(func() {
			for i := range versions {
				v := versions[(i*(2*n+1)+n)%len(versions)]
				_, err := s.Save(t.Context(), incoming(v))
				assert.NoError(t, err)
			}
		})
	}
	wg.Wait()
	ids, err := read(t.Context(), s, nostr.Filter{})
	require.NoError(t, err)
	newest := versions[198]
	if versions[199].ID < newest.ID {
		newest = versions[199]
	}
	assert.Equal(t, []string{newest.ID}, ids)
}

func TestCrashOfBadger(t *testing.T) {
	ch, err := newStore(t, newBadger(t, 0), eventstoreadapter.Config{}).Query(t.Context(), nostr.Filter{Tags: nostr.TagMap{"": {"x"}}})
	require.NoError(t, err)
	_, open := <-ch
	assert.False(t, open)
}

// Hidden events are stored, take no place in answers, and are not in reconciliations and counts.
func TestHides(t *testing.T) {
	s := newStore(t, newBadger(t, 0), eventstoreadapter.Config{Hides: func(e graspsync.Event) bool { return e.Kind == 5 }})
	one, deletion := event(alice, 1, start), event(alice, 5, start+1)
	save(t, s, one, deletion)
	for _, ctx := range []context.Context{t.Context(), eventstore.SetNegentropy(t.Context())} {
		ch, err := s.Query(ctx, nostr.Filter{Limit: 1})
		require.NoError(t, err)
		require.Equal(t, one.ID, (<-ch).ID)
		require.Nil(t, <-ch)
	}
	ids, err := read(t.Context(), s, nostr.Filter{})
	require.NoError(t, err)
	require.ElementsMatch(t, []string{one.ID, deletion.ID}, ids)
}

// Reconciliation covers all events, not only up to the backend's limit. Otherwise peers would send
// the rest again and again.
func TestBackendForReconciliation(t *testing.T) {
	for name, db := range map[string]eventstore.Store{"slicestore": newSlice(t, 0), "badger": newBadger(t, 100)} {
		s := newStore(t, db, eventstoreadapter.Config{})
		events, repos := hub(1100)
		save(t, s, events...)
		for _, f := range []nostr.Filter{{}, {Tags: nostr.TagMap{"a": repos}}, {Limit: 5}} {
			ch, err := s.Query(eventstore.SetNegentropy(t.Context()), f)
			require.NoError(t, err)
			n := 0
			for range ch {
				n++
			}
			assert.Equal(t, 1100, n, name)
		}
		ch, err := s.Query(t.Context(), nostr.Filter{Limit: 5})
		require.NoError(t, err)
		assert.Len(t, ch, 5)
	}
}

func TestExecute(t *testing.T) {
	db := newBadger(t, 0)
	s := newStore(t, db, eventstoreadapter.Config{})
	d := nostr.Tag{"d", "repo"}
	one, theirs, late := event(alice, 1, start), event(bob, 1, start), event(alice, 30618, start+9, d)
	save(t, s, one, theirs, late)
	repo := event(alice, 30617, start, d)
	require.NoError(t, db.SaveEvent(t.Context(), repo))
	require.NoError(t, db.SaveEvent(t.Context(), event(alice, 30617, start-1, d))) // a second version, by a direct write
	deletion := event(alice, 5, start, nostr.Tag{"e", one.ID}, nostr.Tag{"e", theirs.ID},
		nostr.Tag{"a", "30617:" + alice + ":repo"}, nostr.Tag{"a", "30618:" + alice + ":repo"})
	require.NoError(t, db.SaveEvent(t.Context(), deletion))
	require.NoError(t, s.Execute(t.Context(), eventtest.Of(deletion)))
	ids, err := read(t.Context(), s, nostr.Filter{})
	require.NoError(t, err)
	assert.ElementsMatch(t, []string{theirs.ID, late.ID, deletion.ID}, ids)
	require.Error(t, s.Execute(t.Context(), eventtest.Of(one)))
	require.NoError(t, s.Remove(t.Context(), graspsync.Event{}))
}

// Answers are bounded in bytes, because they stay in memory for each of a hundred filters of a
// client. With large events, an answer has the newest ones, and the next page has the rest.
func TestAnswersAreBoundedInBytes(t *testing.T) {
	db := newBadger(t, 0)
	store, err := eventstoreadapter.New(db, eventstoreadapter.Config{})
	require.NoError(t, err)
	large := strings.Repeat("x", 60_000)
	for i := range 300 {
		e := event(alice, 1621, nostr.Timestamp(1000+i))
		e.Content = large
		require.NoError(t, db.SaveEvent(t.Context(), e))
	}
	seen, pages := make(map[string]bool), 0
	f := nostr.Filter{Kinds: []int{1621}, Limit: 500}
	for len(seen) < 300 && pages < 10 {
		ch, err := store.Query(t.Context(), f)
		require.NoError(t, err)
		require.LessOrEqual(t, len(ch)*len(large), 8<<20)
		last := nostr.Timestamp(math.MaxInt64)
		for e := range ch {
			require.LessOrEqual(t, e.CreatedAt, last)
			last = e.CreatedAt
			seen[e.ID] = true
		}
		f.Until = &last
		pages++
	}
	require.Len(t, seen, 300)
	require.Equal(t, 3, pages)
	huge := event(alice, 1, 1)
	huge.Content = strings.Repeat("x", 9<<20)
	ch, err := within(t, huge).Query(t.Context(), nostr.Filter{Kinds: []int{1}})
	require.NoError(t, err)
	require.Len(t, ch, 1, "one that is larger comes alone")
}

// within returns a store with one event.
func within(t *testing.T, e *nostr.Event) *eventstoreadapter.Store {
	t.Helper()
	store, err := eventstoreadapter.New(&fake{limit: 500, events: []*nostr.Event{e}}, eventstoreadapter.Config{})
	require.NoError(t, err)
	return store
}

// hub returns n events of realistic size about 100 repositories.
func hub(n int) (events []*nostr.Event, repos []string) {
	for i := range 100 {
		repos = append(repos, fmt.Sprintf("30617:%s:repo-%d", alice, i))
	}
	for i := range n {
		e := event(strings.Repeat(fmt.Sprintf("%02x", i%50), 32), 1621, start+nostr.Timestamp(i),
			nostr.Tag{"a", repos[i%100]}, nostr.Tag{"p", alice}, nostr.Tag{"subject", "a title"})
		e.Content += strings.Repeat(" and more", 60)
		events = append(events, e)
	}
	return events, repos
}
