package gitfetch

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os/exec"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
)

// Of so many places walks leave one, and those that may take long three quarters; who has the
// fewest gets the next one, and of them who came first.
func TestPlaces(t *testing.T) {
	for most := 1; most <= 9; most++ {
		for _, c := range []struct {
			walk, long bool
			want       int
		}{{false, false, most}, {true, false, max(1, most-1)}, {true, true, max(1, most/4)}} {
			s := newSlots(most)
			for i := range 20 {
				s.waiting = append(s.waiting, &waiter{owner: fmt.Sprint(i), walk: c.walk, long: c.long, given: make(chan struct{})})
			}
			s.next()
			require.Equal(t, c.want, s.len(), "%d places: %+v", most, c)
		}
	}
	rng := rand.New(rand.NewPCG(1, 1))
	for range 300 {
		s := newSlots(1 + rng.IntN(8))
		var waiting, running []*waiter
		for range 60 {
			if n := len(running); n > 0 && rng.IntN(3) == 0 {
				i := rng.IntN(n)
				w := running[i]
				running = slices.Delete(running, i, i+1)
				s.release(w)
			} else {
				walk := rng.IntN(2) == 0
				w := &waiter{owner: fmt.Sprint(rng.IntN(4)), walk: walk, long: walk && rng.IntN(2) == 0, given: make(chan struct{})}
				waiting, s.waiting = append(waiting, w), append(s.waiting, w)
				s.next()
			}
			for len(running) < s.most { // what should have happened
				count := func(of func(w *waiter) bool) (n int) {
					for _, w := range running {
						if of(w) {
							n++
						}
					}
					return n
				}
				walks, long := count(func(w *waiter) bool { return w.walk }), count(func(w *waiter) bool { return w.long })
				best, fewest := -1, 0
				for i, w := range waiting {
					has := count(func(o *waiter) bool { return o.owner == w.owner })
					may := (!w.walk || walks < max(1, s.most-1)) && (!w.long || long < max(1, s.most/4))
					if may && (best < 0 || has < fewest) {
						best, fewest = i, has
					}
				}
				if best < 0 {
					break
				}
				running = append(running, waiting[best])
				waiting = slices.Delete(waiting, best, best+1)
			}
			for _, w := range running {
				select {
				case <-w.given:
				default:
					require.Fail(t, "a place is not given")
				}
			}
			require.Equal(t, len(running), s.len())
			require.Equal(t, waiting, append([]*waiter{}, s.waiting...))
		}
	}
}

// Who waits too long for a place gives up, and one that is given at that moment goes to the
// next: nobody keeps it.
func TestWhoGivesUpKeepsNoPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlots(1)
		first, err := s.acquire(t.Context(), "/a/r.git", true)
		require.NoError(t, err)
		boom := errors.New("boom")
		ctx, cancel := context.WithCancelCause(t.Context())
		gave := make(chan error, 1)
		go func() {
			_, err := s.acquire(ctx, "/b/r.git", true)
			gave <- err
		}()
		synctest.Wait()
		cancel(boom)
		err = <-gave
		require.ErrorIs(t, err, boom)
		require.ErrorIs(t, err, purgatory.ErrCrowded)
		require.Empty(t, s.waiting)
		require.Equal(t, 1, s.len())
		first()
		require.Equal(t, []int{0, 0, 0, 0}, []int{s.running, s.walks, s.long, len(s.busy)})
		release, err := acquire(t.Context(), make(chan struct{}, 1))
		require.NoError(t, err)
		release()
		_, err = acquire(ctx, make(chan struct{}))
		require.ErrorIs(t, err, boom)
	})
}

// A clock that bounds a server's time stands still when it is told to, and says how long it
// took in all.
func TestClockStandsStill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var rang []time.Duration
		more := []time.Duration{5 * time.Second, 0}
		c := newClock(10*time.Second, func(took time.Duration) time.Duration {
			rang = append(rang, took, time.Since(began))
			next := more[0]
			more = more[1:]
			return next
		})
		said := func() []time.Duration {
			c.mu.Lock() // with which it is called
			defer c.mu.Unlock()
			return slices.Clone(rang)
		}
		time.Sleep(time.Hour) // it was not begun
		c.stop()
		c.run()
		time.Sleep(4 * time.Second)
		c.stop()
		time.Sleep(time.Hour)
		c.run()
		time.Sleep(6*time.Second - 1)
		synctest.Wait()
		require.Empty(t, said())
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		require.Equal(t, []time.Duration{10 * time.Second, 2*time.Hour + 10*time.Second}, said())
		time.Sleep(2 * time.Second)
		c.stop()
		time.Sleep(time.Hour)
		c.run()
		time.Sleep(3 * time.Second)
		synctest.Wait()
		require.Equal(t, []time.Duration{15 * time.Second, 3*time.Hour + 15*time.Second}, said()[2:])
		time.Sleep(time.Hour)
		c.stop()
		c.run()
		c.end()
		c.ring()
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Len(t, said(), 4, "that was all of it")
	})
}

