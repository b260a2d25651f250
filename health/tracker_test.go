package health_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/health"
	"github.com/graspsync/graspsync/internal/racetest"
)

func relay(t testing.TB, s string) graspsync.RelayURL {
	t.Helper()
	u, err := graspsync.ParseRelayURL(s)
	require.NoError(t, err)
	return u
}

func tracker(t testing.TB, c health.Config) *health.RelayHealthTracker {
	t.Helper()
	if c.Fixed().Rand == nil {
		c.Fixed().Rand = func() float64 { return 0 }
	}
	tr, err := health.NewTracker(c)
	require.NoError(t, err)
	return tr
}

var errRefused = errors.New("connection refused")

func TestTrackerLifeOfARelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr, u := tracker(t, health.Config{}), relay(t, "wss://relay.example.com")
		begin := time.Now()
		after := func(d time.Duration) time.Time { return begin.Add(d) }

		assert.Equal(t, health.Status{State: health.Disconnected}, tr.Status(u))
		assert.True(t, tr.NextAttempt(u).IsZero(), "never tried: now")
		assert.False(t, tr.KnownGood(u))
		assert.Zero(t, tr.Len(), "asking creates no record")

		tr.Attempt(u)
		time.Sleep(time.Second)
		tr.Failed(u, errRefused)
		assert.Equal(t, after(6*time.Second), tr.NextAttempt(u))

		time.Sleep(5 * time.Second)
		tr.Attempt(u)
		tr.Connected(u)
		assert.Equal(t, health.Status{
			State: health.Degraded, Connected: true, Failures: 1,
			FailingSince: after(time.Second), LastFailure: after(time.Second), LastAttempt: after(6 * time.Second),
			ConnectedSince: after(6 * time.Second), LastError: "connection refused",
			Attempts: 2, Connections: 1, FailedAttempts: 1, Downtime: 6 * time.Second,
		}, tr.Status(u))

		// No timer runs. The state changes after a minute when it is read.
		time.Sleep(time.Minute - 1)
		assert.False(t, tr.KnownGood(u))
		assert.Equal(t, 1, tr.Status(u).Failures)
		time.Sleep(time.Nanosecond)
		assert.True(t, tr.KnownGood(u))
		assert.Zero(t, tr.Status(u).Failures)
		assert.Equal(t, health.Degraded, tr.Status(u).State)
		assert.Equal(t, after(66*time.Second), tr.Status(u).LastSuccess)
		time.Sleep(4 * time.Minute)
		assert.Equal(t, health.Healthy, tr.Status(u).State)

		tr.RateLimited(u, time.Time{})
		assert.Equal(t, health.RateLimited, tr.Status(u).State)
		assert.Equal(t, after(306*time.Second+65*time.Second), tr.Status(u).RateLimitedUntil)
		time.Sleep(65 * time.Second)
		assert.Equal(t, health.Healthy, tr.Status(u).State)
		assert.True(t, tr.Status(u).RateLimitedUntil.IsZero())

		// The pause is longer after repeated complaints, but limited to an hour.
		tr.RateLimited(u, time.Now().Add(130*time.Second))
		assert.Equal(t, 130*time.Second, time.Until(tr.Status(u).RateLimitedUntil))
		tr.RateLimited(u, time.Now().Add(100*time.Hour))
		assert.Equal(t, time.Hour, time.Until(tr.Status(u).RateLimitedUntil))
		tr.RateLimited(u, time.Now().Add(time.Second))
		assert.Equal(t, 65*time.Second, time.Until(tr.Status(u).RateLimitedUntil))
		time.Sleep(65 * time.Second)

		tr.Lost(u, errors.New("EOF"))
		assert.Equal(t, health.Disconnected, tr.Status(u).State)
		assert.False(t, tr.NextAttempt(u).After(time.Now().Add(time.Second)))
		assert.Equal(t, "connection refused", tr.Status(u).LastError, "a drop that is no failure is no error")
		tr.Attempt(u)
		tr.Connected(u)
		assert.EqualValues(t, 1, tr.Status(u).Reconnects)

		time.Sleep(time.Minute)
		tr.Forget(u)
		tr.Forget(u)
		assert.Equal(t, health.Status{State: health.Disconnected}, tr.Status(u))
		tr.Lost(u, nil)
		tr.Closed(u)
		assert.Zero(t, tr.Len(), "the end of a forgotten connection brings nothing back")
	})
}

func TestTrackerRedialsWithinASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, random := range []float64{0, 0.5, 0.999, 1, 7} { // a Rand out of range changes nothing
			tr := tracker(t, health.Config{}.With(health.Fixed{Rand: func() float64 { return random }}))
			u := relay(t, "wss://relay.example.com")
			tr.Attempt(u)
			tr.Connected(u)
			time.Sleep(time.Minute)
			tr.Lost(u, nil)
			wait := time.Until(tr.NextAttempt(u))
			assert.True(t, wait >= 0 && wait < time.Second, "%v", wait)
			assert.Zero(t, tr.Status(u).Failures)
		}
	})
}

func TestTrackerHostile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr, u := tracker(t, health.Config{}), relay(t, "wss://relay.example.com")
		tr.Attempt(u)
		tr.Connected(u)
		time.Sleep(10 * time.Minute)
		tr.Hostile(u)
		tr.Lost(u, net.ErrClosed)
		assert.Equal(t, time.Hour, time.Until(tr.NextAttempt(u)))
		s := tr.Status(u)
		assert.Equal(t, 1, s.Failures, "what follows from it counts nothing more")
		assert.EqualValues(t, 1, s.Disconnects)
		assert.Equal(t, "hostile", s.LastError)
	})
}

// tooMany is an error like that of an HTTP client for status 429.
type tooMany struct{ wait time.Duration }

func (tooMany) Error() string               { return "too many connections" }
func (e tooMany) RetryAfter() time.Duration { return e.wait }

func TestTrackerHonoursRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr, u := tracker(t, health.Config{}), relay(t, "wss://relay.example.com")
		tr.Attempt(u)
		tr.Failed(u, fmt.Errorf("dial: %w", tooMany{5 * time.Minute}))
		assert.Equal(t, 5*time.Minute, time.Until(tr.NextAttempt(u)))
		other := relay(t, "wss://other.example.com")
		tr.Attempt(other)
		tr.Failed(other, tooMany{1000 * time.Hour})
		assert.Equal(t, time.Hour, time.Until(tr.NextAttempt(other)), "a relay can't send us away for good")
	})
}

func TestTrackerErrorTextIsBoundedAndEscaped(t *testing.T) {
	tr, u := tracker(t, health.Config{}), relay(t, "wss://relay.example.com")
	tr.Attempt(u)
	tr.Failed(u, errors.New("\x1b[2J\n"+strings.Repeat("spam", 1000)))
	got := tr.Status(u).LastError
	assert.Len(t, got, graspsync.MaxText)
	assert.True(t, strings.HasPrefix(got, `\x1b[2J\nspam`), got)
	tr.Attempt(u)
	tr.Failed(u, nil)
	assert.Empty(t, tr.Status(u).LastError)
}

// Two spellings of one relay share a record, because the key is canonical.
func TestTrackerOneRecordForAllSpellings(t *testing.T) {
	tr := tracker(t, health.Config{})
	for _, s := range []string{"wss://x.example", "wss://x.example/", "x.example", "WSS://X.example:443"} {
		tr.Attempt(relay(t, s))
		tr.Failed(relay(t, s), nil)
	}
	assert.Equal(t, 1, tr.Len())
	assert.Equal(t, 4, tr.Status(relay(t, "x.example")).Failures)
}

func TestTrackerZeroRelay(t *testing.T) {
	tr := tracker(t, health.Config{})
	var none graspsync.RelayURL
	tr.Attempt(none)
	tr.Failed(none, nil)
	tr.Import(none, health.Record{Failures: 3})
	assert.Zero(t, tr.Len())
	assert.Equal(t, health.Disconnected, tr.Status(none).State)
}

func TestTrackerAllEndsWhenAsked(t *testing.T) {
	tr, n := tracker(t, health.Config{}), 0
	tr.Attempt(relay(t, "wss://a.example"))
	tr.Attempt(relay(t, "wss://b.example"))
	for range tr.All() {
		n++
		break
	}
	assert.Equal(t, 1, n)
}

func TestTrackerAll(t *testing.T) {
	tr := tracker(t, health.Config{})
	var want []string
	for i := range 10 {
		u := relay(t, fmt.Sprintf("wss://r%d.example.com", i))
		want = append(want, u.String())
		tr.Attempt(u)
		tr.Failed(u, nil)
	}
	var got []string
	for u, s := range tr.All() {
		got = append(got, u.String())
		assert.Equal(t, 1, s.Failures)
		tr.Forget(u) // the loop may change the tracker
	}
	slices.Sort(got)
	assert.Equal(t, want, got)
	for range tr.All() {
		t.Error("all were forgotten")
	}

	for i := range 3 {
		tr.Attempt(relay(t, fmt.Sprintf("wss://r%d.example.com", i)))
	}
	n := 0
	for u := range tr.All() {
		if n++; n == 1 {
			for i := range 3 { // the loop skips removed relays
				if other := relay(t, fmt.Sprintf("wss://r%d.example.com", i)); other != u {
					tr.Forget(other)
				}
			}
		}
	}
	assert.Equal(t, 1, n)
	for range tr.All() {
		break
	}
}

