package health

import (
	"encoding/json"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/internal/backoff"
	"github.com/graspsync/graspsync/internal/racetest"
)

func TestBackoff(t *testing.T) {
	c := Config{}.withDefaults()
	for n, want := range map[int]time.Duration{
		1: 5 * time.Second, 2: 10 * time.Second, 3: 20 * time.Second, 4: 40 * time.Second,
		5: 80 * time.Second, 6: 160 * time.Second, 7: 320 * time.Second, 8: 640 * time.Second,
		9: 1280 * time.Second, 10: 2560 * time.Second, 11: time.Hour, 12: time.Hour,
		63: time.Hour, 64: time.Hour, 65: time.Hour, 1 << 30: time.Hour,
	} {
		assert.Equal(t, want, c.rules().Wait(n, 0), "n=%d", n)
		assert.Equal(t, want+want/20, c.rules().Wait(n, 0.5), "n=%d, half the jitter", n)
		assert.Less(t, c.rules().Wait(n, 0.999999), want+want/10, "n=%d", n)
	}
	odd := Config{BaseBackoff: 7 * time.Second, fixed: constants{MaxBackoff: 7 * time.Second}}.withDefaults()
	assert.Equal(t, 7*time.Second, odd.rules().Wait(1, 0))
	assert.Equal(t, 7*time.Second, odd.rules().Wait(9, 0))
	wide := Config{BaseBackoff: backoff.Longest, fixed: constants{MaxBackoff: backoff.Longest, DeadInterval: backoff.Longest, Jitter: 1}}.withDefaults()
	assert.Equal(t, 2*backoff.Longest-1, wide.rules().Wait(99, 1)-1, "no overflow")
}

// run applies events at their times and returns the last record.
func run(c Config, events ...any) Record {
	var r Record
	for i := 0; i < len(events); i += 2 {
		r = c.step(r, event{kind: events[i+1].(kind)}, start.Add(events[i].(time.Duration)), 0)
	}
	return r
}

func TestState(t *testing.T) {
	const s, m, h = time.Second, time.Minute, time.Hour
	c := Config{}.withDefaults()
	for _, tc := range []struct {
		name   string
		events []any
		at     time.Duration
		want   State
	}{
		{"never tried", nil, 0, Disconnected},
		{"first dial under way", []any{0 * s, attempt}, 5 * s, Disconnected},
		{"first dial failed", []any{0 * s, attempt, s, failed}, 2 * s, Degraded},
		{"connected", []any{0 * s, attempt, s, connected}, s, Healthy},
		{"connected after a failure", []any{0 * s, failed, s, connected}, s, Degraded},
		{"the same, held for a minute", []any{0 * s, failed, s, connected}, 61 * s, Degraded},
		{"just under 5 minutes", []any{0 * s, failed, s, connected}, 5*m + s - 1, Degraded},
		{"5 minutes", []any{0 * s, failed, s, connected}, 5*m + s, Healthy},
		{"held, lost", []any{0 * s, connected, m, lost}, 2 * m, Disconnected},
		{"not held, lost", []any{0 * s, connected, m - 1, lost}, 2 * m, Degraded},
		{"failing for just under a day", []any{0 * s, failed, 24*h - 1, failed}, 48 * h, Degraded},
		{"failing at long intervals, as nobody tried", []any{0 * s, failed, 30 * m, failed, 24 * h, failed}, 24 * h, Degraded},
		{"closed by us", []any{0 * s, connected, s, closed}, 2 * s, Disconnected},
		{"hostile", []any{0 * s, connected, m, hostile}, 2 * m, Degraded},
		{"rate limited", []any{0 * s, connected, s, rateLimited}, 66*s - 1, RateLimited},
		{"no longer", []any{0 * s, connected, s, rateLimited}, 66 * s, Healthy},
		{"rate limited, degraded", []any{0 * s, failed, s, connected, s, rateLimited}, 2 * s, RateLimited},
		{"rate limited, then lost after a minute", []any{0 * s, connected, m, rateLimited, m, lost}, 2 * m, RateLimited},
		{"rate limited, failing", []any{0 * s, connected, s, rateLimited, 2 * s, lost}, 3 * s, Degraded},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := run(c, tc.events...)
			assert.Equal(t, tc.want, c.status(r, start.Add(tc.at)).State)
		})
	}
}

// A relay is degraded until its connection has held, even if DegradedFor is shorter than HeldFor,
// because its failures still count.
func TestDegradedUntilHeld(t *testing.T) {
	c := Config{fixed: constants{DegradedFor: time.Second}}.withDefaults()
	r := run(c, time.Duration(0), failed, time.Second, connected)
	assert.Equal(t, Degraded, c.status(r, start.Add(time.Minute)).State)
	assert.Equal(t, Healthy, c.status(r, start.Add(time.Minute+time.Second)).State)
}

// A relay is dead only after observed failures without a long pause. testdata/downtime.txt contains
// the opposite.
func TestDeadExactlyAfterADay(t *testing.T) {
	c := Config{}.withDefaults()
	fails := func(last time.Duration) Record {
		r := run(c, time.Duration(0), failed)
		for at := 30 * time.Minute; at < 24*time.Hour; at += 30 * time.Minute {
			r = c.step(r, event{kind: failed}, start.Add(at), 0)
		}
		return c.step(r, event{kind: failed}, start.Add(last), 0)
	}
	r := fails(24*time.Hour - 1)
	assert.Equal(t, Degraded, c.status(r, start.Add(90*time.Hour)).State)
	assert.Equal(t, time.Hour, r.NextAttempt.Sub(r.LastFailure))
	r = fails(24 * time.Hour)
	assert.Equal(t, Dead, c.status(r, start.Add(24*time.Hour)).State)
	assert.Equal(t, 24*time.Hour, r.NextAttempt.Sub(r.LastFailure))
}

