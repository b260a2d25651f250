package sync

import (
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/filters"
	"github.com/graspsync/graspsync/nip34"
)

// In one window a held announcement is given up and held again: the last word counts.
func TestFeedHeldAgain(t *testing.T) {
	l := testLoop(t)
	l.m.index = newIndex(&twinStore{}, listsByName)
	f := newFeed(l.m.index, 10, 10)
	ev := testAnnouncement(1, 1, "repo", 1, "ours")
	a, err := nip34.ParseAnnouncement(ev)
	require.NoError(t, err)
	take := func() bool {
		b := f.take()
		l.hold(&b)
		return l.held[a.Ref] != nil
	}
	f.hold(a)
	require.True(t, take())
	f.removed(ev)
	f.hold(a)
	require.True(t, take())
	f.hold(a)
	f.removed(ev)
	require.False(t, take())
}

// FeedQueue bounds repositories and root events together, until there is so much that it
// costs less to be told of the changes than of everything.
func TestFeedQueueBoundsTheSum(t *testing.T) {
	f := newFeed(newIndex(&twinStore{}, listsByName), 10, 3)
	next := 0
	bring := func(n int) {
		for range n {
			next++
			ref := filters.RepoRef{Owner: testKey(1), Identifier: "repo"}
			f.stored(testEvent(1_000+next, filters.KindPatch, 2, 1, tagRepo(ref)))
		}
	}
	f.stored(testAnnouncement(1, 1, "repo", 1, "ours"))
	bring(9)
	b := f.take()
	require.False(t, b.all, "a repository and nine root events")
	require.Len(t, b.change.roots, 9)
	f.stored(testAnnouncement(2, 1, "repo", 2, "ours"))
	bring(10)
	require.True(t, f.take().all, "one more")
	bring(50)
	b = f.take()
	require.True(t, b.all, "more than a quarter of what there is")
	require.Len(t, b.change.roots, 69)
	require.Len(t, b.change.repos, 1)
	bring(20)
	b = f.take()
	require.False(t, b.all, "less than a quarter")
	require.Len(t, b.change.roots, 20)
}

// While the loop was told everything, whoever reported something to the feed waited:
// for 0.6 s with 500,000 root events.
func TestStoredDoesNotWaitForEverything(t *testing.T) {
	const roots = 100_000
	x := newIndex(nil, func(*nip34.Announcement) bool { return true })
	owner := testKey(1)
	ref := filters.RepoRef{Owner: owner, Identifier: "repo"}
	x.apply(func(t *indexTables, c *indexChange) {
		t.announce(&nip34.Announcement{ID: testID(1), Ref: ref, CreatedAt: 1}, true, nil)
		for i := range roots {
			t.addRoot(filters.EventID{2, byte(i >> 16), byte(i >> 8), byte(i)}, owner, 1, []filters.RepoRef{ref}, nil)
		}
	})
	f := newFeed(x, 10, 10)
	f.tellAll()
	var stored atomic.Int64
	began, stop, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for i := range 1 << 30 {
			f.stored(testEvent(1_000+i%200, filters.KindPatch, 2, 1, tagRepo(ref)))
			if stored.Add(1) == 1 {
				close(began)
			}
			select {
			case <-stop:
				return
			default:
			}
		}
	}()
	<-began
	before := stored.Load()
	b := f.take()
	during := stored.Load() - before
	close(stop)
	<-done
	require.True(t, b.all)
	require.Greater(t, during, int64(20), "stored while everything was gathered")
	all := make(map[filters.EventID]bool)
	for range 2 { // what was stored meanwhile is there, or comes next
		for id := range b.change.roots {
			all[id] = true
		}
		b = f.take()
	}
	require.Len(t, all, roots+min(200, int(stored.Load())))
}
