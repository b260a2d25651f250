package health

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

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
