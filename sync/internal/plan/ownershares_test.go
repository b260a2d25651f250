package plan

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
)

// market is a plan with answering and dead relays, in simulated time.
type market struct {
	t      *testing.T
	plan   *Plan
	now    time.Time
	dead   map[graspsync.RelayURL]bool
	ends   []attempt // of dead relays
	dialed map[graspsync.RelayURL]time.Time
	passes map[graspsync.RelayURL]int // over the whole history
	fails  map[graspsync.RelayURL]int

	lost map[graspsync.RelayURL]time.Time // disconnected to make room
}

type attempt struct {
	Dial
	at time.Time
}

func newMarket(t *testing.T, c Config) *market {
	return &market{
		t: t, plan: newPlan(c), now: start,
		dead:   make(map[graspsync.RelayURL]bool),
		dialed: make(map[graspsync.RelayURL]time.Time), passes: make(map[graspsync.RelayURL]int),
		fails: make(map[graspsync.RelayURL]int), lost: make(map[graspsync.RelayURL]time.Time),
	}
}

func (m *market) step(in Input) { m.take(m.plan.Step(m.now, in)) }

// take simulates the relays: they answer immediately or never.
func (m *market) take(effects []Effect) {
	for len(effects) > 0 {
		e := effects[0]
		effects = effects[1:]
		switch e := e.(type) {
		case Dial:
			if _, again := m.dialed[e.Relay]; !again {
				m.dialed[e.Relay] = m.now
			}
			if m.dead[e.Relay] {
				m.ends = append(m.ends, attempt{e, m.now.Add(10 * time.Second)})
				continue
			}
			effects = append(effects, m.plan.Step(m.now, Connected{Relay: e.Relay, Epoch: e.Epoch, Limits: usual})...)
		case Hangup:
			m.lost[e.Relay] = m.now
		case Start:
			if e.Batch.Kind == DailyHistory && e.Batch.Queries[0].Filter.Tags == nil || e.Batch.Kind == History && e.Batch.Queries[0].Filter.Tags == nil {
				m.passes[e.Relay]++ // each pass includes layer 1
			}
			effects = append(effects, m.plan.Step(m.now, Done{Relay: e.Relay, Epoch: e.Epoch, Batch: e.Batch.ID})...)
		}
	}
}

// wait advances the time and calls look every ten seconds.
func (m *market) wait(d time.Duration, look func()) {
	for end := m.now.Add(d); m.now.Before(end); {
		next := m.now.Add(10 * time.Second)
		for m.now.Before(next) {
			to := next
			if at, ok := m.plan.NextWake(); ok && at.Before(to) {
				to = at
			}
			if len(m.ends) > 0 && m.ends[0].at.Before(to) {
				to = m.ends[0].at
			}
			if to.After(m.now) {
				m.now = to
			}
			for len(m.ends) > 0 && !m.ends[0].at.After(m.now) {
				e := m.ends[0]
				m.ends = m.ends[1:]
				m.fails[e.Relay]++
				wait := min(5*time.Second<<min(m.fails[e.Relay]-1, 10), time.Hour)
				m.step(DialFailed{Relay: e.Relay, Epoch: e.Epoch, RetryAt: m.now.Add(wait)})
			}
			m.step(Tick{})
		}
		look()
	}
}

func ownedBy(n int, name string) graspsync.RepoRef {
	return graspsync.RepoRef{Owner: pubKey(n), Identifier: name}
}

// spam lists a number of relays in announcements by different keys, 15 relays in each.
func (m *market) spam(relays int, dead bool) {
	for i := 0; i < relays; i += 15 {
		var listed []graspsync.RelayURL
		for k := range min(15, relays-i) {
			u := relayURL(m.t, fmt.Sprintf("fake%d", i+k))
			m.dead[u] = dead
			listed = append(listed, u)
		}
		m.step(full(ownedBy(1000+i, "spam"), listed))
	}
}

