package sync

import (
	"time"

	"github.com/graspsync/graspsync/health"
	"github.com/graspsync/graspsync/sync/internal/relaylimits"
	"github.com/graspsync/graspsync/sync/internal/session"
	"github.com/graspsync/graspsync/sync/wire"
)

// sessionConfig says how a session with a relay goes about it.
func sessionConfig(cfg *Config, stats *relayStats, limits relaylimits.Limits, info wire.Info) session.Config {
	now, t := time.Now(), cfg.fixed
	facts, aside := stats.learned(now)
	c := session.Config{
		Historic: limits.Historic(), Reconciling: 2,
		PageLimit: t.PageLimit, MaxPage: t.MaxPage, IDChunk: t.IDsPerRequest,
		NegFrame: min(t.NegentropyFrame, limits.MaxMessage/4), NegRounds: t.NegentropyRounds, NegIDs: t.NegentropyIDs,
		Limits: limits, SetAside: aside, PageSize: facts.Value(relaylimits.PageSize, now),
		Auth:        cfg.Signer != nil,
		OpenTimeout: t.OpenTimeout,
		FirstNeg:    t.NegentropyFirst, NegTimeout: t.NegentropyTimeout,
		FirstAnswer: t.FirstAnswer, IdleTimeout: cfg.fixed.IdleTimeout, TotalTimeout: cfg.fixed.TotalTimeout,
		Cooldown: health.RateLimitPause, Cooled: stats.lastCooled(), GapAge: t.GapAge, MaxStrikes: t.Strikes,
	}
	c.IDChunk = min(c.IDChunk, (limits.MaxMessage-200)/67) // of 64 digits, quotes and a comma
	if limits.MaxValues > 0 {
		c.IDChunk = min(c.IDChunk, limits.MaxValues)
	}
	if n := info.MaxLimit; n > 0 {
		c.PageLimit = min(n, 2*t.PageLimit)
		c.IDChunk = min(n, c.IDChunk)
	}
	return c
}
