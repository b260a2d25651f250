package statuspage

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/purgatory"
	relaysync "github.com/graspsync/graspsync/sync"
)

const (
	// historyPeriod is the interval of samples, historyLength the time that they are kept.
	historyPeriod = time.Minute
	historyLength = 24 * time.Hour
	// recentLength is the time that snapshots are kept, which exist while the page is viewed.
	recentLength = 2 * time.Minute
)

// sources are the sources of events in the order of display.
var sources = [...]graspsync.SourceKind{graspsync.Live, graspsync.CatchUp, graspsync.Daily, graspsync.Direct}

// relayStates are the states of relays in the order of display.
var relayStates = [...]string{"connected", "not connected", "dead", "rate limited"}

// countedAs reports whether a relay is in a state. A relay may be in several, because its health
// does not depend on its connection.
func countedAs(r relaysync.RelayStatus, state string) bool {
	switch state {
	case "connected":
		return r.Connected()
	case "not connected":
		return !r.Connected()
	}
	return r.Health == state
}

// sample is the counts at one moment.
type sample struct {
	at                time.Time
	stored            [len(sources)]uint64     // events since the start
	relays            [len(relayStates)]uint32 // now
	wanted, confirmed int64                    // items of all relays
	unreached         int64                    // incomplete items of relays that are not connected
	waiting           int                      // events that wait for git data
}

func sampleOf(at time.Time, s relaysync.Status, git *purgatory.Status) sample {
	out := sample{at: at}
	for i, k := range sources {
		out.stored[i] = s.Events.Sources[k.String()]
	}
	for _, r := range s.Relays {
		for i, state := range relayStates {
			if countedAs(r, state) {
				out.relays[i]++
			}
		}
		if !r.Connected() {
			out.unreached += int64(r.Missing())
		}
		out.wanted += int64(r.Wanted)
		out.confirmed += int64(r.Confirmed)
	}
	if git != nil {
		out.waiting = git.Announcements + git.States + git.PullRequests + git.Relatives
	}
	return out
}

// history is the samples of each minute of a day, and of each second while the page is viewed.
type history struct {
	mu sync.Mutex
	// guarded by mu; the oldest first
	minutes, recent []sample
}

func newHistory() *history { return &history{} }

func (h *history) note(s sample) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.recent = noted(h.recent, s, 0, recentLength)
	h.minutes = noted(h.minutes, s, historyPeriod, historyLength)
}

// noted appends a sample if the last one is old enough, and drops old ones.
func noted(to []sample, s sample, every, length time.Duration) []sample {
	if n := len(to); n > 0 {
		if s.at.Before(to[n-1].at) { // the clock was set back, so the earlier samples are useless
			to = nil
		} else if s.at.Sub(to[n-1].at) < every {
			return to
		}
	}
	old := 0
	for old < len(to) && s.at.Sub(to[old].at) > length {
		old++
	}
	return append(slices.Delete(to, 0, old), s)
}

// since returns the samples since t.
func (h *history) since(t time.Time) []sample {
	h.mu.Lock()
	defer h.mu.Unlock()
	from := 0
	for from < len(h.minutes) && h.minutes[from].at.Before(t) {
		from++
	}
	out := slices.Clone(h.minutes[max(0, from-1):]) // includes the one before, as the base of the first difference
	if n := len(h.recent); n > 0 && len(out) > 0 && h.recent[n-1].at.After(out[len(out)-1].at) {
		out = append(out, h.recent[n-1])
	}
	return out
}

// Run records one sample per minute for the plots, until ctx ends, and returns its error. Without
// Run the plots only show times at which the page was viewed.
func (p *Page) Run(ctx context.Context) error {
	tick := time.NewTicker(historyPeriod)
	defer tick.Stop()
	for {
		p.snapshot(time.Now())
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
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

// progress compares the last sample with one of up to recentLength ago, or of up to 5 min ago
// without viewers.
func (h *history) progress() progress {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := len(h.recent)
	if n == 0 {
		return progress{}
	}
	now := h.recent[n-1]
	p := progress{Wanted: now.wanted - now.unreached, Confirmed: now.confirmed, Unreached: now.unreached}
	then := h.recent[0]
	if now.at.Sub(then.at) < rateLeast {
		for _, s := range h.minutes {
			if passed := now.at.Sub(s.at); passed >= rateLeast && passed <= 5*historyPeriod {
				then = s
				break
			}
		}
	}
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
