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

var nothingKept = Kept{Always: func(Entry) bool { return false }, InUse: func(Entry) bool { return false }}

// roomy has shares of some places each.
func roomy() Config {
	cfg := config()
	cfg.Entries, cfg.Kept, cfg.Bytes, cfg.KeptBytes, cfg.PerAuthor, cfg.Stay = 80, 10, 1_000_000, 125_000, 100, time.Minute
	return cfg
}

// stranger is an announcement, or another event, by one of any number of keys.
func stranger(n int, c Class, key int, relay string) Entry {
	e := Entry{ID: id(n), Class: c, Size: 100, From: relay, Version: entry(n, c, 1).Version}
	e.Author[0], e.Author[1], e.Author[2] = 200, byte(key>>8), byte(key)
	e.Repos = []graspsync.RepoRef{{Owner: e.Author, Identifier: fmt.Sprint(n)}}
	return e
}

// naive says what may give way, by looking at everything at each level.
func naive(l *Ledger, now time.Time, e Entry) map[graspsync.EventID]bool {
	all := slices.DeleteFunc(l.All(), func(o Entry) bool { return o.Class == Placeholder })
	type who struct {
		owner
		trusted, has bool
	}
	of := func(o *Entry, at level) who {
		w, has := o.owner(at)
		return who{w, o.Trusted, has}
	}
	burden := func(at level, w who, with int64) int64 {
		total := with
		for _, o := range all {
			if of(&o, at) == w {
				total += o.Size + l.cfg.Bytes/int64(l.cfg.Entries)
			}
		}
		if at == byRelay && w.relay == "" {
			total /= 32
		}
		return total
	}
	cost, strangers := e.Size+l.cfg.Bytes/int64(l.cfg.Entries), 0
	for _, o := range all {
		if !o.Trusted {
			strangers++
		}
	}
	// try is whose oldest give way at a level, and whether the newcomer has many there.
	try := func(at level, trusted bool) (out map[graspsync.EventID]bool, final bool) {
		most, have := int64(0), []who{}
		seen := make(map[who]bool)
		for _, o := range all {
			if k := of(&o, at); o.Trusted == trusted && k.has && !seen[k] {
				seen[k] = true
				switch b := burden(at, k, 0); {
				case b > most:
					most, have = b, []who{k}
				case b == most:
					have = append(have, k)
				}
			}
		}
		would := int64(0)
		if k := of(&e, at); k.has && trusted == e.Trusted {
			would = burden(at, k, cost)
		}
		many := l.places.many(at)
		if most <= many {
			return nil, would > many
		}
		equals := at == byAll || would > many
		if equals && at != byAll {
			part := cost
			if at == byRelay && e.From == "" {
				part /= 32
			}
			equals = most < would+part
		}
		if k := of(&e, at); equals && seen[k] {
			have = []who{k}
		}
		out = make(map[graspsync.EventID]bool)
		for _, k := range have {
			mine := slices.DeleteFunc(slices.Clone(all), func(o Entry) bool { return of(&o, at) != k })
			first := slices.MinFunc(mine, func(a, b Entry) int {
				switch {
				case a.Soft != b.Soft && a.Soft:
					return -1
				case a.Soft != b.Soft:
					return 1
				case !a.Seen.Equal(b.Seen):
					return a.Seen.Compare(b.Seen)
				case a.Class != b.Class:
					return int(a.Class) - int(b.Class)
				}
				return a.ID.Compare(b.ID)
			})
			if !equals || first.Soft || now.Sub(first.Seen) >= l.cfg.Stay {
				out[first.ID] = true
			}
		}
		return out, would > many
	}
	if !e.Trusted && strangers < l.cfg.Entries-l.cfg.Kept {
		if out, _ := try(byAuthor, true); len(out) > 0 {
			return out
		}
		if out, _ := try(byAll, true); 2*(len(all)-strangers) > l.cfg.Entries && len(out) > 0 {
			return out
		}
	}
	for at := range levels {
		if e.Trusted && (at == byTarget || at == byRelay) {
			continue
		}
		out, has := try(at, e.Trusted)
		if len(out) > 0 || has {
			return out
		}
	}
	return nil
}

