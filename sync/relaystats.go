package sync

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/sync/internal/allowance"
	"github.com/graspsync/graspsync/sync/internal/learned"
	"github.com/graspsync/graspsync/sync/internal/memory"
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

// learn has something believed about the relay for a while.
func (s *relayStats) learn(k learned.Kind, value int, until time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.facts.Learn(k, value, until)
}

// setAside has a value left out of what is asked for, for a while.
func (s *relayStats) setAside(v session.Value, until time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.aside == nil {
		s.aside = make(map[session.Value]time.Time)
	}
	if len(s.aside) < maxAside {
		s.aside[v] = until
	}
}

// learned returns what is believed about the relay, and what is set aside.
func (s *relayStats) learned(now time.Time) (facts learned.Facts, aside []session.Value) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for v, until := range s.aside {
		if now.Before(until) {
			aside = append(aside, v)
		} else {
			delete(s.aside, v)
		}
	}
	return s.facts, aside
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

// cuts are the connections that a relay ended rather than answer a large request.
type cuts struct {
	size   int // the smallest of these requests
	count  int // in a row, none as large answered in between
	took   int // the largest request that it has answered
	tookAt time.Time
}

// How many cuts in a row are taken to be about the size of requests. A relay that has
// answered as large a one within a day is more likely to be one that drops its
// connections for reasons of its own.
const (
	cutsBelieved = 2
	cutsDoubted  = 6
)

// cut takes in that the relay ended the connection rather than answer a request of
// this size. Once may be chance; the second time it is taken to be why.
func (s *relayStats) cut(size int, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := &s.cuts
	if c.count++; c.count == 1 || size < c.size {
		c.size = size
	}
	needs := cutsBelieved
	if c.size <= c.took && now.Sub(c.tookAt) < believed {
		needs = cutsDoubted
	}
	if c.count < needs {
		return
	}
	s.facts.Learn(learned.MaxMessage, max(leastMessage, c.size/2), now.Add(believed))
	c.size, c.count = 0, 0
}

// answered takes in that the relay answered a request of this size.
func (s *relayStats) answered(size int, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := &s.cuts
	if size >= c.size {
		c.size, c.count = 0, 0
	}
	if size >= c.took || now.Sub(c.tookAt) >= believed {
		c.took, c.tookAt = size, now
	}
}

func (s *relayStats) spend(now time.Time, n int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.allowance.Spend(now, n)
}

func (s *relayStats) earn(n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.allowance.Earn(n)
}

// allFacts returns everything that was learned.
func (s *relayStats) allFacts() learned.Facts {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.facts
}

// allAside returns the values that the relay chokes on.
func (s *relayStats) allAside() []memory.Value {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]memory.Value, 0, len(s.aside))
	for v, until := range s.aside {
		out = append(out, memory.Value{Tag: v.Tag, Value: v.Value, Until: until})
	}
	slices.SortFunc(out, func(a, b memory.Value) int {
		return cmp.Or(strings.Compare(a.Tag, b.Tag), strings.Compare(a.Value, b.Value))
	})
	return out
}

// fill copies the counts into a status.
func (s *relayStats) fill(r *RelayStatus) {
	r.Events, r.Stored, r.Bytes = s.events.Load(), s.stored.Load(), s.bytes.Load()
	r.Missing, r.Seconds, r.Strikes = s.missing.Load(), s.seconds.Load(), s.strikes.Load()
	r.Gaps, r.Lasting = s.gaps.Load(), s.lasting.Load()
	if r.connected() {
		r.Queries, r.Requests = int(s.queries.Load()), int(s.requests.Load())
		r.Reconciling = int(s.reconciling.Load())
	}
	s.coverage.fill(r)
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
