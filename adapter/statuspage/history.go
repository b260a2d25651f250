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
	// historyPeriod is what is kept one sample of; historyLength is how far back.
	historyPeriod = time.Minute
	historyLength = 24 * time.Hour
	// recentLength is how far back each snapshot is kept, which there are while somebody looks.
	recentLength = 2 * time.Minute
)

// sources are the ways by which events come, in the order in which they are shown.
var sources = [...]graspsync.SourceKind{graspsync.Live, graspsync.CatchUp, graspsync.Daily, graspsync.Direct}

// relayStates are what a relay is counted as, in the order in which they are shown.
var relayStates = [...]string{"connected", "not connected", "dead", "rate limited"}

// countedAs reports whether a relay is in a state. One may be in several: whether it is connected says
// nothing of how it did before.
func countedAs(r relaysync.RelayStatus, state string) bool {
	switch state {
	case "connected":
		return r.Connected()
	case "not connected":
		return !r.Connected()
	}
	return r.Health == state
}

// sample is what was counted by one moment.
type sample struct {
	at                time.Time
	stored            [len(sources)]uint64     // events, since the start
	relays            [len(relayStates)]uint32 // now
	wanted, confirmed int64                    // items of all relays, now
	unreached         int64                    // of these, not complete, since their relay is not connected
	waiting           int                      // events that wait for git data, now
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

// history is what was counted before: each minute of a day, and each second while somebody looks.
type history struct {
	mu sync.Mutex
	// guarded by mu; the oldest come first
	minutes, recent []sample
}

func newHistory() *history { return &history{} }

// note takes in a sample.
func (h *history) note(s sample) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.recent = noted(h.recent, s, 0, recentLength)
	h.minutes = noted(h.minutes, s, historyPeriod, historyLength)
}

// noted adds a sample if the last one is old enough, and drops those that are too old.
func noted(to []sample, s sample, every, length time.Duration) []sample {
	if n := len(to); n > 0 {
		if s.at.Before(to[n-1].at) { // the clock was set back: what was is of another time
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

// since returns the samples from a time on.
func (h *history) since(t time.Time) []sample {
	h.mu.Lock()
	defer h.mu.Unlock()
	from := 0
	for from < len(h.minutes) && h.minutes[from].at.Before(t) {
		from++
	}
	out := slices.Clone(h.minutes[max(0, from-1):]) // the one before tells what the first brought
	if n := len(h.recent); n > 0 && len(out) > 0 && h.recent[n-1].at.After(out[len(out)-1].at) {
		out = append(out, h.recent[n-1])
	}
	return out
}

// Run keeps what the plots show: one Status a minute, until ctx ends; it returns what ended it. Without
// it plots begin when somebody looks, and have holes where nobody did.
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

// progress is how far sync has come.
type progress struct {
	Wanted, Confirmed int64   // without what waits for relays that are not connected
	Unreached         int64   // what does
	Known             bool    // whether Rate is: something was seen for long enough
	Rate              float64 // items a second
	Over              time.Duration
	Left              time.Duration // at this rate; 0: nobody can say
	Grown             int64         // more are wanted than then
}

// least is for how long something must be seen before a rate is told.
const rateLeast = 5 * time.Second

// progress compares what is now with what was up to recentLength before, and where nobody looked then
// with up to five minutes.
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

// Percent of what is wanted that is here, rounded down: 100 means all.
func (p progress) Percent() int64 {
	if p.Wanted <= 0 {
		return 100
	}
	return max(0, min(100, p.Confirmed*100/p.Wanted))
}

// Missing is what is wanted and not here, of relays that are connected.
func (p progress) Missing() int64 { return max(0, p.Wanted-p.Confirmed) }