// Who gives way is one of those that do when everything is looked at, the bounds hold, and
// nothing is left of what is gone.
func TestDisplaceAgainstNaiveTwin(t *testing.T) {
	full, displaced := 0, 0
	for seed := range uint64(25) {
		rng := rand.New(rand.NewPCG(seed, 9))
		cfg := roomy()
		l, now := New(cfg), start
		keys, relays, targets := 1+rng.IntN(60), 1+rng.IntN(9), 1+rng.IntN(6)
		var heavy int
		for n := range 400 {
			now = now.Add(time.Duration(rng.IntN(3000)) * time.Millisecond)
			key := rng.IntN(keys)
			if rng.IntN(3) == 0 {
				key = 1000 + heavy
				heavy = rng.IntN(2)
			}
			from := ""
			if r := rng.IntN(relays + 1); r > 0 {
				from = fmt.Sprint("relay ", r)
			}
			e := stranger(n, []Class{Announcement, State, PullRequest}[rng.IntN(3)], key, from)
			switch e.Class {
			case PullRequest:
				e.Repos = []graspsync.RepoRef{ref(rng.IntN(targets), "served")}
				e.Trusted = rng.IntN(8) == 0
			case State:
				e.Trusted = rng.IntN(4) == 0
			}
			if due := l.Due(now, 1); len(due) > 0 && rng.IntN(4) == 0 {
				l.Expire(now, due[0].ID)
			}
			if rng.IntN(10) == 0 {
				now = now.Add(10 * time.Minute)
			}
			v := l.Check(now, e)
			if v == Full {
				full++
				want := naive(l, now, e)
				gone := l.Displace(now, e, v, nothingKept)
				require.Equal(t, len(want) > 0, len(gone) > 0, "seed %d, %d", seed, n)
				if len(gone) == 0 {
					continue
				}
				require.True(t, want[gone[0].ID], "seed %d, %d", seed, n)
				require.Equal(t, Welcome, l.Check(now, e))
				displaced++
			} else if v != Welcome {
				continue
			}
			l.Put(l.Admit(now, e))
			require.LessOrEqual(t, l.Len(), cfg.Entries)
			require.LessOrEqual(t, l.places.strangers.sum.n, cfg.Entries-cfg.Kept)
		}
		for _, e := range l.All() {
			l.Remove(e.ID)
		}
		for _, p := range []*pool{l.places.strangers, l.places.trusted} {
			require.Zero(t, p.all())
			for at := range levels {
				require.Empty(t, p.of[at])
				require.Zero(t, p.largest[at].Len())
			}
		}
		require.Empty(t, l.places.of)
	}
	t.Logf("%d had no room, for %d others gave way", full, displaced)
	require.Greater(t, displaced, 500)
	require.Greater(t, full-displaced, 100)
}

func fill(l *Ledger, now time.Time, from, n int, of func(n int) Entry) {
	for i := range n {
		e := of(from + i)
		if v := l.Check(now, e); v == Full {
			if len(l.Displace(now, e, v, nothingKept)) == 0 {
				continue
			}
		} else if v != Welcome {
			continue
		}
		l.Put(l.Admit(now, e))
	}
}

// However many keys a relay brings events of, those that others brought stay; with a key
// for each event by as many relays as can be, each stays for its time.
func TestFreeKeysCountForTheirRelay(t *testing.T) {
	l := New(roomy())
	honest := stranger(1, Announcement, 1, "honest")
	l.Put(l.Admit(start, honest))
	for round := range 10 {
		now := start.Add(time.Duration(round) * 2 * time.Minute)
		fill(l, now, 1000*(round+1), 500, func(n int) Entry { return stranger(n, Announcement, n, "evil") })
		require.Contains(t, l.places.of, honest.ID)
	}
	l = New(roomy())
	l.Put(l.Admit(start, honest))
	each := func(n int) Entry { return stranger(n, Announcement, n, fmt.Sprint("evil ", n)) }
	fill(l, start.Add(time.Second), 1000, 500, each)
	fill(l, start.Add(time.Minute-1), 2000, 500, each)
	require.Contains(t, l.places.of, honest.ID)
	fill(l, start.Add(time.Minute), 3000, 1, each)
	require.NotContains(t, l.places.of, honest.ID)
}

