package sync

import (
	"hash/maphash"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/health"
	"github.com/graspsync/graspsync/limit"
	"github.com/graspsync/graspsync/sync/internal/lazy"
	"github.com/graspsync/graspsync/sync/internal/plan"
	"github.com/graspsync/graspsync/sync/internal/relaylimits"
	"github.com/graspsync/graspsync/sync/internal/session"
	"github.com/graspsync/graspsync/sync/wire"
)

// relayStats contains the counts and the learned facts of one relay, over all its connections.
type relayStats struct {
	bytes, messages atomic.Uint64 // received
	events          atomic.Uint64 // requested events that were received
	stored          atomic.Uint64 // of these, newly stored
	gaps            atomic.Uint64 // of these, missed by a live subscription
	lasting         atomic.Uint64 // of these, found by the daily pass
	strikes         atomic.Uint64
	missing         atomic.Uint64 // ids that the relay announced, of events that it did not serve
	seconds         atomic.Uint64 // seconds with more events than a page

	completeness completeness
	bad          badSignatures
	host         limit.Stranger // read-only

	// owned by the loop
	dead   bool // that it is dead was logged
	warned bool // failingLong was logged
	// failingSince is the first failure since the last successful batch.
	failingSince time.Time

	mu sync.Mutex
	// guarded by mu
	observed relaylimits.Observed
	cooling  session.Cooling // the last rate limit
	method   session.Method
	software string
	lastErr  string
}

func (s *relayStats) connected(info wire.Info) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.software, s.lastErr = info.Software, ""
}

func (s *relayStats) failed(err string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastErr = err
}

func (s *relayStats) batch(r session.Report, now time.Time) {
	s.missing.Add(uint64(r.Missing))
	s.seconds.Add(uint64(r.Seconds))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.method |= r.Method
	s.observed.Page(r.PageSize, now)
	if r.Err != "" {
		s.lastErr = graspsync.Printable(r.Err)
	}
}

// learn calls f with the limits that are known of the relay.
func (s *relayStats) learn(f func(*relaylimits.Observed)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(&s.observed)
}

func (s *relayStats) learned(now time.Time) (facts relaylimits.Facts, aside []relaylimits.Value) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.observed.Facts, s.observed.Aside(now)
}

// cooled records a rate limit for the next connection.
func (s *relayStats) cooled(c session.Cooling) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cooling = c
}

func (s *relayStats) lastCooled() session.Cooling {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cooling
}

func (s *relayStats) fill(r *RelayStatus) {
	r.Events, r.Stored, r.Bytes = s.events.Load(), s.stored.Load(), s.bytes.Load()
	r.Unserved, r.Seconds, r.Strikes = s.missing.Load(), s.seconds.Load(), s.strikes.Load()
	r.Gaps, r.Lasting = s.gaps.Load(), s.lasting.Load()
	s.completeness.fill(r)
	s.mu.Lock()
	defer s.mu.Unlock()
	r.Method, r.Software, r.LastError = s.method.String(), graspsync.Printable(s.software), s.lastErr
	r.Learned = s.observed.Known(time.Now())
}

// failingLong is the time of failures after which a warning is logged.
const failingLong = time.Hour

// logFailing warns once about a relay that has failed for failingLong.
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

// logFailure logs a failed attempt.
func (m *SyncManager) logFailure(c *relayConn, err error) {
	st := m.health.Status(c.url)
	backoff := time.Until(st.NextAttempt).Round(time.Millisecond)
	m.logFailing(c, graspsync.Printable(err.Error()))
	m.telemetry.remote(slog.LevelInfo, c.url, classFailed, "connection failed",
		keyAttempt, st.Failures, keyBackoff, backoff, keyErr, graspsync.Printable(err.Error()))
	if st.State != health.Dead {
		c.stats.dead = false
		return
	}
	if !c.stats.dead {
		c.stats.dead = true
		m.cfg.Logger.Info("relay dead", keyRelay, c.url.String(), keyAttempt, st.Failures, "since", st.FailingSince)
	}
}

