package sync

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/filters"
	"github.com/graspsync/graspsync/sync/internal/plan"
)

func testLoop(t *testing.T) *loop {
	t.Helper()
	cfg := Config{}.withDefaults()
	m := &SyncManager{cfg: cfg, counters: &counters{}, inbox: newMailbox[any]()}
	m.remember = newRemember(m)
	m.ingest = newIngest(cfg, nil, nil, nil, nil, m.counters)
	l := newLoop(m)
	return &l
}

// What is on its way is not dealt with: a mark beyond it would lose it in a crash.
func TestSettledWhenIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := testLoop(t)
		l.settle(t.Context(), time.Now())
		assert.Zero(t, l.settledAt, "the store was not read yet")
		l.started = true
		l.m.ingest.unsettled.Store(1)
		l.settle(t.Context(), time.Now())
		assert.Zero(t, l.settledAt)
		l.m.ingest.unsettled.Store(0)
		read := &conn{}
		read.ahead.Store(1)
		l.conns[filters.RelayURL{}] = read
		l.settle(t.Context(), time.Now())
		assert.Zero(t, l.settledAt, "something was read that is not in the pipeline yet")
		read.ahead.Store(0)
		l.settle(t.Context(), time.Now())
		first := time.Now()
		assert.Equal(t, first, l.settledAt)
		time.Sleep(59 * time.Second)
		l.settle(t.Context(), time.Now())
		assert.Equal(t, first, l.settledAt, "once a minute")
		time.Sleep(time.Second)
		l.settle(t.Context(), time.Now())
		assert.Equal(t, time.Now(), l.settledAt)
	})
}

// An event that can't be saved held up the marks of all relays, and with it what a
// restart would fetch again.
func TestWhatFailsHoldsUpItsOwnRelays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := testLoop(t)
		l.started = true
		g := l.m.ingest
		a, err := filters.ParseRelayURL("wss://a.example")
		require.NoError(t, err)
		of := newToken(a)
		of.ended = func() {}
		j := &job{key: copyKey{id: filters.EventID{1}}, tokens: []*token{of}}
		require.True(t, g.enter(j))
		_, resting := g.resting()
		assert.False(t, resting, "it is on its way")
		g.failing([]*job{j}, true)
		failing, resting := g.resting()
		assert.True(t, resting)
		assert.Equal(t, map[filters.RelayURL]struct{}{a: {}}, failing)
		l.settle(t.Context(), time.Now())
		assert.Equal(t, time.Now(), l.settledAt)
		g.failing([]*job{j}, false)
		_, resting = g.resting()
		assert.False(t, resting, "it is tried again")
		g.leave(j, true)
		failing, resting = g.resting()
		assert.True(t, resting)
		assert.Empty(t, failing)
	})
}

func TestClockJump(t *testing.T) {
	for _, tc := range []struct {
		wall, monotonic time.Duration
		by              time.Duration
		jumped          bool
	}{
		{time.Second, time.Second, 0, false},
		{time.Second + 59*time.Second, time.Second, 59 * time.Second, false},
		{-59 * time.Minute, time.Minute, -time.Hour, true},
		{time.Hour, time.Second, time.Hour - time.Second, true},
		{24 * time.Hour, 24 * time.Hour, 0, false},
	} {
		by, jumped := clockJump(tc.wall, tc.monotonic)
		assert.Equal(t, tc.by, by)
		assert.Equal(t, tc.jumped, jumped)
	}
}

// The clock is watched: what was last seen is what a jump is measured by.
func TestWatchClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := testLoop(t)
		u, err := filters.ParseRelayURL("wss://a.example")
		require.NoError(t, err)
		now := time.Now()
		l.plan.Step(now, plan.Restore{Relays: []plan.Kept{{Relay: u, Mark: now}}})
		l.watchClock(t.Context(), time.Now())
		time.Sleep(time.Hour)
		l.watchClock(t.Context(), time.Now())
		require.Equal(t, now, l.plan.Kept()[0].Mark)
	})
}
