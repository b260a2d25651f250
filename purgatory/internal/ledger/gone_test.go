package ledger

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
)

// goneID is an id that is remembered until a time.
type goneID struct {
	id    graspsync.EventID
	until time.Time
}

// What is remembered of ids is what a list has of them that is looked at as a whole, whatever
// is remembered, forgotten and asked for.
func TestGoneAgainstAList(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 200 {
		most := 1 + rng.IntN(4)
		g := newGone[graspsync.EventID](most)
		var list []goneID
		now := start
		for range 60 {
			n := id(rng.IntN(8))
			at := slices.IndexFunc(list, func(o goneID) bool { return o.id == n })
			switch rng.IntN(4) {
			case 0:
				require.Equal(t, at >= 0, g.forget(n))
				if at >= 0 {
					list = slices.Delete(list, at, at+1)
				}
			case 1:
				now = now.Add(time.Duration(rng.IntN(3)) * time.Minute)
			default:
				until := now.Add(time.Duration(rng.IntN(6)) * time.Minute)
				if at >= 0 {
					list = slices.Delete(list, at, at+1)
				}
				list = append(list, goneID{n, until})
				var want []graspsync.EventID
				for len(list) > 0 && (len(list) > most || !now.Before(list[0].until)) {
					want = append(want, list[0].id)
					list = list[1:]
				}
				require.Equal(t, want, g.add(n, now, until))
			}
			for n := range 8 {
				there := slices.ContainsFunc(list, func(o goneID) bool { return o.id == id(n) && now.Before(o.until) })
				require.Equal(t, there, g.has(id(n), now))
			}
			require.Equal(t, len(list), g.until.Len())
		}
	}
}

// What waits anew has not waited in vain: that is said once.
func TestWaitsAgain(t *testing.T) {
	l := New(Config{Hold: time.Hour, Longest: time.Hour, Soft: time.Hour, Placeholder: time.Hour, Remember: time.Hour, Entries: 1, Bytes: 1, PerAuthor: 1, Remembered: 5})
	require.False(t, l.Again(id(1)))
	require.Empty(t, l.RememberExpired(start, id(1), start.Add(time.Minute)))
	require.True(t, l.HasExpired(id(1), start))
	require.True(t, l.Again(id(1)))
	require.False(t, l.HasExpired(id(1), start))
	require.False(t, l.Again(id(1)))
}

// Of a repository that its owner took from us nothing older comes back, for as long as that is
// remembered, and up to a bound.
func TestWhoLeftStaysAway(t *testing.T) {
	cfg := config()
	cfg.Remember, cfg.Remembered = time.Hour, 2
	l := New(cfg)
	version := func(n int) graspsync.Stamp { return entry(n, Announcement, 1).Version }
	checks := func(now time.Time, n int, c Class) Verdict { return l.Check(now, entry(n, c, 1)) }
	require.Empty(t, l.Leave(start, ref(1, "r"), version(5), start.Add(24*time.Hour)))
	require.Empty(t, l.Leave(start, ref(1, "r"), version(4), start.Add(24*time.Hour)))
	require.Equal(t, Superseded, checks(start, 4, Announcement))
	require.Equal(t, Superseded, checks(start, 4, Relative))
	require.Equal(t, Welcome, checks(start, 4, State))
	require.Equal(t, Welcome, checks(start, 5, Relative), "it comes again")
	require.Equal(t, Welcome, checks(start, 6, Announcement))
	later := start.Add(time.Hour - 1)
	require.Equal(t, Superseded, checks(later, 4, Announcement))
	require.Equal(t, Welcome, checks(start.Add(time.Hour), 4, Announcement), "no longer than it may be")

	require.Empty(t, l.Leave(later, ref(2, "r"), version(1), later.Add(time.Hour)))
	require.Equal(t, []graspsync.RepoRef{ref(1, "r")}, l.Leave(later, ref(3, "r"), version(1), later.Add(time.Hour)))
	require.Equal(t, Welcome, checks(later, 4, Announcement))
	require.Len(t, l.leftBy, 2)
	require.Equal(t, []graspsync.RepoRef{ref(4, "r")}, l.Leave(later, ref(4, "r"), version(1), later))
	require.Len(t, l.leftBy, 2)
}
