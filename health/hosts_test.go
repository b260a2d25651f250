package health_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/health"
	"github.com/graspsync/graspsync/internal/backoff"
	"github.com/graspsync/graspsync/internal/racetest"
)

// In other implementations a thousand paths and ports of one host were a thousand relays, each with
// its own attempts.
func TestPromiseP14_OneHostOneBackoff(t *testing.T) {
	racetest.Amounts(t)
	synctest.Test(t, func(t *testing.T) {
		tr := tracker(t, health.Config{})
		urls := []graspsync.RelayURL{relay(t, "wss://victim.example")}
		for i := range 999 {
			urls = append(urls, relay(t, fmt.Sprintf("wss://victim.example:%d/%d", 2000+i%100, i)))
		}
		dials := func(days int) (n int, root int) {
			for end := time.Now().Add(time.Duration(days) * 24 * time.Hour); time.Now().Before(end); {
				next := end
				for i, u := range urls {
					if at := tr.NextAttempt(u); at.After(time.Now()) {
						next = earliest(next, at)
						continue
					}
					n++
					if i == 0 {
						root++
					}
					tr.Attempt(u)
					tr.Failed(u, errRefused)
					next = earliest(next, tr.NextAttempt(u))
				}
				time.Sleep(time.Until(next))
			}
			return n, root
		}
		n, root := dials(1)
		assert.LessOrEqual(t, n, 36)
		assert.Greater(t, n, 20)
		assert.Greater(t, root, n/3, "the plain URL gets its turns")
		n, _ = dials(10)
		assert.LessOrEqual(t, n, 11, "one a day once dead")
	})
}

func earliest(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

func TestHostIsProvenByOneRelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := tracker(t, health.Config{})
		a, b, c := relay(t, "wss://host.example/a"), relay(t, "wss://host.example:7777"), relay(t, "wss://other.example")
		tr.Attempt(a)
		assert.Equal(t, time.Now().Add(5*time.Second), tr.NextAttempt(b), "as if this one fails")
		assert.True(t, tr.NextAttempt(c).IsZero())
		time.Sleep(5 * time.Second)
		tr.Connected(a)
		assert.Equal(t, tr.NextAttempt(b), tr.Status(b).NextAttempt)
		assert.True(t, tr.NextAttempt(a).IsZero())
		assert.False(t, tr.HostProven("host.example"))
		time.Sleep(time.Minute)
		assert.True(t, tr.IsProven(a))
		assert.True(t, tr.NextAttempt(b).IsZero())
		assert.True(t, tr.HostProven("host.example"))
		assert.True(t, tr.HostNext("host.example").IsZero())
		for range 3 {
			tr.Attempt(b)
			tr.Failed(b, errRefused)
		}
		assert.True(t, tr.NextAttempt(relay(t, "wss://host.example/c")).IsZero(), "a proven host is not bound")
		assert.False(t, tr.NextAttempt(b).IsZero(), "its relays are")
	})
}

// A host that sends forged data is not dialed at another URL before an hour.
func TestHostileHostWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := tracker(t, health.Config{})
		a, b := relay(t, "wss://host.example/a"), relay(t, "wss://host.example/b")
		tr.Attempt(a)
		tr.Connected(a)
		tr.Hostile(a)
		assert.GreaterOrEqual(t, time.Until(tr.NextAttempt(b)), time.Hour)
	})
}

// P15: a restart allows no earlier attempt, with any subset of the records.
func TestPromiseP15_HostsOverRestarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := tracker(t, health.Config{})
		urls := []graspsync.RelayURL{relay(t, "wss://h.example/a"), relay(t, "wss://h.example/b")}
		for range 8 {
			for _, u := range urls {
				time.Sleep(time.Until(tr.NextAttempt(u)))
				tr.Attempt(u)
				tr.Failed(u, errRefused)
			}
		}
		tr.Attempt(urls[0]) // then the process dies
		host, ok := tr.ExportHost("h.example")
		require.True(t, ok)
		b, err := json.Marshal(host)
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(b, &host))
		was := tr.NextAttempt(urls[1])
		for name, load := range map[string]func(tr *health.RelayHealthTracker){
			"host only":         func(tr *health.RelayHealthTracker) { tr.ImportHost("h.example", host) },
			"host, then relays": func(tr *health.RelayHealthTracker) { tr.ImportHost("h.example", host); importAll(tr, t, urls, was) },
			"relays, then host": func(tr *health.RelayHealthTracker) { importAll(tr, t, urls, was); tr.ImportHost("h.example", host) },
		} {
			next := tracker(t, health.Config{})
			load(next)
			for _, u := range append(urls, relay(t, "wss://h.example/new")) {
				assert.False(t, next.NextAttempt(u).Before(host.NextAttempt), "%s: %s", name, u)
			}
			kept, _ := next.ExportHost("h.example")
			assert.Equal(t, host.Failures, kept.Failures, "%s: the attempt we died of is one", name)
		}
		// A stricter record in memory stays.
		next := tracker(t, health.Config{})
		next.ImportHost("h.example", host)
		next.ImportHost("h.example", health.Record{Record: backoff.Record{Failures: 1, NextAttempt: time.Now().Add(time.Second)}})
		kept, _ := next.ExportHost("h.example")
		assert.Equal(t, host.Failures, kept.Failures)
		// Only relay records were saved.
		next = tracker(t, health.Config{})
		importAll(next, t, urls, was)
		assert.False(t, next.NextAttempt(relay(t, "wss://h.example/new")).Before(was.Add(-time.Minute)))
		// One URL of the host is a relay.
		next.Import(relay(t, "wss://h.example"), health.Record{Proven: true})
		assert.True(t, next.NextAttempt(relay(t, "wss://h.example/new")).IsZero())
		next.ImportHost("h.example", host)
		assert.True(t, next.HostProven("h.example"))
	})
}

func importAll(tr *health.RelayHealthTracker, t *testing.T, urls []graspsync.RelayURL, next time.Time) {
	for _, u := range urls {
		tr.Import(u, health.Record{Record: backoff.Record{
			Failures: 8, FailingSince: time.Now().Add(-time.Hour), LastFailure: time.Now(), LastAttempt: time.Now(), NextAttempt: next,
		}})
		_, ok := tr.Export(u)
		require.True(t, ok)
	}
}

// Every wait is extended randomly, also a wait that the relay requested.
func TestPromiseP19_EveryWaitIsLengthened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := tracker(t, health.Config{}.WithRandom(func() float64 { return 0.999 }))
		u := relay(t, "wss://relay.example")
		tr.Attempt(u)
		tr.Failed(u, tooMany{wait: 10 * time.Minute})
		assert.InDelta(t, 11*time.Minute, time.Until(tr.NextAttempt(u)), float64(time.Second))
		tr.Attempt(u)
		tr.Failed(u, tooMany{wait: 24 * time.Hour})
		assert.InDelta(t, 66*time.Minute, time.Until(tr.NextAttempt(u)), float64(5*time.Second), "and it is bounded")
		next := tracker(t, health.Config{}.WithRandom(func() float64 { return 0.999 }))
		next.Import(u, health.Record{Record: backoff.Record{LastAttempt: time.Now()}})
		assert.InDelta(t, 66*time.Second, time.Until(next.NextAttempt(u)), float64(time.Second))
	})
}
