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

// What one event costs, in bytes, is rounded up, and no more than all there is.
func TestWhatAnEventCosts(t *testing.T) {
	for most, want := range map[int64]int64{0: 0, 1: 1, 2_000: 1, 2_001: 2, 4_000: 2, 4_001: 3, 8 << 20: 4_195} {
		assert.Equal(t, want, allowance.Forgery(most), most)
		for size, work := range map[int64]int64{0: want, want: want, want + 1: want + 1, most: max(most, want), most + 9: most} {
			assert.Equal(t, min(most, work), allowance.Work(most, size), "%d of %d", size, most)
		}
	}
}

// All of an allowance for work comes back in 200 s, at least a byte a minute.
func TestWorkComesBack(t *testing.T) {
	for most, minute := range map[int64]int64{1: 1, 6: 1, 7: 2, 2_000: 600, 8 << 20: 2_516_582} {
		b := allowance.NewWork(most)
		b.Owe(start, 10*most)
		assert.Equal(t, -9*most+minute, b.Left(start.Add(time.Minute)), most)
		assert.Equal(t, most, b.Most())
	}
}

// One waits as long as what is lacking takes to come back, in whole seconds since the last
// that counted.
func TestHowLongToWait(t *testing.T) {
	for _, c := range []struct {
		minute, n int64
		after     time.Duration
		want      time.Duration
	}{
		{60, 0, 0, 0}, {60, -1, 0, 0}, {60, 1, 0, time.Second}, {60, 7, 0, 7 * time.Second}, {60, 101, 0, 101 * time.Second},
		{7, 1, 0, 9 * time.Second}, {7, 7, 0, time.Minute}, {6_000, 1, 0, time.Second}, {6_000, 100, 0, time.Second},
		{60, 7, 2 * time.Second, 5 * time.Second}, {60, 7, 2500 * time.Millisecond, 4500 * time.Millisecond},
		{60, 7, 7*time.Second - 1, 1}, {60, 7, 7 * time.Second, 0}, {60, 7, time.Hour, 0},
	} {
		b := allowance.New(100, c.minute)
		assert.Zero(t, b.Take(start, 100))
		assert.Equal(t, c.want, b.Take(start.Add(c.after), c.n), "%+v", c)
		left := min(100, c.minute*int64(c.after/time.Second)/60)
		if c.want == 0 {
			left -= max(0, c.n)
		}
		assert.Equal(t, left, b.Left(start.Add(c.after)), "%+v: what is not there is not taken", c)
	}
	b := allowance.New(100, 7)
	assert.Equal(t, 10*time.Minute, b.Per(70))
	assert.Zero(t, b.Per(0))
	b.Owe(start, 30)
	b.Owe(start, -30)
	assert.EqualValues(t, 70, b.Left(start))
	b.Owe(start, 100)
	assert.EqualValues(t, -30, b.Left(start))
	assert.False(t, b.Spend(start, 1), "it is owed")
	assert.Zero(t, b.Left(start))
	var zero allowance.Bucket
	assert.True(t, zero.Spend(start, 0))
	assert.Zero(t, zero.Take(start, 0))
	assert.Zero(t, zero.Left(start))
}

// A bucket, whatever happens to it, is what it would be if each second were counted alone.
func TestBucketAgainstNaiveTwin(t *testing.T) {
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 1))
		most, second := 1+r.Int64N(1_000), 1+r.Int64N(20)
		b, now, counted, spent := allowance.New(most, 60*second), start, start, int64(0)
		for step := range 300 {
			now = now.Add(time.Duration(r.Int64N(int64(3 * time.Second))))
			if r.IntN(20) == 0 {
				now = now.Add(-time.Duration(r.Int64N(int64(time.Minute))))
			}
			if step == 0 || now.Before(counted) {
				counted = now
			}
			for ; !counted.Add(time.Second).After(now); counted = counted.Add(time.Second) {
				spent = max(0, spent-second)
			}
			n := r.Int64N(most+10) - 5
			left := most - spent
			switch r.IntN(5) {
			case 0:
				require.Equal(t, n <= 0 || n <= left, b.Spend(now, n))
				if n > 0 {
					spent += min(n, left)
				}
			case 1:
				wait := b.Take(now, n)
				if n <= left {
					require.Zero(t, wait)
					spent += max(0, n)
				} else {
					seconds := (n - left + second - 1) / second
					require.Equal(t, counted.Add(time.Duration(seconds)*time.Second).Sub(now), wait)
				}
			case 2:
				b.Owe(now, n)
				spent += max(0, n)
			case 3:
				b.Left(now)
				b.Earn(n)
				spent = max(0, spent-max(0, n))
			}
			require.Equal(t, most-spent, b.Left(now), "seed %d step %d", seed, step)
		}
	}
}
