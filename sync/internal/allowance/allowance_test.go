package allowance_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/sync/internal/allowance"
)

const refill = 64 << 10 // a minute

var start = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

func TestBucket(t *testing.T) {
	b := allowance.New(1<<20, refill)
	assert.True(t, b.Spend(start, 1<<20))
	assert.False(t, b.Spend(start, 1))
	assert.True(t, b.Spend(start, 0))
	assert.True(t, b.Spend(start, -5), "nothing is earned so")
	assert.Zero(t, b.Left(start))
	assert.EqualValues(t, 64<<10, b.Left(start.Add(time.Minute)))
	assert.EqualValues(t, 64<<10, b.Left(start), "the clock was set back")
	assert.EqualValues(t, 1<<20, b.Left(start.Add(24*time.Hour)), "not more than full")
	assert.False(t, b.Spend(start.Add(24*time.Hour), 2<<20))
	b.Earn(100)
	b.Earn(-100)
	assert.EqualValues(t, 100, b.Left(start.Add(24*time.Hour)))
	b.Earn(1 << 40)
	assert.EqualValues(t, 1<<20, b.Left(start.Add(24*time.Hour)))
	var zero allowance.Bucket
	assert.False(t, zero.Spend(start, 1))
}

func TestPromiseP22_Verifications(t *testing.T) {
	const most = 8 << 20
	b, n := allowance.New(most, refill), 0
	for b.Spend(start, allowance.Forgery(most)) {
		n++
	}
	assert.LessOrEqual(t, n, 2000)
	assert.Greater(t, n, 1990)
}

// What was asked for and is of no use is looked at 2,000 times at once, or 8 MiB of it,
// and then ten times a second.
func TestPromiseP22_Work(t *testing.T) {
	const most = 8 << 20
	for size, atOnce := range map[int64]int{1: 2_000, 4_000: 2_000, 84_000: 100, 100 << 20: 1} {
		b, n, now := allowance.NewWork(most), 0, start
		for {
			wait := b.Take(now, allowance.Work(most, size))
			if wait == 0 {
				n++
				continue
			}
			if n >= atOnce-1 && now.Sub(start) >= 1000*time.Second {
				break
			}
			if now.Equal(start) {
				assert.InDelta(t, atOnce, n, 1, "at once")
			}
			require.LessOrEqual(t, wait, 201*time.Second)
			now = now.Add(wait)
		}
		assert.InDelta(t, 6*atOnce, n, float64(atOnce)/10+1, "in 1,000 s more")
	}
	b := allowance.NewWork(most)
	assert.Zero(t, b.Take(start, most))
	assert.Equal(t, time.Second, b.Take(start, 1))
	b.Earn(1)
	assert.Zero(t, b.Take(start, 1))
}

// Over any time no more is spent than the bucket, its refill and what was earned.
func TestBucketNeverGivesMore(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 0))
		const most = 1 << 20
		b, now := allowance.New(most, refill), start
		var spent, earned int64
		for range 1000 {
			now = now.Add(time.Duration(r.Int64N(int64(3 * time.Second))))
			n := r.Int64N(50_000)
			if r.IntN(4) == 0 {
				n /= 10
				b.Earn(n)
				earned += n
			} else if b.Spend(now, n) {
				spent += n
			}
			minutes := now.Sub(start).Minutes()
			require.LessOrEqual(t, spent, most+earned+int64(minutes*refill)+1, "seed %d", seed)
			require.GreaterOrEqual(t, b.Left(now), int64(0))
			require.LessOrEqual(t, b.Left(now), int64(most))
		}
	}
}
