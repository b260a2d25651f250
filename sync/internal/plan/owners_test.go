package plan

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/filters"
)

// market is a plan with relays that answer and relays that are dead, in fake time.
type market struct {
	t      *testing.T
	plan   *Plan
	now    time.Time
	dead   map[filters.RelayURL]bool
	brings map[filters.RelayURL]bool // what nobody else has
	ends   []attempt                 // of dead relays
	dialed map[filters.RelayURL]time.Time
	passes map[filters.RelayURL]int // over the whole history
}

type attempt struct {
	Dial
	at time.Time
}

func newMarket(t *testing.T, c Config) *market {
	return &market{
		t: t, plan: newPlan(c), now: start,
		dead: make(map[filters.RelayURL]bool), brings: make(map[filters.RelayURL]bool),
		dialed: make(map[filters.RelayURL]time.Time), passes: make(map[filters.RelayURL]int),
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
			effects = append(effects, m.plan.Step(m.now, Connected{Relay: e.Relay, Epoch: e.Epoch, Limits: usual})...)
			if m.brings[e.Relay] {
				effects = append(effects, m.plan.Step(m.now, Useful(e))...)
			}
		case Start:
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
		m.now = m.now.Add(10 * time.Second)
		for len(m.ends) > 0 && !m.ends[0].at.After(m.now) {
			e := m.ends[0]
			m.ends = m.ends[1:]
			m.step(DialFailed{Relay: e.Relay, Epoch: e.Epoch, RetryAt: m.now.Add(5 * time.Minute)})
		}
		m.step(Tick{})
		look()
	}
}

func ownedBy(n int, name string) filters.RepoRef {
	return filters.RepoRef{Owner: pubKey(n), Identifier: name}
}

// spam has as many relays listed as it takes, 15 by each announcement, each of them by
// another key.
func (m *market) spam(relays int, dead bool) {
	for i := 0; i < relays; i += 15 {
		var listed []filters.RelayURL
		for k := range min(15, relays-i) {
			u := relayURL(m.t, fmt.Sprintf("fake%d", i+k))
			m.dead[u] = dead
			listed = append(listed, u)
		}
		m.step(full(ownedBy(1000+i, "spam"), listed))
	}
}

// Relays of strangers that answer as others do took the connections of those that
// repositories are on: with 1,000 of them these were connected for a quarter of the
// time, with 5,000 for a twentieth, and each time they came back all history was
// fetched.
func TestPromiseP37_AnsweringRelaysOfStrangers(t *testing.T) {
	for _, c := range []struct {
		fakes  int
		brings bool // the honest relays have brought something before
		time   time.Duration
		least  float64
	}{
		{200, true, 24 * time.Hour, 1}, {1000, true, 24 * time.Hour, 0.98}, {5000, true, 12 * time.Hour, 0.98},
		{1000, false, 3 * time.Hour, 0.98}, {5000, false, 12 * time.Hour, 0.80},
	} {
		t.Run(fmt.Sprintf("%d fakes, brings %v", c.fakes, c.brings), func(t *testing.T) {
			m := newMarket(t, defaults())
			honest := make([]filters.RelayURL, 20)
			for i := range honest {
				honest[i] = relayURL(t, fmt.Sprintf("honest%d", i))
				m.brings[honest[i]] = c.brings
			}
			// Thirty owners, each on three relays; the last relay is that of one of them alone.
			for i := range 30 {
				m.step(full(ownedBy(i, "repo"), []filters.RelayURL{honest[i%19], honest[(i+1)%19], honest[(i*7+2)%19]}))
			}
			m.step(full(ownedBy(30, "repo"), []filters.RelayURL{honest[19]}))
			m.wait(time.Hour, func() {})
			clear(m.passes)
			m.spam(c.fakes, false)
			up, looks := make(map[filters.RelayURL]int), 0
			m.wait(c.time, func() {
				looks++
				for _, u := range honest {
					if m.plan.relays[u].connected {
						up[u]++
					}
				}
			})
			total, least, passes, most := 0, looks, 0, 0
			for _, u := range honest {
				total, least = total+up[u], min(least, up[u])
				passes, most = passes+m.passes[u], max(most, m.passes[u])
			}
			share := float64(total) / float64(looks*len(honest))
			t.Logf("connected: %.1f %% of the time, the least of them %.1f %%; passes over all history in %s: %.2f, at most %d; fakes dialed: %d",
				100*share, 100*float64(least)/float64(looks), c.time, float64(passes)/float64(len(honest)), most, len(m.dialed)-len(honest))
			assert.GreaterOrEqual(t, share, c.least)
			assert.LessOrEqual(t, most, 1, "in a day")
			assert.Greater(t, len(m.dialed)-len(honest), c.fakes*9/10, "a stranger's relay gets its turn as well")
		})
	}
}

