package sync

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/eventtest"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/sync/internal/pending"
	"github.com/graspsync/graspsync/sync/internal/session"
	"github.com/graspsync/graspsync/sync/wire"
)

// Of each of the last 512 events with a wrong signature the last copy is remembered.
func TestBadCopiesAgainstNaiveTwin(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 1))
	var b badCopies
	var order []graspsync.EventID
	sigs := make(map[graspsync.EventID]string)
	all := make([]graspsync.EventID, 700)
	for i := range all {
		all[i] = testID(i)
	}
	require.Equal(t, all, b.without(slices.Clone(all)), "nothing is known of it")
	for step := range 4_000 {
		k := copyKey{all[rnd.IntN(min(len(all), 1+step))], string(rune('a' + rnd.IntN(3)))}
		_, known := sigs[k.id]
		if b.add(k) == known {
			require.Fail(t, "the first copy of an event", "%d: known %t", step, known)
		}
		if !known {
			if order = append(order, k.id); len(order) > 512 {
				delete(sigs, order[0])
				order = order[1:]
			}
		}
		sigs[k.id] = k.sig
		for range 5 {
			k := copyKey{all[rnd.IntN(len(all))], string(rune('a' + rnd.IntN(3)))}
			if sig, known := sigs[k.id]; b.has(k) != (known && sig == k.sig) {
				require.Fail(t, "this copy", "%d", step)
			}
		}
		if step%100 == 0 || step < 5 {
			want := slices.DeleteFunc(slices.Clone(all), func(id graspsync.EventID) bool { return changes(sigs, id) })
			require.Equal(t, want, b.without(slices.Clone(all)))
		}
	}
	require.Len(t, order, 512)
}

// A relay that repeats itself is noticed; the same event on another subscription is no
// repetition.
func TestRepeatsTellSubscriptionsApart(t *testing.T) {
	var r repeats
	for _, c := range []struct {
		sub string
		id  graspsync.EventID
	}{{"ab", testID(1)}, {"a", testID(1)}, {"", testID(1)}, {"ab", testID(2)}, {"ab", graspsync.EventID{}}} {
		require.False(t, r.seen(c.sub, c.id), c)
		for range 3 {
			require.True(t, r.seen(c.sub, c.id), c)
		}
	}
	require.Len(t, r.slots, 8_192)
	for i := range 100_000 { // it forgets, and goes on
		r.seen("sub", testID(i))
	}
	require.Len(t, r.slots, 8_192)
}

// What led to nothing is charged: words, answers to nothing, repetitions, and what the
// Transport has dropped, once each.
func TestWhatIsCharged(t *testing.T) {
	event := func(n int) *nostr.Event { return testEvent(n, 1, 1, 1) }
	deliver, other := session.Deliver{}, session.Send{}
	for name, c := range map[string]struct {
		msg     wire.Message
		actions []session.Action
		before  int // so many of the same before
		cost    int64
	}{
		"event":                  {wire.Message{Type: wire.TypeEvent, Event: eventtest.Of(event(1))}, []session.Action{deliver}, 0, 0},
		"event and more":         {wire.Message{Type: wire.TypeEvent, Event: eventtest.Of(event(1))}, []session.Action{other, deliver}, 0, 0},
		"event again":            {wire.Message{Type: wire.TypeEvent, Event: eventtest.Of(event(1))}, []session.Action{deliver}, 1, 1_000},
		"event again and again":  {wire.Message{Type: wire.TypeEvent, Event: eventtest.Of(event(1))}, []session.Action{deliver}, 2, 2_000},
		"event nobody asked for": {wire.Message{Type: wire.TypeEvent, Event: eventtest.Of(event(1))}, nil, 0, 1_000},
		"event that is refused":  {wire.Message{Type: wire.TypeEvent, Event: eventtest.Of(event(1))}, []session.Action{other}, 0, 1_000},
		"end":                    {wire.Message{Type: wire.TypeEOSE}, []session.Action{other}, 3, 0},
		"end of nothing":         {wire.Message{Type: wire.TypeEOSE}, nil, 0, 1_000},
		"refusal":                {wire.Message{Type: wire.TypeClosed}, []session.Action{other}, 0, 0},
		"refusal of nothing":     {wire.Message{Type: wire.TypeClosed}, nil, 0, 1_000},
		"round":                  {wire.Message{Type: wire.TypeNegMsg}, []session.Action{other}, 0, 0},
		"round of nothing":       {wire.Message{Type: wire.TypeNegMsg}, nil, 0, 1_000},
		"error":                  {wire.Message{Type: wire.TypeNegErr}, []session.Action{other}, 0, 0},
		"error of nothing":       {wire.Message{Type: wire.TypeNegErr}, nil, 0, 1_000},
		"words":                  {wire.Message{Type: wire.TypeNotice}, []session.Action{other}, 0, 1_000},
		"answer to what we sent": {wire.Message{Type: wire.TypeOK}, nil, 0, 1_000},
	} {
		t.Run(name, func(t *testing.T) {
			for _, dropped := range []uint64{0, 70} {
				s := tune(Config{fixed: constants{Refill: 1}})
				n := newConn(t.Context(), s.manager.loop.env.conn, graspsync.RelayURL{}, 1, s.relay)
				d := &dropping{n: dropped}
				n.conn = d
				c.msg.Size = 1_000
				for range c.before + 1 {
					n.charge(c.msg, c.actions)
				}
				d.n += 500
				n.charge(wire.Message{Type: wire.TypeEOSE}, []session.Action{other})
				left := int64(8<<20) - c.cost - int64(dropped) - 500
				assert.True(t, n.env.unproductive.Allow(s.relay.host, int(left)))
				assert.False(t, n.env.unproductive.Allow(s.relay.host, 1_000))
			}
		})
	}
}

