package sync

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"reflect"
	"slices"
	"testing"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/racetest"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/sync/internal/index"
)

func newView(store Store) storeView {
	return storeView{index.New(listsByName, nip34.Identity{}, nil), store}
}

func TestViewEvent(t *testing.T) {
	store := &listStore{}
	x := newView(store)
	for i := range 4 {
		store.events = append(store.events, testEvent(i, 1, 1, 1))
	}
	ev, err := x.Event(t.Context(), testID(2))
	require.NoError(t, err)
	assert.Same(t, store.events[2], ev.Event)
	ev, err = x.Event(t.Context(), testID(9))
	require.NoError(t, err)
	assert.True(t, ev.IsZero())

	store.fail = errors.New("disk gone")
	_, err = x.Event(t.Context(), testID(9))
	require.ErrorIs(t, err, store.fail)
}

// Near returns the events that tag ids and addresses, and the events at the addresses.
func TestViewNear(t *testing.T) {
	store := &listStore{}
	x := newView(store)
	release := coordinates(30063, 7, "v1")
	for i, tag := range []nostr.Tag{
		tagEvent(100), {"E", testID(100).String()}, {"q", testID(101).String()},
		{"a", release.String()}, {"A", release.String()}, {"q", release.String()},
		{"p", testID(100).String()}, {"e", testID(102).String()}, {"a", coordinates(30063, 7, "v2").String()},
	} {
		store.events = append(store.events, testEvent(i, 1, 1, 1, tag))
	}
	store.events = append(store.events, testEvent(20, 30063, 7, 1, nostr.Tag{"d", "v1"}))
	store.events = append(store.events, testEvent(21, 30063, 7, 1, nostr.Tag{"d", "v2"}))
	store.events = append(store.events, testEvent(22, graspsync.KindDeletion, 9, 1, tagEvent(100), nostr.Tag{"a", release.String()}))
	near := func(ids []graspsync.EventID, at []graspsync.Address) (out []int) {
		found, err := x.Near(t.Context(), ids, at)
		require.NoError(t, err)
		for _, ev := range found {
			for n := range 50 {
				if testID(n).String() == ev.ID.String() {
					out = append(out, n)
				}
			}
		}
		slices.Sort(out)
		return slices.Compact(out)
	}
	require.Equal(t, []int{0, 1, 2}, near([]graspsync.EventID{testID(100), testID(101)}, nil))
	require.Equal(t, []int{3, 4, 5, 20}, near(nil, []graspsync.Address{release}))
	require.Empty(t, near(nil, nil))
	for i := range 3 * nearAtOnce {
		store.events = append(store.events, testEvent(1000+i, 1, 1, 1, tagEvent(500)))
	}
	found, err := x.Near(t.Context(), []graspsync.EventID{testID(500)}, nil)
	require.NoError(t, err)
	require.Len(t, found, nearAtOnce, "however many there are")
	store.fail = errors.New("disk gone")
	for _, at := range [][]graspsync.Address{nil, {coordinates(30063, 8, "x")}} {
		_, err = x.Near(t.Context(), []graspsync.EventID{testID(9)}, at)
		require.ErrorIs(t, err, store.fail)
	}
}

// faulty is a Store in which the step with a given number fails: a call, or one event of an
// iteration.
type faulty struct {
	Store
	fails, steps int
}

var errFault = errors.New("disk on fire")

func (f *faulty) step() error {
	if f.steps++; f.steps == f.fails {
		return errFault
	}
	return nil
}

func (f *faulty) Events(ctx context.Context, filter nostr.Filter) iter.Seq2[graspsync.Event, error] {
	return func(yield func(graspsync.Event, error) bool) {
		for ev, err := range f.Store.Events(ctx, filter) {
			if err = cmp.Or(err, f.step()); err != nil {
				yield(graspsync.Event{}, err)
				return
			}
			if !yield(ev, nil) {
				return
			}
		}
		if err := f.step(); err != nil {
			yield(graspsync.Event{}, err)
		}
	}
}