// fakes lists relays of strangers, each by its own key.
func (m *market) fakes(relays int, dead bool, level Level) {
	for i := range relays {
		u := relayURL(m.t, fmt.Sprintf("fake%d", i))
		m.dead[u] = dead
		c := full(ownedBy(1000+i, "spam"), []graspsync.RelayURL{u})
		c.Repos[0].Level = level
		m.step(c)
	}
}

// honest lists nineteen relays, three for each of thirty owners, and one more relay for another
// owner.
func (m *market) honest() []graspsync.RelayURL {
	honest := make([]graspsync.RelayURL, 20)
	for i := range honest {
		honest[i] = relayURL(m.t, fmt.Sprintf("honest%d", i))
	}
	for i := range 30 {
		m.step(full(ownedBy(i, "repo"), []graspsync.RelayURL{honest[i%19], honest[(i+1)%19], honest[(i*7+2)%19]}))
	}
	m.step(full(ownedBy(30, "repo"), honest[19:]))
	return honest
}

// connected returns the connected part of a time, for all relays and for the least connected one.
func (m *market) connected(d time.Duration, relays []graspsync.RelayURL) (share, least float64) {
	up, looks := make(map[graspsync.RelayURL]int), 0
	m.wait(d, func() {
		looks++
		for _, u := range relays {
			if m.plan.relays[u].dial.connected {
				up[u]++
			}
		}
	})
	least = 1
	for _, u := range relays {
		one := float64(up[u]) / float64(looks)
		share, least = share+one/float64(len(relays)), min(least, one)
	}
	return share, least
}

// A new relay waited until all earlier relays of strangers were dialed: 26 minutes behind 1,000
// dead relays, 81 behind 3,000. With turns per owner the attacker needs one key for each relay.
func TestPromiseP37_NewRelayBehindDeadOnes(t *testing.T) {
	for _, c := range []struct {
		name  string
		dead  int
		level Level // of all
		keys  bool
		most  time.Duration
	}{
		{"15 a key", 3000, LevelFull, false, 2 * time.Minute},
		{"a key each", 1000, LevelFull, true, 5 * time.Minute},
		{"a key each", 3000, LevelFull, true, 10 * time.Minute},
		{"a key each, held", 3000, LevelStateOnly, true, 10 * time.Minute},
	} {
		t.Run(fmt.Sprint(c.dead, " ", c.name), func(t *testing.T) {
			m := newMarket(t, defaults())
			if c.keys {
				m.fakes(c.dead, true, c.level)
			} else {
				m.spam(c.dead, true)
			}
			var honest []graspsync.RelayURL
			began := m.now
			for i := range 20 {
				honest = append(honest, relayURL(t, fmt.Sprint("honest", i)))
				in := full(ownedBy(i, "repo"), honest[i:])
				in.Repos[0].Level = c.level
				m.step(in)
			}
			m.wait(30*time.Minute, func() {})
			var sum, most time.Duration
			for _, u := range honest {
				require.Contains(t, m.dialed, u)
				sum, most = sum+m.dialed[u].Sub(began), max(most, m.dialed[u].Sub(began))
			}
			t.Logf("first dial of %d new relays behind %d dead ones: after %s on the average, %s at most", len(honest), c.dead, sum/time.Duration(len(honest)), most)
			assert.LessOrEqual(t, most, c.most)
		})
	}
}

// A table full of strangers' relays excluded a relay of twenty repositories.
func TestPromiseP37_FullTable(t *testing.T) {
	m := newMarket(t, defaults())
	m.spam(50_000, true)
	require.Len(t, m.plan.relays, 50_000)
	honest, began := relayURL(t, "honest"), m.now
	for i := range 20 {
		m.step(full(ownedBy(i, "repo"), []graspsync.RelayURL{honest}))
	}
	require.NotNil(t, m.plan.relays[honest], "a relay that twenty repositories are on is not known")
	assert.Len(t, m.plan.relays, 50_000)
	m.wait(10*time.Minute, func() {})
	t.Logf("first dial of a new relay in a full table: after %s", m.dialed[honest].Sub(began))
	assert.True(t, m.plan.relays[honest].dial.connected)
}

