package ledger

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
)

var start = time.Unix(1_700_000_000, 0)

func config() Config {
	return Config{
		Hold: 30 * time.Minute, Longest: 24 * time.Hour, Soft: 24 * time.Hour,
		Placeholder: 20 * time.Minute, Remember: 7 * 24 * time.Hour,
		Entries: 100, Bytes: 10_000, PerAuthor: 10, Pushed: 100, PerRepo: 50, Remembered: 50,
		InUse: func(Entry) bool { return false },
	}
}

func id(n int) (out graspsync.EventID) {
	out[0], out[1] = byte(n>>8), byte(n)
	return out
}

func author(n int) (out graspsync.PubKey) {
	out[0] = byte(n)
	return out
}

func ref(owner int, name string) graspsync.RepoRef {
	return graspsync.RepoRef{Owner: author(owner), Identifier: name}
}

// entry is one of the given class by author a about their repository "r".
func entry(n int, c Class, a int) Entry {
	return Entry{
		ID: id(n), Class: c, Author: author(a), Repos: []graspsync.RepoRef{ref(a, "r")}, Size: 100,
		Version: graspsync.Stamp{CreatedAt: nostr.Timestamp(n), ID: id(n)},
	}
}

func admit(t *testing.T, l *Ledger, now time.Time, e Entry) Entry {
	t.Helper()
	require.Equal(t, Welcome, l.Check(now, e))
	e = l.Admit(now, e)
	l.Put(e)
	return e
}

func TestHoldAndExpire(t *testing.T) {
	l := New(config())
	admit(t, l, start, entry(1, PullRequest, 1))
	admit(t, l, start, entry(2, Placeholder, 1))
	require.Equal(t, Known, l.Check(start, entry(1, PullRequest, 1)))
	at, ok := l.NextDue()
	require.True(t, ok)
	require.Equal(t, start.Add(20*time.Minute), at)
	require.Len(t, l.Due(at, 99), 1)
	require.Len(t, l.Due(at, 99), 1, "it stays until it is expired")
	_, soft, _ := l.Expire(at, id(2))
	require.False(t, soft)
	at, _ = l.NextDue()
	require.Equal(t, start.Add(30*time.Minute), at)
	l.Expire(at, id(1))
	require.Zero(t, l.Len())
	require.Zero(t, l.Bytes())
	require.Equal(t, Expired, l.Check(at, entry(1, PullRequest, 1)))
	require.Equal(t, Welcome, l.Check(at, entry(2, PullRequest, 1)), "the event of a placeholder may still come")
	require.Equal(t, Welcome, l.Check(at.Add(7*24*time.Hour), entry(1, PullRequest, 1)), "not for ever")
}

// What expired and comes again does not wait again, and what comes again while it
// waits does not wait longer.
func TestTrapP3_NoLoop(t *testing.T) {
	l := New(config())
	e := admit(t, l, start, entry(1, State, 1))
	require.Equal(t, Known, l.Check(start.Add(time.Minute), entry(1, State, 1)))
	got, _ := l.Get(id(1))
	require.Equal(t, e.Deadline, got.Deadline)
	l.Expire(e.Deadline, id(1))
	require.Equal(t, Expired, l.Check(e.Deadline, entry(1, State, 1)))
	require.True(t, l.HasExpired(id(1), e.Deadline))
}

// A newer version takes the place of an announcement that waits, an older one does
// not, and the repository has waited since the first.
func TestTrapP4_Replacements(t *testing.T) {
	l := New(config())
	admit(t, l, start, entry(5, Announcement, 1))
	require.Equal(t, Superseded, l.Check(start, entry(4, Announcement, 1)))
	later := start.Add(10 * time.Minute)
	e := l.Admit(later, entry(6, Announcement, 1))
	require.Equal(t, start, e.Seen)
	require.Equal(t, later.Add(30*time.Minute), e.Deadline, "a newer replacement is a sign of life")
	replaced := l.Put(e)
	require.Len(t, replaced, 1)
	require.Equal(t, id(5), replaced[0].ID)
	require.Equal(t, 1, l.Len())
	require.Equal(t, int64(100), l.Bytes())
	tie := entry(7, Announcement, 1)
	tie.Version = graspsync.Stamp{CreatedAt: 6, ID: id(3)}
	require.Equal(t, Welcome, l.Check(later, tie), "the lowest id wins a tie")
}