func (f *faulty) Keys(ctx context.Context, filter nostr.Filter) iter.Seq2[graspsync.EventKey, error] {
	return func(yield func(graspsync.EventKey, error) bool) {
		for st, err := range f.Store.Keys(ctx, filter) {
			if err = cmp.Or(err, f.step()); err != nil {
				yield(graspsync.EventKey{}, err)
				return
			}
			if !yield(st, nil) {
				return
			}
		}
		if err := f.step(); err != nil {
			yield(graspsync.EventKey{}, err)
		}
	}
}

func (f *faulty) Has(ctx context.Context, ids []graspsync.EventID) ([]bool, error) {
	if err := f.step(); err != nil {
		return nil, err
	}
	return f.Store.Has(ctx, ids)
}

func (f *faulty) Deleted(ctx context.Context, ev graspsync.Event) (bool, error) {
	if err := f.step(); err != nil {
		return false, err
	}
	return f.Store.Deleted(ctx, ev)
}

// If any step of the Store fails, a method of View returns an error or the correct answer. It never
// reports a missing event, because the Policy would then permanently reject an acceptable event.
func TestEachFaultOfTheStoreReachesThePolicy(t *testing.T) {
	racetest.Amounts(t)
	store := &listStore{}
	store.events = append(store.events, testAnnouncement(1, 1, "x", 1, "ours"))
	for i := range 3 {
		store.events = append(store.events, testEvent(10+i, 1621, 2, 1, tagRepo(testRepo(1, "x"))))
		store.events = append(store.events, testEvent(20+i, 1111, 3, 1, tagEvent(10+i)))
	}
	store.events = append(store.events, testEvent(30, graspsync.KindVanish, 4, 1, nostr.Tag{"relay", "wss://elsewhere.example"}))
	coordinates := func(author int) graspsync.Address {
		return graspsync.Address{Kind: graspsync.KindAnnouncement, Author: testKey(author), Identifier: "x"}
	}
	var many []graspsync.EventID
	for i := range idsAtOnce + 100 {
		many = append(many, testID(i))
	}
	type near struct {
		ids []graspsync.EventID
		at  []graspsync.Address
	}
	// For stored and for missing events.
	questions := map[string][]any{
		"Near":      {near{ids: []graspsync.EventID{testID(10), testID(99)}, at: []graspsync.Address{coordinates(1)}}, near{ids: []graspsync.EventID{testID(99)}}},
		"Event":     {testID(10), testID(99)},
		"Events":    {[]graspsync.EventID{testID(10), testID(21), testID(99)}, many},
		"Addressed": {[]graspsync.Address{coordinates(1)}, []graspsync.Address{coordinates(2)}},
		"Wrote":     {testKey(2), testKey(4), testKey(9)},
	}
	view := reflect.TypeFor[View]()
	for m := range view.Methods() {
		if m.Type.NumIn() == 0 || m.Type.In(0) != reflect.TypeFor[context.Context]() {
			continue // this method does not read the Store
		}
		require.NotEmpty(t, questions[m.Name], "%s is not in this test", m.Name)
		for _, q := range questions[m.Name] {
			ask := func(fails int) (answer any, steps int, err error) {
				f := &faulty{Store: store, fails: fails}
				x := newView(f)
				args := []reflect.Value{reflect.ValueOf(t.Context()), reflect.ValueOf(q)}
				if n, two := q.(near); two {
					args = []reflect.Value{args[0], reflect.ValueOf(n.ids), reflect.ValueOf(n.at)}
				}
				out := reflect.ValueOf(x).MethodByName(m.Name).Call(args)
				err, _ = out[1].Interface().(error)
				return out[0].Interface(), f.steps, err
			}
			want, steps, err := ask(0)
			require.NoError(t, err)
			require.Positive(t, steps, m.Name)
			told := 0
			for fails := 1; fails <= steps; fails++ {
				got, _, err := ask(fails)
				if err == nil {
					assert.Equal(t, want, got, "%s of %v, step %d of %d", m.Name, q, fails, steps)
					continue
				}
				assert.ErrorIs(t, err, errFault)
				told++
			}
			assert.Positive(t, told, "%s never tells of a failure", m.Name)
		}
	}
}
