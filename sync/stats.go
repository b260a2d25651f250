package sync

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/sync/internal/allowance"
	"github.com/graspsync/graspsync/sync/internal/learned"
	"github.com/graspsync/graspsync/sync/internal/session"
	"github.com/graspsync/graspsync/sync/wire"
)

// relayStats counts what happens with one relay, over all its connections.
type relayStats struct {
	bytes, messages atomic.Uint64 // received
	events          atomic.Uint64 // received that were asked for
	stored          atomic.Uint64 // of these, newly stored
	gaps            atomic.Uint64 // of these, missed by a live subscription
	lasting         atomic.Uint64 // of these, found by the daily pass
	strikes         atomic.Uint64
	missing         atomic.Uint64 // announced and not served
	seconds         atomic.Uint64 // that hold more events than a page

	requests, reconciling, queries atomic.Int64 // under way

	coverage coverage
	work     *work // read-only
	bad      badCopies

	// owned by the loop
	labelled bool // it has metrics of its own
	dead     bool // that was reported

	mu sync.Mutex
	// guarded by mu
	allowance   allowance.Bucket
	facts       learned.Facts
	aside       map[session.Value]time.Time // until when
	cuts        cuts
	cooling     session.Cooling // the last time that it was left alone
	method      session.Method
	software    string
	lastErr     string
	connectedAt time.Time
	syncedAt    time.Time // when everything wanted had been fetched, zero before
}

// known returns what is believed of the relay, by name. s.mu is held.
func (s *relayStats) known(now time.Time) map[string]int { return s.facts.Known(now) }

// progress notes what is under way on the connection.
func (s *relayStats) progress(p session.Progress) {
	s.requests.Store(int64(p.Requests))
	s.reconciling.Store(int64(p.Reconciling))
	s.queries.Store(int64(p.Queries))
}

func (s *relayStats) connected(now time.Time, info wire.Info) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.connectedAt, s.syncedAt, s.lastErr = now, time.Time{}, ""
	s.software = info.Software
}

// brought counts an event of the relay's that is stored.
func (s *relayStats) brought(size int64) {
	s.stored.Add(1)
	s.earn(size)
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
	if r.PageSize > 0 && r.PageSize >= s.facts.Value(learned.PageSize, now) {
		s.facts.Learn(learned.PageSize, r.PageSize, now.Add(learned.Longest))
	}
	if r.Err != "" {
		s.lastErr = graspsync.Printable(r.Err)
	}
}

// noteSynced remembers when the relay was first seen to be synced, and forgets it
// when there is more to fetch. It reports whether it is news that it is synced.
func (s *relayStats) noteSynced(now time.Time, synced bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !synced:
		s.syncedAt = time.Time{}
	case s.syncedAt.IsZero():
		s.syncedAt = now
		return true
	}
	return false
}
