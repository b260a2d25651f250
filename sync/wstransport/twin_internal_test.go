package wstransport

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Idle checks that nothing is held of the read budget, and nobody waits for it.
func (t *Transport) Idle(tb testing.TB) {
	tb.Helper()
	b := t.reading
	b.mu.Lock()
	defer b.mu.Unlock()
	assert.Equal(tb, t.cfg.ReadBudget, b.left, "what was taken is given back, once")
	assert.Zero(tb, b.holders)
	assert.Empty(tb, b.waiting)
}

// A connection keeps a buffer that has grown as much as its messages needed, none of a
// large one, and holds of the budget what a large message takes until it has gone its way.
func TestWhatAConnectionKeeps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const total = 7 * part
		b := newReadBudget(total, part)
		c := &conn{t: &Transport{cfg: Config{fixed: constants{ReadLimit: part, PingTimeout: time.Minute}}, reading: b}, ctx: t.Context(), signs: newSigns()}
		kept := 4 << 10
		for _, size := range []int{
			0, 100, 4<<10 - 1, 4 << 10, 10_000, 1 << 20, 50, 64 << 10, 64<<10 - 1, 64<<10 + 1, 3, part, part - 1,
		} {
			heard := c.signs.heard.Load()
			text := strings.Repeat("x", size)
			data, err := c.readAll(strings.NewReader(text))
			require.NoError(t, err)
			require.Equal(t, text, string(data))
			held := int64(0)
			if size >= 64<<10 {
				held = int64(size)
			} else {
				for kept <= size { // there is room left, else it would not be known to have ended
					kept *= 2
				}
			}
			assert.Equal(t, kept, cap(c.in), "after %d bytes", size)
			assert.Equal(t, held, c.held)
			assert.Equal(t, total-held, b.left)
			assert.Equal(t, size > 0, c.signs.heard.Load() > heard, "a sign of life")
			assert.Zero(t, c.Traffic().ReadWaited)
			assert.False(t, c.parked.Load())
			c.giveBack(0)
			assert.Equal(t, int64(total), b.left)
			assert.Zero(t, b.holders)
		}
	})
}

// naiveBudget says who is to have a part, by the definition.
type naiveBudget struct {
	parts, left  int64
	waits, holds []*naiveReader
	had          map[string]time.Duration
	aged         time.Time
}

type naiveReader struct {
	r      *reader
	cancel context.CancelFunc
	ended  chan error
	since  time.Time
}

func (n *naiveBudget) serve() {
	if now := time.Now(); now.Sub(n.aged) >= time.Minute {
		n.aged = now
		for host := range n.had {
			if n.had[host] /= 2; n.had[host] < time.Millisecond {
				delete(n.had, host)
			}
		}
	}
	for {
		var best *naiveReader
		for _, w := range n.waits {
			can := n.left >= 1 && (w.r.proven || n.left-1 >= n.parts/2)
			if can && (best == nil || n.had[w.r.host] < n.had[best.r.host]) {
				best = w
			}
		}
		if best == nil {
			return
		}
		n.waits = without(n.waits, best)
		n.holds = append(n.holds, best)
		best.since = time.Now()
		n.left--
	}
}

func without(list []*naiveReader, r *naiveReader) (out []*naiveReader) {
	for _, x := range list {
		if x != r {
			out = append(out, x)
		}
	}
	return out
}

