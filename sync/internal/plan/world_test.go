package plan

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/filters"
	"github.com/graspsync/graspsync/sync/internal/relaylimits"
)

// world feeds a plan with inputs drawn from a source, simulates the caller and the relays, and
// checks after each step that plan and world agree. It computes the wanted items from scratch each
// time.
type world struct {
	t    testing.TB
	src  source
	plan *Plan
	now  time.Time
	urls []graspsync.RelayURL
	log  []string

	repos     map[graspsync.RepoRef]RepoChange
	roots     map[graspsync.EventID]map[graspsync.RepoRef]bool
	below     map[filters.Descendant]map[graspsync.RepoRef]bool
	bootstrap map[graspsync.RelayURL]bool

	conns  map[graspsync.RelayURL]*worldConn
	missed map[graspsync.RelayURL]map[string][]worldEvent // key -> events that are not stored

	crowded   map[graspsync.RelayURL]bool
	lastEpoch uint64
	lastBatch BatchID
	lastLive  LiveID
	unchecked bool // no invariants, which another test checks
	daily     bool // a daily pass has found events that were missed

	kept     []Kept // saved state that a crash would leave
	restarts int
	methods  map[LiveMethod]int // methods that occurred
	resumed  int                // first connections after restarts that continued from the mark
	calm     bool               // short times and no overlap, so that omissions show
	long     bool               // hours and days pass
	alive    int                // checked connections with all descendants live
	rotated  int                // checked connections without
	jumps    int                // of the clock
	audits   int
	earliest int64                      // earliest time of the clock
	shift    time.Duration              // total change of the clock
	back     time.Duration              // total backward change, by which timers are late
	drawn    drawn                      // inputs, and which fields of them were set
	refusals map[graspsync.RelayURL]int // consecutive attempts that a local limit prevented

	passes  map[graspsync.RelayURL]time.Time       // start of the last pass
	deleted map[graspsync.RelayURL]map[string]bool // authors whose deletions were requested in that pass
	steps   int
	failing bool // the last input ended a running attempt
	holding bool // the last Retry or Resync concerned a connected relay
}

// worldConn is the relay's state of a connection.
type worldConn struct {
	epoch     uint64
	connected bool
	limits    relaylimits.Requests
	live      map[LiveID]map[string]bool
	batches   map[BatchID]worldBatch
}

type worldBatch struct {
	Batch
	at     int64
	passed time.Duration
}

// worldEvent has the created_at of an event and the time of its publication.
type worldEvent struct {
	at     int64
	passed time.Duration
}

// source yields numbers below n. done means that there are no more.
type source interface {
	n(n int) int
	done() bool
}

type randSource struct {
	*rand.Rand
	left int
}

func (s *randSource) n(n int) int { return s.IntN(n) }
func (s *randSource) done() bool  { s.left--; return s.left < 0 }

type byteSource struct{ data []byte }

func (s *byteSource) n(n int) int {
	if len(s.data) == 0 {
		return 0
	}
	b := s.data[0]
	s.data = s.data[1:]
	return int(b) % n
}
func (s *byteSource) done() bool { return len(s.data) == 0 }

func newWorld(t testing.TB, src source) *world {
	c := defaults()
	c.MaxDials, c.MaxConnections, c.MaxBatches = 2, 4, 2
	c.AuthorsPerPass, c.MaxRoots, c.MaxNamed = 3+9*src.n(2), 3, 5
	c.DialEvery = []time.Duration{0, 250 * time.Millisecond, time.Minute}[src.n(3)]
	return &world{
		t: t, src: src, plan: newPlan(c), now: start, urls: urls(t, 6),
		repos:     make(map[graspsync.RepoRef]RepoChange),
		roots:     make(map[graspsync.EventID]map[graspsync.RepoRef]bool),
		below:     make(map[filters.Descendant]map[graspsync.RepoRef]bool),
		bootstrap: make(map[graspsync.RelayURL]bool),
		conns:     make(map[graspsync.RelayURL]*worldConn),
		missed:    make(map[graspsync.RelayURL]map[string][]worldEvent),
		crowded:   make(map[graspsync.RelayURL]bool),
		methods:   make(map[LiveMethod]int),
		drawn:     make(drawn),
		earliest:  start.Unix(),
		refusals:  make(map[graspsync.RelayURL]int),
		passes:    make(map[graspsync.RelayURL]time.Time),
		deleted:   make(map[graspsync.RelayURL]map[string]bool),
	}
}

// run feeds inputs until the source ends.
func (w *world) run() {
	for !w.src.done() {
		w.input()
	}
}