// Events that a relay had sent before it was disconnected, and that were unread for longer than the
// overlap of a catch-up, arrived with the next daily pass.
func TestHungUpForRoomBehindWhatItSent(t *testing.T) {
	for _, settledAfter := range []time.Duration{0, 20 * time.Minute} {
		p, u := newPlan(defaults()), relayURL(t, "a")
		p.Step(start, full(repoRef("one"), []graspsync.RelayURL{u}, 1))
		settle(p, start, u, connect(t, p, start, u))
		r, now := p.relays[u], start
		for ; now.Before(start.Add(settledAfter)); now = now.Add(time.Minute) {
			p.Step(now, Settled{At: now})
		}
		now = start.Add(2 * time.Hour)
		p.cfg.MaxConnections = 1
		p.now = now
		p.hangUp(p.yields().to(r.listed.record))
		now = now.Add(time.Hour)
		p.cfg.MaxConnections = 2
		p.effects = nil
		p.Step(now, Tick{})
		got := only[Start](connect(t, p, now, u))
		require.NotEmpty(t, got)
		for _, s := range got {
			require.Equal(t, Recent, s.Batch.Kind)
			read := start.Add(max(0, settledAfter-time.Minute))
			require.LessOrEqual(t, int64(*s.Batch.Queries[0].Filter.Since), read.Add(-15*time.Minute).Unix())
		}
		require.True(t, r.dial.connected)
	}
}

// As many keys as there was room for, with one event each, permanently excluded the deletions of
// all later authors.
func TestPromiseP37_LaterAuthors(t *testing.T) {
	c := defaults()
	c.MaxAuthors = 1_000
	p := newPlan(c)
	var throwaway, later Authors
	for i := range 1_000 {
		throwaway = append(throwaway, pubKey(i))
	}
	for i := range 100 {
		later = append(later, pubKey(10_000+i))
	}
	p.Step(start, throwaway)
	asked := make(map[graspsync.PubKey]int)
	const days = 30
	for range days { // in the order of a scan
		p.Step(start, throwaway)
		p.Step(start, later)
		for _, a := range p.authors.list {
			asked[a]++
		}
		require.Len(t, p.authors.list, c.MaxAuthors)
		require.Len(t, p.authors.set, c.MaxAuthors)
	}
	never, sum := 0, 0
	for _, a := range later {
		sum += asked[a]
		if asked[a] == 0 {
			never++
		}
	}
	t.Logf("1,000 throw-away keys before 100 authors, room for 1,000: these are asked about on %.0f %% of the days, %d of them never", 100*float64(sum)/float64(days*len(later)), never)
	require.Zero(t, never)
	require.Greater(t, sum, days*len(later)/3)
}

// A relay that never becomes complete, because it always has more events, is disconnected after an
// hour in favor of a waiting one, and not before.
func TestWhoIsNeverDoneGivesWay(t *testing.T) {
	c := defaults()
	c.MaxConnections = 1
	p, us := newPlan(c), urls(t, 2)
	p.Step(start, full(ownedBy(0, "repo"), us[:1]))
	under := only[Start](connect(t, p, start, us[0]))
	p.Step(start, full(ownedBy(1, "repo"), us[1:]))
	for now := start.Add(time.Minute); ; now = now.Add(time.Minute) {
		effects := p.Step(now, full(ownedBy(0, "repo"), us[:1], int(now.Sub(start)/time.Minute)))
		for _, b := range under {
			effects = append(effects, p.Step(now, Done{Relay: us[0], Epoch: b.Epoch, Batch: b.Batch.ID})...)
		}
		under = only[Start](effects)
		if gone := only[Hangup](append(effects, p.Step(now, Tick{})...)); len(gone) > 0 {
			require.Equal(t, us[0], gone[0].Relay)
			require.InDelta(t, yieldIncomplete.Minutes(), now.Sub(start).Minutes(), 2)
			require.True(t, p.relays[us[1]].dial.connecting)
			return
		}
		require.Less(t, now.Sub(start), 2*yieldIncomplete)
		require.Less(t, p.relays[us[0]].phase(), Live)
	}
}

