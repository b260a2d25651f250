package sync

import (
	"log/slog"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/sync/internal/plan"
	"github.com/graspsync/graspsync/sync/internal/relaylimits"
	"github.com/graspsync/graspsync/sync/internal/session"
	"github.com/graspsync/graspsync/sync/wire"
)

func sessionConfig(cfg *Config, stats *relayStats, limits relaylimits.Limits, info wire.Info) session.Config {
	now, t := time.Now(), cfg.constants
	facts, aside, cooled := stats.learned(now)
	c := session.Config{
		Historic: limits.Historic(), Reconciling: 2,
		PageLimit: t.PageLimit, MaxPage: maxPage, IDChunk: idsPerRequest,
		NegFrame: min(negentropyFrame, limits.MaxMessage/4), NegRounds: negentropyRounds, NegIDs: negentropyIDs,
		Limits: limits, Excluded: aside, PageSize: facts.Value(relaylimits.PageSize, now),
		Auth: cfg.Signer != nil, Cooled: cooled, MaxStrikes: strikes,
	}
	c.IDChunk = min(c.IDChunk, (limits.MaxMessage-200)/67) // of 64 digits, quotes and a comma
	if limits.MaxValues > 0 {
		c.IDChunk = min(c.IDChunk, limits.MaxValues)
	}
	if n := info.MaxLimit; n > 0 {
		n = max(n, leastPageLimit) // a smaller page would leave a gap in a second with more events
		c.PageLimit = min(n, 2*t.PageLimit)
		c.IDChunk = min(n, c.IDChunk)
	}
	return c
}

func (c *relayConn) updateLimits(now time.Time) (aside []relaylimits.Value, changed bool) {
	facts, aside, _ := c.stats.learned(now)
	limits := facts.Effective(relaylimits.Declared(c.info, usual), now)
	if c.session != nil && limits.Requests != c.limits.Requests {
		c.m.inbox.put(planInput{plan.LimitsChanged{Relay: c.url, Epoch: c.epoch, Limits: limits.Requests}})
	}
	changed = limits != c.limits || len(aside) != c.excluded
	c.limits, c.excluded = limits, len(aside)
	return aside, changed
}

// expireLimits discards facts that are older than relaylimits.FactLifetime, because relays improve.
func (c *relayConn) expireLimits(now time.Time) {
	if aside, changed := c.updateLimits(now); changed {
		c.session.SetLimits(c.limits, aside)
	}
}

func (c *relayConn) learn(a session.Learned) {
	now := time.Now()
	until := now.Add(relaylimits.FactLifetime)
	if a.Kind == relaylimits.NoNegentropy && !a.Wrong {
		until = now.Add(negentropyRetry)
	}
	c.stats.with(func() { c.stats.observed.Facts.Learn(a.Kind, a.Value, until) })
	c.m.telemetry.count(c.m.telemetry.learned, a.Kind.String(), 1)
	c.m.telemetry.remote(slog.LevelInfo, c.url, "relay limit learned",
		"fact", a.Kind.String(), "value", a.Value, keyReason, graspsync.Printable(a.Reason))
	c.updateLimits(now)
}

// excludeValue excludes a value, because the relay refuses every filter that contains it.
func (c *relayConn) excludeValue(v relaylimits.Value) {
	now := time.Now()
	c.stats.with(func() { c.stats.observed.Omit(v, now, now.Add(relaylimits.FactLifetime)) })
	c.m.telemetry.drop("bad_value", 1)
	c.m.telemetry.remote(slog.LevelInfo, c.url, "relay refused a filter value", "list", v.Tag, "value", graspsync.Printable(v.Text))
	c.updateLimits(now)
}
