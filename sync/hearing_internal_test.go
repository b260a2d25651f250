package sync

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/eventtest"
	"github.com/graspsync/graspsync/internal/racetest"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/sync/internal/pending"
)

// countingPolicy counts what is judged.
type countingPolicy struct {
	*GRASPPolicy
	judged int
	during func()
}

func (p *countingPolicy) Judge(ctx context.Context, ev graspsync.Event, src graspsync.Source, view View) (graspsync.Verdict, error) {
	if p.judged++; p.during != nil {
		p.during()
	}
	return p.GRASPPolicy.Judge(ctx, ev, src, view)
}

// deafPolicy can't tell who is heard.
type deafPolicy struct{ Policy }

func (deafPolicy) Heard(string, View) map[graspsync.PubKey]bool { return nil }

// hearingRig is a pipeline over an index, without relays.
type hearingRig struct {
	t      *testing.T
	g      *ingest
	policy *countingPolicy
	store  *twinStore
	n      int
	last   *nostr.Event // that was announced
}

func newHearingRig(t *testing.T, wrap func(Policy) Policy) *hearingRig {
	p := &countingPolicy{GRASPPolicy: graspPolicy(t, graspHost)}
	cfg := Config{}.withDefaults()
	cfg.fixed.Waiting = 20_000
	store := &twinStore{}
	x := newWholeIndex(store, p.Lists, nip34.Identity{})
	c := newReport(Config{})
	return &hearingRig{t: t, policy: p, store: store, g: newIngest(cfg, saver{store}, wrap(p), x, newFeed(x.index, cfg.fixed.FeedQueue, cfg.fixed.MaxAuthors), c, nil)}
}

// saver stores all that it is given.
type saver struct{ *twinStore }

func (s saver) Save(_ context.Context, events []graspsync.Incoming) ([]graspsync.Outcome, error) {
	out := make([]graspsync.Outcome, len(events))
	for i, in := range events {
		s.save(in.Event.Event)
		out[i].Result = graspsync.Stored
	}
	return out, nil
}

func (r *hearingRig) reader() storeReader { return storeReader{store: r.store, index: r.g.feed.index} }

func (r *hearingRig) job(ev *nostr.Event) *job {
	id, err := graspsync.ParseEventID(ev.ID)
	require.NoError(r.t, err)
	j := &job{key: copyKey{id: id}, incoming: graspsync.Incoming{Event: eventtest.Of(ev)}, size: 1000, revived: true}
	return j
}

func (r *hearingRig) next() int {
	r.n++
	return r.n
}

// announce has an announcement come that lists others, and returns how many events were judged.
func (r *hearingRig) announce(by int, here bool, lists ...int) int {
	r.t.Helper()
	tags := nostr.Tags{{"d", "x"}}
	if here {
		npub := nip34.NPub(testKey(by))
		tags = append(tags, nostr.Tag{"relays", "wss://" + graspHost}, nostr.Tag{"clone", "https://" + graspHost + "/" + npub + "/x.git"})
	}
	maintainers := nostr.Tag{"maintainers"}
	for _, m := range lists {
		maintainers = append(maintainers, testKey(m).String())
	}
	n := r.next()
	before := r.policy.judged
	r.last = testEvent(n, graspsync.KindAnnouncement, by, nostr.Timestamp(n), append(tags, maintainers)...)
	r.g.writer.process(r.t.Context(), []*job{r.job(r.last)})
	return r.policy.judged - before
}

func (r *hearingRig) state(by int) *job {
	n := r.next()
	return r.job(testEvent(n, graspsync.KindState, by, nostr.Timestamp(n), nostr.Tag{"d", "x"}, nostr.Tag{"refs/heads/main", fmt.Sprintf("f%039d", n)}))
}

