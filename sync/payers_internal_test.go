package sync

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/eventtest"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/sync/wire"
)

// leftView is a fixedView that remembers repositories that have left us, and that can break.
type leftView struct {
	fixedView
	left       []graspsync.RepoRef
	maintained []graspsync.RepoRef
	breaks     bool
}

func (v leftView) Announced(ref graspsync.RepoRef) bool {
	if v.breaks {
		panic("no view")
	}
	return v.fixedView.Announced(ref)
}

func (v leftView) Left(ref graspsync.RepoRef) bool { return slices.Contains(v.left, ref) }

func (v leftView) Family(identifier string) []*nip34.Announcement { return v.Announcements(identifier) }

func (v leftView) Announcements(identifier string) (out []*nip34.Announcement) {
	for _, ref := range v.repos {
		if ref.Identifier == identifier {
			var ms []graspsync.PubKey
			for _, m := range v.maintained {
				ms = append(ms, m.Owner)
			}
			out = append(out, &nip34.Announcement{Ref: ref, Maintainers: ms})
		}
	}
	return out
}

// Which events are taken for ours before anybody has looked at their signature: those of or
// about what is, unless they are not taken whatever they name.
func TestWhatConcernsUs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		repo := func(n int) graspsync.RepoRef { return graspsync.RepoRef{Owner: testKey(n), Identifier: "x"} }
		v := leftView{
			fixedView: fixedView{repos: []graspsync.RepoRef{repo(1)}, roots: map[graspsync.EventID]graspsync.PubKey{testID(50): testKey(7)}},
			left:      []graspsync.RepoRef{repo(2)}, maintained: []graspsync.RepoRef{repo(3)},
		}
		identity, err := nip34.ParseIdentity("grasp.example")
		require.NoError(t, err)
		bench := func(policy Policy, v leftView) *ingest {
			return newIngest(Config{}.withDefaults(), nil, policy, v, nil, newReport(Config{}), nil)
		}
		g := bench(NewGRASPPolicy(identity), v)
		tag := func(n int) nostr.Tag { return nostr.Tag{"a", repo(n).String()} }
		state := func(n int) *nostr.Event {
			ev := testEvent(1, graspsync.KindState, n, 1)
			ev.Tags = nostr.Tags{{"d", "x"}}
			return ev
		}
		event := func(kind, by int, tags ...nostr.Tag) *nostr.Event {
			ev := testEvent(1, kind, by, nostr.Now())
			ev.Tags = tags
			return ev
		}
		malformed := func(ev *nostr.Event) *nostr.Event {
			ev.Tags = nil
			return ev
		}
		listing := testAnnouncement(1, 9, "x", 1, "")
		listing.Tags = append(listing.Tags, nostr.Tag{"clone", "https://grasp.example/" + testKey(9).String() + "/x.git"}, nostr.Tag{"relays", "wss://grasp.example"})
		for name, c := range map[string]struct {
			ev   *nostr.Event
			ours bool
		}{
			"announcement that lists us": {listing, g.policy.of.Lists(mustParse(t, listing))},
			"newer announcement":         {testAnnouncement(1, 1, "x", 1, ""), true},
			"announcement that had left": {testAnnouncement(1, 2, "x", 1, ""), true},
			"foreign announcement":       {testAnnouncement(1, 4, "x", 1, ""), false},
			"malformed announcement":     {malformed(testAnnouncement(1, 1, "x", 1, "")), false},
			"state":                      {state(1), true},
			"maintainer's state":         {state(3), true},
			"state that had left":        {state(2), false},
			"foreign state":              {state(4), false},
			"malformed state":            {malformed(state(1)), false},
			"deletion of one's":          {event(5, 1, tag(1)), true},
			"maintainer's deletion":      {event(5, 3, tag(3)), true},
			"deletion of another's":      {event(5, 4, tag(1)), false},
			"another's behind one's":     {event(5, 1, tag(4), tag(1)), true},
			"deletion of one's root":     {event(5, 7, nostr.Tag{"e", testID(50).String()}), true},
			"deletion of another's root": {event(5, 8, nostr.Tag{"e", testID(50).String()}), false},
			"malformed deletion":         {malformed(event(5, 1, tag(1))), false},
			"deletion of nothing":        {event(5, 1), false},
			"issue":                      {event(1621, 9, tag(1)), true},
			"foreign issue":              {event(1621, 9, tag(4)), false},
			"issue of what is no repo":   {event(1621, 9, nostr.Tag{"a", "30023:" + testKey(1).String() + ":x"}), false},
			"comment":                    {event(1111, 9, nostr.Tag{"e", testID(50).String()}), true},
			"foreign comment":            {event(1111, 9, nostr.Tag{"e", testID(51).String()}), false},
			"ephemeral":                  {event(20_001, 9, tag(1)), false},
			"protected":                  {event(1621, 9, tag(1), nostr.Tag{"-"}), false},
			"expired":                    {event(1621, 9, tag(1), nostr.Tag{"expiration", fmt.Sprint(int64(nostr.Now()))}), false},
			"not expired":                {event(1621, 9, tag(1), nostr.Tag{"expiration", fmt.Sprint(int64(nostr.Now()) + 1)}), true},
		} {
			require.Equal(t, c.ours, g.relevance.concerns(eventtest.Of(c.ev)), name)
			require.False(t, bench(nil, v).relevance.concerns(eventtest.Of(c.ev)), name)
		}
		ahead := event(1621, 9, tag(1))
		for by, ours := range map[nostr.Timestamp]bool{900: true, 901: false} {
			ahead.CreatedAt = nostr.Now() + by
			require.Equal(t, ours, g.relevance.concerns(eventtest.Of(ahead)))
		}
		require.Empty(t, g.report.panics)
		v.breaks = true
		g = bench(NewGRASPPolicy(identity), v)
		require.False(t, g.relevance.concerns(eventtest.Of(event(1621, 9, tag(1)))))
		require.Equal(t, map[string]uint64{"policy": 1}, g.report.panics)

		// Whom it is about, and whether others need it.
		v.breaks = false
		g = bench(NewGRASPPolicy(identity), v)
		nobody := []graspsync.PubKey{{}}
		for name, c := range map[string]struct {
			ev        *nostr.Event
			about     []graspsync.PubKey
			essential bool
		}{
			"newer announcement":    {testAnnouncement(1, 1, "x", 1, ""), []graspsync.PubKey{testKey(1)}, true},
			"announcement of left":  {testAnnouncement(1, 2, "x", 1, ""), []graspsync.PubKey{testKey(2)}, true},
			"new announcement":      {listing, nobody, false},
			"state":                 {state(1), []graspsync.PubKey{testKey(1)}, true},
			"maintainer's state":    {state(3), []graspsync.PubKey{testKey(1)}, true},
			"foreign state":         {state(4), nobody, true},
			"deletion":              {event(5, 1, tag(1)), []graspsync.PubKey{testKey(1)}, true},
			"maintainer's deletion": {event(5, 3, tag(3)), []graspsync.PubKey{testKey(1)}, true},
			"deletion of foreign":   {event(5, 4, tag(4)), []graspsync.PubKey{testKey(4)}, true},
			"deletion by a third":   {event(5, 4, tag(1)), []graspsync.PubKey{testKey(4)}, true},
			"no repository":         {event(5, 1, nostr.Tag{"a", "30023:" + testKey(1).String() + ":x"}), []graspsync.PubKey{testKey(1)}, true},
			"issue":                 {event(1621, 9, tag(4), tag(1)), []graspsync.PubKey{testKey(1)}, false},
			"comment":               {event(1111, 9, nostr.Tag{"e", testID(51).String()}, nostr.Tag{"e", testID(50).String()}), []graspsync.PubKey{testKey(7)}, false},
			"neither":               {event(1111, 9), nobody, false},
		} {
			require.Equal(t, c.about, g.relevance.about(eventtest.Of(c.ev)), name)
			require.Equal(t, c.essential, g.relevance.essential(eventtest.Of(c.ev)), name)
		}
		require.Equal(t, nobody, g.relevance.about(eventtest.Of(malformed(testAnnouncement(1, 1, "x", 1, "")))))
		require.Equal(t, nobody, g.relevance.about(eventtest.Of(malformed(state(1)))))

		// So many owners are looked at, and no more.
		for owners, want := range map[int]int{7: 7, 8: 8, 9: 8} {
			many := leftView{maintained: []graspsync.RepoRef{repo(3)}}
			for n := range owners {
				many.repos = append(many.repos, repo(10+n))
			}
			require.Len(t, bench(nil, many).relevance.about(eventtest.Of(state(3))), want)
		}
	})
}

