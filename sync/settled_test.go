package sync

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/sync/internal/plan"
	"github.com/graspsync/graspsync/sync/wire"
)

func testLoop(t *testing.T) *loop {
	t.Helper()
	cfg := Config{}.withDefaults()
	rep := newTelemetry(Config{})
	l := newLoop(&SyncManager{
		cfg: &cfg, telemetry: rep, inbox: newMailbox[loopMessage](), persistence: newPersistence(&cfg, nip34.Identity{}, nil, nil, nil, rep),
		ingest: newIngest(cfg, nil, nil, nil, nil, rep, nil),
	})
	l.begin()
	return l
}

// Events in the pipeline are not processed: a mark after them would lose them in a crash.
func TestSettledWhenIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := testLoop(t)
		l.settle(t.Context(), time.Now())
		assert.Zero(t, l.settledAt, "the store was not read yet")
		l.started = true
		read := &relayConn{}
		read.ahead.add(wire.Message{})
		l.conns[graspsync.RelayURL{}] = read
		l.settle(t.Context(), time.Now())
		assert.Zero(t, l.settledAt, "something was read that is not in the pipeline yet")
		j := &job{}
		require.True(t, l.m.ingest.inflight.enter(j))
		read.ahead.take(wire.Message{})
		l.settle(t.Context(), time.Now())
		assert.Zero(t, l.settledAt, "something is in the pipeline")
		l.m.ingest.inflight.leave(j, true)
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

// The marks did not advance while events were in the pipeline. With constant events a restart
// fetched everything again. Now only earlier events are waited for.
func TestSettledWhileEventsCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := testLoop(t)
		l.started = true
		c := &relayConn{}
		l.conns[graspsync.RelayURL{}] = c
		start := time.Now()
		var flying []*job
		for second := range 600 {
			c.ahead.add(wire.Message{}) // one message is always read ahead
			if second > 0 {
				c.ahead.take(wire.Message{})
			}
			j := &job{key: copyKey{id: graspsync.EventID{byte(second >> 8), byte(second)}}}
			require.True(t, l.m.ingest.inflight.enter(j))
			if flying = append(flying, j); len(flying) > 5 { // number of steps for which an event is in the pipeline
				l.m.ingest.inflight.leave(flying[0], true)
				flying = flying[1:]
			}
			l.settle(t.Context(), time.Now())
			time.Sleep(time.Second)
		}
		assert.WithinDuration(t, start.Add(10*time.Minute), l.settledAt, 90*time.Second)
	})
}

// The writer may process events that are in no table: revived events.
func TestSettledAfterTheTurnOfTheWriter(t *testing.T) {
	g := testLoop(t).m.ingest
	g.inflight.turn.Add(1)
	at := g.inflight.mark()
	resting := g.inflight.resting(at)
	assert.False(t, resting)
	g.inflight.turn.Add(1)
	resting = g.inflight.resting(at)
	assert.True(t, resting)
	g.inflight.turn.Add(1) // the next turn: its events came later
	resting = g.inflight.resting(at)
	assert.True(t, resting)
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

// A jump is measured from the last reading of the clock.
func TestWatchClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := testLoop(t)
		u, err := graspsync.ParseRelayURL("wss://a.example")
		require.NoError(t, err)
		now := time.Now()
		l.plan.Step(now, plan.Restore{Relays: []plan.Kept{{Relay: u, Mark: now}}})
		l.watchClock(t.Context(), time.Now())
		time.Sleep(time.Hour)
		l.watchClock(t.Context(), time.Now())
		require.Equal(t, now, l.plan.Kept()[0].Mark)
	})
}
