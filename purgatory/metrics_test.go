package purgatory_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/purgatory"
)

// The metrics have their documented names, and promlint finds no problem.
func TestMetrics(t *testing.T) {
	run(t, purgatory.Config{}, func(t *testing.T, w *world) {
		w.git.Serve(clone("a.example/r.git"), serving(1))
		w.held(announce(alice, now(), "a.example/r.git", "b.example/r.git"))
		w.held(says(alice, now(), "main", 1))
		w.held(says(alice, now()+1, "main", 2))
		wait(time.Minute)
		c := w.p.Collector("")
		problems, err := testutil.CollectAndLint(c)
		require.NoError(t, err)
		require.Empty(t, problems)
		registry := prometheus.NewPedanticRegistry()
		require.NoError(t, registry.Register(c))
		require.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP purgatory_sync_oids_fetched_total Total received objects that were missing.
# TYPE purgatory_sync_oids_fetched_total counter
purgatory_sync_oids_fetched_total 1
# HELP purgatory_sync_queue_size Number of repositories whose git data is being fetched or waits for a fetch.
# TYPE purgatory_sync_queue_size gauge
purgatory_sync_queue_size 1
`), "purgatory_sync_oids_fetched_total", "purgatory_sync_queue_size"))
		require.Equal(t, "released expired replaced deleted", fmt.Sprintf("%v %v %v %v",
			purgatory.Released, purgatory.Expired, purgatory.Replaced, purgatory.Deleted))
		require.NotEmpty(t, w.seen)
		require.ErrorIs(t, w.p.Run(t.Context()), purgatory.ErrRunning)
		synctest.Wait()
	})
}

// Requests to each server are counted, so that operators see overloaded servers.
func TestMetricsOfServers(t *testing.T) {
	run(t, purgatory.Config{}, func(t *testing.T, w *world) {
		slow := serving(1)
		slow.Delay = 2 * time.Minute
		w.git.Serve(clone("a.example/r.git"), serving())
		w.git.Serve(clone("b.example/r.git"), slow)
		w.held(announce(alice, now(), "a.example/r.git", "b.example/r.git"))
		w.held(says(alice, now(), "main", 1))
		wait(time.Minute)
		registry := prometheus.NewPedanticRegistry()
		require.NoError(t, registry.Register(w.p.Collector("")))
		shows := func(inFlight int) {
			t.Helper()
			asked := make(map[string]int)
			for _, c := range w.git.Calls() {
				asked[c.URL.HostPort().String()]++
			}
			require.NotZero(t, asked["a.example:443"])
			require.NotZero(t, asked["b.example:443"])
			require.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(fmt.Sprintf(`
# HELP purgatory_domain_in_flight Number of requests in flight.
# TYPE purgatory_domain_in_flight gauge
purgatory_domain_in_flight{domain="a.example:443"} 0
purgatory_domain_in_flight{domain="b.example:443"} %d
# HELP purgatory_domain_requests_total Total requests for git data.
# TYPE purgatory_domain_requests_total counter
purgatory_domain_requests_total{domain="a.example:443"} %d
purgatory_domain_requests_total{domain="b.example:443"} %d
`, inFlight, asked["a.example:443"], asked["b.example:443"])), "purgatory_domain_in_flight", "purgatory_domain_requests_total"))
		}
		shows(1)
		wait(10 * time.Minute)
		shows(0)
	})
}
