package statuspage

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/graspsync/graspsync"
)

// plot is a row of bars as SVG. Each count has a row and scale of its own, so that no meaning
// depends on color.
type plot struct {
	Name      string
	Unit      string // of a bar
	Now, Most uint64
	Total     uint64 // of all bars; 0: they are not summed
	Path      string // of an SVG, plotWidth by plotHeight
	Base      string // the same for times with samples
	Holes     string // the same for times without samples
}

const (
	plotWidth  = 360
	plotHeight = 40
)

// sourceNames are the displayed names of sources.
var sourceNames = map[graspsync.SourceKind]string{
	graspsync.Live: "Live", graspsync.CatchUp: "Catch-up", graspsync.Daily: "Daily", graspsync.Direct: "Direct",
}

// span is the time that a plot shows.
type span struct {
	name   string
	length time.Duration
	bar    time.Duration
}

var spans = map[string]span{
	"hour": {"hour", time.Hour, time.Minute},
	"day":  {"day", 24 * time.Hour, 15 * time.Minute},
}

// bars is the value of each part of a span, the oldest first.
type bars struct {
	value []float64
	known []bool
}

func newBars(sp span) bars {
	n := int(sp.length / sp.bar)
	return bars{make([]float64, n), make([]bool, n)}
}

// overlaps calls f for each bar that overlaps a period, with the share of the period. The last bar
// ends now.
func (sp span) overlaps(now, from, to time.Time, f func(bar int, share float64)) {
	began := now.Add(-sp.length)
	for i := max(0, int(from.Sub(began)/sp.bar)); i < int(sp.length/sp.bar); i++ {
		start := began.Add(time.Duration(i) * sp.bar)
		if !start.Before(to) {
			return
		}
		common := min(to.Sub(start), sp.bar, start.Add(sp.bar).Sub(from), to.Sub(from))
		if common > 0 {
			f(i, float64(common)/float64(to.Sub(from)))
		}
	}
}

// added returns the growth of a count in each part of a span, and its maximum.
func added(samples []sample, now time.Time, sp span, count func(sample) uint64) bars {
	b := newBars(sp)
	steps(samples, func(before, at sample) {
		grown := float64(count(at)) - float64(count(before))
		sp.overlaps(now, before.at, at.at, func(bar int, share float64) {
			b.known[bar] = true
			b.value[bar] += max(0, grown) * share // a lower count has begun again
		})
	})
	return b
}

func highest(samples []sample, now time.Time, sp span, count func(sample) uint64) bars {
	b := newBars(sp)
	steps(samples, func(before, at sample) {
		sp.overlaps(now, before.at, at.at, func(bar int, _ float64) {
			b.known[bar] = true
			b.value[bar] = max(b.value[bar], float64(count(at)))
		})
	})
	if n := len(samples); n > 0 && now.Sub(samples[n-1].at) < sp.bar { // the last bar is known from one sample
		bar := len(b.value) - 1
		b.known[bar], b.value[bar] = true, float64(count(samples[n-1]))
	}
	return b
}

// steps calls f for each pair of successive samples without a gap.
func steps(samples []sample, f func(before, at sample)) {
	for i := 1; i < len(samples); i++ {
		if before, at := samples[i-1], samples[i]; at.at.Sub(before.at) <= 3*historyPeriod {
			f(before, at)
		}
	}
}

// plotsOf draws the plots of a span that ends now.
func plotsOf(samples []sample, now time.Time, sp span) (events, relays, waiting []plot) {
	per := "events a minute"
	if sp.bar != time.Minute {
		per = "events in 15 min"
	}
	for i, k := range sources {
		events = append(events, added(samples, now, sp, func(s sample) uint64 { return s.stored[i] }).plot(sourceNames[k], per, true))
	}
	for i, name := range relayStates {
		b := highest(samples, now, sp, func(s sample) uint64 { return uint64(s.relays[i]) })
		relays = append(relays, b.plot(strings.ToUpper(name[:1])+name[1:], "relays", false))
	}
	b := highest(samples, now, sp, func(s sample) uint64 { return uint64(s.waiting) })
	return events, relays, []plot{b.plot("Waiting", "events", false)}
}

// plot draws bars. adds tells whether they are parts of a sum.
func (b bars) plot(name, unit string, adds bool) plot {
	var most, total, last float64
	for i, v := range b.value {
		most, total = max(most, v), total+v
		if b.known[i] {
			last = v
		}
	}
	width := float64(plotWidth) / float64(len(b.value))
	var path, base, holes strings.Builder
	for i, v := range b.value {
		x, line := float64(i)*width, &base
		if !b.known[i] {
			line = &holes
		}
		fmt.Fprintf(line, "M%.1f %dh%.1f", x, plotHeight-1, width)
		if v > 0 {
			h := max(1.5, v/most*(plotHeight-2))
			fmt.Fprintf(&path, "M%.1f %dv-%.1fh%.1fv%.1fz", x, plotHeight, h, max(width-1, width*0.75), h)
		}
	}
	out := plot{
		Name: name, Unit: unit, Now: whole(last), Most: whole(most),
		Path: path.String(), Base: base.String(), Holes: holes.String(),
	}
	if adds {
		out.Total = whole(total)
	}
	return out
}

func whole(v float64) uint64 { return uint64(math.Round(v)) }