func (w *world) input() {
	if w.calm {
		w.calmInput()
		return
	}
	w.now = w.now.Add([]time.Duration{0, time.Second, 0, 40 * time.Second, 0, 3 * time.Minute, 0, 20 * time.Minute}[w.src.n(8)])
	if w.long && w.src.n(8) == 0 {
		w.now = w.now.Add([]time.Duration{time.Hour, 7 * time.Hour, 23 * time.Hour, 24 * time.Hour, 8 * 24 * time.Hour}[w.src.n(5)])
	}
	switch w.src.n(20) {
	case 0, 1:
		w.step(w.changes())
	case 2:
		if w.src.n(4) == 0 {
			w.step(w.snapshot())
		}
	case 3:
		w.step(Bootstrap{Relay: w.url()})
	case 4, 5:
		w.dialed()
	case 6:
		w.lose()
	case 7, 8, 9:
		w.done()
	case 10:
		w.closeLive()
	case 11:
		u := w.url()
		w.step(RateLimited{Relay: u, Epoch: w.epoch(u), Until: w.now.Add(time.Duration(w.src.n(90)) * time.Second)})
	case 12:
		w.step(Authors{pubKey(w.src.n(10)), pubKey(w.src.n(10))})
	case 13:
		w.stale()
	case 14:
		if w.src.n(4) == 0 {
			w.early()
			return
		}
		w.wake()
	case 15, 16:
		w.publish()
	default:
		w.more()
	}
}

func (w *world) url() graspsync.RelayURL { return w.urls[w.src.n(len(w.urls))] }

// epoch returns the epoch of a relay's connection, sometimes a wrong epoch.
func (w *world) epoch(u graspsync.RelayURL) uint64 {
	if c := w.conns[u]; c != nil && w.src.n(10) > 0 {
		return c.epoch
	}
	return uint64(w.src.n(5))
}

func (w *world) changes() (c Changes) {
	for range w.src.n(3) {
		rc := RepoChange{Ref: worldRef(w.src.n(worldRepos)), Level: []Level{LevelFull, LevelFull, LevelStateOnly, LevelNone}[w.src.n(4)]}
		for range w.src.n(4) {
			rc.Relays = append(rc.Relays, w.url())
		}
		c.Repos = append(c.Repos, rc)
	}
	for range w.src.n(4) {
		n := w.src.n(30)
		rc := RootChange{ID: rootID(n), CreatedAt: createdAt(rootID(n))}
		for range w.src.n(3) {
			rc.Repos = append(rc.Repos, worldRef(w.src.n(worldRepos)))
		}
		c.Roots = append(c.Roots, rc)
	}
	for range w.src.n(5) {
		dc := DescendantChange{Of: worldDescendant(w.src.n(40))}
		for range w.src.n(3) {
			dc.Repos = append(dc.Repos, worldRef(w.src.n(worldRepos)))
		}
		c.Descendants = append(c.Descendants, dc)
	}
	return c
}

func worldDescendant(n int) filters.Descendant {
	if n%4 == 0 {
		return filters.Descendant{Address: fmt.Sprintf("39842:%s:%d", pubKey(n), n)}
	}
	return filters.Descendant{ID: rootID(1000 + n)}
}

// snapshot keeps a part of the wanted repositories and adds others.
func (w *world) snapshot() Snapshot {
	c := w.changes()
	for _, ref := range slices.SortedFunc(maps.Keys(w.repos), graspsync.RepoRef.Compare) {
		if w.src.n(3) > 0 {
			c.Repos = append(c.Repos, w.repos[ref])
		}
	}
	for _, id := range slices.SortedFunc(maps.Keys(w.roots), graspsync.EventID.Compare) {
		if w.src.n(3) > 0 {
			c.Roots = append(c.Roots, w.rootChange(id))
		}
	}
	for _, of := range slices.SortedFunc(maps.Keys(w.below), filters.Descendant.Compare) {
		named := slices.ContainsFunc(c.Descendants, func(c DescendantChange) bool { return c.Of == of })
		if w.src.n(3) > 0 && !named {
			c.Descendants = append(c.Descendants, w.descendantChange(of))
		}
	}
	return Snapshot(c)
}

func (w *world) dialed() {
	for _, u := range w.urls {
		if c := w.conns[u]; c != nil && !c.connected {
			if w.src.n(3) == 0 {
				in := DialFailed{Relay: u, Epoch: w.epoch(u), NotDialed: w.src.n(3) == 0}
				if !in.NotDialed {
					in.RetryAt = w.now.Add(time.Duration(1+w.src.n(200)) * time.Second)
				}
				w.step(in)
			} else {
				w.step(Connected{Relay: u, Epoch: w.epoch(u), Limits: w.limits()})
			}
			return
		}
	}
}

// connection returns an open connection, or nil.
func (w *world) connection() (graspsync.RelayURL, *worldConn) {
	first := w.src.n(len(w.urls))
	for i := range w.urls {
		u := w.urls[(first+i)%len(w.urls)]
		if c := w.conns[u]; c != nil && c.connected {
			return u, c
		}
	}
	return graspsync.RelayURL{}, nil
}

