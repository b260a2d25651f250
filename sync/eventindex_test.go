package sync

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/eventtest"
	"github.com/graspsync/graspsync/internal/racetest"
	"github.com/graspsync/graspsync/nip34"
)

// After every event, and after removals and rebuilds, the index must equal a scan of all events,
// and its changes must lead to the same state.
func TestIndexAgainstNaiveTwin(t *testing.T) {
	racetest.Amounts(t)
	anything := func(int) bool { return true }
	for seed := range uint64(60) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		store := &twinStore{}
		x, mirror := newWholeIndex(store, listsByName, nip34.Identity{}), newFacts()
		for _, ev := range history(rnd, 60, anything) {
			switch {
			case len(store.events) > 0 && rnd.IntN(20) == 0:
				mirror.apply(t, x.removed(eventtest.Of(store.remove(rnd.IntN(len(store.events))))))
			case rnd.IntN(20) == 0:
				s, err := scanOf(t, x)
				require.NoError(t, err)
				c, ok := x.replaceAll(s)
				require.True(t, ok)
				require.True(t, c.empty(), "nothing was wrong before")
			}
			if store.save(ev) {
				c := x.stored(eventtest.Of(ev))
				mirror.apply(t, c)
				if len(c.fresh) > 0 {
					x.descendTo(t, c.fresh, mirror)
				}
			}
			x.check(t, store, mirror)
		}
	}
}

// descendTo searches all replies in repositories.
func (x *wholeIndex) descendTo(t *testing.T, of map[graspsync.RepoRef]struct{}, mirror facts) {
	t.Helper()
	require.NoError(t, x.descend(t.Context(), of, func(ev graspsync.Event) { mirror.apply(t, x.apply(storingNode(eventtest.Of(ev.Event)))) }))
}

// Concurrent writers report stored events in any order. A deletion reported before its target, or a
// replacement reported before the replaced event, must not restore the removed event (D3).
func TestTrapD3_OrderOfReports(t *testing.T) {
	notAnnouncements := func(kind int) bool { return kind != graspsync.KindAnnouncement }
	for seed := range uint64(120) {
		rnd := rand.New(rand.NewPCG(seed, 2))
		store := &twinStore{}
		saved := slices.DeleteFunc(history(rnd, 40, notAnnouncements), func(ev *nostr.Event) bool { return !store.save(ev) })
		x, mirror := newWholeIndex(store, listsByName, nip34.Identity{}), newFacts()
		for _, i := range rnd.Perm(len(saved)) {
			mirror.apply(t, x.stored(eventtest.Of(saved[i])))
		}
		x.check(t, store, mirror)
	}
}

// Merged changes must have the same effect as the single changes in order.
func TestIndexChangeMerge(t *testing.T) {
	for seed := range uint64(60) {
		rnd := rand.New(rand.NewPCG(seed, 3))
		store := &twinStore{}
		x, mirror := newWholeIndex(store, listsByName, nip34.Identity{}), newFacts()
		var merged indexChange
		require.True(t, merged.empty())
		for _, ev := range history(rnd, 40, func(int) bool { return true }) {
			if store.save(ev) {
				merged.merge(x.stored(eventtest.Of(ev)))
			}
		}
		mirror.apply(t, merged)
		x.check(t, store, mirror)
	}
}

// Changes during a scan of the Store must be neither lost nor undone.
func TestIndexScanWhileChanging(t *testing.T) {
	for seed := range uint64(80) {
		rnd := rand.New(rand.NewPCG(seed, 4))
		store := &twinStore{}
		x, mirror := newWholeIndex(store, listsByName, nip34.Identity{}), newFacts()
		events := history(rnd, 80, func(int) bool { return true })
		for i, ev := range events[:40] {
			if store.save(ev) && i%2 == 0 { // events not reported to the index are found by the scan
				mirror.apply(t, x.stored(eventtest.Of(ev)))
			}
		}
		store.during = func() {
			for _, ev := range events[40:] {
				if store.save(ev) {
					mirror.apply(t, x.stored(eventtest.Of(ev)))
				}
				if rnd.IntN(10) == 0 {
					mirror.apply(t, x.removed(eventtest.Of(store.remove(rnd.IntN(len(store.events))))))
				}
			}
		}
		s, err := scanOf(t, x)
		require.NoError(t, err)
		c, ok := x.replaceAll(s)
		require.True(t, ok)
		mirror.apply(t, c)
		store.during = nil
		x.descendTo(t, nil, mirror)
		x.check(t, store, mirror)
	}
}