// Strangers' relays that answer normally took the connections of relays of real repositories, and
// each reconnection fetched all history. Each of n owners has 1/n of the connections.
func TestPromiseP37_AnsweringRelaysOfStrangers(t *testing.T) {
	for _, c := range []struct {
		name   string
		fakes  int
		keys   bool // each fake relay has its own key
		owners int
		level  Level
	}{
		{"15 a key", 200, false, 14, LevelFull},
		{"15 a key", 1000, false, 67, LevelFull},
		{"15 a key", 3000, false, 200, LevelFull},
		{"a key each", 1000, true, 1000, LevelFull},
		{"a key each, held", 1000, true, 1000, LevelStateOnly},
	} {
		t.Run(fmt.Sprint(c.fakes, " ", c.name), func(t *testing.T) {
			m := newMarket(t, defaults())
			honest := m.honest()
			m.wait(time.Hour, func() {})
			clear(m.passes)
			if c.keys {
				m.fakes(c.fakes, false, c.level)
			} else {
				m.spam(c.fakes, false)
			}
			m.wait(time.Hour, func() {}) // until all have had a turn
			share, least := m.connected(2*time.Hour, honest)
			// 20 of 31 owners have a connection to an honest relay that counts for them.
			part := min(1, 256/float64(c.owners+len(honest)))
			t.Logf("connected: %.1f %% of the time, the least of them %.1f %%; the part of an owner is %.1f %%; fakes dialed: %d",
				100*share, 100*least, 100*part, len(m.dialed)-len(honest))
			assert.GreaterOrEqual(t, share, 0.85*part)
			assert.GreaterOrEqual(t, least, 0.7*part)
			assert.Equal(t, c.fakes, len(m.dialed)-len(honest), "a stranger's relay gets its turn as well")
		})
	}
}

// An owner with more than its share has at most five attempts, and a host has one.
func TestPromiseP37_AttemptsOfOneOwner(t *testing.T) {
	p := newPlan(defaults())
	attempts := func() (n int) {
		for _, r := range p.relays {
			if r.dial.connecting {
				n++
			}
		}
		return n
	}
	p.Step(start, full(ownedBy(0, "repo"), urls(t, 30)))
	require.Equal(t, 5, attempts())
	p.Step(start.Add(time.Minute), Tick{})
	require.Equal(t, 5, attempts(), "however old these are")
	var ports []graspsync.RelayURL
	for i := range 20 {
		u, err := graspsync.ParseRelayURL(fmt.Sprintf("wss://one.example:%d", 2_000+i))
		require.NoError(t, err)
		ports = append(ports, u)
	}
	p.Step(start.Add(time.Minute), full(ownedBy(1, "repo"), append(ports, relayURL(t, "other"))))
	for at := time.Minute; at < 2*time.Minute; at += time.Second {
		p.Step(start.Add(at), Tick{})
	}
	require.Equal(t, 7, attempts(), "one of the host, and one of another")
	require.True(t, p.relays[relayURL(t, "other")].dial.connecting)
	shared := urls(t, 30)[29:]
	p.Step(start.Add(2*time.Minute), full(ownedBy(2, "repo"), shared))
	require.True(t, p.relays[shared[0]].dial.connecting, "whose turn is the first one")
}

// While relays wait, the owner with the most connections loses one, and no owner with fewer does.
func TestPromiseP37_WhoYields(t *testing.T) {
	c := defaults()
	c.MaxConnections = 16
	m := newMarket(t, c)
	few := []graspsync.RelayURL{relayURL(t, "few0"), relayURL(t, "few1")}
	m.step(full(ownedBy(0, "repo"), few))
	m.spam(60, false) // of four keys
	boot := relayURL(t, "boot")
	m.step(Bootstrap{Relay: boot})
	m.wait(11*time.Minute, func() {})
	clear(m.lost)
	shared := few[0] // it counts for the owner with the fewest connections
	m.step(full(ownedBy(1000, "more"), []graspsync.RelayURL{shared}))
	m.wait(6*time.Hour, func() {})
	for _, u := range append(few, boot) {
		require.NotContains(t, m.lost, u)
		require.True(t, m.plan.relays[u].dial.connected)
	}
	require.Len(t, m.dialed, 63, "the others take turns")
}

