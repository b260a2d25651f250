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
)

// crowd is a plan with more relays, owners and addresses than a world has, and less room
// for them: what it shows is who has a turn, a place or a connection, and who goes.
type crowd struct {
	t     *testing.T
	rng   *rand.Rand
	plan  *Plan
	now   time.Time
	urls  []graspsync.RelayURL
	conns map[graspsync.RelayURL]*crowdConn
	gone  int // hung up for others
	left  int // dropped for lack of room
	all   []string
}

type crowdConn struct {
	epoch   uint64
	stands  bool
	silent  bool // it never answers
	batches map[BatchID]Batch
	live    map[LiveID]bool
}

const (
	crowdOwners = 70
	crowdRelays = 90
)

func newCrowd(t *testing.T, seed uint64) *crowd {
	c := &crowd{t: t, rng: rand.New(rand.NewPCG(seed, 12)), now: start, urls: urls(t, crowdRelays), conns: make(map[graspsync.RelayURL]*crowdConn)}
	cfg := defaults()
	cfg.MaxDials, cfg.MaxConnections, cfg.MaxRelays = 1+c.rng.IntN(5), 4+c.rng.IntN(30), 66+c.rng.IntN(20)
	cfg.MaxAuthors, cfg.AuthorsPerPass = 5, 3
	c.plan = newPlan(cfg)
	c.restore()
	return c
}

// restore has one relay listed by everybody, or not.
func (c *crowd) restore() {
	if c.rng.IntN(3) == 0 { // one relay that everybody lists
		for n := range crowdOwners {
			c.step(full(ownedBy(n, "all"), c.urls[:1]))
		}
	}
}

func (c *crowd) url() graspsync.RelayURL { return c.urls[c.rng.IntN(len(c.urls))] }

func (c *crowd) step(in Input) {
	effects := c.plan.Step(c.now, in)
	c.all = append(c.all, recordOf(c.t, c.plan, c.now, in, effects, len(c.all)%8 == 0)...)
	for _, e := range effects {
		c.perform(e)
	}
	p := c.plan
	dialing := 0
	for _, conn := range c.conns {
		if !conn.stands {
			dialing++
		}
	}
	require.Equal(c.t, dialing, p.dialer.dialing)
	require.LessOrEqual(c.t, len(c.conns), p.cfg.MaxConnections)
	require.LessOrEqual(c.t, dialing, p.cfg.MaxDials+p.dialer.silentMost())
	bootstrap := 0
	for _, r := range p.known.relays {
		if r.bootstrap {
			bootstrap++
		}
	}
	require.LessOrEqual(c.t, len(p.known.relays), p.cfg.MaxRelays+bootstrap)
}

func (c *crowd) perform(e Effect) {
	switch e := e.(type) {
	case Dial:
		require.NotContains(c.t, c.conns, e.Relay)
		c.conns[e.Relay] = &crowdConn{epoch: e.Epoch, silent: c.rng.IntN(4) == 0, batches: make(map[BatchID]Batch), live: make(map[LiveID]bool)}
	case Hangup:
		require.Equal(c.t, e.Epoch, c.conns[e.Relay].epoch)
		delete(c.conns, e.Relay)
		c.gone++
	case Forget:
		require.NotContains(c.t, c.conns, e.Relay)
	case OpenLive:
		c.conns[e.Relay].live[e.Live] = true
	case CloseLive:
		delete(c.conns[e.Relay].live, e.Live)
	case Start:
		c.conns[e.Relay].batches[e.Batch.ID] = e.Batch
	case Cancel:
		delete(c.conns[e.Relay].batches, e.Batch)
	case Dropped:
		c.left += e.Count
	}
}

