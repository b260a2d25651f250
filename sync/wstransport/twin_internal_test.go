package wstransport

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/limit"
)

// Idle checks that nothing is held of the read budget, and nobody waits for it.
func (t *Transport) Idle(tb testing.TB) {
	tb.Helper()
	used, waiting := t.reading.Stats()
	assert.Zero(tb, used, "each part is returned once")
	assert.Zero(tb, waiting)
}

// A connection keeps a buffer that has grown as much as its messages needed, none of a
// large one, and holds of the budget what a large message takes until it has gone its way.
func TestWhatAConnectionKeeps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := limit.NewSlots(7*part, part)
		used := func() int64 {
			used, _ := b.Stats()
			return used
		}
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
			assert.Equal(t, held, used())
			assert.Equal(t, size > 0, c.signs.heard.Load() > heard, "a sign of life")
			assert.Zero(t, c.Traffic().ReadWaited)
			assert.False(t, c.parked.Load())
			c.giveBack(0)
			assert.Zero(t, used())
		}
	})
}

// A message must come at the least rate while others wait, after a grace; a piece of it
// within PingTimeout; and all of it in two minutes.
func TestProgressOfALargeMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := limit.NewSlots(part, part)
		slot := b.TryAcquire(limit.Stranger{ID: "holds"}, part)
		p := &progress{c: &conn{t: &Transport{cfg: Config{fixed: constants{PingTimeout: 30 * time.Second}}, reading: b}}, slot: slot}
		at := func(held time.Duration, got int64, sinceChunk time.Duration) bool {
			p.began = time.Now()
			p.chunks, p.last = got, p.began.Add(held-sinceChunk)
			p.got.Store(got)
			return p.stalls(p.began.Add(held))
		}
		for _, others := range []bool{false, true} {
			if others {
				go func() {
					if slot, err := b.Acquire(t.Context(), limit.Stranger{ID: "waits"}, part); err == nil {
						slot.Release()
					}
				}()
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
		slot.Release()
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