// Whoever comes, waits, gives up and reads in whatever order: who has a part is as it would
// be by going through all of them.
func TestReadBudgetAgainstItsTwin(t *testing.T) {
	for seed := range uint64(100) {
		synctest.Test(t, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 2))
			parts := 1 + rnd.Int64N(7)
			b := newReadBudget(parts*part+rnd.Int64N(part), part)
			rest := b.left - parts*part
			n := &naiveBudget{parts: parts, left: parts, had: make(map[string]time.Duration)}
			for range 80 {
				time.Sleep(time.Duration(rnd.Int64N(int64(20 * time.Second))))
				switch k := rnd.IntN(5); {
				case k < 2 || len(n.waits)+len(n.holds) == 0:
					ctx, cancel := context.WithCancel(t.Context())
					w := &naiveReader{
						r:      &reader{host: fmt.Sprint(rnd.IntN(4)), proven: rnd.IntN(2) == 0},
						cancel: cancel, ended: make(chan error, 1),
					}
					go func() { w.ended <- b.acquire(ctx, w.r) }()
					n.waits = append(n.waits, w)
					n.serve()
				case k == 2 && len(n.waits) > 0: // gives up
					w := n.waits[rnd.IntN(len(n.waits))]
					n.waits = without(n.waits, w)
					w.cancel()
					synctest.Wait()
					require.ErrorIs(t, <-w.ended, context.Canceled)
					n.serve()
				case len(n.holds) > 0:
					w := n.holds[rnd.IntN(len(n.holds))]
					n.holds = without(n.holds, w)
					b.read(w.r)
					n.had[w.r.host] += time.Since(w.since)
					if len(n.holds) == 0 && len(n.waits) == 0 {
						clear(n.had) // nobody is short of anything
					}
					b.release(part)
					n.left++
					n.serve()
					w.cancel()
				}
				synctest.Wait()
				require.Equal(t, n.left*part+rest, b.left)
				require.Equal(t, len(n.holds), b.holders)
				require.Len(t, b.waiting, len(n.waits))
				require.Equal(t, n.had, b.had)
				require.Equal(t, len(n.waits) > 0, b.contended())
				for _, w := range n.waits {
					require.Contains(t, b.waiting, w.r)
				}
				for _, w := range n.holds {
					select {
					case <-w.r.turn:
					default:
						require.Fail(t, "it has its part")
					}
				}
			}
			for _, w := range append(n.holds, n.waits...) {
				w.cancel()
			}
			synctest.Wait()
		})
	}
}

// How long hosts have held parts is kept of 10,000 of them, and of none beyond.
func TestHostsOfTheReadBudgetAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newReadBudget(4*part, part)
		go hold(t, b, "holds", true, time.Second)
		synctest.Wait()
		b.mu.Lock()
		for i := range 9_999 {
			b.had[fmt.Sprint(i)] = time.Second
		}
		b.mu.Unlock()
		known := func() int {
			b.mu.Lock()
			defer b.mu.Unlock()
			return len(b.had)
		}
		hold(t, b, "the last", true, 0)
		assert.Equal(t, 10_000, known())
		hold(t, b, "one more", true, 0)
		assert.Zero(t, known())
		time.Sleep(time.Hour)
	})
}

// A message must come at the least rate while others wait, after a grace; a piece of it
// within PingTimeout; and all of it in two minutes.
func TestProgressOfALargeMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newReadBudget(part, part)
		p := &progress{c: &conn{t: &Transport{cfg: Config{fixed: constants{PingTimeout: 30 * time.Second}}, reading: b}}}
		at := func(held time.Duration, got int64, sinceChunk time.Duration) bool {
			p.began = time.Now()
			p.chunks, p.last = got, p.began.Add(held-sinceChunk)
			p.got.Store(got)
			return p.stalls(p.began.Add(held))
		}
		for _, others := range []bool{false, true} {
			if others {
				go hold(t, b, "holds", true, time.Hour)
				go hold(t, b, "waits", true, time.Hour)
				synctest.Wait()
			}
			assert.False(t, at(2*time.Second, 0, 0), "in its grace")
			assert.Equal(t, others, at(2*time.Second+1, 0, 0))
			assert.False(t, at(12*time.Second, 640<<10, 0), "as slow as it may be")
			assert.Equal(t, others, at(12*time.Second, 640<<10-1, 0))
			assert.False(t, at(40*time.Second, 4<<20, 30*time.Second-1))
			assert.True(t, at(40*time.Second, 4<<20, 30*time.Second))
			assert.False(t, at(2*time.Minute-1, 16<<20, 0))
			assert.True(t, at(2*time.Minute, 16<<20, 0))
		}
		// A piece of 16 KiB is a sign that it goes on, less is none.
		for more, stalls := range map[int64]bool{16 << 10: false, 16<<10 - 1: true} {
			p.began = time.Now()
			p.chunks, p.last = 4<<20, p.began
			p.got.Store(4<<20 + more)
			assert.Equal(t, stalls, p.stalls(p.began.Add(30*time.Second)))
		}
		assert.Equal(t, 500*time.Millisecond, p.every())
		p.c.t.cfg.fixed.PingTimeout = time.Second
		assert.Equal(t, 250*time.Millisecond+1, p.every())
		time.Sleep(3 * time.Hour)
	})
}

// How long a relay was not read from counts while it is not, and after.
func TestWaitsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w waits
		var want time.Duration
		for range 3 {
			assert.Equal(t, want, w.sum())
			stop := w.during()
			time.Sleep(time.Second)
			assert.Equal(t, want+time.Second, w.sum())
			time.Sleep(time.Second)
			stop()
			want += 2 * time.Second
			time.Sleep(time.Minute)
		}
	})
}