func (c *crowd) input() {
	c.now = c.now.Add([]time.Duration{0, 0, time.Second, 0, 400 * time.Millisecond, 10 * time.Second, time.Minute}[c.rng.IntN(7)])
	if c.rng.IntN(60) == 0 {
		c.now = c.now.Add([]time.Duration{10 * time.Minute, time.Hour, 24 * time.Hour, 7 * 24 * time.Hour, 30 * 24 * time.Hour}[c.rng.IntN(5)])
	}
	switch n := c.rng.IntN(100); {
	case n < 12:
		c.change()
	case n < 13:
		c.step(Bootstrap{Relay: c.url()})
	case n < 15:
		c.step(Settled{At: c.now.Add(-time.Duration(c.rng.IntN(60)) * time.Second)})
	case n < 16:
		c.step(ClockJumped{By: 0})
	case n < 40:
		if at, ok := c.plan.NextWake(); ok && at.After(c.now) && at.Sub(c.now) < time.Hour {
			c.now = at
		}
		c.step(Tick{})
	case n < 43:
		for range 4 {
			c.step(Authors{pubKey(c.rng.IntN(20))})
		}
	default:
		c.connection()
	}
}

// change has an owner list some relays, or more than one may have.
func (c *crowd) change() {
	n := c.rng.IntN(6)
	if c.rng.IntN(30) == 0 {
		n = crowdRelays
	}
	rc := RepoChange{Ref: ownedBy(c.rng.IntN(crowdOwners), fmt.Sprint(c.rng.IntN(2))), Level: []Level{LevelFull, LevelFull, LevelFull, LevelStateOnly, LevelNone}[c.rng.IntN(5)]}
	for _, i := range c.rng.Perm(len(c.urls))[:n] {
		rc.Relays = append(rc.Relays, c.urls[i])
	}
	c.step(Changes{Repos: []RepoChange{rc}})
}

// connection has something happen to an attempt or a connection.
func (c *crowd) connection() {
	known := slices.SortedFunc(maps.Keys(c.conns), graspsync.RelayURL.Compare)
	if len(known) == 0 {
		return
	}
	u := known[c.rng.IntN(len(known))]
	conn := c.conns[u]
	retry := c.now.Add(time.Duration(1+c.rng.IntN(600)) * time.Second)
	switch n := c.rng.IntN(20); {
	case !conn.stands && conn.silent && n > 0:
	case !conn.stands && (conn.silent || n < 3):
		delete(c.conns, u)
		c.step(DialFailed{Relay: u, Epoch: conn.epoch, RetryAt: retry, NotDialed: n == 2})
	case !conn.stands:
		conn.stands = true
		c.step(Connected{Relay: u, Epoch: conn.epoch, Limits: usual})
	case n == 0:
		delete(c.conns, u)
		c.step(Lost{Relay: u, Epoch: conn.epoch, AliveAt: c.now, RetryAt: retry})
	case n == 2:
		for _, id := range slices.Sorted(maps.Keys(conn.live))[:min(1, len(conn.live))] {
			delete(conn.live, id)
			c.step(LiveClosed{Relay: u, Epoch: conn.epoch, Live: id})
		}
	default:
		for _, id := range slices.Sorted(maps.Keys(conn.batches))[:min(1, len(conn.batches))] {
			delete(conn.batches, id)
			c.step(Done{Relay: u, Epoch: conn.epoch, Batch: id, Result: []Result{Complete, Complete, Complete, Gaps, Failed, Refused}[c.rng.IntN(6)]})
		}
	}
}

// TestCrowds plays more relays than there is room for.
func TestCrowds(t *testing.T) {
	gone, left := 0, 0
	sums := goldentest.NewSums(t, "testdata/crowds.sum")
	for seed := range uint64(40) {
		c := newCrowd(t, seed)
		for range 500 {
			c.input()
		}
		sums.Equal(t, fmt.Sprint(seed), c.all)
		gone += c.gone
		left += c.left
	}
	t.Logf("hung up: %d, dropped: %d", gone, left)
	require.Greater(t, gone, 100)
	require.Greater(t, left, 100)
}
