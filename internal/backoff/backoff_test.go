package backoff

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var start = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

// standard returns the default rules.
func standard() Rules {
	return Rules{Base: Base, Max: Max, DeadAfter: DeadAfter, RestartPause: RestartPause}
}

func TestDoubled(t *testing.T) {
	for n, want := range map[int]time.Duration{0: 3, 1: 3, 2: 6, 3: 12, 4: 20, 99: 20} {
		assert.Equal(t, want, Doubled(3, 20, n), "n=%d", n)
	}
	assert.EqualValues(t, 2, Doubled(3, 2, 1))
	assert.Equal(t, MaxDuration, Doubled(MaxDuration-1, MaxDuration, 1<<30), "no overflow")
}

// A target that fails for a day is tried once a day, unless DeadAfter is 0.
func TestRecordUntilItIsDead(t *testing.T) {
	for _, deadAfter := range []time.Duration{DeadAfter, 0} {
		rules, r, now := standard(), Record{}, start
		rules.DeadAfter = deadAfter
		var waits []time.Duration
		for range 60 {
			r = rules.Begin(r, now)
			r = rules.Fail(r, now, 0)
			waits = append(waits, r.NextAttempt.Sub(now))
			now = r.NextAttempt
		}
		assert.Equal(t, []time.Duration{5 * time.Second, 10 * time.Second, 20 * time.Second}, waits[:3])
		assert.Equal(t, time.Hour, waits[20])
		assert.Equal(t, deadAfter != 0, rules.Dead(r))
		want := time.Hour
		if deadAfter != 0 {
			want = DeadInterval
		}
		assert.Equal(t, want, waits[59])
		assert.LessOrEqual(t, want, rules.LongestWait(r))
	}
}

// Time without attempts does not count toward death.
func TestIdleTimeIsNoFailure(t *testing.T) {
	rules := standard()
	r := rules.Fail(rules.Begin(Record{}, start), start, 0)
	for idle, moved := range map[time.Duration]time.Duration{time.Hour: 0, time.Hour + 1: time.Hour + 1} {
		got := rules.Begin(r, r.NextAttempt.Add(idle))
		assert.Equal(t, start.Add(moved), got.FailingSince)
	}
}

// A failure never moves the next attempt to an earlier time, and jitter only extends waits.
func TestDelayNextNeverShortens(t *testing.T) {
	rules := standard()
	far := Record{NextAttempt: start.Add(2 * time.Hour)}
	assert.Equal(t, far.NextAttempt, rules.Fail(far, start, 0.5).NextAttempt)
	assert.Equal(t, Base+Base/20, rules.Wait(1, 0.5))
}

func TestSanitize(t *testing.T) {
	wrong := Record{
		Failures: -1, FailingSince: start.Add(1), LastFailure: time.Unix(-1, 0), LastAttempt: start.Add(MaxDuration), NextAttempt: time.Unix(-9, 0),
	}
	assert.Equal(t, Record{FailingSince: start, LastAttempt: start}, wrong.Sanitize(start))
	right := Record{Failures: 3, FailingSince: start.Add(-3), LastFailure: start.Add(-2), LastAttempt: start.Add(-1), NextAttempt: start.Add(1)}
	assert.Equal(t, right, right.Sanitize(start))

	rules := standard()
	assert.Equal(t, right.LastAttempt.Add(RestartPause), rules.Restart(right, 0).NextAttempt)
	assert.Zero(t, rules.Restart(Record{}, 0), "what was never attempted owes no pause")
}

func TestStreak(t *testing.T) {
	var s Streak
	require.False(t, s.Waits(start))
	for i, want := range []time.Duration{1, 2, 4, 5, 5} {
		s.Fail(start, 1, 5)
		require.Equal(t, Streak{i + 1, start.Add(want)}, s)
	}
	assert.True(t, s.Waits(start.Add(4)))
	assert.False(t, s.Waits(start.Add(5)))
	assert.Equal(t, Streak{5, start.Add(3)}, s.Restored(start, 3), "the clock was set back")
	assert.Equal(t, Streak{}, Streak{Times: -1}.Restored(start, 3))
}
