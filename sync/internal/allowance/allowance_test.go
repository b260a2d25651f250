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
	assert.EqualValues(t, 1, allowance.Foreign(1))
	assert.EqualValues(t, 125, allowance.Foreign(1000))
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
