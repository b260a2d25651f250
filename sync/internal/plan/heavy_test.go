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
	"github.com/graspsync/graspsync/internal/goldentest"
	"github.com/graspsync/graspsync/sync/internal/relaylimits"
	"github.com/graspsync/graspsync/sync/wire"
)

// heavy is a crowd of few relays that have much: hundreds of items each, which come and go
// many at once, and limits into which these do not fit.
type heavy struct {
	*crowd
	want   map[graspsync.RepoRef]RepoChange
	roots  map[graspsync.EventID]RootChange
	kept   []Kept
	reason map[string]int // of what was dropped
	method map[LiveMethod]int
}

const (
	heavyRelays = 5
	heavyRepos  = 150
	heavyRoots  = 900
)

func newHeavy(t *testing.T, seed uint64) *heavy {
	c := &crowd{t: t, rng: rand.New(rand.NewPCG(seed, 13)), now: start, urls: urls(t, heavyRelays), conns: make(map[graspsync.RelayURL]*crowdConn)}
	h := &heavy{
		crowd: c, want: make(map[graspsync.RepoRef]RepoChange), roots: make(map[graspsync.EventID]RootChange),
		reason: make(map[string]int), method: make(map[LiveMethod]int),
	}
	cfg := defaults()
	cfg.MaxDials, cfg.MaxConnections, cfg.MaxBatches = 2, 2+c.rng.IntN(4), 1+c.rng.IntN(4)
	cfg.MaxRoots, cfg.RotateRoots = []int{20, 150, 400}[c.rng.IntN(3)], []int{3, 150}[c.rng.IntN(2)]
	cfg.MaxAuthors, cfg.AuthorsPerPass, cfg.MaxNamed, cfg.NamedIDs = 6, 1+c.rng.IntN(7), 9, 4
	cfg.PollFilters, cfg.RebuildFilters, cfg.NarrowLayer1 = c.rng.IntN(8), 2+c.rng.IntN(12), c.rng.IntN(2) == 0
	c.plan = newPlan(cfg)
	return h
}

func heavyRef(n int) graspsync.RepoRef { return ownedBy(n%7, fmt.Sprint(n/3)) }

// some returns how many of something come at once: mostly a few.
func (h *heavy) some(most int) int {
	if h.rng.IntN(3) > 0 {
		return h.rng.IntN(4)
	}
	return h.rng.IntN(most)
}

func (h *heavy) limits() relaylimits.Requests {
	l := relaylimits.Requests{
		MaxMessage:       []int{90, 400, 2_000, 16 << 10, 64 << 10, 64 << 10}[h.rng.IntN(6)],
		MaxFilters:       1 + h.rng.IntN(10),
		MaxSubscriptions: 1 + h.rng.IntN(12),
	}
	if h.rng.IntN(3) == 0 {
		l.MaxValues, l.NeedsKinds = []int{1, 9, 60}[h.rng.IntN(3)], h.rng.IntN(2) == 0
	}
	return l
}

func (h *heavy) changes() (c Changes) {
	from, level := h.rng.IntN(heavyRepos), []Level{LevelFull, LevelFull, LevelFull, LevelStateOnly, LevelNone}[h.rng.IntN(5)]
	for i := range h.some(heavyRepos) {
		rc := RepoChange{Ref: heavyRef((from + i) % heavyRepos), Level: level}
		for _, n := range h.rng.Perm(heavyRelays)[:1+h.rng.IntN(heavyRelays)] {
			rc.Relays = append(rc.Relays, h.urls[n])
		}
		h.want[rc.Ref] = rc
		c.Repos = append(c.Repos, rc)
	}
	from, gone := h.rng.IntN(heavyRoots), h.rng.IntN(3) == 0
	for i := range h.some(heavyRoots / 2) {
		n := (from + i) % heavyRoots
		rc := RootChange{ID: rootID(n)}
		if !gone {
			rc.CreatedAt = createdAt(rc.ID)
			for range 1 + h.rng.IntN(2) {
				rc.Repos = append(rc.Repos, heavyRef(h.rng.IntN(6)))
			}
		}
		h.roots[rc.ID] = rc
		c.Roots = append(c.Roots, rc)
	}
	return c
}