// Each version of any announcement had all states of everybody judged again who was known
// under its identifier: 10,000 of them, in the one goroutine that all events wait for.
func TestOnlyWhoGainsASayIsJudgedAgain(t *testing.T) {
	const people, each = 200, 50
	r := newHearingRig(t, func(p Policy) Policy { return p })
	var listed []int
	for i := range people {
		listed = append(listed, 100+i)
	}
	require.Equal(t, 1, r.announce(1, true, listed...))
	for _, who := range listed {
		var states []*job
		for range each {
			states = append(states, r.state(who))
		}
		r.g.writer.process(t.Context(), states)
	}
	require.Equal(t, people*each, r.g.absences.rejected.Held().Waiting)
	for range 5 {
		require.Equal(t, 1, r.announce(1, true, listed...), "a version that changes nothing")
	}
	require.Equal(t, 1, r.announce(100, false, 999), "one that gives nobody a say")
	require.Equal(t, 1+each, r.announce(100, false, 1), "one that gives its author a say")
	require.Equal(t, (people-1)*each, r.g.absences.rejected.Held().Waiting)

	require.Equal(t, 1, r.announce(100, false), "who leaves")
	lost := r.state(100)
	r.g.writer.process(t.Context(), []*job{lost})
	require.Equal(t, 1+1, r.announce(100, false, 1), "and comes back")
	require.Equal(t, (people-1)*each, r.g.absences.rejected.Held().Waiting)

	// Somebody may be listed before their announcement comes, or after.
	require.Equal(t, 1, r.announce(500, false, 101))
	require.Equal(t, 2, r.announce(100, false, 1, 500), "the announcement that was refused")
	require.Equal(t, 1+each, r.announce(101, false, 1))
}

// Who was left out since too many were listed was not heard when these went, until some other
// announcement of that name came.
func TestWhoWasLeftOutIsJudgedAgainWhenOthersGo(t *testing.T) {
	gone := graspsync.Address{Kind: graspsync.KindAnnouncement, Author: testKey(1), Identifier: "x"}
	for name, goes := range map[string]func(r *hearingRig, listing *nostr.Event){
		"deleted": func(r *hearingRig, _ *nostr.Event) {
			n := r.next()
			r.g.writer.process(r.t.Context(), []*job{r.job(testEvent(n, graspsync.KindDeletion, 1, nostr.Timestamp(n), nostr.Tag{"a", gone.String()}))})
		},
		"deleted by a client": func(r *hearingRig, _ *nostr.Event) {
			n := r.next()
			ev := testEvent(n, graspsync.KindDeletion, 1, nostr.Timestamp(n), nostr.Tag{"a", gone.String()})
			r.g.feed.stored(eventtest.Of(ev))
			r.g.fulfil(eventtest.Of(ev))
		},
		"removed": func(r *hearingRig, listing *nostr.Event) {
			r.g.feed.removed(eventtest.Of(listing))
			r.g.news.withdrawn(eventtest.Of(listing))
		},
		"no more held": func(r *hearingRig, listing *nostr.Event) { // what is there is the policy's
			r.g.feed.index.removed(eventtest.Of(listing))
			r.g.feed.index.takeNews()
			r.g.news.withdrawn(eventtest.Of(listing))
		},
		"not found": func(r *hearingRig, listing *nostr.Event) {
			r.store.remove(slices.Index(r.store.events, listing))
			snap, missed, err := r.reader().scan(r.t.Context(), func(graspsync.Event) {})
			require.NoError(r.t, err)
			require.NoError(r.t, missed)
			c, ok := r.g.feed.replaceAll(snap)
			require.True(r.t, ok)
			r.g.discovered(c)
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newHearingRig(t, func(p Policy) Policy { return p })
			var listing *nostr.Event
			next := 100
			lists := func(n int) (out []int) {
				for range n {
					out = append(out, next)
					next++
				}
				return out
			}
			for by := range 5 {
				require.Equal(t, 1, r.announce(1+by, true, lists(250)...))
				if by == 0 {
					listing = r.last
				}
			}
			last := lists(250)
			require.Equal(t, 1, r.announce(6, true, last...))
			most, fewer := nip34.ServedBounds().All/6, nip34.ServedBounds().All/5
			for _, who := range last[most+1 : fewer] {
				require.Equal(t, 1, r.announce(who, false))
			}
			left := r.g.absences.rejected.Held().Fresh
			require.Equal(t, fewer-most-1, left)
			before := r.policy.judged
			goes(r, listing)
			select {
			case <-r.g.news.wake: // as the writer does
				keys, all := r.g.writer.fulfilled()
				require.False(t, all)
				r.g.writer.process(t.Context(), r.g.absences.revived(append(r.g.absences.arrived(t.Context(), keys), r.g.listings.heard(t.Context())...)))
			default:
				require.Equal(t, "deleted", name)
			}
			require.Zero(t, r.g.absences.rejected.Held().Fresh)
			require.LessOrEqual(t, r.policy.judged-before, left+1, "nobody twice")
		})
	}
}

