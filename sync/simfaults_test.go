package sync_test

import (
	"fmt"
	"maps"
	"slices"
	"time"

	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/relaytest"
	"github.com/graspsync/graspsync/sync/wire"
)

// fault is a temporary failure of an honest relay.
type fault struct {
	name     string
	min, max time.Duration
	set      func(b *relaytest.Behavior)
	cut      bool // connections also end
}

const forging = "forges"

const simCut = 7 // number of messages after which a connection is cut

var simFaults = []fault{
	{"restarts", 5 * time.Second, time.Minute, func(b *relaytest.Behavior) { b.Down = true }, true},
	{"is down", 5 * time.Minute, 4 * time.Hour, func(b *relaytest.Behavior) { b.Down = true }, true},
	{"can't be reached", 10 * time.Minute, 6 * time.Hour, func(b *relaytest.Behavior) { b.NoAnswer = true }, true},
	{"resets", time.Minute, 20 * time.Minute, func(b *relaytest.Behavior) { b.CutAfter = simCut }, false},
	{"loses a connection", time.Second, time.Second, func(*relaytest.Behavior) {}, true},
	{"stalls", 5 * time.Minute, 30 * time.Minute, func(b *relaytest.Behavior) { b.Latency = 45 * time.Second }, false},
	{"is slow", 5 * time.Minute, 30 * time.Minute, func(b *relaytest.Behavior) { b.BytesPerSecond = 1000 }, false},
	{"forgets EOSE", 5 * time.Minute, 30 * time.Minute, func(b *relaytest.Behavior) { b.NeverEOSE = true }, false},
	{"does not read", 5 * time.Minute, 30 * time.Minute, func(b *relaytest.Behavior) { b.StopReading = true }, false},
	{"limits the rate", 5 * time.Minute, 30 * time.Minute, func(b *relaytest.Behavior) { b.RateLimit = 2 }, false},
	{"refuses", 5 * time.Minute, 30 * time.Minute, func(b *relaytest.Behavior) { b.ClosedReason = refuse("error: out of order") }, false},
	{"loses its database", 5 * time.Minute, 30 * time.Minute, func(b *relaytest.Behavior) {
		if !simFailedQuery && b.Negentropy == relaytest.NegOn {
			return
		}
		b.Handle = func(c *relaytest.ConnScript, req wire.Request) bool {
			return req.Type == wire.TypeReq && !req.Filters[0].LimitZero && fails("error: database")(c, req)
		}
	}, false},
	{forging, 5 * time.Minute, 30 * time.Minute, func(b *relaytest.Behavior) { b.Forge, b.ForgeFirst = relaytest.ForgeContent, true }, false},
}

// longDown is the fault after which a relay counts as dead.
var longDown = fault{"is down for a day", 25 * time.Hour, 30 * time.Hour, func(b *relaytest.Behavior) { b.Down = true }, true}

// undialed is a time in which our own limits prevent attempts at a relay.
var undialed = fault{"is not dialed", 25 * time.Hour, 30 * time.Hour, func(b *relaytest.Behavior) {
	b.DialError = fmt.Errorf("%w: %w", relaysync.ErrNotDialed, later(time.Minute))
}, true}

// disturb schedules a fault of an honest relay.
func (w *world) disturb() {
	r := w.relays[w.rng.IntN(len(w.relays))]
	f := simFaults[w.rng.IntN(len(simFaults))]
	d := f.min + time.Duration(w.rng.Int64N(int64(f.max-f.min)+1))
	if r.hostile || w.clock < r.busy {
		return
	}
	w.suffer(r, f, d)
}

// suffer schedules a fault and its end.
func (w *world) suffer(r *simRelay, f fault, d time.Duration) {
	r.busy = w.clock + d
	r.forges = r.forges || f.name == forging
	w.step(fmt.Sprint(r.URL(), " ", f.name), func(*simRun) {
		r.faults[f.name] = f
		r.apply()
		if f.cut {
			r.Cut()
		}
	})
	w.script = append(w.script, simStep{at: w.clock + d, what: fmt.Sprint(r.URL(), " no longer ", f.name), do: func(*simRun) {
		delete(r.faults, f.name)
		r.apply()
	}})
}

func (r *simRelay) apply() {
	r.Update(func(b *relaytest.Behavior) {
		*b = r.base
		for _, name := range slices.Sorted(maps.Keys(r.faults)) {
			r.faults[name].set(b)
		}
	})
}

// dayOff schedules a fault of more than a day, in which some events are published.
func (w *world) dayOff(f fault) *simRelay {
	r := firstHonest(w.pick(simRelays))
	w.pass(max(0, r.busy-w.clock) + time.Minute)
	d := f.min + time.Duration(w.rng.Int64N(int64(f.max-f.min)))
	w.suffer(r, f, d)
	for range 10 {
		w.pass(d / 10)
		w.act()
	}
	return r
}

// restart restarts the manager with the same Store.
func (w *world) restart() {
	pause := time.Duration(0)
	switch w.rng.IntN(3) {
	case 0:
		pause = time.Duration(w.rng.IntN(120)) * time.Second
	case 1:
		pause = time.Duration(w.rng.IntN(300)) * time.Minute
	}
	forgets := w.rng.IntN(3) == 0
	if w.rng.IntN(3) == 0 {
		w.setClock()
		w.again("the clock is set", pause, forgets)
		return
	}
	w.again("restart", pause, forgets)
}

// setClock sets our clock wrong: by slightly more than a quick reconnect, by hours, or by days.
func (w *world) setClock() {
	w.model.clockSet = true
	w.ahead = []time.Duration{5 * time.Minute, 30 * time.Minute, 7 * time.Hour, 60 * time.Hour}[w.rng.IntN(4)]
	w.ahead += time.Duration(w.rng.Int64N(int64(w.ahead)))
	if w.rng.IntN(2) == 0 {
		w.ahead = -w.ahead
	}
}

// again restarts the manager after a pause.
func (w *world) again(why string, pause time.Duration, forgets bool) {
	w.stepOurs(fmt.Sprint(why, ", pause ", pause, ", forgets: ", forgets), func(run *simRun) {
		run.stop()
		if forgets {
			run.forget()
		}
	})
	w.pass(pause)
	start := simStep{at: w.clock, what: fmt.Sprint("start, clock ", w.ahead), do: func(run *simRun) { run.begin() }, ours: true}
	start.clock, start.ahead = w.ahead != w.wasAhead, w.ahead
	w.wasAhead = w.ahead
	w.script = append(w.script, start)
}