func TestIndexFirstScan(t *testing.T) {
	store := &twinStore{}
	for i := range 10 {
		store.save(testAnnouncement(i, i, "x", 1, "ours"))
		store.save(testEvent(100+i, 1621, 99, 1, tagRepo(testRepo(i, "x"))))
	}
	x := newWholeIndex(store, listsByName, nip34.Identity{})
	s, err := scanOf(t, x)
	require.NoError(t, err)
	require.Empty(t, x.Announcements("x"), "scanning changes nothing")
	c, ok := x.replaceAll(s)
	require.True(t, ok)
	assert.Len(t, c.repos, 10)
	assert.Len(t, c.roots, 10)
	x.check(t, store, x.facts())

	// The next scan detects removals that were not reported.
	store.events = store.events[4:]
	s, err = scanOf(t, x)
	require.NoError(t, err)
	c, ok = x.replaceAll(s)
	require.True(t, ok)
	assert.Equal(t, map[graspsync.RepoRef]*nip34.Announcement{testRepo(0, "x"): nil, testRepo(1, "x"): nil}, c.repos)
	assert.Equal(t, map[graspsync.EventID][]graspsync.RepoRef{testID(100): nil, testID(101): nil}, c.roots)
}

// wholeIndex is an index with its storeReader and Store.
type wholeIndex struct {
	*eventIndex
	storeReader
	storeView
}

func newWholeIndex(store Store, lists func(*nip34.Announcement) bool, us nip34.Identity) *wholeIndex {
	x := newEventIndex(lists, us, nil)
	return &wholeIndex{x, storeReader{store: store, index: x}, storeView{x, store}}
}

// scanOf scans without a show function.
func scanOf(t *testing.T, x *wholeIndex) (*indexScan, error) {
	t.Helper()
	s, _, err := x.scan(t.Context(), func(graspsync.Event) {})
	return s, err
}

func TestIndexUselessSnapshots(t *testing.T) {
	store := &twinStore{}
	x := newWholeIndex(store, listsByName, nip34.Identity{})
	_, ok := x.replaceAll(nil)
	assert.False(t, ok)

	first, err := scanOf(t, x)
	require.NoError(t, err)
	second, err := scanOf(t, x)
	require.NoError(t, err)
	_, ok = x.replaceAll(first)
	assert.False(t, ok, "its journal has ended")
	_, ok = x.replaceAll(second)
	assert.True(t, ok)
	_, ok = x.replaceAll(second)
	assert.False(t, ok, "used before")

	store.fail = errors.New("disk gone")
	store.save(testAnnouncement(1, 1, "x", 1, "ours"))
	_, err = scanOf(t, x)
	require.ErrorIs(t, err, store.fail)
	assert.Nil(t, x.pending, "no journal is written any more")
	store.fail = nil

	s, err := scanOf(t, x)
	require.NoError(t, err)
	for range maxJournal + 1 {
		s.note(func(*indexTables, *indexChange) {})
	}
	_, ok = x.replaceAll(s)
	assert.False(t, ok, "the journal is bounded")
	assert.Nil(t, x.announcement(testRepo(1, "x")))
}