// Of more identifiers than are kept all that waits is judged again.
func TestTooManyIdentifiersHaveChanged(t *testing.T) {
	r := newHearingRig(t, func(p Policy) Policy { return p })
	r.g.writer.process(t.Context(), []*job{r.state(2)})
	for n := range maxNews + 1 {
		require.False(t, r.g.feed.index.tooMany)
		r.g.feed.index.stored(eventtest.Of(announcementOf(n+1, 1, fmt.Sprint(n), 2)))
	}
	require.Empty(t, r.g.feed.index.news)
	require.Len(t, r.g.listings.heard(t.Context()), 1)
	require.Empty(t, r.g.listings.heard(t.Context()))
}

// A policy that can't tell has all judged that may have gained a say.
func TestWithoutAHearerAllAreJudgedAgain(t *testing.T) {
	r := newHearingRig(t, func(p Policy) Policy { return deafPolicy{p} })
	require.Equal(t, 1, r.announce(1, true, 2, 3))
	r.g.writer.process(t.Context(), []*job{r.state(2), r.state(3), r.state(9)})
	require.Equal(t, 3, r.announce(1, true, 2, 3))
	require.Equal(t, 3, r.announce(2, false, 1), "the state of 3 as well")
	require.Equal(t, 2, r.g.absences.rejected.Held().Waiting)
}

// What comes now does not wait until all is judged again that has waited.
func TestWhatComesHasItsTurn(t *testing.T) {
	r := newHearingRig(t, func(p Policy) Policy { return p })
	var states []*job
	for range 4 * saveBatch {
		states = append(states, r.state(2))
	}
	r.g.writer.process(t.Context(), states)
	r.announce(1, true, 2)
	came := 0
	r.policy.during = func() {
		if r.policy.judged == 4*saveBatch+3 {
			r.g.toSave <- r.state(1)
		}
		if len(r.g.toSave) == 0 && came == 0 && r.policy.judged > 4*saveBatch+3 {
			came = r.policy.judged
		}
	}
	all := r.announce(2, false, 1)
	require.Equal(t, 4*saveBatch+2, all)
	require.Less(t, came, 4*saveBatch+4+saveBatch)
	require.Zero(t, r.g.absences.rejected.Held().Waiting)
}

// Who is heard is remembered for a bounded number of people.
func TestHearingIsBounded(t *testing.T) {
	racetest.Amounts(t)
	var h hearing
	all := make(map[graspsync.PubKey]bool)
	for i := range maxHeard / 4 {
		all[testKey(i)] = i%2 == 0
	}
	for i := range 40 {
		name := fmt.Sprint(i)
		require.Len(t, h.gained(name, all), len(all)*3/2)
		require.Empty(t, h.gained(name, all))
		require.LessOrEqual(t, h.people, maxHeard)
		n := 0
		for _, of := range h.of {
			n += len(of)
		}
		require.Equal(t, n, h.people)
	}
	h.waits([]graspsync.Dependency{graspsync.OnSay("39", testKey(0)), graspsync.OnSay("39", testKey(1)), graspsync.OnWanted("39", testKey(2)), graspsync.OnSay("none", testKey(2)), graspsync.OnAuthor(testKey(4))})
	require.ElementsMatch(t, []pending.Key{pending.KeyOf(graspsync.OnSay("39", testKey(0))), pending.KeyOf(graspsync.OnSay("39", testKey(2))), pending.KeyOf(graspsync.OnWanted("39", testKey(2)))}, h.gained("39", all))
	require.Empty(t, h.gained("39", nil))
	require.LessOrEqual(t, h.people, maxHeard)
	all[testKey(-1)] = true
	for i := range maxHeard {
		all[testKey(i)] = true
	}
	require.NotEmpty(t, h.gained("huge", all))
	require.Nil(t, h.of["huge"])
}

