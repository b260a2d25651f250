package sync

import (
	"context"
	"time"

	"github.com/graspsync/graspsync/sync/internal/plan"
)

const (
	settleEvery = time.Minute // between two Settled while the pipeline comes to rest
	leastJump   = time.Minute // of the wall clock
)

// settle tells the plan that all that was received is dealt with, if it is. What fails
// and is tried again is not: it holds up the relays that brought it, and no others.
func (l *loop) settle(ctx context.Context, now time.Time) {
	if !l.started || now.Sub(l.settledAt) < settleEvery || l.reading() {
		return
	}
	failing, resting := l.m.ingest.resting()
	if !resting {
		return
	}
	l.settledAt = now
	l.step(ctx, plan.Settled{At: now, Except: failing})
}

// reading reports whether something was read that is not in the pipeline yet. It is
// looked at before the pipeline: that is the way things go.
func (l *loop) reading() bool {
	for _, c := range l.conns {
		if c.ahead.Load() > 0 {
			return true
		}
	}
	return false
}

// watchClock tells the plan if the wall clock was set. The plan compares times by
// the monotonic clock, but what it asks relays for is in wall time.
func (l *loop) watchClock(ctx context.Context, now time.Time) {
	last := l.clockAt
	l.clockAt = now
	if last.IsZero() {
		return
	}
	if by, jumped := clockJump(now.Round(0).Sub(last.Round(0)), now.Sub(last)); jumped {
		l.m.cfg.Logger.Warn("the clock was set", "by", by)
		l.step(ctx, plan.ClockJumped{By: by})
	}
}

// clockJump returns by how much the wall clock went ahead of the monotonic one, and
// whether that is more than clocks are corrected by.
func clockJump(wall, monotonic time.Duration) (by time.Duration, jumped bool) {
	by = (wall - monotonic).Round(time.Second)
	return by, by > leastJump || by < -leastJump
}
