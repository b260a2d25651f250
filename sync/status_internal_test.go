package sync

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/filters"
	"github.com/graspsync/graspsync/internal/eventtest"
	"github.com/graspsync/graspsync/sync/internal/pending"
	"github.com/graspsync/graspsync/sync/internal/plan"
	"github.com/graspsync/graspsync/sync/internal/relaylimits"
	"github.com/graspsync/graspsync/sync/wire"
)

// situations of a relay: how far it has got, and whether attempts have failed before that.
var situations = map[string]struct{ synced, unreachable bool }{
	"dialed":       {},
	"failed":       {unreachable: true},
	"dialed again": {unreachable: true},
	"connected":    {},
	"fetched":      {synced: true},
}

// statusBench is a loop whose relays a test puts where it likes.
func statusBench(t *testing.T, of ...string) (*loopRig, []graspsync.RelayURL) {
	t.Helper()
	m := newSaidBench(t, &saidPolicy{}).SyncManager
	l := &loopRig{m.loop, m}
	l.plan = allAtOnce(l.loop)
	l.started = true
	var relays []graspsync.RelayURL
	for i := range of {
		u, err := graspsync.ParseRelayURL(fmt.Sprintf("wss://r%d.example", i))
		require.NoError(t, err)
		relays = append(relays, u)
	}
	var effects []plan.Effect
	step := func(in plan.Input) { effects = append(effects, l.plan.Step(time.Now(), in)...) }
	if len(of) > 0 {
		step(plan.Changes{Repos: []plan.RepoChange{{Ref: testRepo(1, "x"), Relays: relays, Level: plan.LevelFull}}})
	}
	failed := make(map[graspsync.RelayURL]bool)
	for i := 0; i < len(effects); i++ {
		switch e := effects[i].(type) {
		case plan.Dial:
			how := of[int(e.Relay.String()[len("wss://r")]-'0')]
			l.stats[e.Relay] = l.m.remember.stats(e.Relay)
			l.env.health.Attempt(e.Relay)
			switch {
			case how == "dialed", how == "dialed again" && failed[e.Relay]:
			case how == "failed", how == "dialed again":
				l.env.health.Failed(e.Relay, errWire)
				failed[e.Relay] = true
				step(plan.DialFailed{Relay: e.Relay, Epoch: e.Epoch, RetryAt: time.Now().Add(time.Second)})
				if how == "dialed again" {
					time.Sleep(2 * time.Second)
					step(plan.Tick{})
				}
			default:
				l.env.health.Connected(e.Relay)
				l.stats[e.Relay].connected(time.Now(), wire.Info{})
				step(plan.Connected{Relay: e.Relay, Epoch: e.Epoch, Limits: relaylimits.Requests{MaxMessage: 1 << 16, MaxFilters: 20, MaxSubscriptions: 20}})
			}
		case plan.Start:
			if of[int(e.Relay.String()[len("wss://r")]-'0')] == "fetched" {
				step(plan.Done{Relay: e.Relay, Epoch: e.Epoch, Batch: e.Batch.ID})
			}
		}
	}
	return l, relays
}

// All is synced if each relay that can be reached was fetched from to its end, at least one
// was, and nothing is on its way.
func TestWhatIsSynced(t *testing.T) {
	combinations := [][]string{nil}
	for a := range situations {
		combinations = append(combinations, []string{a})
		for b := range situations {
			combinations = append(combinations, []string{a, b}, []string{a, b, "fetched"})
		}
	}
	for _, of := range combinations {
		synctest.Test(t, func(t *testing.T) {
			l, relays := statusBench(t, of...)
			all, some := true, false
			for _, name := range of {
				s := situations[name]
				all, some = all && (s.synced || s.unreachable), some || s.synced
			}
			s := l.overview.status(time.Now(), l.plan, l.known())
			require.Equal(t, all && some, s.Synced, of)
			require.Len(t, s.Relays, len(of))
			for i, r := range s.Relays {
				require.Equal(t, relays[i], r.URL)
				require.Equal(t, situations[of[i]].synced, r.Synced, of)
			}
		})
	}
}

