package health

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/internal/racetest"
)

// P14: for any random values, a host that never answers gets at most 36 attempts on the first day,
// and one per day when dead.
func TestPromiseP14_AttemptsAtAHostThatNeverAnswers(t *testing.T) {
	racetest.Amounts(t)
	c := Config{}.withDefaults()
	for _, jitter := range []float64{0, 0.3, 0.999999} {
		p := player{config: c, jitter: jitter}
		first, _ := p.failUntil(start, start.Add(24*time.Hour))
		assert.LessOrEqual(t, first, 36, "jitter %v", jitter)
		assert.GreaterOrEqual(t, first, 30, "and is not given up either")
		p.failUntil(start.Add(24*time.Hour), start.Add(48*time.Hour))
		week, _ := p.failUntil(start.Add(48*time.Hour), start.Add(9*24*time.Hour))
		assert.LessOrEqual(t, week, 7)
		assert.GreaterOrEqual(t, week, 6)
	}
}

// P15: a process in a crash loop, caused by the relay, dials the relay no more often than a healthy
// process.
func TestPromiseP15_CrashLoop(t *testing.T) {
	for _, crash := range []string{"while dialing", "once connected"} {
		t.Run(crash, func(t *testing.T) {
			p := player{config: Config{}.withDefaults()}
			dials := 0
			var last time.Time
			for now := start; now.Sub(start) < 24*time.Hour; now = now.Add(10 * time.Second) { // the supervisor restarts it
				p.record = p.config.restore(p.record, now, 0)
				if now.Before(p.record.next()) {
					continue // no dial in this process
				}
				if !last.IsZero() {
					require.GreaterOrEqual(t, now.Sub(last), time.Minute, "one dial a minute at most")
				}
				last = now
				dials++
				p.record = p.config.step(p.record, event{kind: attempt}, now, 0)
				if crash == "once connected" {
					p.record = p.config.step(p.record, event{kind: connected}, now, 0)
				}
				p.saved = nil
				require.NoError(t, p.restart(now.Add(time.Second)))
			}
			assert.LessOrEqual(t, dials, 36)
			assert.GreaterOrEqual(t, dials, 20)
		})
	}
}

// P19: every backoff is extended randomly by up to 10 %.
func TestPromiseP19_BackoffIsLengthenedAtRandom(t *testing.T) {
	c := Config{}.withDefaults()
	rng := rand.New(rand.NewPCG(3, 4))
	var sum float64
	const n = 10_000
	for range n {
		r := c.step(Record{}, event{kind: failed}, start, rng.Float64())
		share := float64(r.NextAttempt.Sub(start))/float64(5*time.Second) - 1
		require.True(t, share >= 0 && share < 0.1, share)
		sum += share
	}
	assert.InDelta(t, 0.05, sum/n, 0.002)
}