// What follows from announcements is worked out once for each generation of them.
func TestKinIsKeptForAGeneration(t *testing.T) {
	r := newHearingRig(t, func(p Policy) Policy { return p })
	r.announce(1, true, 2)
	p, view := r.policy.GRASPPolicy, r.g.policy.view
	k := p.kinOf("x", view)
	require.Same(t, k, p.kinOf("x", view))
	require.NotSame(t, k, p.kinOf("y", view))
	r.announce(2, false, 1)
	other := p.kinOf("x", view)
	require.NotSame(t, k, other)
	require.False(t, k.speaks(testKey(2)))
	require.True(t, other.speaks(testKey(2)))
	for i := range 2 * maxKin {
		p.kinOf(fmt.Sprint(i), view)
	}
	require.Equal(t, maxKin, p.kin.recent.Len())
	require.Len(t, p.kin.entries, maxKin)
	require.NotSame(t, other, p.kinOf("x", view))
	require.Equal(t, Generation{Known: true}, view.Generation("gone"))
	mute := &twinView{}
	require.NotSame(t, p.kinOf("x", mute), p.kinOf("x", mute), "a view that can't say")
}

// Families of announcements that were replaced were kept as if somebody asked for them still.
func TestNoOlderKinIsKept(t *testing.T) {
	r := newHearingRig(t, func(p Policy) Policy { return p })
	p := r.policy.GRASPPolicy
	for n := range 40 {
		r.announce(1, true, 2, n+10)
		p.kinOf("x", r.g.policy.view)
		require.Equal(t, 1, p.kin.recent.Len())
		require.Len(t, p.kin.entries, 1)
		require.Equal(t, 3, p.kin.listings)
	}
	r.g.feed.removed(eventtest.Of(testAnnouncement(r.n, 1, "x", nostr.Timestamp(r.n), "")))
	p.kinOf("x", r.g.policy.view)
	require.Equal(t, 1, p.kin.recent.Len())
	require.Zero(t, p.kin.listings)
}

// What is kept is bounded by the listings there are: of one identifier as many may be as of
// thousands. One that has more than all may is kept, with and without what waits.
func TestKinIsBoundedByListings(t *testing.T) {
	var c kinCache
	generation := Generation{Known: true}
	sum := func() (n int) {
		for _, at := range c.entries {
			n += at.Value.(kinEntry).listings
		}
		return n
	}
	for i := range 100 {
		key := kinKey{fmt.Sprint(i), i%2 == 0}
		c.put(kinEntry{key, generation, &kin{}, maxKinListings / 10})
		require.NotNil(t, c.get(key, generation))
		require.LessOrEqual(t, c.listings, maxKinListings)
		require.Equal(t, sum(), c.listings)
	}
	require.Equal(t, 10, c.recent.Len())
	require.NotNil(t, c.get(kinKey{"90", true}, generation), "it is the oldest no more")
	huge, waits := kinKey{"huge", false}, kinKey{"huge", true}
	for range 2 {
		for _, key := range []kinKey{huge, waits} {
			c.put(kinEntry{key, generation, &kin{}, 2 * maxKinListings})
			require.Equal(t, 2, c.recent.Len())
			require.NotNil(t, c.get(key, generation))
		}
		require.NotNil(t, c.get(huge, generation), "with what waits it has as many")
	}
	for i := range 2 {
		c.put(kinEntry{kinKey{fmt.Sprint("small", i), false}, generation, &kin{}, 1})
	}
	require.Nil(t, c.get(huge, generation))
	require.Nil(t, c.get(waits, generation))
	require.Equal(t, 2, c.listings)
}

