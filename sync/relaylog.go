package sync

import (
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/health"
	"github.com/graspsync/graspsync/sync/internal/plan"
)

// failingLong is the time of failures after which a warning is logged.
const failingLong = time.Hour

// logFailing warns once about a relay that has failed for failingLong. A successful batch resets
// it.
func (m *SyncManager) logFailing(c *relayConn, reason string) {
	now := time.Now()
	if c.stats.failingSince.IsZero() {
		c.stats.failingSince = now
	}
	if !c.stats.warned && now.Sub(c.stats.failingSince) >= failingLong {
		c.stats.warned = true
		m.cfg.Logger.Warn("relay has failed for long", keyRelay, c.url.String(), "since", c.stats.failingSince, keyErr, reason)
	}
}

// logFailure logs a failed attempt. It warns once when the relay becomes dead.
func (m *SyncManager) logFailure(c *relayConn, err error) {
	st := m.health.Status(c.url)
	backoff := time.Until(st.NextAttempt).Round(time.Millisecond)
	args := []any{keyRelay, c.url.String(), keyAttempt, st.Failures, keyBackoff, backoff}
	m.logFailing(c, graspsync.Printable(err.Error()))
	if m.telemetry.mayLog(c.url, classFailed) {
		m.cfg.Logger.Info("connection failed", append(args, keyErr, graspsync.Printable(err.Error()))...)
	} else {
		m.cfg.Logger.Debug("connection failed", args...)
	}
	if st.State != health.Dead {
		c.stats.dead = false
		return
	}
	if !c.stats.dead {
		c.stats.dead = true
		m.cfg.Logger.Info("relay dead", keyRelay, c.url.String(), keyAttempt, st.Failures, "since", st.FailingSince)
	}
}

func (m *SyncManager) logLost(c *relayConn, err error) {
	if m.telemetry.mayLog(c.url, classLost) {
		m.cfg.Logger.Info("connection lost", keyRelay, c.url.String(), keyErr, graspsync.Printable(err.Error()))
	} else {
		m.cfg.Logger.Debug("connection lost", keyRelay, c.url.String())
	}
}

func (m *SyncManager) logBatch(msg batchResult, result plan.Result) {
	u, r, items, kind := msg.conn.url, msg.done.Report, msg.batch.Items, kindName(msg.batch.Kind)
	log := m.cfg.Logger.With(keyRelay, u.String(), keyItems, items)
	if result >= plan.Failed {
		reason := graspsync.Printable(r.Err)
		if reason == "" && result == plan.Failed {
			reason = "some events could not be saved"
		}
		m.logFailing(msg.conn, reason)
		if m.telemetry.mayLog(u, classBatch) {
			log.Info("fetching history failed", keyErr, reason)
		}
		m.telemetry.observe(BatchFailed{Relay: u, Kind: kind, Items: items, Reason: reason})
	} else {
		msg.conn.stats.failingSince, msg.conn.stats.warned = time.Time{}, false
		m.telemetry.observe(BatchConfirmed{
			Relay: u, Kind: kind, Items: items, Events: r.Events, Method: r.Method.String(),
			Gaps: result == plan.Gaps, Duration: time.Since(msg.since),
		})
	}
	if (r.Missing > 0 || r.Seconds > 0) && m.telemetry.mayLog(u, classIncomplete) {
		log.Info("history has gaps", "missing_events", r.Missing, "full_seconds", r.Seconds)
	}
}

func kindName(k plan.Kind) string {
	switch k {
	case plan.History:
		return "history"
	case plan.DailyHistory:
		return "daily"
	case plan.Recent:
		return "recent"
	case plan.Deletions:
		return "deletions"
	}
	return "other"
}