// What data is coming for stays longer than what came after it, and what is fixed stays in
// any case.
func TestWhatIsInUseStays(t *testing.T) {
	l := New(roomy())
	fill(l, start, 0, 70, func(n int) Entry { return stranger(n, Announcement, n, fmt.Sprint("relay ", n)) })
	now := start.Add(2 * time.Minute)
	gone := l.Displace(now, stranger(100, State, 100, "new"), Full, Kept{
		Always: func(e Entry) bool { return e.ID == id(0) },
		InUse:  func(e Entry) bool { return e.ID == id(1) || e.ID == id(2) },
	})
	require.Len(t, gone, 1)
	require.Equal(t, id(3), gone[0].ID)
	fill(l, now, 200, 1, func(n int) Entry { return stranger(n, Announcement, n, "new") })
	none := Kept{Always: func(Entry) bool { return true }, InUse: func(Entry) bool { return true }}
	now = now.Add(time.Hour)
	require.Empty(t, l.Displace(now, stranger(101, State, 101, "new"), Full, none))
	inUse := Kept{Always: func(Entry) bool { return false }, InUse: func(Entry) bool { return true }}
	require.Len(t, l.Displace(now.Add(time.Hour), stranger(102, State, 102, "new"), Full, inUse), 0, "all of them are, and stay")
}

// A sign of life of a repository has its announcement wait as if it had come then.
func TestSignsRenewPlaces(t *testing.T) {
	l := New(roomy())
	fill(l, start, 0, 70, func(n int) Entry { return stranger(n, Announcement, n, fmt.Sprint("relay ", n)) })
	now := start.Add(2 * time.Minute)
	first := l.entries[id(0)].Repos[0]
	l.Sign(start.Add(time.Minute), first, true)
	gone := l.Displace(now, stranger(100, State, 100, "new"), Full, nothingKept)
	require.Len(t, gone, 1)
	require.Equal(t, id(1), gone[0].ID)
}

// Pull requests count for whoever has the repository that is here, whatever else they name
// before it: a flood of them leaves alone what else their relay brought.
func TestPullRequestsCountForWhatIsHere(t *testing.T) {
	l := New(roomy())
	other := stranger(1, Announcement, 1, "relay")
	l.Put(l.Admit(start, other))
	fill(l, start.Add(time.Second), 10, 300, func(n int) Entry {
		e := stranger(n, PullRequest, n, "relay")
		e.Repos, e.For = append(e.Repos, ref(1, "served")), author(1)
		return e
	})
	fill(l, start.Add(2*time.Minute), 1000, 300, func(n int) Entry {
		e := stranger(n, PullRequest, n, "relay")
		e.Repos, e.For = append(e.Repos, ref(1, "served")), author(1)
		return e
	})
	require.Contains(t, l.places.of, other.ID)
}

// An announcement takes with it what waits for its repository alone, and gives way to nothing
// that waits for that.
func TestWhatDependsGoesWithIt(t *testing.T) {
	l := New(roomy())
	first := stranger(0, Announcement, 0, "a")
	state, pull, both := stranger(1, State, 0, "b"), stranger(2, PullRequest, 1, "c"), stranger(3, PullRequest, 2, "d")
	state.Repos, pull.Repos = first.Repos, first.Repos
	both.Repos = []graspsync.RepoRef{first.Repos[0], ref(1, "other")}
	l.Put(l.Admit(start, first))
	for _, e := range []Entry{state, pull, both} {
		l.Put(l.Admit(start.Add(2*time.Second), e))
	}
	fill(l, start.Add(time.Second), 10, 66, func(n int) Entry { return stranger(n, Announcement, n, fmt.Sprint(n)) })
	now := start.Add(2 * time.Minute)
	later := stranger(1000, State, 0, "a")
	later.Repos = first.Repos
	gone := l.Displace(now, later, Full, nothingKept)
	require.Len(t, gone, 1)
	require.Equal(t, id(10), gone[0].ID, "its own announcement is older")
	l.Put(l.Admit(start.Add(time.Second), stranger(10, Announcement, 10, "10")))
	l.places.of[first.ID].since = start // it was renewed for that
	l.places.strangers.fix(l.places.of[first.ID])
	gone = l.Displace(now, stranger(1001, State, 99, "b"), Full, nothingKept)
	require.Len(t, gone, 3)
	require.Equal(t, first.ID, gone[0].ID)
	require.ElementsMatch(t, []graspsync.EventID{state.ID, pull.ID}, []graspsync.EventID{gone[1].ID, gone[2].ID})
	require.Contains(t, l.places.of, both.ID)
}

