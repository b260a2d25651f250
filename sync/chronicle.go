package sync

import (
	"log/slog"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/health"
	"github.com/graspsync/graspsync/sync/internal/plan"
)

// chronicle tells the log and the observer what becomes of relays.
type chronicle struct {
	log    *slog.Logger
	health *health.RelayHealthTracker
	report *report
}

// failingLong is how long a relay must have failed before that is worth a warning.
const failingLong = time.Hour

// failing warns, once, of a relay that has failed for long. It ends with a batch that did not fail.
func (h *chronicle) failing(c *conn, reason string) {
	now := time.Now()
	if c.stats.failingSince.IsZero() {
		c.stats.failingSince = now
	}
	if !c.stats.warned && now.Sub(c.stats.failingSince) >= failingLong {
		c.stats.warned = true
		h.log.Warn("relay has failed for long", keyRelay, c.url.String(), "since", c.stats.failingSince, keyErr, reason)
	}
}

// failure reports a failed attempt, and once that the relay is dead.
func (h *chronicle) failure(c *conn, err error) {
	st := h.health.Status(c.url)
	backoff := time.Until(st.NextAttempt).Round(time.Millisecond)
	args := []any{keyRelay, c.url.String(), keyAttempt, st.Failures, keyBackoff, backoff}
	h.failing(c, graspsync.Printable(err.Error()))
	if h.report.mayLog(c.url, classFailed) {
		h.log.Info("connection failed", append(args, keyErr, graspsync.Printable(err.Error()))...)
	} else {
		h.log.Debug("connection failed", args...)
	}
	h.report.observe(RelayFailed{Relay: c.url, Attempt: st.Failures, Backoff: backoff, Err: err})
	if st.State != health.Dead {
		c.stats.dead = false
		return
	}
	if !c.stats.dead {
		c.stats.dead = true
		h.log.Info("relay dead", keyRelay, c.url.String(), keyAttempt, st.Failures, "since", st.FailingSince)
		h.report.observe(RelayDead{Relay: c.url, Since: st.FailingSince})
	}
}

func (h *chronicle) connectionLost(c *conn, err error) {
	if h.report.mayLog(c.url, classLost) {
		h.log.Info("connection lost", keyRelay, c.url.String(), keyErr, graspsync.Printable(err.Error()))
	} else {
		h.log.Debug("connection lost", keyRelay, c.url.String())
	}
	h.report.observe(RelayLost{Relay: c.url, Err: err})
}

// batchEnded reports the end of a batch, whatever it was.
func (h *chronicle) batchEnded(msg batchDone, result plan.Result) {
	u, r, items, kind := msg.conn.url, msg.done.Report, msg.batch.Items, kindName(msg.batch.Kind)
	log := h.log.With(keyRelay, u.String(), keyItems, items)
	if result >= plan.Failed {
		reason := graspsync.Printable(r.Err)
		if reason == "" && result == plan.Failed {
			reason = "some events could not be saved"
		}
		h.failing(msg.conn, reason)
		if h.report.mayLog(u, classBatch) {
			log.Info("fetching history failed", keyErr, reason)
		}
		h.report.observe(BatchFailed{Relay: u, Kind: kind, Items: items, Reason: reason})
	} else {
		msg.conn.stats.failingSince, msg.conn.stats.warned = time.Time{}, false
		h.report.observe(BatchConfirmed{
			Relay: u, Kind: kind, Items: items, Events: r.Events, Method: r.Method.String(),
			Gaps: result == plan.Gaps, Duration: time.Since(msg.since),
		})
	}
	if (r.Missing > 0 || r.Seconds > 0) && h.report.mayLog(u, classIncomplete) {
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

// peerLacks reports what a relay that was compared to its end lacks.
func (h *chronicle) peerLacks(u graspsync.RelayURL, st *relayStats, now time.Time) {
	ref, count, repos := st.coverage.worst(now)
	if count == 0 {
		return
	}
	h.log.Info("peer lacks events that we have", keyRelay, u.String(),
		"repo", graspsync.Printable(ref.String()), "count", count, "repos", repos)
}