// snapshot is what was said last of all.
func (h *heavy) snapshot() (s Snapshot) {
	for _, ref := range sortedBy(h.want, graspsync.RepoRef.Compare) {
		s.Repos = append(s.Repos, h.want[ref])
	}
	for _, id := range sortedBy(h.roots, graspsync.EventID.Compare) {
		if c := h.roots[id]; len(c.Repos) > 0 {
			s.Roots = append(s.Roots, c)
		}
	}
	return s
}

// restart begins anew with what was kept.
func (h *heavy) restart() {
	cfg := h.plan.cfg
	in := Restore{Relays: h.plan.Kept()}
	if h.rng.IntN(2) == 0 {
		in.Relays = h.kept
	}
	h.plan = newPlan(cfg)
	clear(h.conns)
	h.now = h.now.Add(time.Duration(h.rng.IntN(1000)) * time.Second)
	h.step(in)
	h.step(h.snapshot())
}

// stands returns a connection, and whether there is one.
func (h *heavy) stands() (graspsync.RelayURL, *crowdConn) {
	for _, i := range h.rng.Perm(heavyRelays) {
		if c := h.conns[h.urls[i]]; c != nil && c.stands {
			return h.urls[i], c
		}
	}
	return h.urls[0], &crowdConn{}
}

func (h *heavy) cursors(b Batch) (out []Cursor) {
	for _, q := range b.Queries {
		out = append(out, []Cursor{Cursor(q.Until), CursorDone, Cursor(h.now.Unix() - int64(h.rng.IntN(1000)))}[h.rng.IntN(3)])
	}
	require.NotEmpty(h.t, out, "a batch without a query has no end")
	return out[:len(out)-h.rng.IntN(2)]
}

func (h *heavy) ids(n int) (out []graspsync.EventID) {
	for range n {
		out = append(out, rootID(h.rng.IntN(heavyRoots)))
	}
	return out
}

func (h *heavy) input() {
	h.now = h.now.Add([]time.Duration{0, time.Second, 0, 20 * time.Second, 2 * time.Minute}[h.rng.IntN(5)])
	if h.rng.IntN(40) == 0 {
		h.now = h.now.Add([]time.Duration{20 * time.Minute, 3 * time.Hour, 25 * time.Hour}[h.rng.IntN(3)])
	}
	u, conn := h.stands()
	switch n := h.rng.IntN(100); {
	case n < 10:
		h.step(h.changes())
	case n < 11:
		h.step(h.snapshot())
	case n < 12:
		h.restart()
	case n < 22:
		if at, ok := h.plan.NextWake(); ok && at.After(h.now) {
			h.now = at
		}
		h.step(Tick{})
	case n < 24:
		h.step(LimitsChanged{Relay: u, Epoch: conn.epoch, Limits: h.limits()})
	case n < 27:
		h.step(Named{Relay: []graspsync.RelayURL{u, {}}[h.rng.IntN(2)], IDs: h.ids(h.rng.IntN(12))})
	case n < 29:
		h.step(Unserved{Relay: u, IDs: h.ids(h.rng.IntN(6))})
	case n < 32:
		h.skip(u, conn)
	case n < 34:
		h.step(Saving{Nothing: h.rng.IntN(2) == 0})
	case n < 36:
		h.step(Settled{At: h.now.Add(-time.Duration(h.rng.IntN(30)) * time.Second)})
		h.kept = h.plan.Kept()
	case n < 37:
		h.step(ClockJumped{By: []time.Duration{-time.Hour, -40 * time.Second, 5 * time.Minute}[h.rng.IntN(3)]})
	case n < 39:
		h.step(Authors{pubKey(h.rng.IntN(20)), pubKey(h.rng.IntN(20))})
	case n < 40:
		h.step(RateLimited{Relay: u, Epoch: conn.epoch, Until: h.now.Add(time.Minute)})
	case n < 42:
		h.step(Bootstrap{Relay: h.urls[0]})
	case n < 47:
		h.closeLive(u, conn)
	case n < 62:
		h.dialed()
	case n < 64:
		h.lose(u, conn)
	default:
		for range 1 + h.rng.IntN(4) {
			h.done(u, conn)
		}
	}
}