func mustParse(t *testing.T, ev *nostr.Event) *nip34.Announcement {
	t.Helper()
	a, err := nip34.ParseAnnouncement(eventtest.Of(ev))
	require.NoError(t, err)
	return a
}

// What an event costs is taken before it is looked at: of history on credit, of what comes live
// if it is there. Else what is not expected to be of use is left out as long as that may be,
// once that is known to come live, and the rest waits.
func TestWhatIsPaidForAnEvent(t *testing.T) {
	const most = 1 << 20
	type situation struct{ asked, live, current, ours, essential, Known, slow, empty, read bool }
	for bits := range 1 << 9 {
		on := func(n int) bool { return bits>>n&1 == 1 }
		s := situation{on(0), on(1), on(2), on(3), on(4), on(5), on(6), on(7), on(8)}
		synctest.Test(t, func(t *testing.T) {
			time.Sleep(24 * time.Hour)
			w := newSaidWriter(t, &twinStore{}, &saidPolicy{})
			author := testKey(1)
			repo := graspsync.RepoRef{Owner: author, Identifier: "x"}
			v := leftView{fixedView: fixedView{repos: []graspsync.RepoRef{repo}}}
			w.policy.view = v
			c := (&sayer{w.heard, w.l}).conn(t, testURL(t, sayerRelay))
			c.stats.work = newWork(most)
			work := c.stats.work
			ev := testEvent(1, 1621, 1, nostr.Now())
			switch {
			case s.ours && s.essential:
				ev.Kind, ev.Tags = graspsync.KindState, nostr.Tags{{"d", "x"}}
			case s.ours:
				ev.Tags = nostr.Tags{{"a", repo.String()}}
			}
			if s.Known { // for what is refused: it is not trusted
				work.record.bad.set(author, distrust)
			}
			takes := foreignLane
			switch {
			case s.ours && s.live && !s.asked && !s.Known:
				takes = trustedLane
			case s.ours:
				takes = oursLane
			}
			if s.slow {
				c.signs.slowed()
				time.Sleep(time.Minute)
			}
			if s.empty {
				work.mu.Lock()
				for _, of := range []lane{foreignLane, oursLane, trustedLane} {
					work.bucket(of).Owe(time.Now(), most)
				}
				work.mu.Unlock()
			}
			if s.read {
				work.unread.Owe(time.Now(), mostUnread*most)
			}
			d := delivery{ids: new(wire.IDChecker), event: eventtest.Of(ev), size: 1_000, from: c, current: s.current, asked: s.asked, src: graspsync.Source{Kind: graspsync.CatchUp}}
			if s.live {
				d.src.Kind = graspsync.Live
			}
			left := func(of lane) int64 {
				work.mu.Lock()
				defer work.mu.Unlock()
				return work.bucket(of).Left(time.Now())
			}
			before := left(takes)
			j := &job{size: 1_512}
			began := time.Now()
			look, err := w.intake.pay(t.Context(), d, j)
			require.NoError(t, err)
			patient := takes == trustedLane && (s.essential || !s.slow)
			skipped := !s.asked && s.empty && s.current && !patient && !s.read
			require.Equal(t, !skipped, look, "%+v", s)
			require.Same(t, c.stats, j.stats)
			require.Equal(t, s.ours, j.ours)
			require.Equal(t, s.live && s.ours && !s.asked, j.recorded)
			if j.recorded {
				require.Equal(t, categoryOf(ev.Kind, author), j.category)
			}
			require.Equal(t, skipped, !c.signs.skippedAt.IsZero())
			if skipped {
				require.Zero(t, time.Since(began))
				w.said(t, nil, []Observation{Dropped{Reason: "unread", Count: 1}})
				require.Zero(t, j.cost)
				return
			}
			w.said(t, nil, nil)
			waited := !s.asked && s.empty
			require.Equal(t, waited, time.Since(began) > 0)
			require.Equal(t, waited || s.slow, !c.signs.slowedAt.IsZero())
			require.Equal(t, takes, j.lane)
			require.Positive(t, j.cost)
			if !waited {
				require.Equal(t, j.cost, before-left(takes))
			}
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if waited { // whoever waits can go
				j, d.current = &job{size: most}, false
				look, err = w.intake.pay(ctx, d, j)
				require.False(t, look)
				require.ErrorIs(t, err, context.Canceled)
			}
		})
	}
}