// A server that sends nothing is ended at the first look after a whole window, and the disk is
// looked at each second.
func TestWhenAServerIsLookedAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var looks []time.Duration
		began := time.Now()
		r := &receiver{cfg: Config{fixed: constants{RateWindow: time.Minute}, MinFreeDisk: 10}.withDefaults(), disk: &storage{least: 10}}
		free := uint64(10)
		r.disk.free = func(string) (uint64, error) {
			looks = append(looks, time.Since(began))
			return free, nil
		}
		ctx, end := context.WithCancelCause(t.Context())
		m := &meter{}
		m.Begin()
		stop := r.watch(ctx, end, m, "")
		<-ctx.Done()
		stop()
		require.ErrorIs(t, context.Cause(ctx), ErrSlow)
		require.ErrorContains(t, context.Cause(ctx), "0 bytes in 1m0s")
		require.Equal(t, 70*time.Second, time.Since(began))
		require.InDelta(t, 70, len(looks), 1)
		require.Equal(t, []time.Duration{time.Second, 2 * time.Second}, looks[:2])

		began, free = time.Now(), 9
		ctx, end = context.WithCancelCause(t.Context())
		stop = r.watch(ctx, end, &meter{}, "")
		<-ctx.Done()
		stop()
		require.ErrorIs(t, context.Cause(ctx), ErrDisk)
		require.Equal(t, time.Second, time.Since(began))
	})
}

// A fetch has more time if there is a second of it at least, by what has come.
func TestMoreTimeIsASecondAtLeast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for bytes, more := range map[int]time.Duration{64<<10 - 1: 0, 64 << 10: time.Second, 128 << 10: 2 * time.Second} {
			r := &receiver{cfg: Config{}.withDefaults(), long: make(chan struct{}, 1)}
			ctx, end := context.WithCancelCause(t.Context())
			m := &meter{}
			done := r.allow(m, end)
			m.Came(bytes)
			began := time.Now()
			m.clock.run()
			<-ctx.Done()
			require.Equal(t, 10*time.Minute+more, time.Since(began))
			var over *LimitError
			require.ErrorAs(t, context.Cause(ctx), &over)
			require.Equal(t, LimitError{Limit: "seconds", Most: int64((10*time.Minute + more) / time.Second)}, *over)
			require.Equal(t, more > 0, len(r.long) == 1)
			done()
			require.Empty(t, r.long)
		}
	})
	d := Config{}.withDefaults()
	require.Equal(t, 10*time.Minute+65536*time.Second, d.earned(d.MaxPackBytes))
}

// What a repository has of the parts of another one is told to servers: the last 64 of each of
// 256, and to add to one pushes none out.
func TestPartsThatAreRemembered(t *testing.T) {
	p := newParts()
	var ids []nip34.ObjectID
	for i := range 70 {
		ids = append(ids, oid(t, fmt.Sprintf("%040x", i+1)))
	}
	for n := 1; n < len(ids); n++ {
		p.took("a", ids[n-1:n], "")
		require.Equal(t, ids[max(0, n-64):n], p.promoted("a"))
	}
	for i := range 255 {
		p.took(fmt.Sprint(i), ids[:1], "")
	}
	p.took("a", ids[:1], "")
	p.took("0", ids[:1], "")
	require.Len(t, p.of, 256)
	p.letGo("a")
	require.Empty(t, p.promoted("a"))
	require.Len(t, p.of, 255)
	p.took("b", ids[:1], "")
	p.took("c", ids[:1], "")
	require.Len(t, p.of, 256)
	require.NotEmpty(t, p.promoted("c"))
}

// What an address has sent counts for a day from its first byte, to the nanosecond.
func TestAddressDay(t *testing.T) {
	s := &addresses{most: 100}
	a, began := netip.MustParseAddr("192.0.2.1"), time.Unix(1_700_000_000, 0)
	s.add(a, 99, began)
	require.NoError(t, s.check(a, began))
	s.add(a, 1, began.Add(24*time.Hour-1))
	require.Error(t, s.check(a, began.Add(24*time.Hour-1)))
	var over *LimitError
	require.ErrorAs(t, s.check(a, began), &over)
	require.Equal(t, LimitError{Limit: "bytes of one address a day", Most: 100}, *over)
	require.NoError(t, s.check(a, began.Add(24*time.Hour)))
	s.add(a, 7, began.Add(24*time.Hour))
	require.Equal(t, addressDay{began.Add(24 * time.Hour), 7}, *s.spent[group(a)])
	for _, c := range [][2]string{
		{"192.0.2.1", "192.0.2.1/32"}, {"::ffff:192.0.2.1", "192.0.2.1/32"}, {"2001:db8:1:2:3::4", "2001:db8:1:2::/64"},
		{"fe80::1%eth0", "fe80::/64"},
	} {
		require.Equal(t, c[1], group(netip.MustParseAddr(c[0])).String())
	}
}

// What a child complains about is kept up to a bound.
func TestComplaintsAreBounded(t *testing.T) {
	f := fetcher(t, Config{})
	for _, n := range []int{4095, 4096, 4097} {
		f.git.started = func(cmd *exec.Cmd) {
			cmd.Path, cmd.Args = "/bin/sh", []string{"sh", "-c", fmt.Sprintf("head -c %d /dev/zero >&2; exit 1", n)}
		}
		_, err := f.git.run(t.Context(), child{dir: t.TempDir(), args: []string{"x"}})
		var failed *childError
		require.ErrorAs(t, err, &failed)
		require.Len(t, failed.stderr, min(n, 4096))
	}
}