// What waits for a repository may have to go for a large event as well as its announcement
// does: it goes once.
func TestWhatDependsGoesOnce(t *testing.T) {
	cfg := roomy()
	cfg.Bytes, cfg.KeptBytes = 8000, 1000
	l := New(cfg)
	first := stranger(0, Announcement, 1, "a")
	l.Put(l.Admit(start, first))
	fill(l, start.Add(time.Second), 1, 100, func(n int) Entry {
		e := stranger(n, PullRequest, 1, "a")
		e.Repos = first.Repos
		return e
	})
	require.Equal(t, 70, l.Len())
	now := start.Add(2 * time.Second)
	large := stranger(500, State, 2, "b")
	large.Size = 250
	gone := l.Displace(now, large, l.Check(now, large), nothingKept)
	require.Len(t, gone, 70)
	ids := make(map[graspsync.EventID]bool)
	for _, e := range gone {
		ids[e.ID] = true
	}
	require.Len(t, ids, 70)
	require.Zero(t, l.Len())
	require.Equal(t, sum{}, l.places.strangers.sum)
}

// What has expired softly keeps nothing new of its author out, and goes first.
func TestSoftlyExpiredGiveWay(t *testing.T) {
	cfg := roomy()
	cfg.PerAuthor = 5
	l := New(cfg)
	own := func(n int) Entry { return stranger(n, Announcement, 7, "a") }
	fill(l, start, 0, 5, own)
	now := start.Add(time.Minute)
	require.Equal(t, AuthorFull, l.Check(now, own(10)))
	require.Empty(t, l.Displace(now, own(10), AuthorFull, nothingKept))
	now = start.Add(31 * time.Minute)
	l.Expire(now, id(2))
	gone := l.Displace(now, own(10), l.Check(now, own(10)), nothingKept)
	require.Len(t, gone, 1)
	require.Equal(t, id(2), gone[0].ID)
	require.Equal(t, Welcome, l.Check(now, own(10)))
	require.False(t, l.HasExpired(id(2), now))
}

// Several small ones make room for a larger one, and none goes in vain.
func TestDisplaceBytes(t *testing.T) {
	cfg := roomy()
	cfg.Bytes, cfg.KeptBytes = 8000, 1000
	l := New(cfg)
	fill(l, start, 0, 100, func(n int) Entry { return stranger(n, Announcement, 1, "a") })
	require.Equal(t, 70, l.Len())
	now := start.Add(time.Second)
	large := stranger(500, State, 2, "b")
	large.Size = 250
	gone := l.Displace(now, large, l.Check(now, large), nothingKept)
	require.Len(t, gone, 3)
	l.Put(l.Admit(now, large))
	huge := stranger(501, State, 3, "b")
	huge.Size = 2500
	before := l.Len()
	require.Empty(t, l.Displace(now, huge, l.Check(now, huge), nothingKept), "that is more than 16")
	require.Equal(t, before, l.Len())
	require.Equal(t, before, l.places.strangers.sum.n)
}

// Trusted ones give way to strangers only if somebody has many beyond what is kept for them.
func TestTrustedStay(t *testing.T) {
	l := New(roomy())
	trusted := func(n int) Entry {
		e := stranger(n, State, n%7, "a")
		e.Trusted = true
		return e
	}
	fill(l, start, 0, 14, trusted)
	for round := range 3 {
		now := start.Add(time.Duration(round) * 2 * time.Minute)
		fill(l, now, 1000*(round+1), 300, func(n int) Entry { return stranger(n, Announcement, n, "evil") })
		require.Equal(t, 14, l.places.trusted.sum.n)
		require.Equal(t, 66, l.places.strangers.sum.n)
	}
	l = New(roomy())
	fill(l, start, 0, 80, func(n int) Entry {
		e := trusted(n)
		e.Author[3] = byte(n % 2)
		return e
	})
	require.Equal(t, 80, l.places.trusted.sum.n)
	fill(l, start, 1000, 300, func(n int) Entry { return stranger(n, Announcement, n, "a") })
	require.Positive(t, l.places.strangers.sum.n)
	require.GreaterOrEqual(t, l.places.trusted.sum.n, 10)
}

