package sync

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/health"
	"github.com/graspsync/graspsync/limit"
	"github.com/graspsync/graspsync/sync/internal/plan"
	"github.com/graspsync/graspsync/sync/internal/relaylimits"
	"github.com/graspsync/graspsync/sync/internal/session"
)

// relayStats contains the counts and the learned facts of one relay, over all its connections.
type relayStats struct {
	bytes, messages atomic.Uint64 // received
	events          atomic.Uint64 // requested events that were received
	stored          atomic.Uint64 // newly stored events
	gaps            atomic.Uint64 // events missed by a live subscription
	lasting         atomic.Uint64 // gaps found by the daily pass
	strikes         atomic.Uint64
	missing         atomic.Uint64 // ids that the relay announced, of events that it did not serve
	seconds         atomic.Uint64 // seconds with more events than a page

	host limit.Stranger // read-only

	// owned by the loop
	failingSince time.Time // the first failure since the last successful batch, or zero
	warned       bool      // failingLong was logged

	mu sync.Mutex
	// guarded by mu
	observed relaylimits.Learned
	cooling  session.Cooling // the last rate limit
	method   session.Method
	software string
	lastErr  string
	lostBy   string                                  // the limit that may have ended the last connection
	badSigs  *limit.Table[graspsync.EventID, string] // the last signature of each event; may be nil
}

func (s *relayStats) with(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

func (s *relayStats) failed(err string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastErr = err
}

// lostAgain reports whether the same limit may have ended the connection before.
func (s *relayStats) lostAgain(k relaylimits.Kind) (again bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	again = s.lostBy == k.String()
	s.lostBy = k.String()
	return again
}

func (s *relayStats) batch(r session.Report, now time.Time) {
	s.missing.Add(uint64(r.Missing))
	s.seconds.Add(uint64(r.Seconds))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lostBy = ""
	s.method |= r.Method
	s.observed.Page(r.PageSize, now)
	if r.Err != "" {
		s.lastErr = graspsync.Printable(r.Err)
	}
}

func (s *relayStats) learned(now time.Time) (relaylimits.Facts, []relaylimits.Value, session.Cooling) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.observed.Facts, s.observed.Omitted(now), s.cooling
}

func (s *relayStats) fill(r *RelayStatus) {
	r.Events, r.Stored, r.Bytes = s.events.Load(), s.stored.Load(), s.bytes.Load()
	r.Unserved, r.Seconds, r.Strikes = s.missing.Load(), s.seconds.Load(), s.strikes.Load()
	r.Gaps, r.Lasting = s.gaps.Load(), s.lasting.Load()
	s.mu.Lock()
	defer s.mu.Unlock()
	r.Method, r.Software, r.LastError = s.method.String(), graspsync.Printable(s.software), s.lastErr
	r.Learned = s.observed.Facts.Known(time.Now())
}

// failingLong is the time of failures after which a warning is logged.
const failingLong = time.Hour

func (m *SyncManager) logFailing(s *relayStats, u graspsync.RelayURL, reason string) {
	now := time.Now()
	if s.failingSince.IsZero() {
		s.failingSince = now
	}
	if !s.warned && now.Sub(s.failingSince) >= failingLong {
		s.warned = true
		m.cfg.Logger.Warn("relay has failed for long", keyRelay, u.String(), "since", s.failingSince, keyErr, reason)
	}
}

func (m *SyncManager) logFailure(c *relayConn, err error) {
	st := m.health.Status(c.url)
	backoff := time.Until(st.NextAttempt).Round(time.Millisecond)
	m.logFailing(c.stats, c.url, graspsync.Printable(err.Error()))
	msg := "connection failed"
	if st.State == health.Dead {
		msg = "relay dead"
	}
	m.telemetry.remote(slog.LevelInfo, c.url, msg,
		keyAttempt, st.Failures, keyBackoff, backoff, keyErr, graspsync.Printable(err.Error()))
}

func (m *SyncManager) logBatch(msg batchResult, result plan.Result) {
	u, r, items := msg.conn.url, msg.done.Report, msg.batch.Items
	if result >= plan.Failed {
		reason := graspsync.Printable(r.Err)
		if reason == "" && result == plan.Failed {
			reason = "some events could not be saved"
		}
		m.logFailing(msg.conn.stats, u, reason)
		m.telemetry.remote(slog.LevelInfo, u, "fetching history failed", keyItems, items, keyErr, reason)
	} else {
		msg.conn.stats.failingSince, msg.conn.stats.warned = time.Time{}, false
		m.telemetry.observe(Observation{Is: BatchConfirmed, Source: graspsync.Source{Relay: u}})
	}
	if r.Missing > 0 || r.Seconds > 0 {
		m.telemetry.remote(slog.LevelInfo, u, "history has gaps", keyItems, items, "missing_events", r.Missing, "full_seconds", r.Seconds)
	}
}

const maxBad = 512

// addBad records a copy with a wrong signature and reports whether it is the first bad copy of the
// event. An honest relay may have stored such an event long ago, so each event counts as hostile
// once and is not checked or fetched again.
func (s *relayStats) addBad(k copyKey) (first bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.badSigs == nil {
		s.badSigs = limit.NewTable[graspsync.EventID, string](maxBad, 0)
	}
	_, known := s.badSigs.Get(k.id)
	s.badSigs.Put(k.id, limit.Stranger{}, 0, k.sig)
	return !known
}

func (s *relayStats) badSig(id graspsync.EventID) (sig string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.badSigs != nil {
		sig, _ = s.badSigs.Get(id)
	}
	return sig
}