// dropping is a connection that drops messages.
type dropping struct {
	Conn
	n uint64
}

// Traffic implements [Conn].
func (d *dropping) Traffic() Traffic { return Traffic{DroppedBytes: d.n} }

// A relay whose allowance is used up is cut, once, and counted once.
func TestAllowanceUsedUpEndsTheConnection(t *testing.T) {
	s := tune(Config{fixed: constants{Unproductive: 1_000, Refill: 1}})
	n := newConn(t.Context(), s.manager.loop.env.conn, graspsync.RelayURL{}, 1, s.relay)
	n.spend(1_000)
	require.Empty(t, n.mailbox.take(), "there was as much")
	for range 3 {
		n.spend(500)
	}
	told := n.mailbox.take()
	require.Len(t, told, 3)
	for _, cmd := range told {
		require.Empty(t, cmd(nil, time.Now()))
	}
	require.ErrorIs(t, n.ended, errUnproductive)
	require.Equal(t, map[string]uint64{"unproductive": 1}, s.manager.report.dropped)
}

// Who brought what is held first counts, until it is taken, and of no more than there is
// room for.
func TestHolds(t *testing.T) {
	var h holds
	a := heldEvent{size: 1}
	h.add(testID(1), a)
	h.add(testID(1), heldEvent{size: 2})
	for range 2 {
		got, ok := h.get(testID(1), false)
		require.True(t, ok)
		require.Equal(t, a, got)
		require.True(t, h.has(testID(1)))
	}
	got, ok := h.get(testID(1), true)
	require.True(t, ok)
	require.Equal(t, a, got)
	require.False(t, h.has(testID(1)))
	_, ok = h.get(testID(1), true)
	require.False(t, ok)
	for i := range 100_001 {
		h.add(testID(i), a)
	}
	require.Len(t, h.by, 100_000)
	require.True(t, h.has(testID(99_999)))
	require.False(t, h.has(testID(100_000)))
}

// Reasons are told apart until there are a hundred: a policy may make them up.
func TestCountersAgainstNaiveTwin(t *testing.T) {
	var c counters
	rejected, results, sources := make(map[string]uint64), make(map[graspsync.Result]uint64), make(map[graspsync.SourceKind]uint64)
	for i := range 3 * 120 {
		reason := fmt.Sprint(i % 120)
		c.reject(reason)
		if i%120 >= 100 {
			reason = "other"
		}
		rejected[reason]++
	}
	for r := range graspsync.Failed + 1 {
		for k := range graspsync.Daily + 3 { // should there be others one day
			c.outcome(k, r)
			results[r]++
			if r == graspsync.Stored && k <= graspsync.Daily {
				sources[k]++
			}
		}
	}
	for i := range 5 {
		c.drop("a", i)
		c.drop("none", 0)
		c.learnedFact("b")
		c.panicked("c")
	}
	(*counters)(nil).panicked("nobody counts it")
	var s EventStatus
	c.reasons(&s)
	require.Equal(t, rejected, s.Rejected)
	require.Len(t, s.Rejected, 101)
	require.Equal(t, map[string]uint64{"a": 10}, s.Dropped)
	require.Equal(t, map[string]uint64{"b": 5}, s.Learned)
	require.Equal(t, map[string]uint64{"c": 5}, s.Panics)
	s.Rejected["mine"]++
	require.NotContains(t, c.rejected, "mine", "who asks has a copy")
	for r, n := range results {
		require.Equal(t, n, c.results[r].Load())
	}
	by := make(map[string]uint64)
	for k, n := range sources {
		by[k.String()] = n
	}
	require.Equal(t, by, c.bySource())
}