// askedView counts how often it is asked for all announcements with an identifier.
type askedView struct {
	*wholeIndex
	asked int
}

func (v *askedView) Family(identifier string) []*nip34.Announcement {
	v.asked++
	return v.index.Family(identifier)
}

// What keys wrote that nobody has heard of had everything worked out that follows from the
// announcements with an identifier, in the goroutine that all events wait for.
func TestStrangersCostNoFamily(t *testing.T) {
	p := graspPolicy(t, graspHost)
	v := &askedView{wholeIndex: newWholeIndex(&twinStore{}, p.Lists, nip34.Identity{})}
	names := 3 * maxKin
	for n := range names {
		v.stored(eventtest.Of(announcementOf(n+1, 1, fmt.Sprint(n), 2)))
	}
	judge := func(kind, by int, name string) graspsync.Decision {
		tags := nostr.Tags{{"d", name}, {"refs/heads/main", fmt.Sprintf("%040d", 1)}}
		verdict, err := p.Judge(t.Context(), eventtest.Of(testEvent(50_000+by, kind, by, 50_000, tags...)), graspsync.Source{}, v)
		require.NoError(t, err)
		return verdict.Decision
	}
	for range 2 {
		for n := range names {
			require.Equal(t, graspsync.Depend, judge(graspsync.KindState, 9, fmt.Sprint(n)))
			require.Equal(t, graspsync.Reject, judge(graspsync.KindAnnouncement, 9, fmt.Sprint(n)))
		}
	}
	require.Zero(t, v.asked)
	require.Equal(t, graspsync.Accept, judge(graspsync.KindState, 1, "7"))
	require.Equal(t, graspsync.Depend, judge(graspsync.KindState, 2, "7"), "who is listed")
	require.Equal(t, 1, v.asked)
	v.stored(eventtest.Of(announcementOf(names+1, 9, "7", 1)))
	require.Equal(t, graspsync.Depend, judge(graspsync.KindState, 9, "7"))
	require.Equal(t, 2, v.asked, "who has announced something")
	v.removed(eventtest.Of(announcementOf(names+1, 9, "7", 1)))
	require.Equal(t, graspsync.Depend, judge(graspsync.KindState, 9, "7"))
	require.Equal(t, 2, v.asked)
}

// announcementOf is an announcement that lists somebody. The first owner's make repositories ours.
func announcementOf(n, by int, name string, lists int) *nostr.Event {
	tags := nostr.Tags{{"d", name}, {"maintainers", testKey(lists).String()}}
	if by == 1 {
		npub := nip34.NPub(testKey(by))
		tags = append(tags, nostr.Tag{"relays", "wss://" + graspHost}, nostr.Tag{"clone", "https://" + graspHost + "/" + npub + "/" + name + ".git"})
	}
	return testEvent(n, graspsync.KindAnnouncement, by, nostr.Timestamp(n), tags...)
}

func BenchmarkStatesOfAnIdentifier(b *testing.B) {
	p := graspPolicy(b, graspHost)
	x := newWholeIndex(&twinStore{}, func(*nip34.Announcement) bool { return true }, nip34.Identity{})
	for i := range 255 {
		ev := testAnnouncement(i, i, "x", 1, "")
		list := nostr.Tag{"maintainers"}
		for j := range 255 {
			list = append(list, testKey(j).String())
		}
		ev.Tags = append(ev.Tags, list)
		x.stored(eventtest.Of(ev))
	}
	ev := stateOf(9000, "x")
	for b.Loop() {
		_, _ = p.Judge(b.Context(), eventtest.Of(ev), graspsync.Source{}, x)
	}
}