func TestIndexLookups(t *testing.T) {
	store := &twinStore{}
	x := newWholeIndex(store, listsByName, nip34.Identity{})
	for i, name := range []string{"e", "E", "q", "p"} {
		store.save(testEvent(i, 1, 1, 1, nostr.Tag{name, testID(100 + i).String()}))
	}
	for i := range 5 {
		mentioned, err := x.Mentioned(t.Context(), testID(100+i))
		require.NoError(t, err)
		assert.Equal(t, i < 3, mentioned, i)
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
	_, err = x.Mentioned(t.Context(), testID(9))
	require.ErrorIs(t, err, store.fail)
	mentioned, err := x.Mentioned(t.Context(), testID(100))
	require.NoError(t, err, "the first hit is enough")
	assert.True(t, mentioned)
}

// Near returns the events that tag ids and addresses, and the events at the addresses.
func TestIndexNear(t *testing.T) {
	store := &twinStore{}
	x := newWholeIndex(store, listsByName, nip34.Identity{})
	release := coordinates(30063, 7, "v1")
	for i, tag := range []nostr.Tag{
		tagEvent(100), {"E", testID(100).String()}, {"q", testID(101).String()},
		{"a", release.String()}, {"A", release.String()}, {"q", release.String()},
		{"p", testID(100).String()}, {"e", testID(102).String()}, {"a", coordinates(30063, 7, "v2").String()},
	} {
		store.save(testEvent(i, 1, 1, 1, tag))
	}
	store.save(testEvent(20, 30063, 7, 1, nostr.Tag{"d", "v1"}))
	store.save(testEvent(21, 30063, 7, 1, nostr.Tag{"d", "v2"}))
	store.save(testEvent(22, graspsync.KindDeletion, 9, 1, tagEvent(100), nostr.Tag{"a", release.String()}))
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
		store.save(testEvent(1000+i, 1, 1, 1, tagEvent(500)))
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

func TestIndexIgnoresMalformedEvents(t *testing.T) {
	x := newWholeIndex(&twinStore{}, listsByName, nip34.Identity{})
	root := testEvent(1, 1621, 1, 1, tagRepo(testRepo(1, "x")))
	deletion := testEvent(2, graspsync.KindDeletion, 1, 1, tagRepo(testRepo(1, "x")))
	for _, ev := range []*nostr.Event{root, deletion, testAnnouncement(3, 1, "x", 1, "ours")} {
		for _, change := range []func(*nostr.Event){
			func(ev *nostr.Event) { ev.Tags = nostr.Tags{{}, nil, {"d"}, {"a"}, {"e", ""}} },
		} {
			bad := *ev
			change(&bad)
			assert.NotPanics(t, func() {
				c := x.stored(eventtest.Of(&bad))
				assert.True(t, c.empty())
				c = x.removed(eventtest.Of(&bad))
				assert.True(t, c.empty())
			})
		}
	}
	x.check(t, &twinStore{}, newFacts())
}

// A deletion by somebody else, or of a newer version, has no effect.
func TestIndexDeletions(t *testing.T) {
	root := testEvent(10, 1621, 2, 1, tagRepo(testRepo(1, "x")))
	for name, c := range map[string]struct {
		deletion   *nostr.Event
		repo, root bool // removed by the deletion
	}{
		"address by the owner":        {testEvent(5, 5, 1, 7, tagRepo(testRepo(1, "x"))), true, false},
		"address in the same second":  {testEvent(5, 5, 1, 6, tagRepo(testRepo(1, "x"))), true, false},
		"address of an older version": {testEvent(5, 5, 1, 5, tagRepo(testRepo(1, "x"))), false, false},
		"address by a stranger":       {testEvent(5, 5, 3, 7, tagRepo(testRepo(1, "x"))), false, false},
		"address of the state":        {testEvent(5, 5, 1, 7, nostr.Tag{"a", testRepo(1, "x").Address(30618)}), false, false},
		"another identifier":          {testEvent(5, 5, 1, 7, tagRepo(testRepo(1, "xy"))), false, false},
		"id by the owner":             {testEvent(5, 5, 1, 1, tagEvent(1)), true, false},
		"id by a stranger":            {testEvent(5, 5, 2, 7, tagEvent(1)), false, false},
		"root by its author":          {testEvent(5, 5, 2, 1, tagEvent(10)), false, true},
		"root by the owner":           {testEvent(5, 5, 1, 7, tagEvent(10)), false, false},
		"both, by E and A tags":       {testEvent(5, 5, 1, 7, nostr.Tag{"E", testID(1).String()}, nostr.Tag{"A", testRepo(1, "x").String()}), false, false},
	} {
		for _, early := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s early=%t", name, early), func(t *testing.T) {
				x := newWholeIndex(&twinStore{}, listsByName, nip34.Identity{})
				events := []*nostr.Event{testAnnouncement(1, 1, "x", 6, "ours"), root, c.deletion}
				if early {
					slices.Reverse(events)
				}
				for _, ev := range events {
					x.stored(eventtest.Of(ev))
				}
				assert.Equal(t, !c.repo, x.announcement(testRepo(1, "x")) != nil)
				assert.Equal(t, !c.root && !c.repo, x.follows(testID(10)))
				assert.Equal(t, !c.root, x.tables.roots.get(testID(10)) != nil)
			})
		}
	}
}