// What the code of others panics with is an error, and counted; what it returned stays.
func TestRecovered(t *testing.T) {
	var c counters
	call := func(f func() error) (err error) {
		defer c.recovered(&err, "theirs")
		return f()
	}
	own := fmt.Errorf("its own")
	require.NoError(t, call(func() error { return nil }))
	require.Equal(t, own, call(func() error { return own }))
	require.Empty(t, c.panics)
	require.EqualError(t, call(func() error { panic("x") }), "theirs panicked: x")
	require.Equal(t, map[string]uint64{"theirs": 1}, c.panics)
}

// coverageTwin counts what a relay lacks and had, as plainly as can be.
type coverageTwin struct {
	seen       map[graspsync.EventID]bool
	lacks, had map[graspsync.RepoRef]int
	all        int
	comparedAt time.Time
	toldAt     time.Time
	looking    int
}

func (c *coverageTwin) add(m map[graspsync.RepoRef]int, ref graspsync.RepoRef) {
	if _, known := m[ref]; known || len(m) < 1_024 {
		m[ref]++
	}
}

func TestCoverageAgainstNaiveTwin(t *testing.T) {
	rnd := rand.New(rand.NewPCG(7, 7))
	var c coverage
	twin := coverageTwin{seen: make(map[graspsync.EventID]bool), lacks: make(map[graspsync.RepoRef]int), had: make(map[graspsync.RepoRef]int)}
	now := time.Unix(1_800_000_000, 0)
	repos := make([]graspsync.RepoRef, 1_500)
	for i := range repos {
		repos[i] = testRepo(i%7, fmt.Sprint(i))
	}
	some := func() (refs []graspsync.RepoRef) {
		for range rnd.IntN(16) {
			refs = append(refs, repos[rnd.IntN(len(repos))])
		}
		return refs
	}
	reached := make(map[string]int)
	for range 3_000 {
		now = now.Add(time.Duration(rnd.IntN(5)) * time.Hour)
		switch rnd.IntN(200) {
		case 0:
			c.begin()
			clear(twin.seen)
			clear(twin.lacks)
			twin.all = 0
			continue
		}
		switch rnd.IntN(4) {
		case 0:
			refs := some()
			c.missed(refs)
			for _, ref := range refs {
				twin.add(twin.had, ref)
			}
		case 1:
			var ids, want []graspsync.EventID
			for range rnd.IntN(200) {
				ids = append(ids, testID(rnd.IntN(4_000)))
			}
			for _, id := range ids {
				if len(twin.seen) < 2_048 && !twin.seen[id] {
					twin.seen[id] = true
					want = append(want, id)
				}
			}
			if len(twin.seen) == 2_048 {
				reached["ids"]++
			}
			if twin.comparedAt = now; len(want) > 0 {
				twin.looking++
			}
			require.Equal(t, want, c.fresh(ids, &arrivals{}, now))
		case 2:
			if twin.looking == 0 {
				continue
			}
			var events [][]graspsync.RepoRef
			for range rnd.IntN(20) {
				refs := some()
				events = append(events, refs)
				for _, ref := range refs {
					twin.add(twin.lacks, ref)
				}
				twin.all++
			}
			twin.looking--
			c.counted(events)
		case 3:
			var ref graspsync.RepoRef
			count, of := 0, 0
			if twin.looking == 0 && len(twin.lacks) > 0 && (twin.toldAt.IsZero() || now.Sub(twin.toldAt) >= 24*time.Hour) {
				reached["told"]++
				if now.Sub(twin.toldAt) == 24*time.Hour {
					reached["told at once"]++
				}
				twin.toldAt, of = now, len(twin.lacks)
				for _, r := range slices.SortedFunc(maps.Keys(twin.lacks), graspsync.RepoRef.Compare) {
					if n := twin.lacks[r]; n > count {
						ref, count = r, n
					}
				}
			}
			gotRef, gotCount, gotOf := c.worst(now)
			require.Equal(t, []any{ref, count, of}, []any{gotRef, gotCount, gotOf})
		}
		ref := repos[rnd.IntN(len(repos))]
		lacks, had, at := c.of(ref)
		require.Equal(t, []any{twin.lacks[ref], twin.had[ref], twin.comparedAt}, []any{lacks, had, at})
		var s RelayStatus
		c.fill(&s)
		require.Equal(t, []any{twin.all, twin.comparedAt}, []any{s.Lacks, s.ComparedAt})
		if len(twin.had) == 1_024 {
			reached["repos"]++
		}
	}
	for _, what := range []string{"ids", "told", "told at once", "repos"} {
		require.Positive(t, reached[what], what)
	}
}