// Nothing is synced while something is on its way, wherever that is.
func TestWhatKeepsAllFromBeingSynced(t *testing.T) {
	for name, change := range map[string]func(l *loopRig){
		"nothing":     func(*loopRig) {},
		"no scan yet": func(l *loopRig) { l.started = false },
		"a scan":      func(l *loopRig) { l.scanning = true },
		"nothing but answers": func(l *loopRig) {
			l.window = make(chan time.Time)
			l.m.feed.change.setDescendant(filters.Descendant{ID: testID(1)}, []graspsync.RepoRef{testRepo(1, "x")})
		},
		"changes":  func(l *loopRig) { l.m.feed.stored(eventtest.Of(testEvent(1, graspsync.KindIssue, 1, nostr.Now()))) },
		"an event": func(l *loopRig) { l.m.ingest.flights.unsettled.Add(1) },
		"an unsaved event": func(l *loopRig) {
			l.m.ingest.absences.rejected.Add(pending.Note{ID: testID(1), Incoming: graspsync.Incoming{Event: eventtest.Of(testEvent(1, 1, 1, 1))}, Unsaved: true})
		},
		"own feed": func(l *loopRig) { l.m.own.update(func(*OwnFeedStatus) {}) },
		"own feed, half read": func(l *loopRig) {
			l.m.own.update(func(s *OwnFeedStatus) { s.Connected = true })
		},
		"own feed, lost": func(l *loopRig) {
			l.m.own.update(func(s *OwnFeedStatus) { s.Complete = true })
		},
		"own feed, read": func(l *loopRig) {
			l.m.own.update(func(s *OwnFeedStatus) { s.Connected, s.Complete = true, true })
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			l, _ := statusBench(t, "fetched")
			change(l)
			s := l.overview.status(time.Now(), l.plan, l.known())
			want := strings.HasPrefix(name, "nothing") || name == "own feed, read"
			require.Equal(t, want, s.Synced, name)
			require.Equal(t, want, s.Relays[0].Synced, name)
			require.Len(t, told[RelaySynced](l.m), map[bool]int{true: 1}[want], name)
		})
	}
}

// What was counted of relays under the shared label stays when they are forgotten, a label of
// their own is free again.
func TestLabelsAndForgottenRelays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, relays := statusBench(t, "fetched", "failed", "fetched")
		l.m.cfg.fixed.MaxLabels = 2
		for i, u := range relays {
			l.stats[u].gaps.Store(uint64(10 * (i + 1)))    //nolint:gosec // small
			l.stats[u].lasting.Store(uint64(10*(i+1) + 1)) //nolint:gosec // small
		}
		s := l.overview.status(time.Now(), l.plan, l.known())
		labelled := func(s *Status) (out []bool) {
			for _, r := range s.Relays {
				out = append(out, r.labelled)
			}
			return out
		}
		require.Equal(t, []bool{true, true, false}, labelled(s))
		require.Equal(t, 2, l.overview.labels)
		l.forget(relays[0])
		require.Equal(t, 1, l.overview.labels)
		require.False(t, l.overview.goneAny)
		require.Zero(t, l.overview.gone)
		l.forget(relays[2])
		require.Equal(t, 1, l.overview.labels)
		require.True(t, l.overview.goneAny)
		require.Equal(t, RelayStatus{Gaps: 30, Lasting: 31, Connects: 1}, l.overview.gone)
		l.forget(relays[2]) // of which nothing is known any more
		require.Equal(t, 1, l.overview.labels)
		require.Equal(t, RelayStatus{Gaps: 30, Lasting: 31, Connects: 1}, l.overview.gone)
		require.Len(t, l.stats, 1)
		require.Equal(t, []RelayForgotten{{relays[0]}, {relays[2]}, {relays[2]}}, told[RelayForgotten](l.m))
	})
}

