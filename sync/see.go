package sync

import (
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/health"
	"github.com/graspsync/graspsync/sync/internal/plan"
)

// What is logged and told to the observer where the loop and the connections only
// say that it happened.

// failure reports a failed attempt, and once that the relay is dead.
func (l *loop) failure(c *conn, err error) {
	st := l.m.health.Status(c.url)
	backoff := time.Until(st.NextAttempt).Round(time.Millisecond)
	args := []any{keyRelay, c.url.String(), keyAttempt, st.Failures, keyBackoff, backoff}
	if l.m.mayLog(c.url, classFailed) {
		l.m.cfg.Logger.Warn("connection failed", append(args, keyErr, graspsync.Printable(err.Error()))...)
	} else {
		l.m.cfg.Logger.Debug("connection failed", args...)
	}
	l.m.observe(RelayFailed{Relay: c.url, Attempt: st.Failures, Backoff: backoff, Err: err})
	if st.State != health.Dead {
		c.stats.dead = false
		return
	}
	if !c.stats.dead {
		c.stats.dead = true
		l.m.cfg.Logger.Error("relay dead", keyRelay, c.url.String(), keyAttempt, st.Failures, "since", st.FailingSince)
		l.m.observe(RelayDead{Relay: c.url, Since: st.FailingSince})
	}
}

func (l *loop) connectionLost(c *conn, err error) {
	if l.m.mayLog(c.url, classLost) {
		l.m.cfg.Logger.Info("connection lost", keyRelay, c.url.String(), keyErr, graspsync.Printable(err.Error()))
	} else {
		l.m.cfg.Logger.Debug("connection lost", keyRelay, c.url.String())
	}
	l.m.observe(RelayLost{Relay: c.url, Err: err})
}

// batchEnded reports the end of a batch, whatever it was.
func (l *loop) batchEnded(msg batchDone, result plan.Result) {
	u, r, items, kind := msg.conn.url, msg.done.Report, msg.batch.Items, kindName(msg.batch.Kind)
	log := l.m.cfg.Logger.With(keyRelay, u.String(), keyItems, items)
	if result >= plan.Failed {
		reason := graspsync.Printable(r.Err)
		if reason == "" && result == plan.Failed {
			reason = "some events could not be saved"
		}
		if l.m.mayLog(u, classBatch) {
			log.Warn("fetching history failed", keyErr, reason)
		}
		l.m.observe(BatchFailed{Relay: u, Kind: kind, Items: items, Reason: reason})
	} else {
		l.m.observe(BatchConfirmed{
			Relay: u, Kind: kind, Items: items, Events: r.Events, Method: r.Method.String(),
			Gaps: result == plan.Gaps, Duration: time.Since(msg.since),
		})
	}
	if (r.Missing > 0 || r.Seconds > 0) && l.m.mayLog(u, classIncomplete) {
		log.Warn("history has gaps", "missing_events", r.Missing, "full_seconds", r.Seconds)
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

// passStarted begins to compare anew what a relay lacks.
func (l *loop) passStarted(e plan.Reset) {
	if st := l.stats[e.Relay]; st != nil {
		st.coverage.begin()
	}
	l.m.observe(PassStarted{Relay: e.Relay, Daily: e.Daily})
}

func (c *conn) refusedLive(reason string) {
	reason = graspsync.Printable(reason)
	if c.m.mayLog(c.url, classRefusal) {
		c.m.cfg.Logger.Debug("live subscription refused", keyRelay, c.url.String(), keyReason, reason)
	}
	c.m.observe(RelayRefused{Relay: c.url, Reason: reason})
}

// learned reports a fact that the relay has taught. Reason may be the relay's.
func (c *conn) learned(fact string, value int, reason string) {
	c.m.counters.learnedFact(fact)
	if c.m.mayLog(c.url, classLearned) {
		c.m.cfg.Logger.Info("relay taught a limit", keyRelay, c.url.String(),
			"fact", fact, "value", value, keyReason, graspsync.Printable(reason))
	}
	c.m.observe(RelayLearned{Relay: c.url, Fact: fact, Value: value})
}

// gap counts an event that a live subscription should have brought.
func (c *conn) gap(in graspsync.Incoming) {
	c.stats.gaps.Add(1)
	c.stats.coverage.missed(c.m.index.reposOf(in.Event))
	lasting := in.Source.Kind == graspsync.Daily
	id, _ := graspsync.ParseEventID(in.Event.ID) // it was stored, so it is one
	c.m.observe(GapFound{Relay: c.url, ID: id, Lasting: lasting})
	if lasting {
		c.stats.lasting.Add(1)
		if c.m.mayLog(c.url, classLastingGap) {
			c.m.cfg.Logger.Error("daily pass found an event that was missed", keyRelay, c.url.String(), keyEvent, in.Event.ID)
		}
		return
	}
	if c.m.mayLog(c.url, classGap) {
		c.m.cfg.Logger.Warn("catch-up found an event that was missed", keyRelay, c.url.String(), keyEvent, in.Event.ID)
	}
}
