package relaylimits

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Checks which cuts count against the size of requests, for random histories.
func TestCutsAgainstTheirTwin(t *testing.T) {
	believedOnes := 0
	for seed := range uint64(300) {
		rnd := rand.New(rand.NewPCG(seed, 6)) // deterministic
		now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
		var s Observed
		var row []int // sizes of the consecutive cuts
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
				s.Answered(size, now)
				if size >= smallest() {
					row = nil
				}
				if size >= took || now.Sub(tookAt) >= 24*time.Hour {
					took, tookAt = size, now
				}
			} else {
				s.Cut(size, now)
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
					require.NotZero(t, s.Facts.Value(MaxMessage, now))
					require.LessOrEqual(t, s.Facts.Value(MaxMessage, now), to)
				}
			}
			require.Equal(t, len(row), s.cuts.count)
			require.Equal(t, smallest(), s.cuts.size)
			require.Equal(t, took, s.cuts.took)
			require.Equal(t, now.Before(until), s.Facts.Value(MaxMessage, now) > 0)
		}
	}
	require.Greater(t, believedOnes, 500)
}

// A relay that sometimes closed connections shortly after a large request got ever smaller
// requests, down to 1 KiB, although it had answered larger ones all day.
func TestFlakyRelayIsAskedAsBefore(t *testing.T) {
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	most := func(s *Observed) int { return s.Facts.Value(MaxMessage, now) }
	s := &Observed{}
	for range 200 { // a day
		now = now.Add(7 * time.Minute)
		s.Answered(30_000, now)
		for range 3 {
			s.Cut(30_000, now)
		}
	}
	require.Zero(t, most(s))
	// It stops answering, so the size is the cause.
	for range cutsDoubted {
		s.Cut(30_000, now)
	}
	require.Equal(t, 15_000, most(s))
	// A relay without large answers: the second time.
	s = &Observed{}
	s.Answered(10_000, now)
	s.Cut(40_000, now)
	s.Answered(20_000, now)
	require.Zero(t, most(s))
	s.Cut(30_000, now)
	require.Equal(t, 15_000, most(s))
	// Answers of the previous day do not count.
	now = now.Add(25 * time.Hour)
	s.Cut(18_000, now)
	s.Cut(18_000, now)
	require.Equal(t, 9_000, most(s))
}