// A new relay waited until all were dialed that strangers had named before: 26 minutes
// behind 1,000 dead ones, 81 behind 3,000.
func TestPromiseP37_NewRelayBehindDeadOnes(t *testing.T) {
	for _, dead := range []int{1000, 3000} {
		m := newMarket(t, defaults())
		m.spam(dead, true)
		honest := relayURL(t, "honest")
		m.step(full(ownedBy(0, "repo"), []filters.RelayURL{honest}))
		m.wait(30*time.Minute, func() {})
		require.Contains(t, m.dialed, honest)
		waited := m.dialed[honest].Sub(start)
		t.Logf("first dial of a new relay behind %d dead ones: after %s", dead, waited)
		assert.LessOrEqual(t, waited, 6*time.Minute)
	}
}

// A table full of relays of strangers kept out the relay that twenty repositories are
// on.
func TestPromiseP37_FullTable(t *testing.T) {
	m := newMarket(t, defaults())
	m.spam(50_000, true)
	require.Len(t, m.plan.relays, 50_000)
	honest, began := relayURL(t, "honest"), m.now
	for i := range 20 {
		m.step(full(ownedBy(i, "repo"), []filters.RelayURL{honest}))
	}
	require.NotNil(t, m.plan.relays[honest], "a relay that twenty repositories are on is not known")
	assert.Len(t, m.plan.relays, 50_000)
	m.wait(10*time.Minute, func() {})
	t.Logf("first dial of a new relay in a full table: after %s", m.dialed[honest].Sub(began))
	assert.True(t, m.plan.relays[honest].connected)
}

// What is dropped for lack of room does not come back by being asked for again, and
// those who have least keep what they have.
func TestFullTableIsStable(t *testing.T) {
	c := defaults()
	c.MaxRelays, c.MaxDials = 150, 1
	m := newMarket(t, c)
	m.spam(300, true)
	require.Len(t, m.plan.relays, 150)
	honest := []filters.RelayURL{relayURL(t, "one"), relayURL(t, "two")}
	m.step(full(ownedBy(0, "repo"), honest))
	for _, u := range honest {
		require.NotNil(t, m.plan.relays[u])
	}
	again := Snapshot(full(ownedBy(0, "repo"), honest))
	for i := 0; i < 300; i += 15 {
		var listed []filters.RelayURL
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
		var listed []filters.RelayURL
		for k := range 15 {
			listed = append(listed, relayURL(t, fmt.Sprintf("fake%d", 15*i+k)))
		}
		m.step(full(ownedBy(7, fmt.Sprint("spam", i)), listed))
	}
	assert.Equal(t, 50_000/ownerShare, len(m.plan.relays))
}

// A relay that we had hung up for want of room was dialed after those that nobody had
// ever heard of, and fetched from the start when it came back more than 15 minutes
// later.
func TestHungUpForRoom(t *testing.T) {
	c := defaults()
	c.MaxConnections, c.MaxDials = 2, 2
	m := newMarket(t, c)
	u := relayURL(t, "a")
	m.step(full(ownedBy(0, "repo"), []filters.RelayURL{u}, 1))
	m.wait(time.Hour, func() {})
	r := m.plan.relays[u]
	m.plan.Step(m.now, full(ownedBy(1, "repo"), urls(t, 2)))
	m.plan.Step(m.now, DialFailed{Relay: relayURL(t, "r0"), Epoch: m.plan.lastEpoch, RetryAt: m.now.Add(100 * time.Hour)})
	require.True(t, r.connected || m.plan.relays[relayURL(t, "r1")].connecting)
	// As if for a connection: hung up while r0 and r1 have the places.
	for now := m.now; r.connected; now = now.Add(time.Minute) {
		m.now = now
		require.True(t, m.plan.makeRoom(now, m.plan.relays[relayURL(t, "r1")], finished(now)))
	}
	assert.True(t, r.good, "it has answered for an hour")
	lost := m.now
	m.now = m.now.Add(3 * time.Hour)
	r.retryAt = m.now
	m.plan.effects = nil
	effects := m.plan.Step(m.now, Tick{})
	require.Contains(t, only[Dial](effects), Dial{Relay: u, Epoch: r.epoch})
	effects = m.plan.Step(m.now, Connected{Relay: u, Epoch: r.epoch, Limits: usual})
	assert.Empty(t, only[Reset](effects))
	for _, s := range only[Start](effects) {
		assert.Equal(t, Recent, s.Batch.Kind)
		assert.Equal(t, lost.Add(-15*time.Minute).Unix(), int64(*s.Batch.Queries[0].Filter.Since))
	}
	assert.NotEmpty(t, only[Start](effects))
	// Had it been away by itself, for as long: from the start.
	m.plan.Step(m.now, Lost{Relay: u, Epoch: r.epoch, AliveAt: m.now, RetryAt: m.now.Add(16 * time.Minute), Good: true})
	m.now = m.now.Add(16 * time.Minute)
	m.plan.Step(m.now, Tick{})
	effects = m.plan.Step(m.now, Connected{Relay: u, Epoch: r.epoch, Limits: usual})
	assert.Len(t, only[Reset](effects), 1)
}

