package sync

import (
	"fmt"
	"maps"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/eventtest"
	"github.com/graspsync/graspsync/internal/racetest"
	"github.com/graspsync/graspsync/nip34"
)

// In one window a held announcement is dropped and held again: the last report counts.
func TestFeedHeldAgain(t *testing.T) {
	l := testLoop(t)
	l.m.index = newEventIndex(listsByName, nip34.Identity{}, nil)
	f := newSelfSubscriber(l.m.index, 10, 10)
	ev := testAnnouncement(1, 1, "repo", 1, "ours")
	a, err := nip34.ParseAnnouncement(eventtest.Of(ev))
	require.NoError(t, err)
	take := func() bool {
		b := f.take()
		l.targets.hold(&b)
		return l.targets.held[a.Ref] != nil
	}
	f.hold(a)
	require.True(t, take())
	f.removed(eventtest.Of(ev))
	f.hold(a)
	require.True(t, take())
	f.hold(a)
	f.removed(eventtest.Of(ev))
	require.False(t, take())
}

// FeedQueue limits repositories and root events together, unless the index is so large that changes
// cost less than reading the whole index.
func TestFeedQueueBoundsTheSum(t *testing.T) {
	f := newSelfSubscriber(newEventIndex(listsByName, nip34.Identity{}, nil), 10, 3)
	next := 0
	bring := func(n int) {
		for range n {
			next++
			ref := graspsync.RepoRef{Owner: testKey(1), Identifier: "repo"}
			f.stored(eventtest.Of(testEvent(1_000+next, graspsync.KindPatch, 2, 1, tagRepo(ref))))
		}
	}
	f.stored(eventtest.Of(testAnnouncement(1, 1, "repo", 1, "ours")))
	bring(9)
	b := f.take()
	require.False(t, b.all, "a repository and nine root events")
	require.Len(t, b.change.roots, 9)
	f.stored(eventtest.Of(testAnnouncement(2, 1, "repo", 2, "ours")))
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

// While the loop read the whole index, reporters of events waited: for 0.6 s with 500,000 root
// events.
func TestStoredDoesNotWaitForEverything(t *testing.T) {
	racetest.Amounts(t)
	const roots = 100_000
	x := newEventIndex(func(*nip34.Announcement) bool { return true }, nip34.Identity{}, nil)
	owner := testKey(1)
	ref := graspsync.RepoRef{Owner: owner, Identifier: "repo"}
	x.apply(func(t *indexTables, c *indexChange) {
		t.announce(&nip34.Announcement{ID: testID(1), Ref: ref, CreatedAt: 1}, true, nil)
		for i := range roots {
			t.addRoot(graspsync.EventID{2, byte(i >> 16), byte(i >> 8), byte(i)}, owner, 1, []graspsync.RepoRef{ref}, nil)
		}
	})
	f := newSelfSubscriber(x, 10, 10)
	f.tellAll()
	var stored atomic.Int64
	began, stop, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for i := range 1 << 30 {
			f.stored(eventtest.Of(testEvent(1_000+i%200, graspsync.KindPatch, 2, 1, tagRepo(ref))))
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
	b := f.take()
	close(stop)
	<-done
	require.True(t, b.all)
	all := make(map[graspsync.EventID]bool)
	for range 2 { // events stored in between are included, or come next
		for id := range b.change.roots {
			all[id] = true
		}
		b = f.take()
	}
	require.Len(t, all, roots+min(200, int(stored.Load())))

	visited, in := 0, make(chan int, 1)
	each(x, maps.All(all), func(graspsync.EventID, bool) {
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
	require.Equal(t, allStep, <-in, "the lock is held for a few entries at a time")
}

// No reporter waits while the whole index is read.
func TestFeedIsFreeWhileEverythingIsGathered(t *testing.T) {
	racetest.Amounts(t)
	x := newEventIndex(func(*nip34.Announcement) bool { return true }, nip34.Identity{}, nil)
	f := newSelfSubscriber(x, 10, 10)
	f.tellAll()
	x.mu.Lock() // take cannot read the index
	taken := make(chan selfBatch)
	go func() { taken <- f.take() }()
	require.Eventually(t, func() bool {
		if !f.mu.TryLock() {
			return false
		}
		defer f.mu.Unlock()
		return !f.batch.all
	}, 10*time.Second, time.Millisecond, "it has begun")
	<-time.After(20 * time.Millisecond)
	free := f.mu.TryLock()
	if free {
		f.mu.Unlock()
	}
	x.mu.Unlock()
	require.True(t, (<-taken).all)
	require.True(t, free)
}

// If there were more authors than room, only the deletions of the authors read first were ever
// requested.
func TestAuthorsOfAScanAreASample(t *testing.T) {
	const most, scans = 100, 200
	found := make(map[graspsync.PubKey]int)
	for range scans {
		w := authorSample{most: most}
		for i := range 4 * most {
			key := testKey(1 + i)
			w.add(eventtest.Of(&nostr.Event{PubKey: key.String()}))
		}
		sample := w.sorted()
		require.Len(t, sample, most)
		for _, a := range sample {
			found[a]++
		}
	}
	for i := 3 * most; i < 4*most; i++ { // the authors read last
		require.NotZero(t, found[testKey(1+i)])
	}
}

// The end of holds is reported for as many announcements as fit into a window, and only for
// announcements.
func TestFeedOfWhatIsHeldNoMore(t *testing.T) {
	f := newSelfSubscriber(newEventIndex(listsByName, nip34.Identity{}, nil), 10, 3)
	none := testAnnouncement(100, 1, "repo", 1, "ours")
	none.Tags = nil
	f.removed(eventtest.Of(none))
	require.Empty(t, f.take().unheld)
	for i := range 15 {
		f.removed(eventtest.Of(testAnnouncement(i+1, 1, fmt.Sprint("repo", i), 1, "ours")))
	}
	require.Len(t, f.take().unheld, 10)
}

// A limited number of authors is reported per window, each once. A recently reported author is
// reported again only after the table of recent authors was full.
func TestFeedOfAuthors(t *testing.T) {
	f := newSelfSubscriber(newEventIndex(listsByName, nip34.Identity{}, nil), 10, 3)
	tells := func(authors ...int) (told []int) {
		for _, a := range authors {
			f.stored(eventtest.Of(testEvent(a, graspsync.KindIssue, a, 1)))
		}
		for _, a := range f.take().authors {
			for n := range 10 {
				if a == testKey(n) {
					told = append(told, n)
				}
			}
		}
		return told
	}
	require.Equal(t, []int{1, 2, 3}, tells(1, 1, 2, 3, 4))
	require.Empty(t, tells(1, 2, 3))
	require.Equal(t, []int{4, 1}, tells(4, 1))
	require.Equal(t, []int{5}, tells(5, 4, 1))
	require.Equal(t, []int{6, 5}, tells(6, 5))
}