// The root events of a removed announcement return with its successor.
func TestIndexRootsComeWithTheirRepository(t *testing.T) {
	x := newWholeIndex(&twinStore{}, listsByName, nip34.Identity{})
	c := x.stored(eventtest.Of(testEvent(10, 1621, 2, 1, tagRepo(testRepo(1, "x")), tagRepo(testRepo(2, "y")))))
	assert.Equal(t, []graspsync.RepoRef{testRepo(1, "x"), testRepo(2, "y")}, c.roots[testID(10)])
	assert.False(t, x.follows(testID(10)), "no repository of it is ours")
	c = x.stored(eventtest.Of(testAnnouncement(1, 1, "x", 1, "ours")))
	assert.Contains(t, c.roots, testID(10))
	assert.True(t, x.Root(testID(10)))
	c = x.stored(eventtest.Of(testAnnouncement(2, 1, "x", 2, "ours too")))
	assert.Len(t, c.repos, 1)
	assert.Empty(t, c.roots, "a new version is no new repository")
	c = x.stored(eventtest.Of(testAnnouncement(3, 1, "x", 3, "foreign")))
	assert.Contains(t, c.repos, testRepo(1, "x"))
	assert.Nil(t, c.repos[testRepo(1, "x")])
	assert.False(t, x.follows(testID(10)))
	c = x.stored(eventtest.Of(testAnnouncement(4, 1, "x", 4, "ours")))
	assert.Contains(t, c.roots, testID(10))
}

// Slices that readers received do not change, whatever is stored later.
func TestIndexConcurrentUse(t *testing.T) {
	store := &twinStore{}
	x := newWholeIndex(store, listsByName, nip34.Identity{})
	stop := make(chan struct{})
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				seen := make(map[graspsync.PubKey]struct{})
				for _, a := range x.Announcements("x") {
					if !assert.NotNil(t, a) || !assert.NotContains(t, seen, a.Ref.Owner) {
						return
					}
					seen[a.Ref.Owner] = struct{}{}
				}
				x.Announced(testRepo(3, "x"))
				x.Root(testID(10_003))
			}
		})
	}
	rnd := rand.New(rand.NewPCG(9, 9))
	for i := range 2000 {
		name := []string{"ours", "ours", "foreign"}[rnd.IntN(3)]
		x.stored(eventtest.Of(testAnnouncement(i, rnd.IntN(8), "x", nostr.Timestamp(i), name)))
		x.stored(eventtest.Of(testEvent(10_000+i, 1621, 1, 1, tagRepo(testRepo(rnd.IntN(8), "x")))))
		if i%100 == 0 {
			s, err := scanOf(t, x)
			require.NoError(t, err)
			x.replaceAll(s)
		}
	}
	close(stop)
	readers.Wait()
}

// The number of deletions remembered for late reports is limited, and a deletion with thousands of
// names must not evict others. Before, a deleted repository was followed again when its
// announcement was reported late.
func TestIndexForgetsTombstones(t *testing.T) {
	x := newWholeIndex(&twinStore{}, listsByName, nip34.Identity{})
	x.stored(eventtest.Of(testEvent(1, graspsync.KindDeletion, 2, 7, tagRepo(testRepo(2, "x")), tagEvent(11))))
	for n := range 10 {
		ev := testEvent(2+n, graspsync.KindDeletion, 1, 1)
		for i := range 10_000 {
			ev.Tags = append(ev.Tags, tagEvent(20_000*n+i), tagRepo(testRepo(1, fmt.Sprint(n, i))))
		}
		x.stored(eventtest.Of(ev))
	}
	assert.LessOrEqual(t, x.tables.erased.Len(), maxRecent)
	assert.LessOrEqual(t, x.tables.ended.Len(), maxRecent)
	x.stored(eventtest.Of(testAnnouncement(10, 2, "x", 6, "ours")))
	x.stored(eventtest.Of(testEvent(11, 1621, 2, 6, tagRepo(testRepo(2, "x")))))
	x.check(t, &twinStore{}, newFacts())
}

