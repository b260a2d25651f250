package gitserve

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// line has parties wait for places, in an order, and says in which they get one.
func line(t *testing.T, p *places, held []party, waiting ...party) (served []string) {
	t.Helper()
	var leave []func()
	for _, who := range held {
		l, ok := p.try(who)
		require.True(t, ok, who)
		leave = append(leave, l)
	}
	granted := make(chan string, len(waiting))
	next := make(chan struct{})
	for i, who := range waiting {
		go func() {
			l, err := p.enter(t.Context(), who, time.Hour, nil)
			if err != nil {
				granted <- err.Error()
				return
			}
			granted <- fmt.Sprint(i)
			<-next
			l()
		}()
		synctest.Wait() // they come one after the other
	}
	for _, l := range leave {
		l()
		synctest.Wait()
	}
	for range waiting {
		served = append(served, <-granted)
		next <- struct{}{}
		synctest.Wait()
	}
	require.Empty(t, p.shares, "who has nothing and wants nothing is forgotten")
	require.Empty(t, p.waiting)
	require.Zero(t, p.taken)
	return served
}

// A place goes to whoever has the fewest, and had the fewest; else to whoever came first.
func TestPlacesAreShared(t *testing.T) {
	who := func(client, network, owner, repo string) party { return party{client, network, owner, repo} }
	a, b := who("a", "n", "o", "r"), who("b", "n", "o", "r")
	for name, tt := range map[string]struct {
		held, waiting []party
		served        []string
	}{
		"nobody has any":  {[]party{who("x", "x", "x", "x")}, []party{a, b, a}, []string{"0", "1", "2"}},
		"by clients":      {[]party{who("x", "x", "x", "x")}, []party{a, a, a, b, b}, []string{"0", "3", "1", "4", "2"}},
		"by networks":     {[]party{a}, []party{b, who("c", "m", "o", "r")}, []string{"1", "0"}},
		"by owners":       {[]party{who("", "", "o", "r")}, []party{who("", "", "o", "s"), who("", "", "p", "r")}, []string{"1", "0"}},
		"by repositories": {[]party{who("", "", "o", "r")}, []party{who("", "", "o", "r"), who("", "", "o", "s")}, []string{"1", "0"}},
		"clients before owners": {
			[]party{who("a", "n", "o", "r")}, []party{who("a", "n", "p", "s"), who("b", "m", "o", "r")}, []string{"1", "0"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				require.Equal(t, tt.served, line(t, newPlaces(1, 0, 1), tt.held, tt.waiting...))
			})
		})
	}
}

// Nobody has all places, and no client more than its share when not many are left.
func TestPlacesAreNotAllOfOne(t *testing.T) {
	count := func(p *places, who func(i int) party) (n int) {
		for i := range 100 {
			if _, ok := p.try(who(i)); !ok {
				return i
			}
		}
		return 100
	}
	one := func(i int) party {
		return party{client: fmt.Sprint(i), network: fmt.Sprint(i), owner: fmt.Sprint(i), repo: fmt.Sprint(i)}
	}
	for name, tt := range map[string]struct {
		p    *places
		who  func(i int) party
		want int
	}{
		"all":         {newPlaces(8, 0, 4), one, 8},
		"client":      {newPlaces(8, 0, 3), func(i int) party { w := one(i); w.client = "a"; return w }, 3},
		"loose":       {newPlaces(8, 5, 3), func(i int) party { w := one(i); w.client = "a"; return w }, 5},
		"very loose":  {newPlaces(8, 8, 3), func(i int) party { w := one(i); w.client = "a"; return w }, 6},
		"no client":   {newPlaces(8, 0, 3), func(i int) party { w := one(i); w.client, w.network = "", ""; return w }, 8},
		"network":     {newPlaces(8, 0, 4), func(i int) party { w := one(i); w.network = "a"; return w }, 6},
		"owner":       {newPlaces(8, 0, 4), func(i int) party { w := one(i); w.owner = "a"; return w }, 6},
		"repository":  {newPlaces(8, 0, 4), func(i int) party { w := one(i); w.repo = "a"; return w }, 6},
		"few of them": {newPlaces(3, 0, 4), func(i int) party { w := one(i); w.repo = "a"; return w }, 2},
		"two":         {newPlaces(2, 0, 2), func(i int) party { w := one(i); w.network = "a"; return w }, 1},
		"only one":    {newPlaces(1, 0, 1), func(i int) party { w := one(i); w.network = "a"; return w }, 1},
	} {
		require.Equal(t, tt.want, count(tt.p, tt.who), name)
	}
}