// Among owners with the most connections, each yields only its own.
func TestPromiseP37_OwnersWithMostYieldTheirOwn(t *testing.T) {
	a, b, first, second := new(dialOwner), new(dialOwner), new(relayState), new(relayState)
	y := yieldChoice{connections: map[*dialOwner]int{a: 2, b: 2}, most: 2, own: map[*dialOwner]*relayState{a: second}, oldest: first}
	require.Same(t, second, y.to(a))
	require.Nil(t, y.to(b))
	require.Same(t, first, y.to(new(dialOwner)))
}

// A relay without room in the table replaces the oldest relay of the owner with the most relays.
// Connected relays stay. A relay counts for its owner with the fewest relays.
func TestTableOfRelays(t *testing.T) {
	c := defaults()
	c.MaxRelays = 20
	m := newMarket(t, c)
	all := urls(t, 40)
	for _, u := range all[1:] {
		m.dead[u] = true
	}
	m.step(full(ownedBy(0, "repo"), all[:20]))
	require.Len(t, m.plan.relays, 20, "free room is for all")
	m.step(full(ownedBy(1, "repo"), all[1:2]))
	m.step(full(ownedBy(2, "repo"), all[20:21]))
	for i, known := range []bool{true, true, false, true} {
		require.Equal(t, known, m.plan.relays[all[i]] != nil, i)
	}
	require.NotNil(t, m.plan.relays[all[20]])
	m.step(full(ownedBy(3, "repo"), all[20:40]))
	require.Equal(t, 9, m.plan.owners.of[pubKey(0)].records)
	require.Equal(t, 9, m.plan.owners.of[pubKey(3)].records)
	m.plan.Step(m.now, Changes{Repos: []RepoChange{{Ref: ownedBy(3, "repo")}}})
	require.Nil(t, m.plan.owners.of[pubKey(3)])
}

// checkOwners checks that the counts of owners equal the counted state.
func (w *world) checkOwners() {
	p := w.plan
	lists, records, dialing := make(map[*dialOwner]int), make(map[*dialOwner]int), make(map[*dialOwner]int)
	for _, r := range p.relays {
		sum := 0
		for o, n := range r.listed.owners {
			sum += n
			lists[o]++
			w.must(n > 0 && p.owners.of[o.key] == o, "owners of a relay")
			w.must(r.bootstrap || len(r.dial.places) > 0 == (r.dial.places[o] != nil), "its place in the line of an owner")
		}
		w.must(sum == r.listed.repos, "repositories that list a relay, by owner")
		at, ok := p.owners.table.Get(r.url)
		w.must(ok == (r.listed.record != nil) && (!ok || at == r && r.listed.owners[r.listed.record] > 0), "place in the table")
		w.must(ok || r.listed.repos == 0 || w.plan.cfg.MaxRelays < 50_000, "a relay out of the table")
		records[r.listed.record]++
		if r.dial.connecting {
			dialing[r.dial.turnOf]++
		}
	}
	for key, o := range p.owners.of {
		w.must(o.key == key && lists[o] > 0 && len(o.repos) > 0, "what an owner has")
		w.must(o.records == records[o], "what counts for an owner")
		w.must(o.dialing == dialing[o] && o.dialing <= ownerDials, "attempts of an owner")
		w.must((o.waiting.Len() > 0) == (o.turn != nil), "the turn of an owner")
		for r := range o.repos {
			w.must(r.ref.Owner == o.key && len(r.relays) > 0, "repositories of an owner")
			for _, rel := range r.relays {
				w.must(!rel.gone && rel.listed.owners[o] > 0, "who lists a relay")
			}
		}
	}
	for e := p.queue.owners.Front(); e != nil; e = e.Next() {
		o := e.Value.(*dialOwner)
		w.must(o.turn == e && o.waiting.Len() > 0, "place of an owner")
		for at := o.waiting.Front(); at != nil; at = at.Next() {
			r := at.Value.(*relayState)
			w.must(r.dial.places[o] == at && !r.gone, "place in a line")
		}
	}
}
