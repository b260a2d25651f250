package ledger

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
)

// roomy has room for 80 entries.
func roomy() Config {
	cfg := config()
	cfg.Entries, cfg.Bytes, cfg.PerAuthor = 80, 1_000_000, 100
	return cfg
}

// stranger is an announcement, or another event, by one of any number of keys.
func stranger(n int, c Class, key int, relay string) Entry {
	e := Entry{ID: id(n), Class: c, Size: 100, From: relay, Version: entry(n, c, 1).Version}
	e.Author[0], e.Author[1], e.Author[2] = 200, byte(key>>8), byte(key)
	e.Repos = []graspsync.RepoRef{{Owner: e.Author, Identifier: fmt.Sprint(n)}}
	return e
}

// come submits an entry, and returns what was evicted for it and whether it waits.
func come(l *Ledger, now time.Time, e Entry) (gone []Entry, ok bool) {
	if l.Check(now, e) != Welcome {
		return nil, false
	}
	e = l.Admit(now, e)
	if gone, ok = l.Reserve(e); ok {
		l.Fill(e)
	}
	return gone, ok
}

func waits(l *Ledger, e Entry) bool {
	_, ok := l.Get(e.ID)
	return ok
}

// A flood of one owner's announcements, or of a relay's pull requests, evicts its own oldest entries. If
// everybody has one entry, a new one is refused.
func TestSharesOfStrangers(t *testing.T) {
	for name, flood := range map[string]func(n int) Entry{
		"owner": func(n int) Entry { return stranger(n, Announcement, 1, fmt.Sprint(n)) },
		"relay": func(n int) Entry { return stranger(n, PullRequest, n, "evil") },
	} {
		l := New(roomy())
		honest := []Entry{stranger(1, Announcement, 2, "evil"), stranger(2, State, 2, "evil"), stranger(3, PullRequest, 2, "honest")}
		for _, e := range honest {
			come(l, start, e)
		}
		for n := range 500 {
			_, ok := come(l, start, flood(1000+n))
			require.True(t, ok || name == "owner", name) // an owner has 100 at most
		}
		for _, e := range honest {
			require.True(t, waits(l, e), name)
		}
	}
	l := New(roomy())
	for n := range 100 {
		_, ok := come(l, start, stranger(n, Announcement, n, "evil"))
		require.Equal(t, n < 80, ok)
	}
	gone, ok := come(l, start, stranger(500, PullRequest, 1, "honest"))
	require.False(t, ok || len(gone) > 0)
}

// Announcements that have expired softly make room before anything else.
func TestSoftlyExpiredGiveWay(t *testing.T) {
	cfg := roomy()
	cfg.PerAuthor = 5
	l := New(cfg)
	own := func(n int) Entry { return stranger(n, Announcement, 7, "a") }
	for n := range 5 {
		come(l, start, own(n))
	}
	require.Equal(t, AuthorFull, l.Check(start, own(10)))
	require.Empty(t, l.MakeRoom(own(10)))
	now := start.Add(31 * time.Minute)
	l.Expire(now, id(2))
	gone := l.MakeRoom(own(10))
	require.Len(t, gone, 1)
	require.Equal(t, id(2), gone[0].ID)
	require.Equal(t, Welcome, l.Check(now, own(10)))
	require.False(t, l.HasExpired(id(2), now))

	l = New(roomy())
	for n := range 80 {
		come(l, start, stranger(n, Announcement, n, "evil"))
	}
	for n := range 80 {
		l.Expire(now, id(n))
	}
	for n := range 80 {
		gone, ok := come(l, now, stranger(100+n, Announcement, 100+n, "honest"))
		require.True(t, ok && len(gone) == 1 || n == 79, n)
	}
}

// An announcement takes with it the entries that wait for its repository alone, and is not evicted for
// one of them. Entries in use stay.
func TestDependents(t *testing.T) {
	cfg := roomy()
	var used graspsync.EventID
	cfg.InUse = func(e Entry) bool { return e.ID == used }
	l := New(cfg)
	first := stranger(0, Announcement, 0, "a")
	state, pull, both := stranger(1, State, 0, "b"), stranger(2, PullRequest, 1, "c"), stranger(3, PullRequest, 2, "d")
	state.Repos, pull.Repos = first.Repos, first.Repos
	both.Repos = []graspsync.RepoRef{first.Repos[0], ref(1, "other")}
	for _, e := range []Entry{first, state, pull, both} {
		come(l, start, e)
	}
	for n := range 76 {
		come(l, start, stranger(10+n, Announcement, 10+n, "e"))
	}
	later := stranger(100, State, 0, "a")
	later.Repos = first.Repos
	gone, ok := come(l, start, later)
	require.True(t, ok)
	require.Len(t, gone, 1)
	require.Equal(t, state.ID, gone[0].ID)
	used = later.ID
	gone, ok = come(l, start, stranger(101, State, 99, "b"))
	require.True(t, ok)
	require.Len(t, gone, 2)
	require.Equal(t, []graspsync.EventID{first.ID, pull.ID}, []graspsync.EventID{gone[0].ID, gone[1].ID})
	require.True(t, waits(l, both) && waits(l, later))
}

// A newer announcement takes the place of the older one. If it can not be written down, the older one
// has its place again.
func TestReplacedHasItsPlaceAgain(t *testing.T) {
	l := New(roomy())
	for n := range 80 {
		come(l, start, stranger(n, Announcement, n, "evil"))
	}
	newer := stranger(100, Announcement, 5, "evil")
	newer.Repos = stranger(5, Announcement, 5, "").Repos
	gone, ok := l.Reserve(newer)
	require.True(t, ok)
	require.Empty(t, gone)
	require.Empty(t, l.Unreserve(newer))
	_, has := l.places.table.Get(id(5))
	require.True(t, has)
	_, ok = come(l, start, newer)
	require.True(t, ok)
	require.False(t, waits(l, stranger(5, Announcement, 5, "")))
	require.Equal(t, 80, l.Len())
}

// After a restart the oldest entries are those that came first.
func TestSortByAge(t *testing.T) {
	cfg := roomy()
	cfg.Entries = 3
	l := New(cfg)
	for n := range 3 {
		e := stranger(n, Announcement, 1, "a")
		e.Seen, e.Deadline = start.Add(-time.Duration(n)*time.Minute), start.Add(time.Minute)
		require.Empty(t, l.Restore(start, e))
	}
	l.SortByAge()
	gone, ok := come(l, start, stranger(9, Announcement, 2, "a"))
	require.True(t, ok)
	require.Equal(t, id(2), gone[0].ID)
	require.Len(t, l.Restore(start, stranger(10, Announcement, 3, "a")), 1, "the bounds hold after a restart as well")
}
