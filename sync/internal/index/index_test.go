package index

import (
	"fmt"
	"maps"
	"math/rand/v2"
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

// wholeIndex is an index with the events that it is read from.
type wholeIndex struct {
	*Index
	store *twinStore
}

func newWholeIndex(store *twinStore, lists func(*nip34.Announcement) bool, us nip34.Identity) *wholeIndex {
	return &wholeIndex{New(lists, us, nil), store}
}

// scan reads all events and returns the merged changes. during and take may be nil. during is called
// after the first event, and take with each change.
func (x *wholeIndex) scan(during func(), take func(Change)) (c Change) {
	merge := func(more Change) {
		if c.Merge(more); take != nil {
			take(more)
		}
	}
	s := x.Begin()
	for i, ev := range x.store.matching(nostr.Filter{}) {
		if i == 1 && during != nil {
			during()
		}
		merge(s.Add(eventtest.Of(ev)))
	}
	stored := make(map[graspsync.EventID]bool)
	for _, ev := range x.store.matching(nostr.Filter{}) {
		stored[eventtest.Of(ev).ID] = true
	}
	for _, id := range s.Unseen() {
		if !stored[id] {
			merge(s.Missing(id))
		}
	}
	s.End()
	return c
}

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
				mirror.apply(t, x.Removed(eventtest.Of(store.remove(rnd.IntN(len(store.events))))))
			case rnd.IntN(20) == 0:
				c := x.scan(nil, nil)
				require.True(t, c.Empty(), "nothing was wrong before")
			}
			if store.save(ev) {
				mirror.apply(t, x.Stored(eventtest.Of(ev)))
			}
			x.check(t, store, mirror)
		}
	}
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
			mirror.apply(t, x.Stored(eventtest.Of(saved[i])))
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
		var merged Change
		require.True(t, merged.Empty())
		for _, ev := range history(rnd, 40, func(int) bool { return true }) {
			if store.save(ev) {
				merged.Merge(x.Stored(eventtest.Of(ev)))
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
				mirror.apply(t, x.Stored(eventtest.Of(ev)))
			}
		}
		during := func() {
			for _, ev := range events[40:] {
				if store.save(ev) {
					mirror.apply(t, x.Stored(eventtest.Of(ev)))
				}
				if rnd.IntN(10) == 0 {
					mirror.apply(t, x.Removed(eventtest.Of(store.remove(rnd.IntN(len(store.events))))))
				}
			}
		}
		x.scan(during, func(c Change) { mirror.apply(t, c) })
		for range MaxDepth {
			for _, ev := range store.matching(nostr.Filter{}) {
				c, _ := x.Reply(eventtest.Of(ev))
				mirror.apply(t, c)
			}
		}
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
	c := x.scan(nil, nil)
	assert.Len(t, c.Repos, 10)
	assert.Len(t, c.Roots, 10)
	x.check(t, store, x.facts())

	// The next scan detects removals that were not reported.
	store.events = store.events[4:]
	c = x.scan(nil, nil)
	assert.Equal(t, map[graspsync.RepoRef]*nip34.Announcement{testRepo(0, "x"): nil, testRepo(1, "x"): nil}, c.Repos)
	assert.Equal(t, map[graspsync.EventID][]graspsync.RepoRef{testID(100): nil, testID(101): nil}, c.Roots)
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
				c := x.Stored(eventtest.Of(&bad))
				assert.True(t, c.Empty())
				c = x.Removed(eventtest.Of(&bad))
				assert.True(t, c.Empty())
			})
		}
	}
	x.check(t, &twinStore{}, newFacts())
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
		x.Stored(eventtest.Of(testAnnouncement(i, rnd.IntN(8), "x", nostr.Timestamp(i), name)))
		x.Stored(eventtest.Of(testEvent(10_000+i, 1621, 1, 1, tagRepo(testRepo(rnd.IntN(8), "x")))))
		if i%100 == 0 {
			x.scan(nil, nil)
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
	x.Stored(eventtest.Of(testEvent(1, graspsync.KindDeletion, 2, 7, tagRepo(testRepo(2, "x")), tagEvent(11))))
	for n := range 10 {
		ev := testEvent(2+n, graspsync.KindDeletion, 1, 1)
		for i := range 10_000 {
			ev.Tags = append(ev.Tags, tagEvent(20_000*n+i), tagRepo(testRepo(1, fmt.Sprint(n, i))))
		}
		x.Stored(eventtest.Of(ev))
	}
	assert.LessOrEqual(t, x.tables.deleted.Len(), maxDeletions)
	x.Stored(eventtest.Of(testAnnouncement(10, 2, "x", 6, "ours")))
	x.Stored(eventtest.Of(testEvent(11, 1621, 2, 6, tagRepo(testRepo(2, "x")))))
	x.check(t, &twinStore{}, newFacts())
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
	const roots, repos, budget = 50_000, 1000, 10 << 20
	x := newWholeIndex(&twinStore{}, listsByName, nip34.Identity{})
	before := heapBytes()
	for i := range roots {
		n := i % repos
		x.Stored(eventtest.Of(testEvent(i, graspsync.KindIssue, i%500, 1, tagRepo(testRepo(n, fmt.Sprintf("repository-%d", n))),
			nostr.Tag{"subject", strings.Repeat("x", 300)})))
	}
	used := int64(heapBytes()) - int64(before)
	t.Logf("%d bytes, %d for each root event", used, used/roots)
	assert.Less(t, used, int64(budget))
	assert.Equal(t, roots, len(x.tables.roots))
	runtime.KeepAlive(x)
}

// The lock is held for a few entries at a time while everything is read.
func TestEachReleasesTheLock(t *testing.T) {
	x := New(listsByName, nip34.Identity{}, nil)
	all := make(map[int]bool)
	for i := range 10 * allStep {
		all[i] = true
	}
	visited, in := 0, make(chan int, 1)
	each(x, maps.All(all), func(int, bool) {
		if visited++; visited > 1 {
			return
		}
		go func() {
			x.mu.Lock()
			defer x.mu.Unlock()
			in <- visited
		}()
		for x.mu.TryRLock() { // until it waits for us
			x.mu.RUnlock()
		}
	})
	require.Equal(t, allStep, <-in)
}
