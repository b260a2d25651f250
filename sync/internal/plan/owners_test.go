package plan

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
)

// market is a plan with relays that answer and relays that are dead, in fake time.
type market struct {
	t      *testing.T
	plan   *Plan
	now    time.Time
	dead   map[graspsync.RelayURL]bool
	brings map[graspsync.RelayURL]bool // what nobody else has
	ends   []attempt                   // of dead relays
	dialed map[graspsync.RelayURL]time.Time
	passes map[graspsync.RelayURL]int // over the whole history
	fails  map[graspsync.RelayURL]int

	never   map[graspsync.RelayURL]bool      // done with anything
	lost    map[graspsync.RelayURL]time.Time // hung up
	bringAt time.Time
	where   map[graspsync.RelayURL]netip.Prefix
}

type attempt struct {
	Dial
	at time.Time
}

func newMarket(t *testing.T, c Config) *market {
	return &market{
		t: t, plan: newPlan(c), now: start,
		dead: make(map[graspsync.RelayURL]bool), brings: make(map[graspsync.RelayURL]bool),
		dialed: make(map[graspsync.RelayURL]time.Time), passes: make(map[graspsync.RelayURL]int),
		fails: make(map[graspsync.RelayURL]int), where: make(map[graspsync.RelayURL]netip.Prefix),
		never: make(map[graspsync.RelayURL]bool), lost: make(map[graspsync.RelayURL]time.Time),
	}
}

func (m *market) step(in Input) { m.take(m.plan.Step(m.now, in)) }

// take plays the relays: they answer at once, or not at all.
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
			effects = append(effects, m.plan.Step(m.now, Connected{
				Relay: e.Relay, Epoch: e.Epoch, Limits: usual, Address: m.where[e.Relay],
			})...)
			if m.brings[e.Relay] {
				effects = append(effects, m.plan.Step(m.now, Useful(e))...)
			}
		case Hangup:
			m.lost[e.Relay] = m.now
		case Start:
			if m.never[e.Relay] {
				continue
			}
			if e.Batch.Kind == DailyHistory && e.Batch.Queries[0].Filter.Tags == nil || e.Batch.Kind == History && e.Batch.Queries[0].Filter.Tags == nil {
				m.passes[e.Relay]++ // layer 1 is a part of each
			}
			effects = append(effects, m.plan.Step(m.now, Done{Relay: e.Relay, Epoch: e.Epoch, Batch: e.Batch.ID})...)
		}
	}
}

// wait lets time pass, and calls look each ten seconds of it.
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
		m.bring()
		look()
	}
}

// bring has each relay that brings things now and then bring one more.
func (m *market) bring() {
	if m.now.Before(m.bringAt) {
		return
	}
	m.bringAt = m.now.Add(time.Hour)
	for _, u := range sortedBy(m.brings, graspsync.RelayURL.Compare) {
		if r := m.plan.known.relays[u]; m.brings[u] && r != nil && r.dial.connected {
			m.step(Useful{Relay: u, Epoch: r.dial.epoch})
		}
	}
}

func ownedBy(n int, name string) graspsync.RepoRef {
	return graspsync.RepoRef{Owner: pubKey(n), Identifier: name}
}

// spam has as many relays listed as it takes, 15 by each announcement, each of them by
// another key.
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

// fakes has relays listed that strangers run, each of them by a key of its own.
func (m *market) fakes(relays int, dead, brings bool, level Level) {
	for i := range relays {
		u := relayURL(m.t, fmt.Sprintf("fake%d", i))
		m.dead[u], m.brings[u] = dead, brings
		c := full(ownedBy(1000+i, "spam"), []graspsync.RelayURL{u})
		c.Repos[0].Level = level
		m.step(c)
	}
}

// honest has thirty owners list three of nineteen relays each, and another one a relay of
// its own.
func (m *market) honest(brings bool) []graspsync.RelayURL {
	honest := make([]graspsync.RelayURL, 20)
	for i := range honest {
		honest[i] = relayURL(m.t, fmt.Sprintf("honest%d", i))
		m.brings[honest[i]] = brings
	}
	for i := range 30 {
		m.step(full(ownedBy(i, "repo"), []graspsync.RelayURL{honest[i%19], honest[(i+1)%19], honest[(i*7+2)%19]}))
	}
	m.step(full(ownedBy(30, "repo"), honest[19:]))
	return honest
}

