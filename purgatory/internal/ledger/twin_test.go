package ledger

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
)

// twin is a ledger that keeps a list and looks at all of it.
type twin struct {
	cfg  Config
	list []Entry
	gone map[graspsync.EventID]time.Time
}

func (w *twin) find(match func(Entry) bool) (Entry, bool) {
	if i := slices.IndexFunc(w.list, match); i >= 0 {
		return w.list[i], true
	}
	return Entry{}, false
}

func (w *twin) drop(id graspsync.EventID) {
	w.list = slices.DeleteFunc(w.list, func(e Entry) bool { return e.ID == id })
}

func (w *twin) check(now time.Time, e Entry) Verdict {
	same, known := w.find(func(o Entry) bool { return o.ID == e.ID })
	if known && (same.Class == e.Class || e.Class == Placeholder) {
		return Known
	}
	if now.Before(w.gone[e.ID]) {
		return Expired
	}
	rest := slices.DeleteFunc(slices.Clone(w.list), func(o Entry) bool {
		return o.ID == e.ID || (e.Class == Announcement && o.Class == Announcement && o.Repos[0] == e.Repos[0])
	})
	if e.Class == Announcement {
		if old, ok := w.find(func(o Entry) bool { return o.Class == Announcement && o.Repos[0] == e.Repos[0] }); ok && !e.Version.Newer(old.Version) {
			return Superseded
		}
	}
	mine, pushed, here := 0, 0, 0
	for _, o := range rest {
		if o.Class == Placeholder {
			pushed++
			if slices.Contains(o.Repos, e.Repos[0]) {
				here++
			}
			continue
		}
		if o.Author == e.Author && (o.Class == State) == (e.Class == State) {
			mine++
		}
	}
	switch {
	case e.Class == Placeholder && (pushed >= w.cfg.Pushed || here >= w.cfg.PerRepo):
		return PushedFull
	case e.Class == Placeholder:
		return Welcome
	case mine >= w.cfg.PerAuthor:
		return AuthorFull
	}
	return Welcome
}

// join is what Join says of a placeholder that is pushed to one more repository.
func (w *twin) join(id graspsync.EventID, ref graspsync.RepoRef) bool {
	here := 0
	for _, o := range w.list {
		if o.Class == Placeholder && slices.Contains(o.Repos, ref) {
			here++
		}
	}
	e, ok := w.find(func(o Entry) bool { return o.ID == id })
	if !ok || e.Class != Placeholder || slices.Contains(e.Repos, ref) || here >= w.cfg.PerRepo {
		return false
	}
	e.Repos = append(slices.Clone(e.Repos), ref)
	w.put(e)
	return true
}

func (w *twin) put(e Entry) {
	w.list = slices.DeleteFunc(w.list, func(o Entry) bool {
		return o.ID == e.ID || (e.Class == Announcement && o.Class == Announcement && o.Repos[0] == e.Repos[0])
	})
	w.list = append(w.list, e)
}

func (w *twin) expire(now time.Time) {
	for _, e := range slices.Clone(w.list) {
		if now.Before(e.Deadline) {
			continue
		}
		w.drop(e.ID)
		switch {
		case e.Class == Announcement && !e.Soft:
			e.Soft, e.Deadline = true, e.Deadline.Add(w.cfg.Soft)
			w.list = append(w.list, e)
		case e.Class != Placeholder:
			w.gone[e.ID] = now.Add(w.cfg.Remember)
		}
	}
}

// Quotas and expiry are those of the naive twin, whatever comes.
func TestAgainstNaiveTwin(t *testing.T) {
	for seed := range uint64(200) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { compare(t, seed) })
	}
}

func compare(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 17))
	cfg := config()
	cfg.PerAuthor, cfg.Entries, cfg.Bytes, cfg.Remembered = 3+rng.IntN(5), 8+rng.IntN(8), 1500, 1000
	cfg.Pushed, cfg.PerRepo = 2+rng.IntN(5), 1+rng.IntN(3)
	l, w, now := New(cfg), &twin{cfg: cfg, gone: make(map[graspsync.EventID]time.Time)}, start
	for range 400 {
		now = now.Add(time.Duration(rng.IntN(600)) * time.Second)
		// An expiry is one look in both: what has expired softly is due again later.
		for _, e := range l.Due(now, 1000) {
			l.Expire(now, e.ID)
		}
		w.expire(now)
		n := rng.IntN(40)
		e := entry(n, Class(1+n%4), n%5)
		if n%4 == 3 && rng.IntN(2) == 0 {
			e.Class = PullRequest // the event of a placeholder
		}
		e.Size = int64(50 + rng.IntN(200))
		switch rng.IntN(7) {
		case 0:
			l.Remove(e.ID)
			w.drop(e.ID)
		case 1:
			if old, _ := l.Get(e.ID); old.Class == Placeholder {
				to := ref(rng.IntN(5), "r")
				was := slices.Contains(old.Repos, to)
				joined, changed, room := l.Join(e.ID, to)
				require.Equal(t, w.join(e.ID, to), changed)
				require.Equal(t, changed || was, room)
				l.Put(joined)
			}
		default:
			want := w.check(now, e)
			require.Equal(t, want, l.Check(now, e))
			if want == Welcome {
				e = l.Admit(now, e)
				free := l.places.table.Len() < cfg.Entries && l.Bytes()+e.Size <= cfg.Bytes
				gone, ok := l.Reserve(e)
				require.False(t, free && (len(gone) > 0 || !ok), "there is room")
				for _, o := range gone {
					w.drop(o.ID)
				}
				if !ok {
					break
				}
				require.Empty(t, l.Unreserve(e))
				require.NotContains(t, l.Put(e), e)
				w.put(e)
				require.LessOrEqual(t, l.places.table.Len(), cfg.Entries)
				require.LessOrEqual(t, l.Bytes(), cfg.Bytes)
			}
		}
		got := l.All()
		sortByID(w.list)
		require.Len(t, got, len(w.list))
		for i := range got {
			require.Equal(t, w.list[i].ID, got[i].ID)
			require.Equal(t, w.list[i].Deadline, got[i].Deadline)
			require.Equal(t, w.list[i].Soft, got[i].Soft)
			require.Equal(t, w.list[i].Repos, got[i].Repos)
		}
	}
}

