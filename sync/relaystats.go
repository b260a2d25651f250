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

	completeness completeness
	bad          badSignatures
	host         limit.Stranger // read-only

	credit claimCredit // guarded by claims.mu

	// owned by the loop
	labelled bool // it has metrics of its own
	dead     bool // that was reported
	warned   bool // that it has failed for long
	// failingSince is the first failure since a batch of it ended without one.
	failingSince time.Time

	mu sync.Mutex
	// guarded by mu
	observed    relaylimits.Observed
	cooling     session.Cooling // the last time that it was left alone
	method      session.Method
	software    string
	lastErr     string
	connectedAt time.Time
	syncedAt    time.Time // when everything wanted had been fetched, zero before
}

// known returns what is believed of the relay, by name. s.mu is held.
func (s *relayStats) known(now time.Time) map[string]int { return s.observed.Known(now) }

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
func (s *relayStats) brought() { s.stored.Add(1) }

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

// learn has something believed about the relay for a while.
func (s *relayStats) learn(k relaylimits.Kind, value int, until time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.observed.Learn(k, value, until)
}

// setAside has a value left out of what is asked for, for a while.
func (s *relayStats) setAside(v relaylimits.Value, until time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.observed.SetAside(v, until)
}

// learned returns what is believed about the relay, and what is set aside.
func (s *relayStats) learned(now time.Time) (facts relaylimits.Facts, aside []relaylimits.Value) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.observed.Facts, s.observed.Aside(now)
}

// cooled remembers for the next connection how long the relay had to be left alone.
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

// cut takes in that the relay ended the connection rather than answer a request of
// this size.
func (s *relayStats) cut(size int, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.observed.Cut(size, now)
}

// answered takes in that the relay answered a request of this size.
func (s *relayStats) answered(size int, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.observed.Answered(size, now)
}

// hungUp takes in that the relay ended the connection rather than answer these requests.
func (s *relayStats) hungUp(unanswered []relaylimits.Forms, now time.Time, noNegentropy time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.observed.HungUp(unanswered, now, noNegentropy)
}

// took takes in that the relay answered a form over which it once hung up.
func (s *relayStats) took(f relaylimits.Form, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.observed.Took(f, now)
}

// suspects returns the forms over which the relay hung up.
func (s *relayStats) suspects(now time.Time) map[relaylimits.Form]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.observed.Suspects(now)
}

// allFacts returns everything that was learned.
func (s *relayStats) allFacts() relaylimits.Facts {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.observed.Facts
}

// allAside returns the values that the relay chokes on.
func (s *relayStats) allAside() []relaylimits.Aside {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.observed.AllAside()
}

// fill copies the counts into a status.
func (s *relayStats) fill(r *RelayStatus) {
	r.Events, r.Stored, r.Bytes = s.events.Load(), s.stored.Load(), s.bytes.Load()
	r.Unserved, r.Seconds, r.Strikes = s.missing.Load(), s.seconds.Load(), s.strikes.Load()
	r.Gaps, r.Lasting = s.gaps.Load(), s.lasting.Load()
	if r.Connected() {
		r.Queries, r.Requests = int(s.queries.Load()), int(s.requests.Load())
		r.Reconciling = int(s.reconciling.Load())
	}
	s.completeness.fill(r)
	s.mu.Lock()
	defer s.mu.Unlock()
	r.Method, r.Software, r.LastError = s.method.String(), graspsync.Printable(s.software), s.lastErr
	r.Learned = s.known(time.Now())
}

func (s *relayStats) syncTime() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.syncedAt.IsZero() {
		return 0
	}
	return s.syncedAt.Sub(s.connectedAt)
}
