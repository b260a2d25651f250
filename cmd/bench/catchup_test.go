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

// A small catch-up: each client stores every event and no forged one, and the counters are
// plausible.
func TestCatchUp(t *testing.T) {
	const forged = 2
	n := testEvents(500)
	r := newTestRun(t)
	d, err := openDataset(r.cache, n)
	require.NoError(t, err)
	relays, err := startRemote(t.Context(), d, forged)
	require.NoError(t, err)
	defer func() { require.NoError(t, relays.close()) }()
	all := append(ourClients, theirClients...)
	for _, c := range ourClients {
		all = append(all, c.atCanned())
	}
	for _, c := range all {
		if c.theirs && raceEnabled {
			continue
		}
		t.Run(c.name+" from "+string(c.relay), func(t *testing.T) {
			if !c.theirs { // go-nostr leaves its connection open
				defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
			}
			a := first(c, d)
			a.limit = 20 * time.Second
			s := &series{}
			require.NoError(t, s.add(r, relays, a))
			m := s.samples[0]
			require.Positive(t, m.saved)
			require.LessOrEqual(t, m.saved, m.done)
			require.Positive(t, m.cpu)
			require.Greater(t, m.usage.In, int64((n+forged)*1000))
			require.Positive(t, m.usage.Out)
			if c.relay == c.atCanned().relay {
				require.GreaterOrEqual(t, m.usage.Traffic["EVENT"].Messages, int64(n+forged))
			}
		})
	}
}