// connected is for what part of a time these relays are connected, and the least of them.
func (m *market) connected(d time.Duration, relays []graspsync.RelayURL) (share, least float64) {
	up, looks := make(map[graspsync.RelayURL]int), 0
	m.wait(d, func() {
		looks++
		for _, u := range relays {
			if m.plan.known.relays[u].dial.connected {
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

// Relays of strangers that answer as others do took the connections of those that
// repositories are on: with 1,000 of them these were connected for a quarter of the
// time, with 5,000 for a twentieth, and each time they came back all history was
// fetched. When that was shared by owner it took a key for each of them, and one event:
// 48 %.
func TestPromiseP37_AnsweringRelaysOfStrangers(t *testing.T) {
	const day = 24 * time.Hour
	for _, c := range []struct {
		name         string
		fakes        int
		keys         bool // each fake has one of its own
		brings, also bool // the honest relays bring something now and then, the fakes also do
		before, time time.Duration
		least        float64
		level        Level
	}{
		{"15 a key", 200, false, true, false, time.Hour, day, 1, LevelFull},
		{"15 a key", 1000, false, true, false, time.Hour, 3 * time.Hour, 0.98, LevelFull},
		{"15 a key, none brings", 5000, false, false, false, time.Hour, time.Hour, 0.98, LevelFull},
		{"a key each", 1000, true, true, false, time.Hour, 2 * time.Hour, 0.98, LevelFull},
		{"a key each, all bring", 1000, true, true, true, time.Hour, 3 * time.Hour, 0.98, LevelFull},
		{"a key each, only fakes bring", 1000, true, false, true, 80 * time.Hour, 2 * time.Hour, 0.98, LevelFull},
		{"a key each, all at the same time", 1000, true, true, true, 0, 3 * time.Hour, 0.80, LevelFull},
		{"a key each, all bring", 5000, true, true, true, time.Hour, 2 * time.Hour, 0.98, LevelFull},
		{"a key each, held", 5000, true, false, false, 0, 2 * time.Hour, 0.98, LevelStateOnly},
	} {
		t.Run(fmt.Sprint(c.fakes, " ", c.name, " ", c.before), func(t *testing.T) {
			m := newMarket(t, defaults())
			honest := m.honest(c.brings)
			m.wait(c.before, func() {})
			clear(m.passes)
			if c.keys {
				m.fakes(c.fakes, false, c.also, c.level)
			} else {
				m.spam(c.fakes, false)
			}
			share, least := m.connected(c.time, honest)
			passes, most := 0, 0
			for _, u := range honest {
				passes, most = passes+m.passes[u], max(most, m.passes[u])
			}
			t.Logf("connected: %.1f %% of the time, the least of them %.1f %%; passes over all history in %s: %.2f, at most %d; fakes dialed: %d",
				100*share, 100*least, c.time, float64(passes)/float64(len(honest)), most, len(m.dialed)-len(honest))
			assert.GreaterOrEqual(t, share, c.least)
			assert.LessOrEqual(t, most, 1+int(c.time/day), "in a day")
			assert.Greater(t, len(m.dialed)-len(honest), min(c.fakes*9/10, int(c.time/(10*time.Minute))*60), "a stranger's relay gets its turn as well")
		})
	}
}

// Names are as free as keys. Of relays at a few addresses each counted for itself, however
// many there were, and once they had been here for as long as others they had most of the
// connections, and of the turns.
func TestPromiseP37_RelaysAtOneAddress(t *testing.T) {
	m := newMarket(t, defaults())
	for i := range 1_000 {
		m.where[relayURL(t, fmt.Sprint("fake", i))] = netip.PrefixFrom(netip.AddrFrom4([4]byte{198, 51, byte(i % 3), 0}), 24)
	}
	m.fakes(1_000, false, true, LevelFull)
	m.wait(3*time.Hour, func() {}) // until each was dialed: before that nobody knows where it is
	// The honest ones come later, and each of them is found at another address. Eighty
	// more are those of one owner each, as the fakes are.
	honest := m.honest(true)
	var small []graspsync.RelayURL
	for i := range 80 {
		small = append(small, relayURL(t, fmt.Sprint("small", i)))
		m.step(full(ownedBy(100+i, "repo"), small[i:]))
	}
	for i, u := range append(small, honest...) {
		m.where[u] = netip.PrefixFrom(netip.AddrFrom4([4]byte{203, 0, byte(i), 0}), 24)
	}
	m.wait(time.Hour, func() {})
	share, least := m.connected(time.Hour, honest)
	of, worst := m.connected(time.Hour, small)
	t.Logf("1,000 relays of a key each at 3 addresses, older: honest ones connected for %.1f %% of the time, the least of them %.1f %%; 80 of one owner each %.1f %%, least %.1f %%",
		100*share, 100*least, 100*of, 100*worst)
	assert.GreaterOrEqual(t, share, 0.95)
	assert.GreaterOrEqual(t, of, 0.90)
}

// Who is never done kept its connection for good if it had brought something once, whoever
// waited.
func TestLongTenureOfRelaysThatWereUseful(t *testing.T) {
	c := defaults()
	c.MaxConnections, c.BatchTimeout = 8, 100*time.Hour
	m := newMarket(t, c)
	listed := func(name string, from int) (out []graspsync.RelayURL) {
		for i := range 8 {
			out = append(out, relayURL(t, fmt.Sprint(name, i)))
			m.step(full(ownedBy(from+i, "repo"), out[i:]))
		}
		return out
	}
	for i := range 8 {
		u := relayURL(t, fmt.Sprint("slow", i))
		m.never[u], m.brings[u] = true, true
	}
	slow := listed("slow", 0)
	m.wait(time.Minute, func() {})
	clear(m.brings)
	for _, u := range slow {
		require.True(t, m.plan.known.relays[u].dial.connected)
		require.False(t, m.plan.known.relays[u].dial.usefulAt.IsZero())
	}
	m.wait(3*time.Hour, func() {}) // nobody waits
	require.Empty(t, m.lost, "while there is room for all")

	m = newMarket(t, c)
	for i := range 8 {
		u := relayURL(t, fmt.Sprint("slow", i))
		m.never[u], m.brings[u] = true, true
	}
	slow = listed("slow", 0)
	m.wait(30*time.Second, func() {})
	clear(m.brings)
	waiting := listed("waiting", 100)
	m.wait(59*time.Minute, func() {})
	for _, u := range slow {
		require.NotContains(t, m.lost, u, "it may be a long history")
	}
	m.wait(2*time.Minute, func() {})
	require.NotEmpty(t, m.lost, "nobody gave way after an hour")
	m.wait(time.Hour, func() {})
	for _, u := range waiting {
		require.Contains(t, m.dialed, u)
	}
	for _, u := range slow {
		require.Contains(t, m.lost, u)
	}
}

// What decides who is dialed and who gives way went through all owners of the relays that
// are connected.
func BenchmarkTurn(b *testing.B) {
	for _, n := range []int{2_000, 20_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			m := newMarket(nil, defaults())
			hub := relayURL(b, "hub")
			var all Changes
			for i := range n {
				all.Repos = append(all.Repos, full(ownedBy(i, "repo"), []graspsync.RelayURL{hub, relayURL(b, fmt.Sprint("r", i))}).Repos...)
			}
			m.step(all)
			m.wait(20*time.Minute, func() {})
			require.Len(b, m.plan.dialer.connected, 256)
			b.ResetTimer()
			for range b.N { // a relay gives way to another one, which comes
				m.now = m.now.Add(time.Minute)
				m.plan.dialer.roomAt = time.Time{}
				m.step(Tick{})
			}
		})
	}
}

// BenchmarkList is an owner who lists a relay that all others list as well, and no more.
func BenchmarkList(b *testing.B) {
	for _, n := range []int{2_000, 20_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			m := newMarket(nil, defaults())
			hub := relayURL(b, "hub")
			var all Changes
			for i := range n {
				all.Repos = append(all.Repos, full(ownedBy(i, "repo"), []graspsync.RelayURL{hub, relayURL(b, fmt.Sprint("r", i))}).Repos...)
			}
			m.step(all)
			b.ResetTimer()
			for range b.N {
				m.now = m.now.Add(time.Second)
				m.step(full(ownedBy(n, "repo"), []graspsync.RelayURL{hub}))
				m.step(Changes{Repos: []RepoChange{{Ref: ownedBy(n, "repo")}}})
			}
		})
	}
}

// A new relay waited until all were dialed that strangers had named before: 26 minutes
// behind 1,000 dead ones, 81 behind 3,000. When owners took turns it took a key for each
// of them.
func TestPromiseP37_NewRelayBehindDeadOnes(t *testing.T) {
	for _, c := range []struct {
		name  string
		dead  int
		level Level // of all
		keys  bool
		old   bool // the owner of the honest relay has been here for a day
		most  time.Duration
	}{
		{"15 a key", 3000, LevelFull, false, false, 2 * time.Minute},
		{"a key each", 1000, LevelFull, true, false, 5 * time.Minute},
		{"a key each", 3000, LevelFull, true, false, 10 * time.Minute},
		{"a key each, held", 3000, LevelStateOnly, true, false, 10 * time.Minute},
		{"a key each, old", 3000, LevelFull, true, true, 10 * time.Second},
	} {
		t.Run(fmt.Sprint(c.dead, " ", c.name), func(t *testing.T) {
			m := newMarket(t, defaults())
			if c.old {
				m.step(full(ownedBy(0, "old"), []graspsync.RelayURL{relayURL(t, "known")}))
				m.wait(25*time.Hour, func() {})
			}
			if c.keys {
				m.fakes(c.dead, true, false, c.level)
			} else {
				m.spam(c.dead, true)
			}
			var honest []graspsync.RelayURL
			began := m.now
			for i := range 20 {
				honest = append(honest, relayURL(t, fmt.Sprint("honest", i)))
				in := full(ownedBy(i, "repo"), honest[i:])
				in.Repos[0].Level = c.level
				if m.step(in); c.old {
					break
				}
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

// A table full of relays of strangers kept out the relay that twenty repositories are
// on.
func TestPromiseP37_FullTable(t *testing.T) {
	m := newMarket(t, defaults())
	m.spam(50_000, true)
	require.Len(t, m.plan.known.relays, 50_000)
	honest, began := relayURL(t, "honest"), m.now
	for i := range 20 {
		m.step(full(ownedBy(i, "repo"), []graspsync.RelayURL{honest}))
	}
	require.NotNil(t, m.plan.known.relays[honest], "a relay that twenty repositories are on is not known")
	assert.Len(t, m.plan.known.relays, 50_000)
	m.wait(10*time.Minute, func() {})
	t.Logf("first dial of a new relay in a full table: after %s", m.dialed[honest].Sub(began))
	assert.True(t, m.plan.known.relays[honest].dial.connected)
}

// What is dropped for lack of room does not come back by being asked for again, and
// those who have least keep what they have.
func TestFullTableIsStable(t *testing.T) {
	c := defaults()
	c.MaxRelays, c.MaxDials = 150, 1
	m := newMarket(t, c)
	m.spam(300, true)
	require.Len(t, m.plan.known.relays, 150)
	honest := []graspsync.RelayURL{relayURL(t, "one"), relayURL(t, "two")}
	m.step(full(ownedBy(0, "repo"), honest))
	for _, u := range honest {
		require.NotNil(t, m.plan.known.relays[u])
	}
	again := Snapshot(full(ownedBy(0, "repo"), honest))
	for i := 0; i < 300; i += 15 {
		var listed []graspsync.RelayURL
		for k := range 15 {
			listed = append(listed, relayURL(t, fmt.Sprintf("fake%d", i+k)))
		}
		again.Repos = append(again.Repos, full(ownedBy(1000+i, "spam"), listed).Repos...)
	}
	m.step(again)
	for range 3 {
		effects := m.plan.Step(m.now, again)
		assert.Empty(t, only[Forget](effects))
		assert.Empty(t, only[Incomplete](effects))
		assert.Equal(t, 300-148, len(only[Dropped](effects)))
	}
	// there is room again: it is asked for
	effects := m.plan.Step(m.now, Changes{Repos: []RepoChange{{Ref: ownedBy(0, "repo")}}})
	assert.Len(t, only[Forget](effects), 2)
	assert.NotEmpty(t, only[Incomplete](effects))
}

// One owner filled the table alone.
func TestOneOwnerDoesNotFillTheTable(t *testing.T) {
	m := newMarket(t, defaults())
	for i := range 200 {
		var listed []graspsync.RelayURL
		for k := range 15 {
			listed = append(listed, relayURL(t, fmt.Sprintf("fake%d", 15*i+k)))
		}
		m.step(full(ownedBy(7, fmt.Sprint("spam", i)), listed))
	}
	assert.Len(t, m.plan.known.relays, 781, "a 64th of the table")
}

// namedBy has a repository list relays of its owner's and of others.
func namedBy(repo graspsync.RepoRef, own, others []graspsync.RelayURL) Changes {
	return Changes{Repos: []RepoChange{{Ref: repo, Relays: own, Others: others, Level: LevelFull}}}
}

// What those name whom an owner lists takes nothing from what the owner names, and has less.
func TestWhatOthersNameTakesNothingFromTheOwner(t *testing.T) {
	p, own, others := newPlan(defaults()), urls(t, 3), []graspsync.RelayURL(nil)
	for i := range 20 {
		others = append(others, relayURL(t, fmt.Sprint("other", i)))
	}
	claim := func(u graspsync.RelayURL) uint64 { return p.known.relays[u].claim.weight }
	p.Step(start, namedBy(ownedBy(0, "repo"), own, nil))
	before := claim(own[0])
	for n := range others {
		p.Step(start, namedBy(ownedBy(0, "repo"), own, others[:n+1]))
		sum := uint64(0)
		for _, u := range others[:n+1] {
			sum += claim(u)
			require.Positive(t, claim(u))
			require.LessOrEqual(t, claim(u), before/8)
		}
		require.LessOrEqual(t, sum, 3*before/8, "an eighth of what the owner's have")
		require.Equal(t, before, claim(own[0]))
	}
	p.Step(start, namedBy(ownedBy(1, "repo"), others[:1], nil))
	require.Greater(t, claim(others[0]), before, "who names it alone gives all of theirs")
	p.Step(start, namedBy(ownedBy(1, "repo"), nil, others[:1]))
	require.Less(t, claim(others[0]), before, "the first that somebody names for others is worth no more than that")
}

// A table in which there is room for no more has those go first that others name, also of the
// same owner, and the relays of one owner find theirs however many others name.
func TestWhatOthersNameGoesFirst(t *testing.T) {
	c := defaults()
	c.MaxRelays = 100
	p := newPlan(c)
	name := func(what string, n int) (out []graspsync.RelayURL) {
		for i := range n {
			out = append(out, relayURL(t, fmt.Sprint(what, i)))
		}
		return out
	}
	p.Step(start, namedBy(ownedBy(0, "repo"), name("own", 10), name("other", 90)))
	require.Len(t, p.known.relays, 10+ownerLeast, "of one owner no more than those are known that others name")
	p.Step(start, namedBy(ownedBy(1, "repo"), name("theirs", 20), name("ofthose", 90)))
	require.Len(t, p.known.relays, 100, "it is full")
	for step := range 3 { // and stays as it is
		effects := p.Step(start, namedBy(ownedBy(0, "more"), name("new", 40), nil))
		require.Equal(t, step == 0, len(only[Forget](effects)) > 0)
		for _, u := range slices.Concat(name("own", 10), name("theirs", 20), name("new", 40)) {
			require.NotNil(t, p.known.relays[u], u)
		}
	}
	s, _ := p.RepoStatus(ownedBy(0, "repo"))
	for i, r := range s.Relays[:10] {
		require.Equal(t, name("own", 10)[i], r.Relay)
	}
	before := len(s.Relays)
	effects := p.Step(start, namedBy(ownedBy(0, "repo"), name("still", 14), name("other", 90)))
	s, _ = p.RepoStatus(ownedBy(0, "repo"))
	require.NotEmpty(t, only[Dropped](effects))
	require.Less(t, len(s.Relays), before+14, "its own have taken the places of what others name for it")
	for i, r := range s.Relays[:14] {
		require.Equal(t, name("still", 30)[i], r.Relay)
	}
}

// Dead relays that are named for others delay no relay of the owner, and those of nobody else for
// longer than as many keys would.
func TestWhatOthersNameIsDialedInTurns(t *testing.T) {
	m := newMarket(t, defaults())
	for i := range 200 {
		var dead []graspsync.RelayURL
		for k := range 16 {
			u := relayURL(t, fmt.Sprintf("dead%d", 16*i+k))
			m.dead[u] = true
			dead = append(dead, u)
		}
		m.step(namedBy(ownedBy(i, "repo"), []graspsync.RelayURL{relayURL(t, fmt.Sprint("own", i))}, dead))
	}
	began := m.now
	m.step(full(ownedBy(0, "more"), []graspsync.RelayURL{relayURL(t, "again")}))
	m.step(full(ownedBy(1_000, "repo"), []graspsync.RelayURL{relayURL(t, "theirs")}))
	m.wait(30*time.Minute, func() {})
	var most time.Duration
	for i := range 200 {
		u := relayURL(t, fmt.Sprint("own", i))
		require.Contains(t, m.dialed, u)
		most = max(most, m.dialed[u].Sub(began))
	}
	for _, name := range []string{"again", "theirs"} {
		require.Contains(t, m.dialed, relayURL(t, name))
		most = max(most, m.dialed[relayURL(t, name)].Sub(began))
	}
	t.Logf("200 owners' relays before 3,200 dead ones that are named for others: the last after %s", most)
	require.LessOrEqual(t, most, time.Minute)
}

// A relay that we had hung up for want of room was dialed after those that nobody had
// ever heard of, and fetched from the start when it came back more than 15 minutes
// later.
func TestHungUpForRoom(t *testing.T) {
	c := defaults()
	c.MaxConnections, c.MaxDials = 2, 2
	m := newMarket(t, c)
	u := relayURL(t, "a")
	m.step(full(ownedBy(0, "repo"), []graspsync.RelayURL{u}, 1))
	m.step(full(ownedBy(1, "repo"), urls(t, 1)))
	m.wait(time.Hour, func() {})
	r := m.plan.known.relays[u]
	require.Len(t, m.plan.dialer.connected, 2)
	m.now = m.now.Add(time.Minute)
	m.plan.Step(m.now, Settled{At: m.now})
	require.True(t, m.plan.dialer.makeRoom(m.now, r, finished(m.now)))
	require.False(t, r.dial.connected, "of two with the same claim who has stood longest goes")
	assert.True(t, r.dial.good, "it has answered for an hour")
	lost := m.now
	m.now = m.now.Add(3 * time.Hour)
	r.dial.retryAt = m.now
	m.plan.effects = nil
	effects := m.plan.Step(m.now, Tick{})
	require.Contains(t, only[Dial](effects), Dial{Relay: u, Epoch: r.dial.epoch})
	effects = m.plan.Step(m.now, Connected{Relay: u, Epoch: r.dial.epoch, Limits: usual})
	assert.Empty(t, only[Reset](effects))
	for _, s := range only[Start](effects) {
		assert.Equal(t, Recent, s.Batch.Kind)
		assert.Equal(t, lost.Add(-15*time.Minute).Unix(), int64(*s.Batch.Queries[0].Filter.Since))
	}
	assert.NotEmpty(t, only[Start](effects))
	// Had it been away by itself, for as long: from the start.
	m.plan.Step(m.now, Lost{Relay: u, Epoch: r.dial.epoch, AliveAt: m.now, RetryAt: m.now.Add(16 * time.Minute), Good: true})
	m.now = m.now.Add(16 * time.Minute)
	m.plan.Step(m.now, Tick{})
	effects = m.plan.Step(m.now, Connected{Relay: u, Epoch: r.dial.epoch, Limits: usual})
	assert.Len(t, only[Reset](effects), 1)
}

// What a relay that is hung up had sent, and nobody had read for longer than a catch-up
// overlaps, came with the next daily pass.
func TestHungUpForRoomBehindWhatItSent(t *testing.T) {
	for _, settledAfter := range []time.Duration{0, 20 * time.Minute} {
		p, u := newPlan(defaults()), relayURL(t, "a")
		p.Step(start, full(repoRef("one"), []graspsync.RelayURL{u}, 1))
		settle(p, start, u, connect(t, p, start, u))
		r, now := p.known.relays[u], start
		for ; now.Before(start.Add(2 * time.Hour)); now = now.Add(time.Minute) {
			in := Settled{At: now}
			if now.Sub(start) >= settledAfter {
				in.Except = map[graspsync.RelayURL]struct{}{u: {}}
			}
			p.Step(now, in)
		}
		p.cfg.MaxConnections = 1
		require.True(t, p.dialer.makeRoom(now, r, finished(now)))
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

// While nothing can be saved nothing settles. A connection that was hung up then counted as
// read to its end: what had come for longer than a catch-up overlaps came with the next daily
// pass.
func TestHungUpForRoomWhileNothingSettles(t *testing.T) {
	for _, settled := range []bool{false, true} {
		p, u := newPlan(defaults()), relayURL(t, "a")
		p.Step(start, full(repoRef("one"), []graspsync.RelayURL{u}, 1))
		settle(p, start, u, connect(t, p, start, u))
		read := start
		if settled {
			read = start.Add(10 * time.Minute)
			p.Step(read, Settled{At: read})
		}
		now := start.Add(2 * time.Hour)
		p.cfg.MaxConnections = 1
		require.True(t, p.dialer.makeRoom(now, p.known.relays[u], finished(now)))
		now = now.Add(time.Hour)
		p.cfg.MaxConnections = 2
		p.effects = nil
		p.Step(now, Tick{})
		got := only[Start](connect(t, p, now, u))
		require.NotEmpty(t, got)
		for _, s := range got {
			require.Equal(t, Recent, s.Batch.Kind)
			require.Equal(t, read.Add(-15*time.Minute).Unix(), int64(*s.Batch.Queries[0].Filter.Since))
		}
	}
}

// After a restart nobody knew which relays had worked before: they were dialed after
// as many as strangers had named first.
func TestPromiseP37_KnownRelaysFirstAfterARestart(t *testing.T) {
	c := defaults()
	c.MaxDials = 5
	m := newMarket(t, c)
	useful, good := relayURL(t, "useful"), relayURL(t, "good")
	m.step(Restore{Known: []Reputation{{Relay: useful, UsefulAt: m.now}, {Relay: good, Good: true}}})
	listed := append(urls(t, 10), good, useful)
	effects := m.plan.Step(m.now, full(ownedBy(0, "repo"), listed))
	dials := only[Dial](effects)
	require.Len(t, dials, 5)
	assert.Equal(t, []graspsync.RelayURL{useful, good}, []graspsync.RelayURL{dials[0].Relay, dials[1].Relay})
	assert.Zero(t, m.plan.known.relays[useful].claim.accounts[account{m.plan.owners.of[pubKey(0)], byOwner}]-1)
}

// What is counted of owners is what is there, whatever happens.
func (w *world) checkOwners() {
	p := w.plan
	lists := make(map[account]int)
	for _, r := range p.known.relays {
		sum, servedBy, claim, since := 0, 0, uint64(0), time.Time{}
		for o, n := range r.claim.accounts {
			sum += n
			lists[o]++
			if o.served > 0 {
				if servedBy++; servedBy == 1 || o.since.Before(since) {
					since = o.since
				}
			}
			claim += o.share()
			_, ok := o.relays[o.side][r]
			w.must(ok && n > 0 && p.owners.of[o.key] == o.owner, "owners of a relay")
		}
		w.must(sum == r.claim.listedBy, "repositories that list a relay, by owner")
		w.must(servedBy == 0 || since.Equal(r.claim.since), "since when a relay is listed")
		w.must(servedBy == r.claim.servedBy && claim == r.claim.weight, "the claim of a relay")
		w.must(p.owners.table[r.claim.index] == r, "place in the table")
	}
	w.must(len(p.owners.table) == len(p.known.relays), "relays in the table")
	for i := range p.owners.table {
		w.must(i == 0 || !p.owners.table.Less(i, (i-1)/2), "order of the table")
	}
	growing := 0
	for key, o := range p.owners.of {
		own, others := len(o.relays[byOwner]), len(o.relays[byOthers])
		w.must(o.key == key && own == lists[account{o, byOwner}] && others == lists[account{o, byOthers}] && own+others > 0, "what an owner has")
		served := 0
		for r := range o.repos {
			w.must(r.ref.Owner == o.key && len(r.relays) > 0, "repositories of an owner")
			w.must(r.named >= 0 && r.named <= len(r.relays), "how many of its relays the owner names")
			for _, rel := range r.relays {
				w.must(!rel.gone && rel.claim.accounts[account{o, r.names(rel)}] > 0, "who names a relay")
			}
			w.must(r.served == (r.level == LevelFull), "a repository that is served")
			if r.served {
				served++
			}
		}
		w.must(served == o.served, "repositories of an owner that are served")
		w.must((served > 0) == (o.weight > weightHeld), "what an owner weighs")
		if o.index >= 0 {
			growing++
			w.must(p.owners.growing[o.index] == o && o.growsAt.After(w.now), "whose weight grows")
		} else {
			w.must(served == 0 || o.weight == ages[len(ages)-1].weight, "whose weight does not grow")
		}
	}
	w.must(growing == len(p.owners.growing), "owners whose weight grows")
	young, unproven := 0, 0
	for _, r := range p.known.relays {
		if r.dial.young {
			young++
			w.must(r.dial.connecting, "young, and no attempt")
			if r.dial.unproven {
				unproven++
			}
		}
	}
	w.must(young == p.dialer.young.all && unproven == p.dialer.young.unproven, "young attempts")
	w.must(len(p.dialer.young.queue) <= p.cfg.MaxDials+1_000, "attempts that have ended")
	for i := range p.dialer.lines {
		for k, r := range p.dialer.lines[i].waiting {
			w.must(r.turn.line == &p.dialer.lines[i] && r.turn.index == k && !r.gone, "place in a line")
		}
	}
}

// As many keys as there was room for, with an event each, kept the deletions of all later
// authors from ever being asked for.
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
	for range days { // as a scan offers them
		p.Step(start, throwaway)
		p.Step(start, later)
		for _, a := range p.deletions.authors {
			asked[a]++
		}
		require.Len(t, p.deletions.authors, c.MaxAuthors)
		require.Len(t, p.deletions.authorSet, c.MaxAuthors)
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

// Of relays that have as much claim to be dialed who came first is first.
func TestFirstComeOfEquals(t *testing.T) {
	c := defaults()
	c.MaxDials = 1
	p, all := newPlan(c), urls(t, shortLine)
	var dialed []graspsync.RelayURL
	note := func(effects []Effect) {
		for _, d := range only[Dial](effects) {
			dialed = append(dialed, d.Relay)
		}
	}
	for i, u := range all {
		note(p.Step(start, full(ownedBy(i, "repo"), []graspsync.RelayURL{u})))
	}
	for i := 0; i < len(dialed); i++ {
		r := p.known.relays[dialed[i]]
		note(p.Step(start, Connected{Relay: r.url, Epoch: r.dial.epoch, Limits: usual}))
	}
	require.Equal(t, all, dialed)
}

// Each of the lines has its turns, in which it is looked at first, then the others: those
// of known relays first.
func TestLinesTakeTurns(t *testing.T) {
	p := newPlan(Config{})
	var first [lines]int
	for range 16 {
		turns := p.dialer.turnsOf()
		first[turns[0]]++
		for _, line := range []int{lineFirst, lineGood, lineNew, lineFailed, lineHeld} {
			require.Contains(t, turns, line, "where nobody waits in a line, others have its turn")
		}
		rest := slices.DeleteFunc(slices.Clone(turns[:]), func(line int) bool { return line == turns[0] })
		require.True(t, slices.IsSorted(rest), "known ones first")
		p.dialer.lastEpoch++
	}
	require.Equal(t, [lines]int{lineFirst: 6, lineGood: 2, lineNew: 4, lineFailed: 2, lineHeld: 2}, first)
}

// A relay that is never done, since there is always more for it to send, gives way after an
// hour to one that waits, and not before.
func TestWhoIsNeverDoneGivesWay(t *testing.T) {
	c := defaults()
	c.MaxConnections = 1
	p, us := newPlan(c), urls(t, 2)
	p.Step(start, full(ownedBy(0, "repo"), us[:1]))
	under := only[Start](connect(t, p, start, us[0]))
	p.Step(start, Useful{Relay: us[0], Epoch: under[0].Epoch})
	p.Step(start, full(ownedBy(1, "repo"), us[1:]))
	for now := start.Add(time.Minute); ; now = now.Add(time.Minute) {
		effects := p.Step(now, full(ownedBy(0, "repo"), us[:1], int(now.Sub(start)/time.Minute)))
		for _, b := range under {
			effects = append(effects, p.Step(now, Done{Relay: us[0], Epoch: b.Epoch, Batch: b.Batch.ID})...)
		}
		under = only[Start](effects)
		if gone := only[Hangup](append(effects, p.Step(now, Tick{})...)); len(gone) > 0 {
			require.Equal(t, us[0], gone[0].Relay)
			require.InDelta(t, longTenure.Minutes(), now.Sub(start).Minutes(), 2)
			require.True(t, p.known.relays[us[1]].dial.connecting)
			return
		}
		require.Less(t, now.Sub(start), 2*longTenure)
		require.Less(t, p.known.relays[us[0]].phase(), Live)
	}
}

// Relays of strangers of whom nothing is served had all connections, each for ten minutes at least: the relay that the owner of a
// repository named which is served waited for that.
func TestHeldRelaysGiveWay(t *testing.T) {
	c := defaults()
	c.MaxConnections = 32
	m := newMarket(t, c)
	for i := range 400 {
		in := full(ownedBy(100+i, "held"), []graspsync.RelayURL{relayURL(t, fmt.Sprint("held", i))})
		in.Repos[0].Level = LevelStateOnly
		m.step(in)
	}
	m.wait(5*time.Minute, func() {})
	require.Len(t, m.plan.dialer.connected, 32)
	honest, began := relayURL(t, "honest"), m.now
	m.step(full(ownedBy(1, "repo"), []graspsync.RelayURL{honest}))
	m.wait(3*time.Minute, func() {})
	require.Contains(t, m.dialed, honest)
	require.LessOrEqual(t, m.dialed[honest].Sub(began), time.Second)
	m.wait(time.Hour, func() { require.True(t, m.plan.known.relays[honest].dial.connected) })

	// One that drops comes back at once, whoever has taken its place meanwhile.
	m.step(Lost{Relay: honest, Epoch: m.plan.known.relays[honest].dial.epoch, RetryAt: m.now.Add(time.Second), Good: true})
	m.wait(10*time.Second, func() {})
	require.True(t, m.plan.known.relays[honest].dial.connected)
	require.LessOrEqual(t, m.plan.known.relays[honest].dial.connectedAt.Sub(m.now.Add(-10*time.Second)), 2*time.Second)

	var served []graspsync.RelayURL // more than there is room for: strangers keep a part
	for i := range 60 {
		served = append(served, relayURL(t, fmt.Sprint("served", i)))
		m.step(full(ownedBy(600+i, "repo"), served[i:]))
	}
	m.wait(5*time.Minute, func() {})
	held := 0
	for r := range m.plan.dialer.connected {
		if r.claim.servedBy == 0 {
			held++
		}
	}
	require.LessOrEqual(t, held, 32/changingShare)
	require.Positive(t, held, "they have their turns")
}
