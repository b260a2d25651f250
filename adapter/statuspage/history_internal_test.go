package statuspage

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/purgatory"
	relaysync "github.com/graspsync/graspsync/sync"
)

var noon = time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)

func statusWith(live uint64, phase string, wanted, confirmed int) relaysync.Status {
	return relaysync.Status{
		Events: relaysync.EventStatus{Sources: map[string]uint64{"live": live}},
		Relays: []relaysync.RelayStatus{{Phase: phase, Wanted: wanted, Confirmed: confirmed}, {Phase: "something new", Health: "dead"}},
	}
}

// A day of minutes is kept, whatever happens, and no more.
func TestHistoryIsBounded(t *testing.T) {
	h := newHistory()
	for s := range 3 * 24 * 3600 / 10 {
		h.note(sampleOf(noon.Add(time.Duration(s)*10*time.Second), statusWith(uint64(s), "live", 1, 1), nil))
	}
	require.LessOrEqual(t, len(h.minutes), 24*60+1)
	require.LessOrEqual(t, cap(h.minutes), 3*24*60)
	require.LessOrEqual(t, len(h.recent), 13)
	last := h.minutes[len(h.minutes)-1].at
	h.note(sampleOf(noon, relaysync.Status{}, nil))
	require.Len(t, h.minutes, 1, "the clock was set back by days")
	require.True(t, last.After(noon))
}

// What came is told for the time when it came, however samples lie, and what nobody counted is a hole.
func TestPlots(t *testing.T) {
	h := newHistory()
	now := noon.Add(time.Hour)
	git := &purgatory.Status{States: 3, PullRequests: 4}
	for m := range 61 {
		if m > 20 && m < 30 {
			continue // nobody counted
		}
		phase := "live"
		if m >= 50 {
			phase = "disconnected"
		}
		h.note(sampleOf(noon.Add(time.Duration(m)*61*time.Second), statusWith(uint64(61*m), phase, 1, 1), git))
	}
	events, relays, waiting := plotsOf(h.since(now.Add(-time.Hour)), now, spans["hour"])
	require.Equal(t, "Live", events[0].Name)
	require.EqualValues(t, 60, events[0].Most, "one a second, whenever samples were taken")
	require.EqualValues(t, 60, events[0].Now)
	require.InDelta(t, 3600-10*61, float64(events[0].Total), 1)
	require.NotEmpty(t, events[0].Holes)
	require.Equal(t, events[0].Holes, relays[0].Holes)
	require.EqualValues(t, 1, relays[0].Most)
	require.EqualValues(t, 0, relays[0].Now)
	require.Equal(t, "Not connected", relays[1].Name)
	require.EqualValues(t, 2, relays[1].Now)
	require.Equal(t, "Dead", relays[2].Name)
	require.EqualValues(t, 1, relays[2].Now)
	require.EqualValues(t, 7, waiting[0].Now)
	for _, p := range plots(plotsOf(nil, now, spans["day"])) {
		require.Zero(t, p.Most, p.Name)
		require.Empty(t, p.Path+p.Base)
	}
	// A restart of what is counted: less than before.
	h.note(sampleOf(now.Add(2*time.Minute), statusWith(5, "live", 1, 1), nil))
	events, _, _ = plotsOf(h.since(now.Add(time.Minute)), now.Add(2*time.Minute), spans["hour"])
	require.Zero(t, events[0].Now)
}

func plots(a, b, c []plot) []plot { return append(append(a, b...), c...) }

func TestProgress(t *testing.T) {
	for name, c := range map[string]struct {
		wanted, confirmed [2]int // then and now
		passed            time.Duration
		want              progress
		percent           int64
	}{
		"too soon":    {[2]int{100, 100}, [2]int{10, 20}, 4 * time.Second, progress{Wanted: 100, Confirmed: 20, Over: 4 * time.Second}, 20},
		"steady":      {[2]int{100, 100}, [2]int{10, 30}, 10 * time.Second, progress{Wanted: 100, Confirmed: 30, Known: true, Rate: 2, Over: 10 * time.Second, Left: 35 * time.Second}, 30},
		"stands":      {[2]int{100, 100}, [2]int{30, 30}, 10 * time.Second, progress{Wanted: 100, Confirmed: 30, Known: true, Over: 10 * time.Second}, 30},
		"goes back":   {[2]int{100, 150}, [2]int{30, 20}, 10 * time.Second, progress{Wanted: 150, Confirmed: 20, Known: true, Over: 10 * time.Second, Grown: 50}, 13},
		"complete":    {[2]int{100, 100}, [2]int{10, 100}, 10 * time.Second, progress{Wanted: 100, Confirmed: 100, Known: true, Rate: 9, Over: 10 * time.Second}, 100},
		"almost":      {[2]int{1000, 1000}, [2]int{999, 999}, 10 * time.Second, progress{Wanted: 1000, Confirmed: 999, Known: true, Over: 10 * time.Second}, 99},
		"nothing":     {[2]int{0, 0}, [2]int{0, 0}, 10 * time.Second, progress{Known: true, Over: 10 * time.Second}, 100},
		"minutes ago": {[2]int{600, 600}, [2]int{0, 300}, 5 * time.Minute, progress{Wanted: 600, Confirmed: 300, Known: true, Rate: 1, Over: 5 * time.Minute, Left: 5 * time.Minute}, 50},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHistory()
			h.note(sampleOf(noon, statusWith(0, "live", c.wanted[0], c.confirmed[0]), nil))
			h.note(sampleOf(noon.Add(c.passed), statusWith(0, "live", c.wanted[1], c.confirmed[1]), nil))
			got := h.progress()
			require.Equal(t, c.want, got)
			require.Equal(t, c.percent, got.Percent())
		})
	}
	require.Zero(t, newHistory().progress())
}