// setAhead returns a time of a wall clock that was set ahead by so much, when nothing has passed.
func setAhead(at time.Time, by time.Duration) time.Time {
	at = at.Add(by)
	(*struct {
		_   uint64
		ext int64
	})(unsafe.Pointer(&at)).ext -= int64(by) //nolint:gosec // there is no other way to have such a time
	return at
}

// A clock that was set is noticed once, if it was by more than a minute: what was waited for had
// begun at another time.
func TestClockThatWasSet(t *testing.T) {
	for by, said := range map[time.Duration]string{
		0: "", time.Minute: "", -time.Minute: "", time.Minute + time.Second: "1m1s", -time.Minute - time.Second: "-1m1s", 24 * time.Hour: "24h0m0s",
	} {
		s := newSayer(t, Config{})
		s.l.settling.at = time.Unix(5, 0)
		now := time.Now() // not of a bubble: its times have no monotonic part to be changed
		s.l.watchClock(t.Context(), now)
		s.l.overview.changed = false
		s.l.watchClock(t.Context(), now.Add(time.Hour))
		require.False(t, s.l.overview.changed, "time has passed")
		now = setAhead(now.Add(2*time.Hour), by)
		for again := range 2 {
			s.l.watchClock(t.Context(), now)
			var lines []string
			if said != "" && again == 0 {
				lines = []string{`level=WARN msg="the clock was set" by=` + said}
			}
			s.said(t, lines, nil)
			require.Equal(t, len(lines) > 0, s.l.overview.changed, "the plan is told")
			require.Equal(t, said != "", s.l.settling.at.IsZero())
			s.l.overview.changed = false
		}
	}
}