func TestSignsOfLife(t *testing.T) {
	l := New(config())
	admit(t, l, start, entry(1, Announcement, 1))
	now := start
	for now.Before(start.Add(23*time.Hour + 45*time.Minute)) {
		now = now.Add(15 * time.Minute)
		e, revived, changed := l.Sign(now, ref(1, "r"), false)
		require.False(t, revived)
		if want := now.Add(30 * time.Minute); !want.After(start.Add(24 * time.Hour)) {
			require.True(t, changed)
			require.Equal(t, want, e.Deadline)
		}
	}
	e, _ := l.Announcement(ref(1, "r"))
	require.Equal(t, start.Add(24*time.Hour), e.Deadline, "24 h in all")
	soft, isSoft, _ := l.Expire(e.Deadline, e.ID)
	require.True(t, isSoft)
	require.Equal(t, e.Deadline.Add(24*time.Hour), soft.Deadline)
	require.Empty(t, l.Announcements("r", false))
	require.Len(t, l.Announcements("r", true), 1)
	_, revived, changed := l.Sign(e.Deadline, ref(1, "r"), false)
	require.False(t, revived || changed, "a push has nowhere to go")
	e, revived, _ = l.Sign(e.Deadline, ref(1, "r"), true)
	require.True(t, revived)
	require.False(t, e.Soft)
	_, revived, changed = l.Sign(e.Deadline, ref(2, "r"), true)
	require.False(t, revived || changed)
	l.Expire(e.Deadline, e.ID)
	_, isSoft, _ = l.Expire(e.Deadline.Add(24*time.Hour), e.ID)
	require.False(t, isSoft)
	require.Equal(t, Expired, l.Check(e.Deadline, entry(1, Announcement, 1)))
}

// Deadlines that do not hold any more are dropped before they are due: signs of life
// cost no memory, however many there are, and everything is due when it should be.
func TestSignsOfLifeAreBounded(t *testing.T) {
	l := New(config())
	admit(t, l, start, entry(1, Announcement, 1))
	admit(t, l, start, entry(2, Announcement, 2))
	admit(t, l, start, entry(3, State, 3))
	now := start
	for range 1000 {
		now = now.Add(time.Second)
		for owner := range 2 {
			_, _, changed := l.Sign(now, ref(1+owner, "r"), false)
			require.True(t, changed)
			require.LessOrEqual(t, l.due.Len(), 2*l.Len()+100)
		}
	}
	at, ok := l.NextDue()
	require.True(t, ok)
	require.Equal(t, start.Add(30*time.Minute), at)
	require.Equal(t, id(3), l.Due(at, 9)[0].ID)
	require.Empty(t, l.Due(at, 9)[1:])
	require.Len(t, l.Due(now.Add(30*time.Minute-time.Second), 9), 1)
	require.Len(t, l.Due(now.Add(30*time.Minute), 9), 3)
}

// Whatever was dropped, everything is due in the order of its deadline.
func TestDueInOrder(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 4))
		l := New(config())
		for range 1000 {
			e := entry(rng.IntN(40), State, 1)
			e.Deadline = start.Add(time.Duration(rng.IntN(1_000_000)) * time.Millisecond)
			l.Put(e)
		}
		want := l.All()
		slices.SortStableFunc(want, func(a, b Entry) int { return a.Deadline.Compare(b.Deadline) })
		require.Equal(t, want, l.Due(start.Add(time.Hour), 100))
		for _, e := range want {
			at, _ := l.NextDue()
			require.Equal(t, e.Deadline, at)
			l.Remove(e.ID)
		}
	}
}

func TestTrapP10_Quotas(t *testing.T) {
	l := New(config())
	for i := range 10 {
		admit(t, l, start, entry(i, PullRequest, 1))
	}
	require.Equal(t, AuthorFull, l.Check(start, entry(10, PullRequest, 1)))
	for i := 10; i < 100; i++ {
		admit(t, l, start, entry(i, State, 1+i/10))
	}
	gone, ok := l.Reserve(entry(100, State, 50))
	require.True(t, ok)
	require.Len(t, gone, 1, "the oldest of who has most")
	big := entry(101, State, 51)
	big.Size = 10_001
	gone, ok = l.Reserve(big)
	require.False(t, ok || len(gone) > 0)
	for i := range 200 {
		l.RememberExpired(start, id(1000+i), start.Add(time.Hour))
	}
	require.False(t, l.HasExpired(id(1000), start))
	require.True(t, l.HasExpired(id(1199), start))
}

