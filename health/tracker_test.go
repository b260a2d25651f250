package health_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
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
	c = c.WithRandom(func() float64 { return 0 })
	tr, err := health.NewTracker(c)
	require.NoError(t, err)
	return tr
}

var errRefused = errors.New("connection refused")

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
				time.Sleep(10 * time.Second)
			}
			assert.LessOrEqual(t, attempts, 36)
			assert.Equal(t, attempts, tr.Status(u).Failures)
			assert.Zero(t, tr.Status(u).Down, "while nobody wants it, it is not down")

			tr.Attempt(u)
			assert.EqualValues(t, 1, tr.Status(u).Attempts, "wanted again")
		})
	}
}

// Trap T1 with a tracker: a relay that is down for the first ten days is connected at the first
// attempt after it is up.
func TestTrapT1_TrackerLetsARelayBackIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr, u := tracker(t, health.Config{}.WithRandom(rand.New(rand.NewPCG(1, 2)).Float64)), relay(t, "wss://relay.example.com")
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
	inUse := relay(t, "wss://in-use.example.com")
	tr.Attempt(inUse)
	tr.Connected(inUse)
	victim := relay(t, "wss://first.example.com")
	tr.Attempt(victim)
	tr.Failed(victim, nil)
	for i := range 1000 {
		u := relay(t, fmt.Sprintf("wss://flood-%d.example.com", i))
		tr.Attempt(u)
		tr.Failed(u, errRefused)
		require.LessOrEqual(t, tr.Len(), 100)
		if i < 98 {
			require.Zero(t, tr.Dropped())
		}
	}
	assert.EqualValues(t, 902, tr.Dropped())
	assert.True(t, tr.Status(inUse).Connected, "what is in use stays")
	assert.Zero(t, tr.Status(victim).Failures, "the oldest went first")
	assert.Equal(t, 1, tr.Status(relay(t, "wss://flood-999.example.com")).Failures)
	assert.Equal(t, 1, tr.Status(relay(t, "wss://flood-901.example.com")).Failures)
	assert.Equal(t, 0, tr.Status(relay(t, "wss://flood-900.example.com")).Failures)
}

func TestTrackerConcurrentUse(t *testing.T) {
	// Rand need not be safe for concurrent use. -race would report concurrent calls.
	tr := tracker(t, health.Config{MaxRecords: 8}.WithRandom(rand.New(rand.NewPCG(1, 2)).Float64))
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
					tr.Forgive(u)
				case 6:
					tr.Hostile(u)
				case 7:
					tr.Closed(u)
				case 8:
					tr.Forget(u)
				case 9:
					_ = tr.NextAttempt(u)
				case 10:
					r, _ := tr.Export(u)
					tr.Import(u, r)
				case 11:
					_ = tr.Status(u)
					_ = tr.IsProven(u)
				}
				assert.LessOrEqual(t, tr.Len(), 8)
			}
		})
	}
	wg.Wait()
	assert.Positive(t, attempts.Load())
}