// An event counts for sixteen repositories at most: its own, those that it tags and those
// of the root events that it tags, each once.
func TestRepositoriesOfAnEvent(t *testing.T) {
	x := newWholeIndex(&twinStore{}, listsByName, nip34.Identity{})
	x.stored(eventtest.Of(testEvent(10, graspsync.KindIssue, 2, 1, tagRepo(testRepo(3, "c")), tagRepo(testRepo(1, "a")))))
	a, b, c := testRepo(1, "a"), testRepo(2, "b"), testRepo(3, "c")
	for name, want := range map[string]struct {
		ev   *nostr.Event
		refs []graspsync.RepoRef
	}{
		"announcement":         {testAnnouncement(1, 1, "a", 1, "ours"), []graspsync.RepoRef{a}},
		"state":                {testEvent(1, graspsync.KindState, 1, 1, nostr.Tag{"d", "a"}), []graspsync.RepoRef{a}},
		"neither":              {testEvent(1, 30_619, 1, 1, nostr.Tag{"d", "a"}), nil},
		"what tags one":        {testEvent(1, 1, 1, 1, tagRepo(b), tagRepo(b)), []graspsync.RepoRef{b}},
		"what tags a root":     {testEvent(1, 1, 1, 1, tagEvent(10)), []graspsync.RepoRef{a, c}},
		"what tags both":       {testEvent(1, 1, 1, 1, tagRepo(b), tagEvent(10), tagRepo(a)), []graspsync.RepoRef{a, b, c}},
		"what tags another":    {testEvent(1, 1, 1, 1, tagEvent(11)), nil},
		"what tags a comment":  {testEvent(1, 1, 1, 1, tagEvent(12)), nil},
		"state that tags more": {testEvent(1, graspsync.KindState, 1, 1, nostr.Tag{"d", "a"}, tagRepo(b)), []graspsync.RepoRef{a, b}},
	} {
		refs := x.reposOf(eventtest.Of(want.ev))
		require.ElementsMatch(t, want.refs, refs, name)
		require.True(t, slices.IsSortedFunc(refs, graspsync.RepoRef.Compare), name)
	}
	for n, want := range map[int]int{15: 15, 16: 16, 17: 16, 40: 16} {
		ev := testEvent(1, 1, 1, 1)
		for i := range n {
			ev.Tags = append(ev.Tags, tagRepo(testRepo(i, "x")))
		}
		require.Len(t, x.reposOf(eventtest.Of(ev)), want)
	}
}

// The numbers and the hashes of dependencies are kept over restarts: with others nothing
// that waits would be found by what it waits for.
func TestDependenciesAreWhatWasKept(t *testing.T) {
	for i, kind := range []graspsync.Awaited{graspsync.AwaitEvent, graspsync.AwaitMention, graspsync.AwaitRepo, 4, graspsync.AwaitMaintainer, graspsync.AwaitAuthor, 7, 8, graspsync.AwaitVersion, graspsync.AwaitHeldBy} {
		require.EqualValues(t, i+1, kind)
	}
	of := map[string]pending.Key{
		"event": pending.KeyOf(graspsync.OnEvent(testID(1))), "mention": pending.KeyOf(graspsync.OnMention(testID(1))), "repo": pending.KeyOf(graspsync.OnRepo(testRepo(1, "x"))),
		"maintainer": pending.KeyOf(graspsync.OnMaintainer("x", testKey(1))), "author": pending.KeyOf(graspsync.OnAuthor(testKey(1))),
		"version": pending.KeyOf(graspsync.OnVersion(coordinates(30617, 1, "x"))), "held": pending.KeyOf(graspsync.OnHeldBy(testKey(1))),
	}
	require.Equal(t, keptKeys, of)
}

