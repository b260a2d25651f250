package wstransport

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/internal/racetest"
)

const part = 2 << 20

// hold has a reader take its turn and keep it for a while.
func hold(t *testing.T, b *readBudget, host string, proven bool, d time.Duration) {
	r := &reader{host: host, proven: proven}
	if !assert.NoError(t, b.acquire(t.Context(), r)) {
		return
	}
	time.Sleep(d)
	b.read(r)
	b.release(part)
}

// Whoever came first had the budget first: relays that send as slowly as they may, one
// message after the other, kept others waiting for minutes.
func TestPromiseP37_ReadBudgetGoesRound(t *testing.T) {
	racetest.Amounts(t)
	synctest.Test(t, func(t *testing.T) {
		b := newReadBudget(7*part, part)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		for i := range 250 {
			go func() {
				for ctx.Err() == nil {
					hold(t, b, fmt.Sprint("slow", i), true, 2500*time.Millisecond)
				}
			}()
		}
		time.Sleep(10 * time.Minute)
		var worst time.Duration
		for range 20 {
			time.Sleep(30 * time.Second)
			began := time.Now()
			hold(t, b, "honest", true, 0)
			worst = max(worst, time.Since(began))
		}
		t.Logf("250 slow relays: a large message of another one waited for %s at most", worst)
		assert.LessOrEqual(t, worst, 3*time.Second)
		cancel()
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		assert.Equal(t, int64(7*part), b.left)
		assert.Empty(t, b.had, "nobody is short of anything")
	})
}

// Connections that nobody knows yet took all of the budget.
func TestUnprovenHostsLeaveHalf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newReadBudget(7*part, part)
		for i := range 10 {
			go hold(t, b, fmt.Sprint("new", i), false, time.Hour)
		}
		synctest.Wait()
		assert.Equal(t, int64(3*part), b.left)
		began := time.Now()
		hold(t, b, "known", true, 0)
		assert.Zero(t, time.Since(began))
		time.Sleep(4 * time.Hour)
		synctest.Wait()
		assert.Equal(t, int64(7*part), b.left)
	})
}

// Who gave up waiting, also at the moment when its turn came, left the budget smaller.
func TestGivingUpLeavesTheBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newReadBudget(part, part)
		go hold(t, b, "first", false, time.Second)
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		for i := range 20 {
			go func() {
				if r := (&reader{host: fmt.Sprint(i)}); b.acquire(ctx, r) == nil {
					b.read(r)
					b.release(part)
				}
			}()
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		assert.Equal(t, int64(part), b.left)
		assert.Empty(t, b.waiting)
		assert.Zero(t, b.holders)
	})
}

// A connection took 144 KiB before it asked for a part of the budget: 256 of them 36
// MiB that nobody had counted.
func TestPromiseP20_SmallUntilReserved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		b := newReadBudget(part, part)
		go hold(t, b, "other", true, time.Hour)
		synctest.Wait()
		c := &conn{t: &Transport{cfg: Config{fixed: constants{ReadLimit: part}}, reading: b}, ctx: ctx, signs: newSigns()}
		r := &endless{}
		_, err := c.readAll(r)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.LessOrEqual(t, r.read, keptBuffer)
		assert.LessOrEqual(t, r.largest, chunk)
		assert.Equal(t, time.Minute, c.Traffic().ReadWaited)
		time.Sleep(2 * time.Hour)
	})
}

type endless struct{ read, largest int }

// Read implements [io.Reader].
func (e *endless) Read(p []byte) (int, error) {
	e.read += len(p)
	e.largest = max(e.largest, len(p))
	return len(p), nil
}
