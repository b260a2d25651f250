package main

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if os.Getenv(relayProcess) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// testEvents returns the number of events in a test. The race detector makes signatures slow.
func testEvents(n int) int {
	if raceEnabled {
		return n / 10
	}
	return n
}

func newTestRun(t *testing.T) *run {
	return &run{ctx: t.Context(), quick: true, count: 1, cache: t.TempDir(), dir: t.TempDir()}
}

// A small catch-up: each client stores every event, and the counters are plausible.
func TestCatchUp(t *testing.T) {
	n := testEvents(500)
	r := newTestRun(t)
	d, err := openDataset(r.cache, n)
	require.NoError(t, err)
	for _, c := range append(ourClients, theirClients...) {
		if c.theirs && raceEnabled {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			if !c.theirs { // go-nostr leaves its connection open
				defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
			}
			a := first(c, d)
			a.limit = 20 * time.Second
			m, err := a.measured(r)
			require.NoError(t, err)
			require.Positive(t, m.saved)
			require.LessOrEqual(t, m.saved, m.done)
			require.Positive(t, m.cpu)
			require.Greater(t, m.usage.In, int64(n*1000))
			require.Positive(t, m.usage.Out)
		})
	}
}