// Places are taken by what is still being written down.
func TestReserved(t *testing.T) {
	c := config()
	c.PerAuthor, c.Entries = 2, 3
	l := New(c)
	a, b := entry(1, State, 1), entry(2, State, 1)
	l.Reserve(a)
	l.Reserve(b)
	require.Equal(t, AuthorFull, l.Check(start, entry(3, State, 1)))
	l.Reserve(entry(4, State, 2))
	_, ok := l.Reserve(entry(5, State, 3))
	require.False(t, ok, "what is being written down is not evicted")
	l.Unreserve(a)
	require.Equal(t, Welcome, l.Check(start, entry(3, State, 1)))

	c.Pushed, c.PerRepo = 2, 1
	l = New(c)
	a, b = entry(1, Placeholder, 1), entry(2, Placeholder, 2)
	l.Reserve(a)
	require.Equal(t, PushedFull, l.Check(start, entry(3, Placeholder, 1)))
	l.Reserve(b)
	require.Equal(t, PushedFull, l.Check(start, entry(3, Placeholder, 3)))
	l.Unreserve(a)
	require.Equal(t, Welcome, l.Check(start, entry(3, Placeholder, 1)))
}

// An older announcement that is put later does not take the place of a newer one.
func TestPutOlder(t *testing.T) {
	l := New(config())
	l.Put(entry(5, Announcement, 1))
	old := entry(4, Announcement, 1)
	require.Equal(t, []Entry{old}, l.Put(old))
	e, _ := l.Announcement(ref(1, "r"))
	require.Equal(t, id(5), e.ID)
	// A newer version of what expired softly stays so, for the same time.
	soft, _, _ := l.Expire(start, id(5))
	e = l.Admit(start.Add(time.Hour), entry(6, Announcement, 1))
	require.True(t, e.Soft)
	require.Equal(t, soft.Deadline, e.Deadline)
}

func TestJoin(t *testing.T) {
	c := config()
	c.PerRepo = 1
	l := New(c)
	_, changed, room := l.Join(id(1), ref(1, "r"))
	require.False(t, changed || room)
	p := entry(1, Placeholder, 1)
	l.Put(p)
	for i := range 2 * MaxPushed {
		e, changed, room := l.Join(id(1), ref(i, "x"))
		require.Equal(t, i < 2*MaxPushed-1, changed)
		require.Equal(t, changed, room)
		l.Put(e)
	}
	_, changed, room = l.Join(id(1), ref(1, "r"))
	require.False(t, changed)
	require.True(t, room)
	l.Put(entry(9, Placeholder, 9))
	_, changed, room = l.Join(id(9), ref(1, "r"))
	require.False(t, changed || room, "it has its most")
	l.Remove(id(9))
	e := l.Admit(start, entry(1, PullRequest, 1))
	require.Len(t, e.Strays, 2*MaxPushed-1, "what it does not name")
	l.Put(entry(2, PullRequest, 1))
	e, changed, _ = l.Join(id(2), ref(7, "x"))
	require.True(t, changed)
	require.Equal(t, []graspsync.RepoRef{ref(7, "x")}, e.Strays)
	l.Put(entry(3, State, 1))
	_, _, room = l.Join(id(3), ref(7, "x"))
	require.False(t, room)
	require.Len(t, l.ByAuthor(author(1)), 2, "placeholders are nobody's")
}

// What could not be expired is due again later; its deadline stays.
func TestPostpone(t *testing.T) {
	l := New(config())
	e := admit(t, l, start, entry(1, State, 1))
	admit(t, l, start, entry(2, State, 2))
	require.Len(t, l.Due(e.Deadline, 1), 1)
	l.Postpone(e.ID, e.Deadline.Add(time.Minute))
	l.Postpone(id(9), e.Deadline)
	require.Len(t, l.Due(e.Deadline, 9), 1)
	got, _ := l.Get(e.ID)
	require.Equal(t, e.Deadline, got.Deadline)
	require.Len(t, l.Due(e.Deadline.Add(time.Minute), 9), 2)
	_, _, forgotten := l.Expire(e.Deadline, id(9))
	require.Empty(t, forgotten)
}

// What is remembered no longer is told, so that it can go from the disk.
func TestForgotten(t *testing.T) {
	c := config()
	c.Remembered = 2
	l := New(c)
	for n := range 3 {
		l.Put(entry(n, State, 1))
		_, _, forgotten := l.Expire(start, id(n))
		require.Equal(t, n == 2, slices.Contains(forgotten, id(0)))
	}
	require.Equal(t, []graspsync.EventID{id(7)}, l.RememberExpired(start, id(7), start))
	require.Equal(t, []graspsync.EventID{id(1), id(2)}, l.RememberExpired(start.Add(8*24*time.Hour), id(8), start.Add(9*24*time.Hour)))
	require.Empty(t, l.RememberExpired(start, id(8), start.Add(9*24*time.Hour)), "again")
}