// After a restart nobody knew which relays had worked before: they were dialed after
// as many as strangers had named first.
func TestPromiseP37_KnownRelaysFirstAfterARestart(t *testing.T) {
	c := defaults()
	c.MaxDials = 5
	m := newMarket(t, c)
	useful, good := relayURL(t, "useful"), relayURL(t, "good")
	m.step(Restore{Known: []Standing{{Relay: useful, Useful: true}, {Relay: good, Good: true}}})
	listed := append(urls(t, 10), good, useful)
	effects := m.plan.Step(m.now, full(ownedBy(0, "repo"), listed))
	dials := only[Dial](effects)
	require.Len(t, dials, 5)
	assert.Equal(t, []filters.RelayURL{useful, good}, []filters.RelayURL{dials[0].Relay, dials[1].Relay})
	assert.Zero(t, m.plan.relays[useful].owners[m.plan.owners.of[pubKey(0)]]-1)
	assert.Equal(t, 11, m.plan.owners.of[pubKey(0)].idle)
}

// What is counted of owners is what is there, whatever happens.
func (w *world) checkOwners() {
	p := w.plan
	using, idle, lists := 0, make(map[*owner]int), make(map[*owner]int)
	uses := make(map[*owner]int)
	for _, r := range p.relays {
		w.must(r.using == (r.connecting || r.connected || r.line != nil), "uses a connection, or waits for one")
		sum := 0
		for o, n := range r.owners {
			sum += n
			lists[o]++
			if !r.useful {
				idle[o]++
			}
			if r.using {
				uses[o]++
			}
			_, ok := o.relays[r]
			w.must(ok && n > 0 && p.owners.of[o.key] == o, "owners of a relay")
		}
		w.must(sum == r.listedBy, "repositories that list a relay, by owner")
	}
	w.must(len(p.owners.of) == len(p.owners.heap), "owners in the heap")
	for i, o := range p.owners.heap {
		w.must(o.index == i && p.owners.of[o.key] == o, "place in the heap of owners")
		w.must(o.idle == idle[o] && o.using == uses[o] && len(o.relays) == lists[o] && len(o.relays) > 0, "what an owner has")
		if o.using > 0 {
			using++
		}
		for r := range o.repos {
			w.must(r.ref.Owner == o.key && len(r.relays) > 0, "repositories of an owner")
		}
	}
	w.must(using == p.owners.using, "owners that use connections")
	for i := range p.lines {
		for k, r := range p.lines[i].waiting {
			w.must(r.line == &p.lines[i] && r.lineIndex == k && !r.gone, "place in a line")
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
	asked := make(map[filters.PubKey]int)
	const days = 30
	for range days { // as a scan offers them
		p.Step(start, throwaway)
		p.Step(start, later)
		for _, a := range p.authors {
			asked[a]++
		}
		require.Len(t, p.authors, c.MaxAuthors)
		require.Len(t, p.authorSet, c.MaxAuthors)
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

// Where connections are scarce each line of relays has its turns: half are for those that
// were given to us or have brought something, a quarter for those that are known to work,
// and of the rest the failed ones have one in four. While there is room the order is one of rank, but that each fourth turn is for
// failed ones before new ones.
func TestLinesTakeTurns(t *testing.T) {
	p := newPlan(Config{MaxConnections: 1})
	order := func() (first [lines]int, failedBeforeNew int) {
		for range 16 {
			turns := p.turnsOf()
			first[turns[0]]++
			at := func(line int) int { return slices.Index(turns[:], line) }
			if at(lineFailed) < at(lineNew) {
				failedBeforeNew++
			}
			p.lastEpoch++
		}
		return first, failedBeforeNew
	}
	first, failed := order()
	require.Equal(t, [lines]int{lineFirst: 16}, first)
	require.Equal(t, 4, failed)
	p.dialing = 1
	first, failed = order()
	require.Equal(t, [lines]int{lineFirst: 8, lineGood: 4, lineNew: 3, lineFailed: 1}, first)
	require.Equal(t, 1, failed)
}