// Who may have no more is no hindrance for those behind him.
func TestPlacesOfOthersAreNotWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlaces(2, 0, 1)
		leaveA, ok := p.try(party{client: "a", owner: "1"})
		require.True(t, ok)
		ctx, cancel := context.WithCancelCause(t.Context())
		gone := errors.New("gone")
		ended := make(chan error)
		go func() {
			_, err := p.enter(ctx, party{client: "a", owner: "2"}, time.Hour, nil)
			ended <- err
		}()
		synctest.Wait()
		leaveB, err := p.enter(t.Context(), party{client: "b", owner: "3"}, time.Hour, nil)
		require.NoError(t, err)
		cancel(gone)
		require.ErrorIs(t, <-ended, gone)
		_, err = p.enter(t.Context(), party{client: "a", owner: "2"}, time.Minute, nil)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		s := p.stats()
		require.Equal(t, placesStats{taken: 2, waited: time.Minute, refused: 2}, s)
		leaveA()
		leaveA() // once
		leaveB()
		require.Empty(t, p.shares)
		require.Zero(t, p.taken)
	})
}

// Only the next in line has others leave for him.
func TestTheFirstPresses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlaces(1, 0, 1)
		leave, _ := p.try(party{client: "x"})
		pressed := make(map[string]int)
		done := make(chan struct{})
		for _, name := range []string{"a", "b"} {
			go func() {
				l, err := p.enter(t.Context(), party{client: name}, time.Hour, func() { pressed[name]++ })
				if err == nil {
					l()
				}
				done <- struct{}{}
			}()
			synctest.Wait()
		}
		time.Sleep(500*time.Millisecond + 1) // ten times as long as one waits
		synctest.Wait()
		require.Equal(t, map[string]int{"a": 11}, pressed)
		leave()
		<-done
		<-done
	})
}

// guest is a visit whose client we wait for.
type guest struct {
	*visit
	ctx      context.Context
	deadline time.Time
	depart   func()
}

func (g *guest) limit(at time.Time) error {
	g.deadline = at
	return nil
}

func arrive(t *testing.T, l *visits, who party) *guest {
	t.Helper()
	ctx, v, depart, err := l.arrive(t.Context(), who, time.Second)
	require.NoError(t, err)
	return &guest{visit: v, ctx: ctx, depart: depart}
}

// moves has a client move so many bytes in a time, and be waited for.
func (g *guest) moves(t *testing.T, n int, took time.Duration) {
	t.Helper()
	now := time.Now()
	require.NoError(t, g.arm(g.limit, now.Add(-took), now.Add(time.Hour)))
	require.NoError(t, g.disarm(n, took))
	require.NoError(t, g.arm(g.limit, now, now.Add(time.Hour)))
}