func (m *SyncManager) logBatch(msg batchResult, result plan.Result) {
	u, r, items := msg.conn.url, msg.done.Report, msg.batch.Items
	if result >= plan.Failed {
		reason := graspsync.Printable(r.Err)
		if reason == "" && result == plan.Failed {
			reason = "some events could not be saved"
		}
		m.logFailing(msg.conn, reason)
		m.telemetry.remote(slog.LevelInfo, u, classBatch, "fetching history failed", keyItems, items, keyErr, reason)
	} else {
		msg.conn.stats.failingSince, msg.conn.stats.warned = time.Time{}, false
		m.telemetry.observe(BatchConfirmed{
			Relay: u, Kind: kindName(msg.batch.Kind), Items: items, Events: r.Events, Method: r.Method.String(),
			Gaps: result == plan.Gaps, Duration: time.Since(msg.since),
		})
	}
	if r.Missing > 0 || r.Seconds > 0 {
		m.telemetry.remote(slog.LevelInfo, u, classIncomplete, "history has gaps", keyItems, items, "missing_events", r.Missing, "full_seconds", r.Seconds)
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

const maxBad = 512

// badSignatures contains the events of a relay that had a wrong signature, over all its
// connections. At most maxBad are kept. An honest relay may have stored such an event long ago, so
// each event counts as hostile once and is not checked or fetched again. The zero value is ready.
// It is safe for concurrent use.
type badSignatures struct {
	mu   sync.Mutex
	sigs *limit.Table[graspsync.EventID, string] // the last signature of each event, guarded by mu; may be nil
}

// add records a copy and reports whether it is the first bad copy of the event.
func (b *badSignatures) add(k copyKey) (first bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.sigs == nil {
		b.sigs = limit.NewTable[graspsync.EventID, string](maxBad, 0)
	}
	_, known := b.sigs.Get(k.id)
	b.sigs.Put(k.id, limit.Stranger{}, 0, k.sig)
	return !known
}

// has reports whether this copy has a wrong signature.
func (b *badSignatures) has(k copyKey) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.sigs == nil {
		return false
	}
	sig, known := b.sigs.Get(k.id)
	return known && sig == k.sig
}

func (b *badSignatures) without(ids []graspsync.EventID) []graspsync.EventID {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.sigs == nil {
		return ids
	}
	return slices.DeleteFunc(ids, func(id graspsync.EventID) bool {
		_, bad := b.sigs.Get(id)
		return bad
	})
}

// repeatFilter detects a relay that sends the same event repeatedly on a subscription. It is a
// lossy hash table of 64 KiB in which later events replace earlier ones. The zero value is ready.
type repeatFilter struct {
	seed  maphash.Seed
	slots []uint64
}

func (r *repeatFilter) seen(sub string, id graspsync.EventID) bool {
	const slots = 8 << 10
	if r.slots == nil {
		r.seed, r.slots = maphash.MakeSeed(), make([]uint64, slots)
	}
	var h maphash.Hash
	h.SetSeed(r.seed)
	_, _ = h.WriteString(sub) // never fails
	_ = h.WriteByte(0)
	_, _ = h.Write(id[:])
	sum := h.Sum64()
	slot := &r.slots[sum%slots]
	if *slot == sum {
		return true
	}
	*slot = sum
	return false
}

// Limits per relay.
const (
	lackingIDs    = 2_048 // lacking events of one pass
	coverageRepos = 1_024 // repositories with their own counts
)

// lackingAfter is the minimum age of an event that counts as lacking at a relay, because newer
// events may still arrive.
const lackingAfter = 10 * time.Minute

// completeness counts, per repository, the events that a relay lacks and the events that only its
// history delivered. The zero value is empty.
type completeness struct {
	mu sync.Mutex
	// guarded by mu
	comparedAt time.Time                  // end of the last reconciliation, zero: none
	seen       map[graspsync.EventID]bool // lacking events of this pass
	lacks      map[graspsync.RepoRef]int  // number of these by repository
	lacksAll   int                        // number of these of any repository
	had        map[graspsync.RepoRef]int  // events that we missed since the start
}

func (c *completeness) begin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen, c.lacks, c.lacksAll = nil, nil, 0
}

// missed counts an event that should have arrived earlier.
func (c *completeness) missed(refs []graspsync.RepoRef) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, ref := range refs {
		countRepo(&c.had, ref)
	}
}

func countRepo(m *map[graspsync.RepoRef]int, ref graspsync.RepoRef) {
	if _, ok := (*m)[ref]; ok || len(*m) < coverageRepos {
		lazy.Put(m, ref, (*m)[ref]+1)
	}
}

// fresh records a reconciliation.
func (c *completeness) fresh(ids []graspsync.EventID, now time.Time) []graspsync.EventID {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.comparedAt = now
	var out []graspsync.EventID
	for _, id := range ids {
		if len(c.seen) >= lackingIDs {
			break
		}
		if !c.seen[id] {
			lazy.Put(&c.seen, id, true)
			out = append(out, id)
		}
	}
	return out
}

// counted adds the result of a lookup. events has the repositories of each lacking event.
func (c *completeness) counted(events [][]graspsync.RepoRef) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, refs := range events {
		c.lacksAll++
		for _, ref := range refs {
			countRepo(&c.lacks, ref)
		}
	}
}

func (c *completeness) of(ref graspsync.RepoRef) (lacks, had int, comparedAt time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lacks[ref], c.had[ref], c.comparedAt
}

func (c *completeness) fill(r *RelayStatus) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r.Lacks, r.ComparedAt = c.lacksAll, c.comparedAt
}