// P14: repeated announcements that add and remove a relay cause no more attempts than one
// announcement.
func TestPromiseP14_ForgettingDoesNotResetTheBackoff(t *testing.T) {
	racetest.Amounts(t)
	for _, answers := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			tr, u := tracker(t, health.Config{}), relay(t, "wss://victim.example.com")
			begin, attempts := time.Now(), 0
			for time.Since(begin) < 24*time.Hour {
				if !time.Now().Before(tr.NextAttempt(u)) {
					tr.Attempt(u)
					attempts++
					if answers {
						tr.Connected(u)
						tr.Lost(u, errRefused)
					} else {
						tr.Failed(u, errRefused)
					}
				}
				tr.Forget(u)
				for range tr.All() {
					t.Fatal("a forgotten relay leaves no stale series")
				}
				time.Sleep(10 * time.Second)
			}
			assert.LessOrEqual(t, attempts, 36)
			assert.Equal(t, attempts, tr.Status(u).Failures)
			assert.Zero(t, tr.Status(u).Downtime, "while nobody wants it, it is not down")

			tr.Attempt(u)
			n := 0
			for range tr.All() {
				n++
			}
			assert.Equal(t, 1, n, "wanted again")
		})
	}
}

// Records of forgotten relays are evicted first.
func TestForgottenRelaysAreDroppedFirst(t *testing.T) {
	tr := tracker(t, health.Config{MaxRecords: 2})
	a, b, c := relay(t, "wss://a.example"), relay(t, "wss://b.example"), relay(t, "wss://c.example")
	for _, u := range []graspsync.RelayURL{a, b} {
		tr.Attempt(u)
		tr.Failed(u, nil)
	}
	tr.Forget(b)
	tr.Attempt(c)
	assert.Equal(t, 1, tr.Status(a).Failures)
	assert.Zero(t, tr.Status(b).Failures)
	assert.EqualValues(t, 1, tr.Dropped())
}

// Forgetting a relay in use is no failure, and keeps its backoff and pause.
func TestForgetInUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr, u := tracker(t, health.Config{}), relay(t, "wss://relay.example.com")
		tr.Attempt(u)
		tr.Connected(u)
		tr.RateLimited(u, time.Time{})
		tr.Forget(u)
		tr.Lost(u, nil)
		s := tr.Status(u)
		assert.Zero(t, s.Failures)
		assert.Equal(t, 5*time.Second, time.Until(s.NextAttempt))
		assert.Equal(t, 65*time.Second, time.Until(s.RateLimitedUntil))
		time.Sleep(65 * time.Second)
		tr.Forget(u)
		assert.Zero(t, tr.Len(), "nothing left to remember")
	})
}

// Trap T1 with a tracker: a relay that is down for the first ten days is connected at the first
// attempt after it is up.
func TestTrapT1_TrackerLetsARelayBackIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr, u := tracker(t, health.Config{}.With(health.Fixed{Rand: rand.New(rand.NewPCG(1, 2)).Float64})), relay(t, "wss://relay.example.com")
		up := time.Now().Add(10 * 24 * time.Hour)
		for time.Now().Before(up) {
			time.Sleep(time.Until(tr.NextAttempt(u)))
			tr.Attempt(u)
			if time.Now().Before(up) {
				time.Sleep(10 * time.Second)
				tr.Failed(u, errRefused)
			}
		}
		assert.Less(t, time.Since(up), 24*time.Hour+3*time.Hour)
		assert.Equal(t, health.Dead, tr.Status(u).State)
		tr.Connected(u)
		assert.Equal(t, health.Degraded, tr.Status(u).State)
		time.Sleep(5 * time.Minute)
		assert.Equal(t, health.Healthy, tr.Status(u).State)
	})
}

// Trap T10 with a tracker.
func TestTrapT10_TrackerHoldsAFlappingRelayBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr, u := tracker(t, health.Config{}), relay(t, "wss://relay.example.com")
		begin, connections := time.Now(), 0
		for time.Since(begin) < 24*time.Hour {
			tr.Attempt(u)
			tr.Connected(u)
			connections++
			time.Sleep(time.Second)
			tr.Lost(u, errors.New("EOF"))
			time.Sleep(time.Until(tr.NextAttempt(u)))
		}
		assert.LessOrEqual(t, connections, 36)
		assert.Equal(t, connections, tr.Status(u).Failures)
	})
}