// When there is no room, who has been slowest leaves: not those that we keep waiting, or
// that came just now, or that will soon be done.
func TestTheSlowestLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := Config{fixed: numbers{MaxReaders: 6, MaxPerClient: 2}, Client: remote}.withDefaults()
		l := newVisits(cfg, 1<<20)
		settle := l.settle
		name := func(s string) party { return party{client: s, network: s, owner: s, repo: s} }
		fast, slow, slower, ours, silent := arrive(t, l, name("fast")), arrive(t, l, name("slow")), arrive(t, l, name("slower")),
			arrive(t, l, name("ours")), arrive(t, l, name("silent"))
		fast.moves(t, int(settle.Seconds()*l.fast), settle)
		slow.moves(t, 20<<10, settle)
		slower.moves(t, 10<<10, settle)
		silent.moves(t, 1<<20, time.Millisecond) // what the system takes at once is no rate
		fresh := arrive(t, l, name("fresh"))
		fresh.moves(t, 0, settle-2*pressPeriod)
		left := func(g *guest) bool { return g.ctx.Err() != nil }
		next := func(gone *guest, among ...*guest) {
			t.Helper()
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				_, _, depart, err := l.arrive(t.Context(), name("new"), time.Second)
				if err == nil {
					depart()
				}
			}()
			synctest.Wait()
			for _, g := range among {
				require.Equal(t, g == gone, left(g))
			}
			if gone != nil {
				require.ErrorIs(t, context.Cause(gone.ctx), errBusy)
				require.False(t, gone.deadline.After(time.Now()), "nobody waits for it any more")
				require.ErrorIs(t, gone.arm(gone.limit, time.Now(), time.Now()), errBusy)
				gone.depart()
			}
			<-ended
		}
		next(slower, fast, slow, slower, ours, silent, fresh)
		slower = arrive(t, l, name("slower"))
		next(slow, fast, slow, slower, ours, silent, fresh)
		slow = arrive(t, l, name("slow"))
		time.Sleep(settle)
		for _, g := range []*guest{fast, slow, slower, fresh} {
			g.moves(t, 1, time.Millisecond)
		}
		next(silent, fast, slow, slower, ours, silent, fresh)
		silent = arrive(t, l, name("silent"))
		_, _, shed := l.count()
		require.EqualValues(t, 3, shed)
		for _, g := range []*guest{fast, slow, slower, ours, silent, fresh} {
			g.depart()
		}
		here, kept, _ := l.count()
		require.Zero(t, here)
		require.Zero(t, kept)
	})
}

// Who may have no more himself has nobody leave, and for who can't be helped by others
// only those do who are in his way.
func TestNobodyLeavesInVain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newVisits(Config{fixed: numbers{MaxReaders: 8, MaxPerClient: 2}, Client: remote}.withDefaults(), 1<<20)
		var here []*guest
		slow := func(client, repo string) *guest {
			g := arrive(t, l, party{client: client, owner: client + repo, repo: repo})
			g.moves(t, 1, l.settle)
			here = append(here, g)
			return g
		}
		for i := range 4 {
			slow("a", fmt.Sprint(i))
		}
		refused := func(who party) {
			t.Helper()
			_, _, _, err := l.arrive(t.Context(), who, time.Second)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			for _, g := range here {
				require.NoError(t, g.ctx.Err())
			}
		}
		refused(party{client: "a", repo: "x"}) // there is room, but not for him
		for _, g := range here {
			g.depart()
		}
		here = nil
		for i := range 6 {
			slow(fmt.Sprint(i), "same")
		}
		other := slow("other", "other")
		ended := make(chan error)
		go func() {
			_, _, depart, err := l.arrive(t.Context(), party{client: "new", repo: "same"}, time.Second)
			if err == nil {
				depart()
			}
			ended <- err
		}()
		synctest.Wait()
		gone := 0
		for _, g := range here {
			if g.ctx.Err() != nil {
				gone++
				g.depart()
			}
		}
		require.Equal(t, 1, gone)
		require.NoError(t, other.ctx.Err())
		require.NoError(t, <-ended)
		for _, g := range here {
			g.end(nil)
		}
	})
}

