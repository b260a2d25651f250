package ledger

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/internal/goldentest"
)

func shortIDs(of []Entry) (out []string) {
	for _, e := range of {
		out = append(out, fmt.Sprintf("%x", e.ID[:2]))
	}
	slices.Sort(out) // what depends on an announcement goes in any order
	return out
}

// In drawn worlds of authors and relays, where there are few places and little room, what waits, what gives way and what is due is what it was before.
func TestWorlds(t *testing.T) {
	sums := goldentest.NewSums(t, "testdata/worlds.sum")
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 31))
		cfg := config()
		cfg.Entries = []int{20, 60, 150, 600}[seed%4]
		cfg.Bytes = []int64{2000, 9000, 20_000}[rng.IntN(3)]
		cfg.PerAuthor, cfg.Pushed, cfg.PerRepo, cfg.Remembered = 2+rng.IntN(20), 2+rng.IntN(9), 1+rng.IntN(3), 5+rng.IntN(20)
		cfg.Hold, cfg.Soft, cfg.Longest = 20*time.Hour, 5*time.Hour, 30*time.Hour
		cfg.InUse = func(e Entry) bool { return e.ID[1]%16 == 1 }
		l, now := New(cfg), start
		authors, relays := 1+rng.IntN(40), 1+rng.IntN(4)
		var lines []string
		say := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
		for step := range 700 {
			now = now.Add([]time.Duration{0, time.Second, time.Minute, 10 * time.Minute, time.Hour}[max(0, rng.IntN(10)-5)])
			n := rng.IntN(1500)
			e := entry(n, Class(1+n%4), rng.IntN(authors))
			if n%4 == 3 && rng.IntN(3) == 0 {
				e.Class = PullRequest // the event of a placeholder
			}
			if e.Class != Announcement && rng.IntN(3) == 0 {
				e.Repos[0] = ref(rng.IntN(authors), "r")
			}
			if e.Class == PullRequest && rng.IntN(4) == 0 {
				e.Repos = append(e.Repos, ref(rng.IntN(authors), "s"))
			}
			if e.Class == PullRequest && rng.IntN(3) == 0 {
				e.For = author(rng.IntN(3))
			}
			e.Version.CreatedAt %= 7
			e.Size = []int64{1, 40, 100, 100, 150, 400, 1500}[n%7]
			e.ByUser = rng.IntN(4) == 0
			if from := rng.IntN(relays + 1); from > 0 {
				e.From = fmt.Sprint("relay", from)
			}
			switch rng.IntN(16) {
			case 0:
				l.Remove(e.ID)
			case 1:
				if joined, changed, room := l.Join(e.ID, ref(rng.IntN(5), "r")); changed {
					say("joins %v", room)
					l.Put(joined)
				}
			case 2:
				got, revived, changed := l.Sign(now, e.Repos[0], rng.IntN(2) == 0)
				say("sign %v %v %v", got.Deadline.Sub(start), revived, changed)
			case 3:
				due := l.Due(now, rng.IntN(4))
				for _, d := range due {
					if rng.IntN(4) == 0 {
						l.Postpone(d.ID, now.Add(time.Duration(rng.IntN(3))*time.Hour))
						continue
					}
					soft, isSoft, forgotten := l.Expire(now, d.ID)
					say("expires %x %v until %v, forgets %d", d.ID[:2], isSoft, soft.Deadline.Sub(start), len(forgotten))
				}
				say("due %v", shortIDs(due))
			case 4:
				say("forgets %d", len(l.RememberExpired(now, e.ID, now.Add(time.Duration(rng.IntN(400)-20)*time.Hour))))
				say("%v %v", l.HasExpired(e.ID, now), rng.IntN(3) == 0 && l.Again(e.ID))
			case 5:
				if old, known := l.Get(e.ID); known && old.Class != e.Class {
					continue
				}
				e.Seen, e.Deadline = now.Add(time.Duration(rng.IntN(9)-7)*time.Hour), now.Add(time.Duration(rng.IntN(60)-10)*time.Hour)
				e.Soft = e.Class == Announcement && rng.IntN(3) == 0
				say("restored, for %v", shortIDs(l.Restore(now, e)))
			case 6:
				if l.Check(now, e) != Welcome {
					continue
				}
				gone, ok := l.Reserve(e)
				say("reserved: %v %v", shortIDs(gone), ok)
				if ok {
					say("unreserved: %v", shortIDs(l.Unreserve(e)))
				}
			default:
				v := l.Check(now, e)
				say("comes %x class %d of %d: %d", e.ID[:2], e.Class, e.Author[0], v)
				if v == AuthorFull {
					gone := l.MakeRoom(e)
					say("make room: %v", shortIDs(gone))
					if len(gone) > 0 {
						v = Welcome
					}
				}
				if v == Welcome {
					e = l.Admit(now, e)
					say("since %v until %v soft %v strays %d", e.Seen.Sub(start), e.Deadline.Sub(start), e.Soft, len(e.Strays))
					gone, ok := l.Reserve(e)
					say("give way: %v, has room: %v", shortIDs(gone), ok)
					if ok {
						say("replaces %v", shortIDs(l.Fill(e)))
					}
				}
			}
			next, any := l.NextDue()
			say("%d wait with %d bytes, next %v %v", l.Len(), l.Bytes(), next.Sub(start), any)
			require.Empty(t, l.places.reserved)
			require.LessOrEqual(t, l.places.table.Len(), cfg.Entries)
			require.LessOrEqual(t, l.Bytes(), cfg.Bytes)
			for _, e := range l.All() {
				_, has := l.places.table.Get(e.ID)
				require.Equal(t, e.Class != Placeholder, has)
			}
			if step%50 == 0 {
				say("of one: %v, here: %v, announced: %v", shortIDs(l.ByAuthor(author(1))), shortIDs(l.Of(ref(1, "r"))), shortIDs(l.Announcements("r", step%100 == 0)))
			}
		}
		sums.Equal(t, fmt.Sprintf("world%02d", seed), lines)
	}
}

// What was due at another time before does not pile up.
func TestDeadlinesAreCleaned(t *testing.T) {
	l, most := New(config()), 0
	e := admit(t, l, start, entry(1, State, 1))
	for n := range 500 {
		l.Postpone(e.ID, start.Add(time.Duration(n)*time.Hour))
		most = max(most, l.due.Len())
	}
	require.Equal(t, 2*1+100, most)
	at, ok := l.NextDue()
	require.True(t, ok)
	require.Equal(t, start.Add(499*time.Hour), at)
}
