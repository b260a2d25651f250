package statuspage

import (
	"sync"
	"time"

	relaysync "github.com/graspsync/graspsync/sync"
)

// historyLength is the time that samples are kept.
const historyLength = 2 * time.Minute

// sample is the number of items at one moment.
type sample struct {
	at                time.Time
	wanted, confirmed int64 // of all relays
	unreached         int64 // incomplete items of relays that are not connected
}

func sampleOf(at time.Time, s relaysync.Status) sample {
	out := sample{at: at}
	for _, r := range s.Relays {
		if !r.Connected() {
			out.unreached += int64(r.Missing())
		}
		out.wanted += int64(r.Wanted)
		out.confirmed += int64(r.Confirmed)
	}
	return out
}

// history is the samples of the last minutes in which the page was viewed.
type history struct {
	mu      sync.Mutex
	samples []sample // guarded by mu; the oldest first
}

// note appends a sample, drops old ones, and returns the progress.
func (h *history) note(s sample) progress {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.samples = append(h.samples, s)
	for s.at.Sub(h.samples[0].at) > historyLength || s.at.Before(h.samples[0].at) { // or the clock was set back
		h.samples = h.samples[1:]
	}
	return progressBetween(h.samples[0], s)
}

// progress is the progress of the sync.
type progress struct {
	Wanted, Confirmed int64   // items of connected relays
	Unreached         int64   // items of other relays
	Known             bool    // Rate is known after a few seconds
	Rate              float64 // items per second
	Over              time.Duration
	Left              time.Duration // at this rate; 0: unknown
	Grown             int64         // growth of Wanted meanwhile
}

// rateLeast is the minimum time of observation for a rate.
const rateLeast = 5 * time.Second

// progressBetween compares two samples.
func progressBetween(then, now sample) progress {
	p := progress{Wanted: now.wanted - now.unreached, Confirmed: now.confirmed, Unreached: now.unreached}
	if p.Over = now.at.Sub(then.at); p.Over < rateLeast {
		return p
	}
	p.Known, p.Grown = true, now.wanted-then.wanted
	p.Rate = max(0, float64(now.confirmed-then.confirmed)/p.Over.Seconds())
	if left := p.Missing(); left > 0 && p.Rate > 0 {
		p.Left = time.Duration(min(float64(left)/p.Rate, float64(365*24*3600)) * float64(time.Second))
	}
	return p
}

// Percent returns the confirmed percentage, rounded down, so that 100 means all.
func (p progress) Percent() int64 {
	if p.Wanted <= 0 {
		return 100
	}
	return max(0, min(100, p.Confirmed*100/p.Wanted))
}

// Missing returns the number of missing items of connected relays.
func (p progress) Missing() int64 { return max(0, p.Wanted-p.Confirmed) }