// skip has something left out, several times, and each time since an earlier moment.
func (h *heavy) skip(u graspsync.RelayURL, conn *crowdConn) {
	for i := range 1 + h.some(30) {
		h.step(Skipped{Relay: u, Epoch: conn.epoch, Since: h.now.Add(-time.Duration(i) * time.Second)})
	}
}

func (h *heavy) dialed() {
	for _, u := range h.urls {
		c := h.conns[u]
		switch {
		case c == nil || c.stands:
		case h.rng.IntN(5) == 0:
			delete(h.conns, u)
			h.step(DialFailed{Relay: u, Epoch: c.epoch, RetryAt: h.now.Add(time.Minute), NotDialed: h.rng.IntN(2) == 0})
		default:
			c.stands = true
			h.step(Connected{Relay: u, Epoch: c.epoch, Limits: h.limits()})
		}
	}
}

func (h *heavy) lose(u graspsync.RelayURL, conn *crowdConn) {
	in := Lost{Relay: u, Epoch: conn.epoch, RetryAt: h.now.Add(time.Minute), Cursors: make(map[BatchID][]Cursor)}
	in.AliveAt = h.now.Add(-time.Duration(h.rng.IntN(60)) * time.Second)
	for _, id := range slices.Sorted(maps.Keys(conn.batches)) {
		in.Cursors[id] = h.cursors(conn.batches[id])
	}
	if conn.stands {
		delete(h.conns, u)
		h.step(in)
	}
}

func (h *heavy) closeLive(u graspsync.RelayURL, conn *crowdConn) {
	ids := slices.Sorted(maps.Keys(conn.live))
	if len(ids) == 0 {
		return
	}
	in := LiveClosed{Relay: u, Epoch: conn.epoch, Live: ids[h.rng.IntN(len(ids))]}
	in.Why = []wire.Refusal{wire.RefusalOther, wire.RefusalTooManySubs, wire.RefusalRateLimited, wire.RefusalAuthRequired}[h.rng.IntN(4)]
	if h.rng.IntN(2) == 0 {
		in.Stood = time.Duration(h.rng.IntN(100)) * time.Second
	}
	delete(conn.live, in.Live)
	h.step(in)
}

func (h *heavy) done(u graspsync.RelayURL, conn *crowdConn) {
	ids := slices.Sorted(maps.Keys(conn.batches))
	if len(ids) == 0 {
		return
	}
	id := ids[h.rng.IntN(len(ids))]
	in := Done{Relay: u, Epoch: conn.epoch, Batch: id, Reconciled: h.rng.IntN(2) == 0}
	in.Result = []Result{Complete, Complete, Complete, Complete, Gaps, Failed, Refused}[h.rng.IntN(7)]
	if in.Result >= Failed {
		in.Cursors = h.cursors(conn.batches[id])
		in.Unsaved, in.Late = h.rng.IntN(4) == 0, h.rng.IntN(4) == 0
	}
	delete(conn.batches, id)
	h.step(in)
}

func (h *heavy) step(in Input) {

	h.crowd.step(in)
	if h.rng.IntN(12) > 0 {
		return
	}
	// What else is there to be seen.
	p := h.plan
	var marks []string
	for u, at := range p.Marks() {
		marks = append(marks, u.String()+" "+clock(at))
	}
	slices.Sort(marks)
	h.all = append(h.all, fmt.Sprint(marks), spell(h.t, p.Changed()), spell(h.t, p.Kept(h.url())), spell(h.t, p.Refs()))
	if s, ok := p.RepoStatus(heavyRef(h.rng.IntN(6))); ok {
		slices.SortFunc(s.Relays, func(a, b RelayItems) int { return graspsync.RelayURL.Compare(a.Relay, b.Relay) })
		h.all = append(h.all, spell(h.t, s))
	}
	for _, s := range p.Status() {
		h.method[s.LiveMethod]++
	}

}

// TestHeavy plays relays that have more than they let be followed.
func TestHeavy(t *testing.T) {
	methods := make(map[LiveMethod]int)
	sums := goldentest.NewSums(t, "testdata/heavy.sum")
	for seed := range uint64(20) {
		h := newHeavy(t, seed)
		for range 200 {
			h.input()
		}
		sums.Equal(t, fmt.Sprint(seed), h.all)
		for m, n := range h.method {
			methods[m] += n
		}
	}
	t.Log(methods)
	require.Len(t, methods, 3)
}