// A pause longer than any backoff does not count toward the death of a relay.
func TestIdleTimeIsNoFailure(t *testing.T) {
	c := Config{}.withDefaults()
	r := Record{Failures: 2, FailingSince: start, LastFailure: start, NextAttempt: start}
	at := start.Add(time.Hour)
	assert.Equal(t, start, c.begin(r, at).FailingSince)
	assert.Equal(t, at.Add(1), c.begin(r, at.Add(1)).FailingSince)
}

// In another implementation a relay that was down at the first attempt was never tried again,
// because retries needed confirmed items. Here each failure, at any time and after any history, has
// a next attempt.
func TestTrapT1_DownAtTheFirstAttemptIsTriedForEver(t *testing.T) {
	c := Config{}.withDefaults()
	rng := rand.New(rand.NewPCG(1, 1))
	var r Record
	now := start
	attempts := 0
	for now.Sub(start) < 365*24*time.Hour {
		r = c.step(r, event{kind: attempt}, now, rng.Float64())
		now = now.Add(10 * time.Second)
		r = c.step(r, event{kind: failed}, now, rng.Float64())
		attempts++
		wait := r.next().Sub(now)
		require.Positive(t, wait)
		require.LessOrEqual(t, wait, 24*time.Hour+24*time.Hour/10)
		now = r.next()
	}
	assert.GreaterOrEqual(t, attempts, 364*10/11, "about one a day in the end")
	r = c.step(r, event{kind: attempt}, now, 0)
	r = c.step(r, event{kind: connected}, now, 0)
	assert.Equal(t, Healthy, c.status(r, now.Add(time.Hour)).State)
}

// In another implementation a relay that connects and drops reset its backoff each time, and its
// state for recently recovered relays was unreachable.
func TestTrapT10_FlappingKeepsItsPlaceInTheBackoff(t *testing.T) {
	c := Config{}.withDefaults()
	var r Record
	now := start
	for n := 1; n <= 40; n++ {
		r = c.step(r, event{kind: attempt}, now, 0)
		r = c.step(r, event{kind: connected}, now, 0)
		now = now.Add(59 * time.Second)
		r = c.step(r, event{kind: lost}, now, 0)
		require.Equal(t, n, r.Failures)
		if !c.dead(r) {
			require.Equal(t, c.rules().Wait(n, 0), r.next().Sub(now))
		}
		now = r.next()
	}
	assert.Equal(t, Dead, c.status(r, now).State, "a day of short connections is a day of failures")

	r = c.step(r, event{kind: connected}, now, 0)
	seen := map[State]bool{}
	for range 10 {
		seen[c.status(r, now).State] = true
		now = now.Add(time.Minute)
	}
	assert.Equal(t, map[State]bool{Degraded: true, Healthy: true}, seen)
}

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

func TestRetryAfterIsBounded(t *testing.T) {
	c := Config{}.withDefaults()
	for _, tc := range []struct{ asked, want time.Duration }{
		{0, 5 * time.Second},
		{-time.Hour, 5 * time.Second},
		{time.Second, 5 * time.Second},
		{10 * time.Minute, 10 * time.Minute},
		{1000 * time.Hour, time.Hour},
	} {
		r := c.step(Record{}, event{kind: failed, wait: tc.asked}, start, 0)
		assert.Equal(t, tc.want, r.next().Sub(start), "asked for %v", tc.asked)
	}
}

func TestUptimeShare(t *testing.T) {
	assert.Zero(t, Status{}.UptimeShare())
	assert.Zero(t, Status{Downtime: 1}.UptimeShare())
	assert.InDelta(t, 1, Status{Uptime: 1}.UptimeShare(), 0)
	assert.InDelta(t, 0.75, Status{Uptime: 3 * time.Hour, Downtime: time.Hour}.UptimeShare(), 1e-9)
	assert.InDelta(t, 0.5, Status{Uptime: 1 << 62, Downtime: 1 << 62}.UptimeShare(), 1e-9, "the sum would overflow")
}

func TestStateText(t *testing.T) {
	for s, want := range map[State]string{
		Healthy: "healthy", Disconnected: "disconnected", Degraded: "degraded", Dead: "dead",
		RateLimited: "rate limited", 0: "state(0)", 9: "state(9)",
	} {
		assert.Equal(t, want, s.String())
	}
	// Operators' dashboards use these numbers.
	assert.Equal(t, []State{1, 2, 3, 4, 5}, []State{Healthy, Disconnected, Degraded, Dead, RateLimited})
	b, err := json.Marshal(Status{State: RateLimited})
	require.NoError(t, err)
	assert.JSONEq(t, `{"state":"rate limited","connected":false,"known_good":false,"failures":0,"attempts":0,
		"connections":0,"failed_attempts":0,"disconnects":0,"reconnects":0,"uptime_seconds":0,"downtime_seconds":0}`, string(b))
}
