package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

const attempts = 3 // at one catch-up that hangs or is incomplete

var benchEvents = flag.Int("events", 20_000, "how many events are caught up with")

// benchLimit is a time that no catch-up takes which does not hang.
func benchLimit() time.Duration { return 40 * time.Second }

// BenchmarkCatchUp has all clients catch up in turn, as often as -benchtime says, so
// that what else the machine does befalls them alike. It reports medians, and prints
// how the clients compare.
func BenchmarkCatchUp(b *testing.B) {
	r := startRemote(b, *benchEvents, 0)
	all := make(map[string]*series)
	for b.Loop() {
		round(b, r, all)
	}
	for _, c := range clients() {
		if s := all[c.name]; s != nil {
			b.Run(c.name, func(b *testing.B) {
				for b.Loop() { // what it reports was done before
				}
				s.report(b)
			})
		}
	}
	compare(all)
}

// round is a function of its own because Go 1.26 can't compile it within a loop over
// b.Loop.
func round(b *testing.B, r *remote, all map[string]*series) {
	for _, c := range clients() {
		if c.theirs && raceEnabled {
			continue
		}
		if all[c.name] == nil {
			all[c.name] = &series{events: r.total}
		}
		all[c.name].add(b, r, c, benchLimit())
	}
}

// BenchmarkOurs has only ours catch up, for profiles.
func BenchmarkOurs(b *testing.B) {
	r := startRemote(b, *benchEvents, 0)
	for _, c := range clients() {
		if c.theirs {
			continue
		}
		b.Run(c.name, func(b *testing.B) {
			s := &series{events: r.total}
			for b.Loop() {
				s.add(b, r, c, benchLimit())
			}
			s.report(b)
		})
	}
}

// series is what several catch-ups of one client took.
type series struct {
	events           int
	samples          []sample
	hung, incomplete int
}

// add does one catch-up. If it is one of theirs and comes to nothing it does others
// in its place, a few at most.
func (s *series) add(tb testing.TB, r *remote, c client, limit time.Duration) {
	tb.Helper()
	for range attempts {
		runtime.GC()
		m, err := catchUp(tb, r, c, limit)
		switch {
		case c.theirs && errors.Is(err, errHung):
			s.hung++
		case c.theirs && errors.Is(err, errIncomplete):
			s.incomplete++
		default:
			require.NoError(tb, err)
			s.samples = append(s.samples, m)
			return
		}
	}
}

// report makes the medians the result of a benchmark.
func (s *series) report(b *testing.B) {
	if len(s.samples) == 0 {
		b.Fatalf("%d attempts hung, %d ended without some event", s.hung, s.incomplete)
	}
	m := medianOf(s.samples)
	perOp := 1 / float64(len(s.samples))
	b.ReportMetric(float64(m.saved.Nanoseconds()), "ns/op")
	b.ReportMetric(m.done.Seconds(), "done-s/op")
	b.ReportMetric(m.cpu.Seconds(), "cpu-s/op")
	b.ReportMetric(m.relayCPU.Seconds(), "relay-cpu-s/op")
	b.ReportMetric(float64(m.in)/1e6, "MB-in/op")
	b.ReportMetric(float64(m.out)/1e6, "MB-out/op")
	b.ReportMetric(float64(s.events)/m.saved.Seconds(), "events/s")
	b.ReportMetric(float64(s.hung)*perOp, "hung/op")
	b.ReportMetric(float64(s.incomplete)*perOp, "incomplete/op")
}

// medianOf returns the median of each quantity.
func medianOf(samples []sample) sample {
	return sample{
		saved:    median(samples, func(s sample) time.Duration { return s.saved }),
		done:     median(samples, func(s sample) time.Duration { return s.done }),
		cpu:      median(samples, func(s sample) time.Duration { return s.cpu }),
		relayCPU: median(samples, func(s sample) time.Duration { return s.relayCPU }),
		in:       median(samples, func(s sample) int64 { return s.in }),
		out:      median(samples, func(s sample) int64 { return s.out }),
	}
}

func median[T cmp.Ordered](samples []sample, of func(sample) T) T {
	values := make([]T, len(samples))
	for i, s := range samples {
		values[i] = of(s)
	}
	slices.Sort(values)
	return values[len(values)/2]
}

// compare prints a line for each of ours against each of theirs. A benchmark's own
// log would not be shown.
func compare(all map[string]*series) {
	for _, ours := range clients() {
		for _, theirs := range clients() {
			o, t := all[ours.name], all[theirs.name]
			if ours.theirs || !theirs.theirs || o == nil || t == nil || len(t.samples) == 0 {
				continue
			}
			x, y := medianOf(o.samples), medianOf(t.samples)
			fmt.Printf("%s : %s = time %.2f, until done %.2f, CPU %.2f, bytes %.2f (in %.2f, out %.1f)\n",
				ours.name, theirs.name, ratio(x.saved, y.saved), ratio(x.done, y.done), ratio(x.cpu, y.cpu),
				ratio(x.in+x.out, y.in+y.out), ratio(x.in, y.in), ratio(x.out, y.out))
		}
	}
}

func ratio[T ~int64](a, b T) float64 { return float64(a) / float64(b) }

// testEvents is how many events a test has. The race detector makes signatures slow.
func testEvents(n int) int {
	if raceEnabled {
		return n / 10
	}
	return n
}

// The benchmark in small: each client ends up with every event and with none that is
// forged, and the counts are those of a catch-up.
func TestCatchUp(t *testing.T) {
	const forged = 2
	n := testEvents(500)
	r := startRemote(t, n, forged)
	for _, c := range clients() {
		if c.theirs && raceEnabled {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			if !c.theirs { // theirs leave their connection open
				defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
			}
			s := &series{}
			s.add(t, r, c, 20*time.Second)
			require.NotEmpty(t, s.samples, "%d attempts hung, %d ended without some event", s.hung, s.incomplete)
			m := s.samples[0]
			require.Positive(t, m.saved)
			require.LessOrEqual(t, m.saved, m.done)
			require.Positive(t, m.cpu)
			require.Greater(t, m.in, int64((n+forged)*1000))
			require.Positive(t, m.out)
		})
	}
}

func TestMedian(t *testing.T) {
	samples := []sample{{saved: 3, in: 1}, {saved: 1, in: 2}, {saved: 2, in: 9}}
	require.Equal(t, sample{saved: 2, in: 2}, medianOf(samples))
}