// Those leave first whose clients have more than their share, however fast they are.
func TestWhoHasMoreThanHisShareLeavesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newVisits(Config{fixed: numbers{MaxReaders: 6, MaxPerClient: 2}}.withDefaults(), 1<<20)
		var many []*guest
		for i := range 3 {
			many = append(many, arrive(t, l, party{client: "a", owner: fmt.Sprint(i)}))
			many[i].moves(t, 100<<10, l.settle)
		}
		slow := arrive(t, l, party{client: "b"})
		slow.moves(t, 1, l.settle)
		l.mu.Lock()
		require.True(t, l.drop(obstacle{full: true}, 1, func(*visit, sight) bool { return true }))
		l.mu.Unlock()
		require.NoError(t, slow.ctx.Err())
		gone := 0
		for _, g := range many {
			if g.ctx.Err() != nil {
				gone++
			}
			g.depart()
		}
		require.Equal(t, 1, gone)
		slow.depart()
	})
}

// What all of them send has a bound: those who have sent much and are slow leave for
// others, or who can't be helped.
func TestWhatIsKeptIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newVisits(Config{}.withDefaults(), 1000)
		big, small, third := arrive(t, l, party{owner: "a"}), arrive(t, l, party{owner: "b"}), arrive(t, l, party{})
		for _, g := range []*guest{big, small} {
			g.moves(t, 1, l.settle)
		}
		require.NoError(t, big.keep(600))
		require.NoError(t, small.keep(100))
		require.NoError(t, third.keep(300))
		require.NoError(t, big.ctx.Err())
		require.NoError(t, third.keep(1))
		require.ErrorIs(t, context.Cause(big.ctx), errBusy, "it has more than its part")
		require.NoError(t, small.ctx.Err())
		require.NoError(t, third.keep(1), "it is about to leave")
		big.depart()
		require.NoError(t, third.keep(500))
		require.ErrorIs(t, third.keep(500), errBusy, "nobody else has much")
		small.depart()
		third.depart()
		_, kept, _ := l.count()
		require.Zero(t, kept)
		require.Empty(t, l.of)
	})
}

// Nobody keeps all that may be kept, and who waits for his turn leaves only for one whose
// owner keeps less.
func TestWhatOneKeepsIsBounded(t *testing.T) {
	l := newVisits(Config{}.withDefaults(), 1000)
	for name, who := range map[string]func(i int) party{
		"client":  func(i int) party { return party{client: "a", owner: strconv.Itoa(i)} },
		"network": func(i int) party { return party{network: "a", owner: strconv.Itoa(i)} },
		"owner":   func(i int) party { return party{owner: "a", repo: strconv.Itoa(i)} },
		"repo":    func(int) party { return party{repo: "a"} },
	} {
		var err error
		var here []*guest
		for i := 0; err == nil; i++ {
			here = append(here, arrive(t, l, who(i)))
			err = here[i].keep(250)
		}
		require.ErrorIs(t, err, errBusy)
		require.Len(t, here, map[bool]int{true: 3, false: 4}[name == "client"], name)
		here[len(here)-1].depart()
		other := arrive(t, l, party{client: "b", network: "b", owner: "b", repo: "b"})
		require.NoError(t, other.keep(250), name)
		for _, g := range append(here[:len(here)-1], other) {
			require.NoError(t, g.ctx.Err())
			g.depart()
		}
	}
	require.Empty(t, l.of)
	big, small, new := arrive(t, l, party{owner: "a"}), arrive(t, l, party{owner: "b"}), arrive(t, l, party{owner: "c"})
	require.NoError(t, big.keep(600))
	require.NoError(t, small.keep(300))
	big.queue()
	small.queue()
	require.NoError(t, new.keep(200))
	require.ErrorIs(t, big.served(), errBusy)
	require.NoError(t, small.served())
	for _, g := range []*guest{big, small, new} {
		g.depart()
	}
	require.Empty(t, l.of)
	// Whose owner keeps as much, or who has a byte less than the part of each, stays.
	for _, c := range []struct {
		theirs, others, mine int64
		leaves               bool
	}{{498, 5, 498, false}, {499, 4, 498, true}, {334, 502, 165, true}, {333, 503, 165, true}, {332, 504, 165, false}} {
		theirs, others, mine := arrive(t, l, party{owner: "a"}), arrive(t, l, party{owner: "b"}), arrive(t, l, party{owner: "c"})
		require.NoError(t, theirs.keep(c.theirs))
		require.NoError(t, others.keep(c.others))
		theirs.queue()
		err := mine.keep(c.mine)
		require.Equal(t, c.leaves, theirs.served() != nil, "%v", c)
		require.Equal(t, c.leaves, err == nil, "%v", c)
		for _, g := range []*guest{theirs, others, mine} {
			g.depart()
		}
	}
}