// Of what an event waits for, or fulfils, each thing counts once, and so many.
func TestKeysAreBounded(t *testing.T) {
	some := []graspsync.Dependency{graspsync.OnEvent(testID(3)), graspsync.OnEvent(testID(1)), graspsync.OnEvent(testID(3)), graspsync.OnAuthor(testKey(1))}
	keys := pending.KeysOf(some)
	require.True(t, slices.IsSorted(keys))
	require.ElementsMatch(t, []pending.Key{pending.KeyOf(some[0]), pending.KeyOf(some[1]), pending.KeyOf(some[3])}, keys)
	for n, want := range map[int]int{0: 0, 9_999: 9_999, 10_000: 10_000, 10_001: 10_000} {
		var w waitingFor
		deps := make([]graspsync.Dependency, n)
		for i := range deps {
			deps[i] = graspsync.OnEvent(testID(i))
			w.add(deps[i])
		}
		require.Len(t, pending.KeysOf(deps), want)
		require.Len(t, w, want)
	}
	var w waitingFor
	for i := range 40 { // twice
		w.add(some[1])
		w.add(graspsync.OnEvent(testID(100 + i)))
		if len(w) <= 17 {
			require.Len(t, w, i+2, "each once as long as there are few")
		}
	}
	for n, want := range map[int]int{997: 999, 998: 1_000, 999: 1_000, 2_000: 1_000} {
		ev := testEvent(1, 1, 1, 1)
		for i := range n {
			ev.Tags = append(ev.Tags, tagEvent(10+i))
		}
		require.Len(t, pending.Fulfils(eventtest.Of(ev), true), want)
	}
}

// What an event fulfils is what it is, and what it says of others.
func TestWhatAnEventFulfils(t *testing.T) {
	announcement := testAnnouncement(1, 1, "x", 1, "ours")
	announcement.Tags = append(announcement.Tags, nostr.Tag{"maintainers", testKey(2).String(), testKey(3).String()}, tagEvent(5))
	version := graspsync.OnVersion(graspsync.Address{Kind: 30617, Author: testKey(1), Identifier: "x"})
	for name, c := range map[string]struct {
		ev   *nostr.Event
		want []graspsync.Dependency // but for its author, once it is stored
	}{
		"announcement": {announcement, []graspsync.Dependency{
			graspsync.OnEvent(testID(1)), graspsync.OnRepo(testRepo(1, "x")), graspsync.OnMaintainer("x", testKey(1)),
			graspsync.OnMaintainer("x", testKey(2)), graspsync.OnMaintainer("x", testKey(3)), version, graspsync.OnMention(testID(5)),
		}},
		"comment":  {testEvent(1, 1111, 1, 1, tagEvent(5), tagEvent(6)), []graspsync.Dependency{graspsync.OnEvent(testID(1)), graspsync.OnMention(testID(5)), graspsync.OnMention(testID(6))}},
		"deletion": {testEvent(1, graspsync.KindDeletion, 1, 1, tagEvent(5)), []graspsync.Dependency{graspsync.OnEvent(testID(1))}},
	} {
		for _, stored := range []bool{false, true} {
			want := c.want
			if stored && want != nil {
				want = append(slices.Clone(want), graspsync.OnAuthor(testKey(1)))
			}
			require.ElementsMatch(t, pending.KeysOf(want), pending.Fulfils(eventtest.Of(c.ev), stored), "%s, stored %t", name, stored)
		}
	}
}

// Wakers never wait, and wake once.
func TestWakersHaveOneSlot(t *testing.T) {
	s := tune(Config{})
	n := newConn(t.Context(), s.manager.loop.env.conn, graspsync.RelayURL{}, 1, s.relay)
	for _, c := range []chan struct{}{n.mailbox.wake, n.room, s.manager.feed.wake, s.manager.ingest.news.wake} {
		require.Equal(t, 1, cap(c))
	}
	for i := range 3 {
		n.stop(fmt.Errorf("reason %d", i))
		require.Len(t, n.mailbox.wake, 1)
	}
	told := n.mailbox.take()
	require.Len(t, told, 3)
	require.Empty(t, n.mailbox.take())
	for _, cmd := range told {
		require.Empty(t, cmd(nil, time.Now()))
	}
	require.EqualError(t, n.ended, "reason 0", "the first reason counts")
}

// keptKeys are what is kept in the State of servers that run.
var keptKeys = map[string]pending.Key{
	"event": 0x79c9dd74aae9089a, "mention": 0x3910f1c220731d6d, "repo": 0x4489c559824c36b4,
	"maintainer": 0x8d160777af2f1e48, "author": 0x5f37c2de7353633b,
	"version": 0x4256fb2146207eae, "held": 0xecb3915a5b54d7b7,
}