// Several announcements at their author's limit: a replacement needs no new place.
func TestReplacementNeedsNoPlace(t *testing.T) {
	c := config()
	c.PerAuthor, c.Entries = 1, 1
	l := New(c)
	admit(t, l, start, entry(1, Announcement, 1))
	admit(t, l, start, entry(2, Announcement, 1))
}

func restored(l *Ledger, now time.Time, e Entry) time.Time {
	l.Restore(now, e)
	e, _ = l.Get(e.ID)
	return e.Deadline
}

// A clock that was set back can't make anything wait longer than it could have.
func TestRestore(t *testing.T) {
	l := New(config())
	e := l.Admit(start, entry(1, State, 1))
	back := start.Add(-48 * time.Hour)
	require.Equal(t, back.Add(30*time.Minute), restored(l, back, e))
	require.Equal(t, e.Deadline, restored(l, start.Add(time.Hour), e))
	require.Len(t, l.Due(start.Add(time.Hour), 9), 1)
	l.RememberExpired(start, id(5), start.Add(1000*time.Hour))
	require.False(t, l.HasExpired(id(5), start.Add(7*24*time.Hour)))
	l.RememberExpired(start, id(6), start)
	require.False(t, l.HasExpired(id(6), start))
	soft := entry(7, Announcement, 2)
	soft.Soft, soft.Deadline, soft.Seen = true, start.Add(100*time.Hour), start.Add(time.Hour)
	require.Equal(t, start.Add(24*time.Hour), restored(l, start, soft))
	p := entry(8, Placeholder, 2)
	p.Deadline = start.Add(100 * time.Hour)
	require.Equal(t, start.Add(20*time.Minute), restored(l, start, p))
}

// What was read from a disk goes by the monotonic clock, as all else does: a clock
// that is set while we run moves no deadline.
func TestRestoredGoesByTheMonotonicClock(t *testing.T) {
	now := time.Now() // one with a monotonic reading
	steady := func(at time.Time) bool { return strings.Contains(at.String(), "m=") }
	l := New(config())
	e := entry(1, State, 1)
	e.Seen, e.Deadline = now.Add(-time.Minute).Round(0), now.Add(10*time.Minute).Round(0)
	l.Restore(now, e)
	got, _ := l.Get(e.ID)
	require.True(t, got.Deadline.Round(0).Equal(e.Deadline))
	require.True(t, got.Seen.Round(0).Equal(e.Seen))
	require.True(t, steady(got.Deadline) && steady(got.Seen))
	l.RememberExpired(now, id(2), now.Add(time.Hour).Round(0))
	until, _ := l.gone.until.Get(id(2))
	require.True(t, steady(until))
	require.True(t, until.Round(0).Equal(now.Add(time.Hour).Round(0)))
}

// What the ledger says of repositories, deadlines and sizes is what its entries say.
func TestBooksAgree(t *testing.T) {
	for seed := range uint64(100) {
		rng := rand.New(rand.NewPCG(seed, 3))
		l := New(config())
		now := start
		for range 300 {
			now = now.Add(time.Duration(rng.IntN(600)) * time.Second)
			e := entry(rng.IntN(60), Class(1+rng.IntN(4)), rng.IntN(4))
			if rng.IntN(3) == 0 {
				e.Repos = append(e.Repos, ref(rng.IntN(4), "r"))
			}
			if e.Class != PullRequest {
				e.Repos = e.Repos[:1]
			}
			switch rng.IntN(5) {
			case 0:
				l.Remove(e.ID)
			case 1:
				for _, d := range l.Due(now, 999) {
					l.Expire(now, d.ID)
				}
				require.Empty(t, l.Due(now, 999))
			case 2:
				l.Sign(now, e.Repos[0], rng.IntN(2) == 0)
			default:
				if l.Check(now, e) == Welcome {
					l.Put(l.Admit(now, e))
				}
			}
			agree(t, l)
		}
	}
}

