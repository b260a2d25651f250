package sync

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/limit"
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

// suspects returns the forms of requests over which the relay disconnected.
func (s *relayStats) suspects(now time.Time) map[relaylimits.Form]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.observed.Suspects(now)
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