// The events of an author are found without a walk over all tables. Before, any key could cause
// such walks as often as it liked.
func TestIndexVanish(t *testing.T) {
	x := newWholeIndex(&twinStore{}, listsByName, nip34.Identity{})
	for i := range 20 {
		x.stored(eventtest.Of(testAnnouncement(i, i%5, fmt.Sprint(i), nostr.Timestamp(i), "ours")))
		x.stored(eventtest.Of(testEvent(100+i, 1621, i%4, nostr.Timestamp(i), tagRepo(testRepo(i%5, fmt.Sprint(i))), tagRepo(testRepo(9, "x")))))
	}
	c := x.stored(eventtest.Of(testEvent(300, graspsync.KindVanish, 2, 10, nostr.Tag{"relay", "ALL_RELAYS"})))
	assert.Len(t, c.repos, 2, "2 and 7, not 12 and 17")
	assert.Len(t, c.roots, 3, "2, 6 and 10")
	assert.Equal(t, 17, x.tables.roots.len())
	for author, in := range x.tables.wrote {
		for r, n := range in {
			roots := 0
			for n := range r.roots.All() {
				if x.tables.roots.at(n).author == author {
					roots++
				}
			}
			if r.newest != (graspsync.EventKey{}) && r.ref.Owner == author.Value() {
				roots++
			}
			assert.Equal(t, roots, n)
		}
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
	store := &twinStore{}
	store.save(testAnnouncement(1, 1, "x", 1, "ours"))
	for i := range 3 {
		store.save(testEvent(10+i, 1621, 2, 1, tagRepo(testRepo(1, "x"))))
		store.save(testEvent(20+i, 1111, 3, 1, tagEvent(10+i)))
	}
	store.save(testEvent(30, graspsync.KindVanish, 4, 1, nostr.Tag{"relay", "wss://elsewhere.example"}))
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
		"Mentioned": {testID(10), testID(99)},
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
				x := newWholeIndex(f, listsByName, nip34.Identity{})
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

func heapBytes() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// SPEC section 11 requires 50,000 root events of 1,000 repositories.
func TestIndexMemory(t *testing.T) {
	racetest.Amounts(t)
	const roots, repos, budget = 50_000, 1000, 7 << 20
	x := newWholeIndex(&twinStore{}, listsByName, nip34.Identity{})
	before := heapBytes()
	for i := range roots {
		n := i % repos
		x.stored(eventtest.Of(testEvent(i, graspsync.KindIssue, i%500, 1, tagRepo(testRepo(n, fmt.Sprintf("repository-%d", n))),
			nostr.Tag{"subject", strings.Repeat("x", 300)})))
	}
	used := int64(heapBytes()) - int64(before)
	t.Logf("%d bytes, %d for each root event", used, used/roots)
	assert.Less(t, used, int64(budget))
	assert.Equal(t, roots, x.tables.roots.len())
	runtime.KeepAlive(x)
}

func BenchmarkIndexStoredRoot(b *testing.B) {
	x := newWholeIndex(&twinStore{}, listsByName, nip34.Identity{})
	events := make([]*nostr.Event, 10_000)
	for i := range events {
		events[i] = testEvent(i, graspsync.KindIssue, i%500, 1, tagRepo(testRepo(i%1000, "x")))
	}
	for i := 0; b.Loop(); i++ {
		if i%len(events) == 0 {
			x = newWholeIndex(&twinStore{}, listsByName, nip34.Identity{})
		}
		x.stored(eventtest.Of(events[i%len(events)]))
	}
}
