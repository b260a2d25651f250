package sync

import (
	"context"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/sync/internal/lazy"
	"github.com/graspsync/graspsync/sync/internal/plan"
)

const (
	settleEvery = time.Minute // between two Settled
	leastJump   = time.Minute // of the wall clock
)

// settling is the wait for all that had been received at a moment to be dealt with.
// What comes later is not waited for, so that it has an end however much comes.
type settling struct {
	at   time.Time
	read map[*conn]uint64                // messages that were read then and not in the pipeline yet
	last stage                           // of the pipeline, once they all are in it
	in   bool                            // they are
	late map[graspsync.RelayURL]struct{} // relays of which not all was read then
}

// settle tells the plan, once a minute, up to when all that was received is dealt with.
// What fails and is tried again is not: it holds up the relays that brought it, and no
// others.
func (l *loop) settle(ctx context.Context, now time.Time) {
	s := &l.settling
	if s.at.IsZero() {
		if !l.started || now.Sub(l.settledAt) < settleEvery {
			return
		}
		*s = settling{at: now, read: make(map[*conn]uint64)}
		for _, c := range l.conns {
			s.read[c] = c.ahead.read.Load()
			if !c.signs.behind(c.ahead.done()).IsZero() {
				lazy.Put(&s.late, c.url, struct{}{})
			}
		}
		l.catchUp(ctx, now)
	}
	// First what was read is looked for, then the pipeline: that is the way things go.
	for c, n := range s.read {
		if l.conns[c.url] == c && c.ahead.taken.Load() < n {
			return
		}
	}
	if !s.in {
		s.in, s.last = true, l.m.ingest.stage()
	}
	failing, resting := l.m.ingest.resting(s.last)
	if !resting {
		return
	}
	at := s.at
	for u := range s.late {
		lazy.Put(&failing, u, struct{}{})
	}
	*s, l.settledAt = settling{}, now
	l.step(ctx, plan.Settled{At: at, Except: failing})
}

// catchUp has the plan ask for what connections have left out.
func (l *loop) catchUp(ctx context.Context, now time.Time) {
	for u, c := range l.conns {
		if since := c.signs.takeSkipped(now); !since.IsZero() {
			l.step(ctx, plan.Skipped{Relay: u, Epoch: c.epoch, Since: since})
		}
	}
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
		l.settling = settling{} // it began at another time
		l.step(ctx, plan.ClockJumped{By: by})
	}
}

// clockJump returns by how much the wall clock went ahead of the monotonic one, and
// whether that is more than clocks are corrected by.
func clockJump(wall, monotonic time.Duration) (by time.Duration, jumped bool) {
	by = (wall - monotonic).Round(time.Second)
	return by, by > leastJump || by < -leastJump
}