// What a relay had counted when it was forgotten is not counted once more when it is listed and
// forgotten again, though its place in the backoff is remembered.
func TestForgottenTwiceCountsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, relays := statusBench(t, "failed")
		u := relays[0]
		l.forget(u)
		require.Equal(t, uint64(1), l.overview.gone.FailedAttempts)
		require.Equal(t, 1, l.env.health.Status(u).Failures)
		l.stats[u] = l.m.remember.stats(u)
		require.Zero(t, l.overview.relayStatus(plan.RelayStatus{Relay: u}).FailedAttempts)
		l.env.health.Attempt(u)
		l.env.health.Failed(u, errWire)
		l.forget(u)
		require.Equal(t, uint64(2), l.overview.gone.FailedAttempts)
		require.Equal(t, 2, l.env.health.Status(u).Failures)
	})
}

// What a status says of times goes on by itself, a second after it was made.
func TestStatusGoesOn(t *testing.T) {
	begin := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	made := func() *Status {
		return &Status{At: begin, Relays: []RelayStatus{
			{Phase: plan.Syncing.String(), Attempts: 1, Uptime: time.Minute, RateLimitedUntil: begin.Add(10 * time.Second)},
			{Phase: plan.Connecting.String(), Attempts: 1, Uptime: time.Minute},
			{Phase: plan.Connecting.String()},
		}}
	}
	for passed, goes := range map[time.Duration]bool{0: false, time.Second - 1: false, time.Second: true, time.Minute: true, -time.Hour: false} {
		s := made()
		now := s.at(begin.Add(passed))
		require.Equal(t, made(), s, "it is not changed")
		require.Equal(t, goes, now != s)
		if !goes {
			continue
		}
		require.Equal(t, begin.Add(passed), now.At)
		r := now.Relays
		require.Equal(t, []time.Duration{time.Minute + passed, 0}, []time.Duration{r[0].Uptime, r[0].Downtime})
		require.Equal(t, []time.Duration{time.Minute, passed}, []time.Duration{r[1].Uptime, r[1].Downtime})
		require.Equal(t, []time.Duration{0, 0}, []time.Duration{r[2].Uptime, r[2].Downtime})
		require.InDelta(t, 1, r[0].UptimeShare, 1e-9)
		require.InDelta(t, float64(time.Minute)/float64(time.Minute+passed), r[1].UptimeShare, 1e-9)
		require.Equal(t, passed >= 10*time.Second, r[0].RateLimitedUntil.IsZero())
		now.last = true
		require.Same(t, now, now.at(begin.Add(time.Hour)))
	}
	limited := made().at(begin.Add(10 * time.Second))
	require.True(t, limited.Relays[0].RateLimitedUntil.IsZero(), "until then and no longer")
	empty := &Status{}
	require.Same(t, empty, empty.at(begin))
}

// How a relay is followed is said of those that are.
func TestFollowing(t *testing.T) {
	for phase := plan.Disconnected; phase <= plan.LiveWithGaps; phase++ {
		for method := plan.LiveAll; method <= plan.LiveAll+2; method++ {
			for n := range 4 {
				unfollowed, subs := n%2, n/2
				want := method.String()
				switch {
				case phase == plan.Disconnected, phase == plan.Connecting, subs == 0 && method != plan.LivePolling:
					want = ""
				case unfollowed == 1 && method == plan.LiveAll:
					want = "live in part"
				}
				require.Equal(t, want, following(plan.RelayStatus{Phase: phase, LiveMethod: method, Unfollowed: unfollowed, LiveSubs: subs}))
			}
		}
	}
}

// Who has written something is told the plan when the window closes: their deletions are
// asked for, once.
func TestAuthorsOfAWindowAreAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := statusBench(t, "fetched")
		batches := func() int {
			l.closeWindow(t.Context())
			return l.plan.Status()[0].Batches
		}
		require.Zero(t, batches())
		l.m.feed.stored(eventtest.Of(testEvent(1, graspsync.KindIssue, 5, nostr.Now())))
		require.Equal(t, 1, batches())
		require.Equal(t, 1, batches())
	})
}