// forgetting is a saver that can remove, unless it fails.
type forgetting struct {
	saver
	err     error
	asked   int
	removed []string
}

func (s *forgetting) Remove(_ context.Context, ev graspsync.Event) error {
	if s.asked++; s.err != nil {
		return s.err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.removed = append(s.removed, ev.ID.String())
	s.events = slices.DeleteFunc(s.events, func(o *nostr.Event) bool { return o.ID == ev.ID.String() })
	return nil
}

func (r *hearingRig) forgets() *forgetting {
	s := &forgetting{saver: saver{r.store}}
	r.g.store.of = s
	return s
}

// scan has the index read the store.
func (r *hearingRig) scan() {
	r.t.Helper()
	snap, _, err := r.reader().scan(r.t.Context(), func(graspsync.Event) {})
	require.NoError(r.t, err)
	_, ok := r.g.feed.replaceAll(snap)
	require.True(r.t, ok)
}

func (r *hearingRig) here(by int) bool {
	return slices.ContainsFunc(r.store.events, func(ev *nostr.Event) bool {
		return ev.Kind == graspsync.KindAnnouncement && ev.PubKey == testKey(by).String()
	})
}

// What was stored since its author was listed goes when that is over, and when something keeps
// it from going, with the next change.
func TestUnlistedGo(t *testing.T) {
	for name, c := range map[string]struct {
		before func(r *hearingRig, s *forgetting)
		stays  bool // at first
	}{
		"at once":                {before: func(*hearingRig, *forgetting) {}},
		"it can't be removed":    {before: func(_ *hearingRig, s *forgetting) { s.err = errVerdict }, stays: true},
		"the store is not known": {before: func(r *hearingRig, _ *forgetting) { r.g.feed.index.complete = false }, stays: true},
		"the policy can't tell":  {before: func(r *hearingRig, _ *forgetting) { r.g.policy.of = deafPolicy{r.policy} }, stays: true},
		"the store can't remove": {before: func(r *hearingRig, s *forgetting) { r.g.store.of = s.saver }, stays: true},
		"something waits": {before: func(r *hearingRig, _ *forgetting) {
			r.g.writer.process(r.t.Context(), []*job{r.state(50)})
		}},
		"too much has changed": {before: func(r *hearingRig, _ *forgetting) {
			for n := range maxNews + 1 {
				r.g.feed.index.stored(eventtest.Of(announcementOf(20_000+n, 40, fmt.Sprint(n), 41)))
			}
			require.True(r.t, r.g.feed.index.tooMany)
		}},
		"too many were announced": {before: func(r *hearingRig, _ *forgetting) {
			for n := range r.g.writer.cfg.fixed.FeedQueue + 1 {
				r.g.news.announced(eventtest.Of(announcementOf(20_000+n, 40, fmt.Sprint(n), 41)))
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newHearingRig(t, func(p Policy) Policy { return p })
			store := r.forgets()
			r.scan()
			all := []int{2, 3}
			for i := range spared {
				all = append(all, 100+i)
			}
			r.announce(1, true, all...)
			var three *nostr.Event
			for _, who := range all {
				if r.announce(who, false, 1); who == 3 {
					three = r.last
				}
			}
			require.True(t, r.here(2) && r.here(3))
			c.before(r, store)
			r.announce(1, true, 2)
			require.Equal(t, c.stays, r.here(3))
			require.True(t, r.here(2))
			store.err, r.g.feed.index.complete, r.g.policy.of = nil, true, r.policy
			r.g.store.of, r.g.store.stays = store, false
			r.announce(1, true, 2)
			require.False(t, r.here(3))
			require.True(t, r.here(2))
			require.Equal(t, []string{three.ID}, store.removed)
			require.Equal(t, map[string]uint64{"unlisted": 1}, r.g.report.dropped)
			require.Len(t, r.g.policy.view.Family("x"), 2+spared, "those that are newer")
			id, err := graspsync.ParseEventID(three.ID)
			require.NoError(t, err)
			require.True(t, r.g.absences.rejected.Has(id), "nobody is asked for it")
			var again []graspsync.EventID
			r.g.refetch.ask = func(_ graspsync.RelayURL, ids []graspsync.EventID) { again = append(again, ids...) }
			r.announce(1, true, 2, 3)
			require.Equal(t, []graspsync.EventID{id}, again, "it is listed again")
		})
	}
}

// A Store that can never remove is asked once; one that fails is asked again.
func TestWhoCannotRemoveIsAskedOnce(t *testing.T) {
	for err, asked := range map[error]int{ErrCannotRemove: 1, errVerdict: 4} {
		r := newHearingRig(t, func(p Policy) Policy { return p })
		store := r.forgets()
		store.err = fmt.Errorf("elsewhere: %w", err)
		r.scan()
		r.announce(1, true, 2)
		r.announce(2, false)
		for range 4 {
			r.announce(1, false)
		}
		require.Equal(t, asked, store.asked)
		require.True(t, r.here(2))
		require.Empty(t, r.g.report.dropped)
	}
}

// One that has left the Store unseen is not removed again and again.
func TestWhatIsGoneIsNotRemoved(t *testing.T) {
	r := newHearingRig(t, func(p Policy) Policy { return p })
	store := r.forgets()
	r.scan()
	r.announce(1, true, 2)
	r.announce(2, false)
	r.store.remove(slices.Index(r.store.events, r.last))
	r.announce(1, false)
	require.Empty(t, store.removed)
	require.Empty(t, r.g.feed.index.relatives("x"))
	require.Len(t, r.g.policy.view.Family("x"), 1)
}

// What came while its author was listed may go; what was ours, or here before that, may not.
func TestWhatIsHereForBeingListed(t *testing.T) {
	r := newHearingRig(t, func(p Policy) Policy { return p })
	store := r.forgets()
	r.scan()
	relatives := func() (out []int) {
		for _, a := range r.g.feed.index.relatives("x") {
			for i := range 10 {
				if testKey(i) == a.Ref.Owner {
					out = append(out, i)
				}
			}
		}
		slices.Sort(out)
		require.Equal(t, len(out) > 0 || !r.g.feed.index.complete, slices.Equal([]string{"x"}, r.g.feed.index.related()))
		return out
	}
	r.announce(1, true, 2, 3, 4)
	require.Empty(t, relatives())
	r.announce(2, false)
	require.Equal(t, []int{2}, relatives())
	r.announce(2, false, 1)
	require.Equal(t, []int{2}, relatives())
	r.announce(3, true)
	r.announce(3, false)
	require.Equal(t, []int{2}, relatives(), "3 took it from us")
	r.announce(2, true)
	require.Empty(t, relatives())
	r.announce(2, false)
	require.Empty(t, relatives())
	r.announce(4, false)
	r.announce(5, true)
	r.announce(5, false)
	require.Equal(t, []int{4}, relatives())
	for range 2 {
		r.scan()
		require.Equal(t, []int{4}, relatives(), "as it was")
	}
	six := announcementOf(20_000, 6, "x", 7)
	r.store.save(six)
	r.g.feed.index.stored(eventtest.Of(six))
	require.Equal(t, []int{4}, relatives(), "nobody listed 6, who is here for other reasons")
	r.announce(1, true, 4, 6)
	require.Equal(t, []int{4}, relatives())
	r.store.fail = ErrIncomplete
	r.scan()
	require.Empty(t, relatives(), "who lists them may be what was not read")
	r.store.fail = nil
	r.scan()
	require.Equal(t, []int{4}, relatives())
	r.announce(1, true, 6)
	require.Empty(t, store.removed, "there are few")
	r.g.feed.index.tables = newIndexTables()
	r.scan()
	require.Empty(t, relatives(), "after a restart nobody can tell")
	r.announce(4, false, 1)
	require.Empty(t, relatives())
}