func TestTrackerIsBounded(t *testing.T) {
	tr := tracker(t, health.Config{MaxRecords: 100})
	inUse, good := relay(t, "wss://in-use.example.com"), relay(t, "wss://good.example.com")
	tr.Attempt(inUse)
	tr.Connected(inUse)
	tr.Import(good, health.Record{Proven: true})
	victim := relay(t, "wss://first.example.com")
	tr.Attempt(victim)
	tr.Failed(victim, nil)
	for i := range 1000 {
		u := relay(t, fmt.Sprintf("wss://flood-%d.example.com", i))
		tr.Attempt(u)
		tr.Failed(u, errRefused)
		require.LessOrEqual(t, tr.Len(), 100)
		if i < 97 {
			require.Zero(t, tr.Dropped())
		}
	}
	assert.EqualValues(t, 903, tr.Dropped())
	assert.True(t, tr.Status(inUse).Connected, "what is in use stays")
	assert.True(t, tr.KnownGood(good), "what has worked stays while there is something that has not")
	assert.Zero(t, tr.Status(victim).Failures, "the oldest went first")
	assert.Equal(t, 1, tr.Status(relay(t, "wss://flood-999.example.com")).Failures)
	assert.Equal(t, 1, tr.Status(relay(t, "wss://flood-902.example.com")).Failures)
	assert.Equal(t, 0, tr.Status(relay(t, "wss://flood-901.example.com")).Failures)
}

// The maximum number of records holds even if all relays are in use or proven.
func TestTrackerIsBoundedWhateverIsInIt(t *testing.T) {
	tr := tracker(t, health.Config{MaxRecords: 2})
	a, b, c, d := relay(t, "wss://a.example"), relay(t, "wss://b.example"), relay(t, "wss://c.example"), relay(t, "wss://d.example")
	tr.Import(a, health.Record{Proven: true})
	tr.Attempt(b)
	tr.Attempt(c)
	assert.False(t, tr.KnownGood(a), "a proven relay goes before one in use")
	tr.RateLimited(b, time.Time{}) // b is now the most recently changed
	tr.Attempt(d)
	assert.Equal(t, 2, tr.Len())
	assert.EqualValues(t, 2, tr.Dropped())
	_, ok := tr.Export(c)
	assert.False(t, ok)
	tr.Connected(c) // its record was evicted, so it starts again
	assert.True(t, tr.Status(c).Connected)
	assert.Equal(t, 2, tr.Len())
}

func TestTrackerConcurrentUse(t *testing.T) {
	// Rand need not be safe for concurrent use. -race would report concurrent calls.
	tr := tracker(t, health.Config{MaxRecords: 8}.With(health.Fixed{Rand: rand.New(rand.NewPCG(1, 2)).Float64}))
	urls := make([]graspsync.RelayURL, 16)
	for i := range urls {
		urls[i] = relay(t, fmt.Sprintf("wss://r%d.example.com", i))
	}
	var attempts atomic.Int64
	var wg sync.WaitGroup
	for worker := range 8 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(worker), 0))
			for range 500 {
				u := urls[rng.IntN(len(urls))]
				switch rng.IntN(12) {
				case 0, 1:
					tr.Attempt(u)
					attempts.Add(1)
				case 2:
					tr.Connected(u)
				case 3:
					tr.Failed(u, errRefused)
				case 4:
					tr.Lost(u, errRefused)
				case 5:
					tr.RateLimited(u, time.Time{})
				case 6:
					tr.Hostile(u)
				case 7:
					tr.Closed(u)
				case 8:
					tr.Forget(u)
				case 9:
					for u := range tr.All() {
						_ = tr.NextAttempt(u)
					}
				case 10:
					r, _ := tr.Export(u)
					tr.Import(u, r)
				case 11:
					_ = tr.Status(u)
					_ = tr.KnownGood(u)
				}
				assert.LessOrEqual(t, tr.Len(), 8)
			}
		})
	}
	wg.Wait()
	assert.Positive(t, attempts.Load())
}

// Concurrent events of one relay are all counted.
func TestTrackerCountsEveryCall(t *testing.T) {
	tr, u := tracker(t, health.Config{}), relay(t, "wss://relay.example.com")
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 100 {
				tr.Attempt(u)
			}
		})
	}
	wg.Wait()
	s := tr.Status(u)
	assert.EqualValues(t, 800, s.Attempts)
	assert.EqualValues(t, 799, s.FailedAttempts, "all but the last, which is under way")
}

func BenchmarkTracker(b *testing.B) {
	tr := tracker(b, health.Config{})
	urls := make([]graspsync.RelayURL, 1000)
	for i := range urls {
		urls[i] = relay(b, fmt.Sprintf("wss://r%d.example.com", i))
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		u := urls[i%len(urls)]
		tr.Attempt(u)
		tr.Failed(u, errRefused)
		_ = tr.NextAttempt(u)
	}
}