// A repository that is served may list hundreds of keys. However many places these have, each
// few, half of all is left to strangers, when those that have them have stayed.
func TestTrustedKeepNobodyOut(t *testing.T) {
	l := New(roomy())
	each := func(n int) Entry {
		e := stranger(n, State, n, "a")
		e.Trusted = true
		return e
	}
	newcomer := func(n int) Entry { return stranger(n, Announcement, n, "b") }
	fill(l, start, 0, 80, each)
	require.Equal(t, 80, l.places.trusted.sum.n)
	fill(l, start.Add(time.Second), 1000, 80, newcomer)
	require.Equal(t, 80, l.places.trusted.sum.n, "not before they have stayed")
	now := start.Add(2 * time.Minute)
	fill(l, now, 2000, 80, newcomer)
	require.Equal(t, 40, l.places.trusted.sum.n)
	require.Equal(t, 40, l.places.strangers.sum.n)
	fill(l, now, 3000, 80, each)
	require.Equal(t, 40, l.places.strangers.sum.n)
}

// Who has something come for all that waits keeps no more than few places by that each, and none
// of those that are left to strangers: a push is enough for any number of states.
func TestWhatIsInUseKeepsNobodyOut(t *testing.T) {
	cfg := roomy()
	cfg.Entries, cfg.Kept, cfg.Bytes, cfg.KeptBytes = 1600, 200, 1_000_000, 125_000
	for _, c := range []struct {
		trusted bool // and so have borrowed
		each    int  // of an author
	}{{false, few + 1}, {true, few + 1}, {true, 1}} {
		inUse := Kept{Always: func(Entry) bool { return false }, InUse: func(e Entry) bool { return e.From == "" }}
		l := New(cfg)
		fill(l, start, 0, 1600, func(n int) Entry {
			e := stranger(n, State, n/c.each, "")
			e.Trusted = c.trusted
			return e
		})
		for n := range 100 {
			now := start.Add(2*time.Minute + time.Duration(n)*time.Second)
			e := stranger(10_000+n, Announcement, 10_000+n, fmt.Sprint("honest ", n))
			require.Equal(t, Full, l.Check(now, e))
			require.NotEmpty(t, l.Displace(now, e, Full, inUse), "%+v, %d", c, n)
			l.Put(l.Admit(now, e))
		}
		for n := range 100 {
			require.Contains(t, l.places.of, id(10_000+n))
		}
	}
}

// BenchmarkDisplace is an event that comes when all 8,750 places of strangers are taken.
func BenchmarkDisplace(b *testing.B) {
	for name, flood := range map[string]func(n int) Entry{
		"88 keys":           func(n int) Entry { return stranger(n, Announcement, n%88, "evil") },
		"a key for each":    func(n int) Entry { return stranger(n, Announcement, n, "evil") },
		"keys and relays":   func(n int) Entry { return stranger(n, Announcement, n, fmt.Sprint(n%100)) },
		"one repository":    func(n int) Entry { e := stranger(n, PullRequest, n, "evil"); e.Repos[0] = ref(1, "r"); return e },
		"users, a key each": func(n int) Entry { return stranger(n, Announcement, n, "") },
	} {
		b.Run(name, func(b *testing.B) {
			cfg := roomy()
			cfg.Entries, cfg.Kept, cfg.Bytes, cfg.KeptBytes = 10_000, 1250, 64<<20, 8<<20
			l, now := New(cfg), start
			fill(l, now, 0, 8750, flood)
			require.Equal(b, 8750, l.Len())
			gone := 0
			n := 10_000
			b.ResetTimer()
			for b.Loop() {
				now = now.Add(10 * time.Millisecond)
				e := stranger(n%40_000, Announcement, n, "new")
				v := l.Check(now, e)
				if v == Full {
					gone += len(l.Displace(now, e, v, nothingKept))
				}
				if l.Check(now, e) == Welcome {
					l.Put(l.Admit(now, e))
				}
				n++
			}
			require.Positive(b, gone)
		})
	}
}