// Those who wait for their turn leave for others when their owner, or repository, has more
// of the room than these: after who is slow, unless there are very many of them.
func TestManyWhoWaitForTheirTurnLeave(t *testing.T) {
	l := newVisits(Config{fixed: numbers{MaxReaders: 32}}.withDefaults(), 1000)
	var here []*guest
	come := func(n int, owner string) {
		for range n {
			g := arrive(t, l, party{owner: owner, repo: owner})
			g.queue()
			here = append(here, g)
		}
	}
	slow := arrive(t, l, party{owner: "slow"})
	synced := time.Now().Add(-time.Hour)
	require.NoError(t, slow.arm(slow.limit, synced, time.Now().Add(time.Hour)))
	come(5, "many")
	come(4, "some")
	come(1, "one")
	gone := func(who party, n int) (out []string) {
		l.mu.Lock()
		l.drop(obstacle{full: true}, n, func(v *visit, s sight) bool { return !s.queued || l.crowds(v.who, who) })
		l.mu.Unlock()
		for _, g := range append(here, slow) {
			if g.ctx.Err() != nil {
				out = append(out, g.who.owner)
			}
		}
		return out
	}
	require.Equal(t, []string{"many"}, gone(party{owner: "new"}, 1))
	for i, g := range here {
		if g.ctx.Err() != nil {
			g.depart()
			here = slices.Delete(here, i, i+1)
			break
		}
	}
	require.Equal(t, []string{"slow"}, gone(party{owner: "new"}, 1))
	require.Len(t, gone(party{owner: "new"}, 100), 9, "all but the one")
	for _, g := range append(here, slow) {
		g.depart()
	}
}

// Git began anew again and again when those who are slow took turns: who has as much waits
// for a while.
func TestStalledPlacesChangeHandsSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newVisits(Config{}.withDefaults(), 1000)
		p := newPlaces(4, 0, 4)
		rich, poor := party{owner: "rich", repo: "rich"}, party{owner: "poor", repo: "poor"}
		var held []*guest
		for range 3 {
			g := arrive(t, l, rich)
			g.moves(t, 1, l.settle)
			g.stall(true)
			_, ok := p.try(rich)
			require.True(t, ok)
			held = append(held, g)
		}
		_, ok := p.try(party{owner: "third", repo: "third"})
		require.True(t, ok)
		other := arrive(t, l, rich)
		other.moves(t, 0, l.settle) // it keeps no place
		gone := func() (n int) {
			for _, g := range held {
				if g.ctx.Err() != nil {
					n++
				}
			}
			return n
		}
		l.press(p, rich)
		require.Equal(t, 1, gone())
		l.press(p, poor)
		require.Equal(t, 1, gone(), "one is about to leave")
		for _, g := range held {
			if g.ctx.Err() != nil {
				g.depart()
			}
		}
		l.press(p, rich)
		require.Equal(t, 1, gone(), "it has as many")
		l.press(p, poor)
		require.Equal(t, 2, gone())
		require.NoError(t, other.ctx.Err())
		for _, g := range held {
			if g.ctx.Err() != nil {
				g.depart()
			}
		}
		time.Sleep(l.settle)
		l.press(p, rich)
		require.Equal(t, 3, gone())
		for _, g := range append(held, other) {
			g.end(nil)
		}
	})
}