func agree(t *testing.T, l *Ledger) {
	var bytes int64
	var next time.Time
	payers := make(map[payer]map[graspsync.EventID]struct{})
	all := l.All()
	pushed := 0
	for _, e := range all {
		if e.Class == Placeholder {
			pushed++
		} else {
			bytes += e.Size
		}
		for _, p := range e.payers() {
			into(payers, p, e.ID)
		}
		if next.IsZero() || e.Deadline.Before(next) {
			next = e.Deadline
		}
	}
	require.Equal(t, bytes, l.Bytes())
	require.Equal(t, pushed, l.pushed)
	require.Equal(t, payers, l.payers)
	at, ok := l.NextDue()
	require.Equal(t, len(all) > 0, ok)
	require.True(t, at.Equal(next))
	for owner := range 4 {
		r := ref(owner, "r")
		var want []graspsync.EventID
		for _, e := range all {
			if slices.Contains(e.Repos, r) || e.Class == State {
				want = append(want, e.ID)
			}
		}
		var got []graspsync.EventID
		for _, e := range l.Of(r) {
			got = append(got, e.ID)
		}
		require.Equal(t, want, got)
	}
	for _, e := range l.Announcements("r", true) {
		a, ok := l.Announcement(e.Repos[0])
		require.True(t, ok)
		require.Equal(t, e.ID, a.ID, "one announcement for a repository")
	}
}

func TestNames(t *testing.T) {
	require.Equal(t, "announcement state pull request placeholder invalid\n",
		fmt.Sprintln(Announcement, State, PullRequest, Placeholder, Class(9)))
}

// A relative counts for the first who has room for it, those included that are about to wait,
// and waits as long as if it had come just now.
func TestChargeGoesByTheQuota(t *testing.T) {
	now := time.Now()
	l := New(config())
	relative := func(n, payer int) Entry {
		e := entry(n, Relative, 100+n)
		e.For = author(payer)
		return e
	}
	for n := range l.cfg.PerAuthor - 1 {
		admit(t, l, now, relative(n, 1))
	}
	e := admit(t, l, now, relative(50, 50))
	e.try = now
	later := now.Add(time.Minute)
	charged, has := l.Charge(later, e, []graspsync.PubKey{author(1), author(2)})
	require.True(t, has)
	require.Equal(t, author(1), charged.For)
	require.Equal(t, later.Add(l.cfg.Longest+l.cfg.Soft), charged.Deadline)
	require.Equal(t, charged.Deadline, charged.due())

	l.Reserve(charged)
	charged, has = l.Charge(later, e, []graspsync.PubKey{author(1), author(2)})
	require.True(t, has)
	require.Equal(t, author(2), charged.For)
	_, has = l.Charge(later, e, []graspsync.PubKey{author(1)})
	require.False(t, has)
	_, has = l.Charge(later, e, nil)
	require.False(t, has)
}

// What is due through no fault of its own waits on, as long as signs of life could make it
// wait; what others decide about does not.
func TestProlong(t *testing.T) {
	l := New(config())
	for i, c := range []Class{Announcement, State, PullRequest, Placeholder, Relative} {
		e := entry(i+1, c, i+1)
		e.For = e.Author
		admit(t, l, start, e)
		most := start.Add(24 * time.Hour)
		var now time.Time
		for {
			was, _ := l.Get(e.ID)
			now = was.Deadline
			l.Postpone(e.ID, now.Add(time.Second)) // as whoever ends it does
			if !l.Prolong(now, e.ID) {
				break
			}
			is, _ := l.Get(e.ID)
			require.Equal(t, now.Add(min(30*time.Minute, most.Sub(now))), is.Deadline, c)
			require.Equal(t, is.Deadline, is.due(), c)
		}
		if c == Placeholder || c == Relative {
			require.True(t, now.Before(start.Add(time.Hour)), c)
		} else {
			require.Equal(t, most, now, c)
		}
	}
	require.False(t, l.Prolong(start, id(99)))
	_, soft, _ := l.Expire(start.Add(24*time.Hour), id(1))
	require.True(t, soft)
	was, _ := l.Get(id(1))
	require.False(t, l.Prolong(was.Deadline, id(1)), "it was told that it has expired")
}
