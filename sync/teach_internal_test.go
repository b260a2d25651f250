package sync

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/sync/internal/learned"
	"github.com/graspsync/graspsync/sync/internal/plan"
	"github.com/graspsync/graspsync/sync/internal/session"
	"github.com/graspsync/graspsync/sync/wire"
)

// What was learned narrows what a relay says of itself, never below what every relay takes,
// and for as long as it is believed.
func TestNarrowedByWhatWasLearned(t *testing.T) {
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	said := plan.Limits{MaxMessage: 65_536, MaxFilters: 20, MaxSubscriptions: 10}
	for _, c := range []struct {
		kind      learned.Kind
		value     int
		want      plan.Limits
		wantTerms session.Terms
	}{
		{learned.MaxMessage, 1_023, plan.Limits{MaxMessage: 1_024, MaxFilters: 20, MaxSubscriptions: 10}, session.Terms{}},
		{learned.MaxMessage, 1_025, plan.Limits{MaxMessage: 1_025, MaxFilters: 20, MaxSubscriptions: 10}, session.Terms{}},
		{learned.MaxMessage, 70_000, said, session.Terms{}},
		{learned.MaxFilters, 1, plan.Limits{MaxMessage: 65_536, MaxFilters: 1, MaxSubscriptions: 10}, session.Terms{}},
		{learned.MaxFilters, 21, said, session.Terms{}},
		{learned.MaxSubscriptions, 1, plan.Limits{MaxMessage: 65_536, MaxFilters: 20, MaxSubscriptions: 2}, session.Terms{}},
		{learned.MaxSubscriptions, 3, plan.Limits{MaxMessage: 65_536, MaxFilters: 20, MaxSubscriptions: 3}, session.Terms{}},
		{learned.MaxValues, 1, plan.Limits{MaxMessage: 65_536, MaxFilters: 20, MaxSubscriptions: 10, MaxValues: 1}, session.Terms{MaxValues: 1}},
		{learned.NeedsKinds, 1, plan.Limits{MaxMessage: 65_536, MaxFilters: 20, MaxSubscriptions: 10, NeedsKinds: true}, session.Terms{NeedsKinds: true}},
		{learned.NoNegentropy, 1, said, session.Terms{NoNegentropy: true}},
		{learned.NegentropyMax, 7, said, session.Terms{NegentropyMax: 7}},
	} {
		var s relayStats
		s.learn(c.kind, c.value, now.Add(time.Hour))
		facts, aside := s.learned(now)
		require.Empty(t, aside)
		got := narrowed(said, facts, now)
		require.Equal(t, c.want, got, c.kind.String())
		c.wantTerms.MaxFilters, c.wantTerms.MaxMessage, c.wantTerms.MaxSubscriptions = got.MaxFilters, got.MaxMessage, got.MaxSubscriptions
		require.Equal(t, c.wantTerms, termsOf(got, facts, now), c.kind.String())
		require.Equal(t, said, narrowed(said, facts, now.Add(time.Hour)), "it is believed no more")
		none := termsOf(said, facts, now.Add(time.Hour))
		require.Equal(t, session.Terms{MaxFilters: 20, MaxMessage: 65_536, MaxSubscriptions: 10}, none)
	}
}

// A thousand values are set aside, each until its time, and those that are over make room.
func TestValuesSetAside(t *testing.T) {
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	var s relayStats
	value := func(n int) session.Value { return session.Value{Tag: "e", Value: fmt.Sprint(n)} }
	for n := range 1_001 {
		s.setAside(value(n), now.Add(time.Duration(1+n%2)*time.Hour))
		_, aside := s.learned(now)
		require.Len(t, aside, min(n+1, 1_000))
	}
	require.NotContains(t, s.aside, value(1_000))
	require.Len(t, s.allAside(), 1_000)
	_, aside := s.learned(now.Add(time.Hour - 1))
	require.Len(t, aside, 1_000)
	_, aside = s.learned(now.Add(time.Hour))
	require.Len(t, aside, 500)
	require.Len(t, s.aside, 500)
	s.setAside(value(1_000), now.Add(2*time.Hour))
	all := s.allAside()
	require.Len(t, all, 501)
	for i := range all[1:] {
		require.Less(t, all[i].Value, all[i+1].Value, "in an order, so that the same is written once")
	}
}