func (w *world) lose() {
	u, c := w.connection()
	if c == nil {
		return
	}
	in := Lost{Relay: u, Epoch: w.epoch(u), AliveAt: w.now.Add(-time.Duration(w.src.n(60)) * time.Second), RetryAt: w.now.Add(time.Duration(1+w.src.n(100)) * time.Second)}
	in.Cursors = make(map[BatchID][]Cursor)
	for _, id := range slices.Sorted(maps.Keys(c.batches)) {
		if w.src.n(4) > 0 {
			in.Cursors[id] = w.cursors(c.batches[id])
		}
	}
	w.step(in)
}

func (w *world) done() {
	u, c := w.connection()
	if c == nil || len(c.batches) == 0 {
		return
	}
	ids := slices.Sorted(maps.Keys(c.batches))
	id := ids[w.src.n(len(ids))]
	in := Done{Relay: u, Epoch: w.epoch(u), Batch: id, Result: []Result{Complete, Complete, Gaps, Failed, Refused}[w.src.n(5)]}
	in.Reconciled = w.src.n(2) == 0
	in.Disproved = in.Reconciled && !w.calm && (c.batches[id].Kind == Audit || w.src.n(100) == 0)
	if in.Result >= Failed && w.src.n(5) > 0 {
		in.Cursors = w.cursors(c.batches[id])
	}
	if in.Result == Failed {
		in.Unsaved, in.Late = w.src.n(4) == 0, w.src.n(4) == 0
	}
	w.step(in)
}

// cursors returns random progress of the queries of a batch: none, partial or complete.
func (w *world) cursors(b worldBatch) (out []Cursor) {
	for _, q := range b.Queries {
		at := b.at
		if q.Until != 0 {
			at = q.Until
		}
		out = append(out, []Cursor{Cursor(q.Until), CursorDone, Cursor(at - int64(w.src.n(1000)))}[w.src.n(3)])
	}
	return out
}

func (w *world) closeLive() {
	if u, c := w.connection(); c != nil && len(c.live) > 0 {
		ids := slices.Sorted(maps.Keys(c.live))
		in := LiveClosed{Relay: u, Epoch: w.epoch(u), Live: ids[w.src.n(len(ids))], Why: w.why()}
		if w.src.n(3) == 0 {
			in.Stood = time.Duration(1+w.src.n(100)) * time.Second
		}
		w.step(in)
	}
}

// stale feeds an input that is late or of an unknown relay.
func (w *world) stale() {
	u, e := w.url(), uint64(w.src.n(int(w.lastEpoch)+2))
	if c := w.conns[u]; c != nil && c.epoch == e {
		return
	}
	w.step([]Input{
		Connected{Relay: u, Epoch: e, Limits: usual}, DialFailed{Relay: u, Epoch: e}, Lost{Relay: u, Epoch: e},
		Done{Relay: u, Epoch: e, Batch: w.lastBatch}, LiveClosed{Relay: u, Epoch: e, Live: w.lastLive},
		RateLimited{Relay: u, Epoch: e, Until: w.now.Add(time.Hour)},
	}[w.src.n(6)])
}

// early advances the time, but not to the next tick.
func (w *world) early() {
	at, ok := w.plan.NextWake()
	if ok && !at.After(w.now) {
		return
	}
	if w.now = w.now.Add(time.Minute); ok && !w.now.Before(at) {
		w.now = at.Add(-1)
	}
	w.step(Tick{})
}

// wake advances the time to the next tick.
func (w *world) wake() {
	at, ok := w.plan.NextWake()
	if !ok {
		return
	}
	if at.After(w.now) {
		w.now = at
	}
	w.step(Tick{})
	next, ok := w.plan.NextWake()
	require.True(w.t, !ok || next.After(w.now), "a busy loop: woken at %s for %s", clock(w.now), clock(next))
}

// step passes an input to the plan and the model, and checks the effects.
func (w *world) step(in Input) {
	w.drawn.note(in)
	w.before(in)
	due, waits := w.plan.NextWake()
	closing := w.closing(in)
	effects := w.plan.Step(w.now, in)
	if _, tick := in.(Tick); tick && (!waits || w.now.Before(due)) {
		require.Empty(w.t, effects, "nobody would have woken it for that")
	}
	w.checkClosed(in, closing)
	w.note(fmt.Sprintf("%s %T", clock(w.now), in))
	for _, e := range effects {
		w.note("> " + show(e))
		w.perform(e)
	}
	w.after(in)
	if !w.unchecked {
		w.check()
	}
}

// passed returns the elapsed time without changes of the clock.
func (w *world) passed() time.Duration { return w.now.Sub(start) - w.shift }

func (w *world) note(line string) { w.log = append(w.log, line) }