// Which cuts are believed to be about the size of requests, by all that has happened.
func TestCutsAgainstTheirTwin(t *testing.T) {
	believedOnes := 0
	for seed := range uint64(300) {
		rnd := rand.New(rand.NewPCG(seed, 6)) //nolint:gosec // the same each time
		now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
		var s relayStats
		var row []int // sizes of the cuts in a row
		smallest := func() int {
			least := 0
			for i, size := range row {
				if i == 0 || size < least {
					least = size
				}
			}
			return least
		}
		took, tookAt, learnedTo := 0, time.Time{}, 0
		var until time.Time
		for range 60 {
			now = now.Add([]time.Duration{time.Second, time.Hour, 24 * time.Hour}[rnd.IntN(3)])
			size := []int{1_500, 2_000, 2_048, 3_000, 30_000}[rnd.IntN(5)]
			if rnd.IntN(3) == 0 {
				s.answered(size, now)
				if size >= smallest() {
					row = nil
				}
				if size >= took || now.Sub(tookAt) >= 24*time.Hour {
					took, tookAt = size, now
				}
			} else {
				s.cut(size, now)
				row = append(row, size)
				needs := 2
				if smallest() <= took && now.Sub(tookAt) < 24*time.Hour {
					needs = 6
				}
				if len(row) >= needs {
					to := max(1_024, smallest()/2)
					if learnedTo == 0 || to < learnedTo || !now.Before(until) {
						learnedTo = to
					}
					until = now.Add(24 * time.Hour)
					row = nil
					believedOnes++
					require.NotZero(t, s.facts.Value(learned.MaxMessage, now))
					require.LessOrEqual(t, s.facts.Value(learned.MaxMessage, now), to)
				}
			}
			require.Equal(t, len(row), s.cuts.count)
			require.Equal(t, smallest(), s.cuts.size)
			require.Equal(t, took, s.cuts.took)
			require.Equal(t, now.Before(until), s.facts.Value(learned.MaxMessage, now) > 0)
		}
	}
	require.Greater(t, believedOnes, 500)
}

// A connection that is lost within ten seconds after the largest request that is not answered
// is taken for the answer, unless we ended it.
func TestLargeRequestsAndCuts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, after := range []time.Duration{0, 10*time.Second - 1, 10 * time.Second} {
			for _, how := range []string{"lost", "answered", "another answered", "ended", "small", "larger", "smaller", "close"} {
				ctx, cancel := context.WithCancel(t.Context())
				c := &conn{ctx: ctx, stats: &relayStats{}}
				req := wire.Request{Type: wire.TypeReq, Sub: "a"}
				size := 5_000
				if how == "small" {
					size = 1_024
				}
				if how == "close" {
					req.Type = wire.TypeClose
				}
				c.asked(req, size)
				want := size
				switch how {
				case "small", "close":
					want = 0
				case "answered":
					c.answered("a")
					require.Equal(t, size, c.stats.cuts.took)
					want = 0
				case "another answered":
					c.answered("b")
				case "ended":
					cancel()
					want = 0
				case "larger":
					want = size + 1
					c.asked(wire.Request{Type: wire.TypeNegOpen, Sub: "b"}, want)
				case "smaller":
					c.asked(wire.Request{Type: wire.TypeReq, Sub: "b"}, size-1)
				}
				time.Sleep(after)
				c.judgeCut(time.Now())
				if after == 10*time.Second {
					want = 0
				}
				require.Equal(t, want, c.stats.cuts.size, "%v %v", how, after)
				cancel()
			}
		}
	})
}
