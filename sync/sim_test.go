package sync_test

import (
	"cmp"
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/racetest"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/state"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/relaytest"
)

var (
	simSeeds     = flag.Int("sim.seeds", 0, "seeds of the simulation; 0: as many as a commit has time for")
	simFrom      = flag.Uint64("sim.from", 1, "first seed of the simulation")
	simTraitList = flag.String("sim.traits", "", `traits of honest relays: "all", "none" or names, separated by semicolons; default: those that are on`)
)

const (
	simLimit   = 60 * time.Hour                // after the faults, for all events
	simBackoff = 66 * time.Minute              // maximum backoff of a relay that is not dead
	simDay     = 26*time.Hour + 24*time.Minute // maximum backoff of a dead relay, and maximum time between two passes
)

// simStart is the start of the world. It is later than the start of bubbles, so that clocks may be
// slow.
var simStart = time.Date(2000, time.January, 15, 0, 0, 0, 0, time.UTC)

// wantedTraits reads -sim.traits.
func wantedTraits(tr trait) bool {
	switch list := *simTraitList; list {
	case "":
		return tr.on
	case "all", "none":
		return list == "all"
	default:
		return slices.Contains(strings.Split(list, ";"), tr.name)
	}
}

// TestSimulation runs a manager with twenty relays, six of which are hostile while the others fail
// at random. It then ends the faults and compares the store with the model. A bubble fails if a
// goroutine is left.
func TestSimulation(t *testing.T) {
	racetest.Amounts(t)
	seeds := cmp.Or(*simSeeds, racetest.Rounds(3))
	var mu sync.Mutex
	var healing [3][]time.Duration
	var figures []simFigures
	events, clocks := 0, 0
	t.Run("seeds", func(t *testing.T) {
		for i := range uint64(seeds) {
			seed := *simFrom + i
			t.Run(fmt.Sprint(seed), func(t *testing.T) {
				t.Parallel()
				healed, f, n, lives := simulate(t, seed)
				mu.Lock()
				defer mu.Unlock()
				figures = append(figures, f)
				events += n
				clocks += lives - 1
				for d := range healing {
					healing[d] = append(healing[d], healed[d])
				}
			})
		}
	})
	if t.Failed() || len(healing[0]) == 0 {
		return
	}
	t.Logf("%d seeds, %d events, the clock was set %d times", seeds, events, clocks)
	limit := [3]time.Duration{2 * simBackoff, 2 * simDay, 2 * simDay}
	for d, name := range []string{"what waits for a backoff", "what may wait for the daily pass", "what only a dead relay has"} {
		all := healing[d]
		slices.Sort(all)
		p99 := all[(len(all)*99+99)/100-1]
		t.Logf("healed, %s: median %v, p99 %v, worst %v", name, all[len(all)/2], p99, all[len(all)-1])
		require.LessOrEqual(t, p99, limit[d], name)
	}
	telemetry(t, figures)
}

// A seed always creates the same world and the same history.
func TestSimulationReplays(t *testing.T) {
	racetest.Amounts(t)
	for seed := range uint64(20) {
		var traces [2]string
		for i := range traces {
			synctest.Test(t, func(*testing.T) { traces[i] = newWorld(seed, time.Now(), wantedTraits).trace() })
		}
		require.Equal(t, traces[0], traces[1], seed)
	}
}

// simRun is a running simulation.
type simRun struct {
	t     *testing.T
	w     *world
	store *diary
	cfg   relaysync.Config
	seed  []*nostr.Event // in the Store at the start
	rig   *rig

	mu      sync.Mutex
	hostile map[graspsync.RelayURL]int // number of times that each relay counted as hostile, guarded by mu
}

// observe records the relays that count as hostile.
func (run *simRun) observe(o relaysync.Observation) {
	if o.Is == relaysync.RelayHostile {
		run.mu.Lock()
		defer run.mu.Unlock()
		run.hostile[o.Source.Relay]++
	}
}

// forget replaces the manager's state by an empty one, if it has a state.
func (run *simRun) forget() {
	f := reflect.ValueOf(&run.cfg).Elem().FieldByName("State")
	if simState && f.IsValid() {
		f.Set(reflect.ValueOf(state.NewMemory()))
	}
}

func (run *simRun) begin() {
	if run.rig == nil {
		identity, err := nip34.ParseIdentity(us)
		require.NoError(run.t, err)
		policy := relaysync.NewGRASPPolicy(identity)
		policy.Membership.OneSided = true // no maintainer of the model lists an owner in return
		run.cfg.Policy = policy
		run.rig = start(run.t, run.w.net, run.store, run.cfg)
	}
}

func (run *simRun) stop() {
	if run.rig == nil {
		return
	}
	began := time.Now()
	run.rig.stop()
	run.rig = nil
	require.LessOrEqual(run.t, time.Since(began), 5*time.Second)
}

// simulate returns the time from the end of the faults to the last event of each kind, the
// measurements after it, the number of events, and the number of clock changes.
func simulate(t *testing.T, seed uint64) (healed [3]time.Duration, f simFigures, events, lives int) {
	run := &simRun{store: newDiary(0), hostile: make(map[graspsync.RelayURL]int)}
	run.cfg.Fixed().Workers = 2
	run.cfg.Fixed().Unproductive, run.cfg.Fixed().Refill = simAllowance, simRefill
	run.cfg.Observe = run.observe
	run.forget()
	for from := 0; from >= 0; lives++ {
		next := -1
		synctest.Test(t, func(t *testing.T) {
			if next = run.live(t, seed, from); next < 0 {
				healed, f, events = run.compare()
			}
		})
		from = next
	}
	return healed, f, events, lives
}

// live executes the script from a step until our clock is set, and returns the next step, or -1 at
// the end. The clock of a bubble cannot be set, so another bubble with another time continues, with
// the same store, state and world.
func (run *simRun) live(t *testing.T, seed uint64, from int) int {
	start := simStart
	w := newWorld(seed, start, wantedTraits)
	run.t, run.w = t, w
	if w.crowded {
		run.cfg.MaxConnections = simCrowdedConns
	}
	if testing.Verbose() && *simSeeds == 1 {
		run.cfg.Logger = slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	ahead := w.script[from].ahead
	run.store.setClock(ahead)
	pass := func(at time.Duration) {
		if d := time.Until(start.Add(at + ahead)); d > 0 {
			time.Sleep(d)
		}
	}
	pass(w.script[from].at)
	for _, s := range w.script[:from] {
		if !s.ours {
			s.do(run)
		}
	}
	for i, s := range w.script[from:] {
		if i > 0 && s.clock {
			run.violations()
			return from + i
		}
		if s.at > 0 && run.rig == nil && run.seed != nil {
			(&rig{t: t, store: run.store}).save(run.seed...)
			run.seed = nil
			run.begin()
		}
		pass(s.at)
		s.do(run)
	}
	run.begin()
	return -1
}

// compare waits until all events are stored, compares the store with the model, and measures.
func (run *simRun) compare() (healed [3]time.Duration, f simFigures, events int) {
	t, w := run.t, run.w
	lifted := w.start.Add(w.end)
	missing, wanted := run.converge(lifted), w.model.wanted()
	if len(missing) == 0 {
		f = run.measure()
	}
	run.stop()

	for _, ev := range wanted {
		if when, ok := run.store.when(ev); ok {
			d := w.model.delay(ev)
			if after := when.Sub(lifted); after > healed[d] {
				healed[d] = after
				if d == simPrompt && after > 2*simBackoff {
					t.Logf("late: %v after the faults: %s", after, w.where(ev.ID))
				}
			}
		}
		events++
	}
	var foreign []string
	for ev, err := range run.store.Store.Events(t.Context(), nostr.Filter{}) {
		require.NoError(t, err)
		if w.model.foreign(ev.ID.String()) {
			foreign = append(foreign, ev.ID.String())
		}
	}
	for _, id := range append(slices.Clone(missing), foreign...) {
		t.Logf("%v", w.where(id))
	}
	if len(missing)+len(foreign) > 0 {
		t.Log(strings.Join(w.about, "\n"))
	}
	assert.Empty(t, missing, "lost")
	assert.Empty(t, foreign, "foreign")
	assert.Empty(t, run.store.savedTwice(), "saved twice")
	f.tries = run.store.mostTries()
	run.mu.Lock()
	defer run.mu.Unlock()
	for _, r := range w.relays {
		if !r.hostile && !r.forges {
			assert.Zero(t, run.hostile[r.URL()], "%s is honest, and was cut as hostile", r.URL())
		}
	}
	run.violations()
	return healed, f, events
}

// violations fails the test if rules of behavior toward relays were violated.
func (run *simRun) violations() {
	t, w := run.t, run.w
	for i, r := range w.relays {
		v := slices.DeleteFunc(r.Violations(), func(v relaytest.Violation) bool {
			// A hostile relay may report a closed subscription and still count it.
			return r.hostile && v.Kind == relaytest.ViolationManySubs || !simLateLimit && v.Kind == relaytest.ViolationCoolDown
		})
		if len(v) > 0 {
			assert.Fail(t, "violations", "%d by a client of %s, the first after %v: %v", len(v), w.about[i], v[0].At.Sub(w.start), v[0])
		}
	}
}

// converge waits until exactly the wanted events are stored, and returns the differences if it
// takes too long. Deletions may arrive as late as other events, so it starts checking after every
// relay was reached.
func (run *simRun) converge(lifted time.Time) []string {
	has := func(id string) bool { return run.rig.has(&nostr.Event{ID: id}) }
	var missing, gone []string
	for _, ev := range run.w.model.all {
		switch {
		case run.w.model.foreign(ev.ID):
			gone = append(gone, ev.ID)
		case !run.w.model.optional(ev):
			missing = append(missing, ev.ID)
		}
	}
	for time.Since(lifted) < simLimit {
		missing = slices.DeleteFunc(missing, has)
		if len(missing) == 0 && time.Since(lifted) > 2*simBackoff && !slices.ContainsFunc(gone, has) {
			break
		}
		after(time.Minute)
	}
	return missing
}

// where names the relays that have an event, for a failed test.
func (w *world) where(id string) string {
	found := make(map[string]int)
	var what string
	for _, rel := range w.relays {
		for range rel.Query(nostr.Filter{Tags: nostr.TagMap{"e": {id}}}) {
			found["deleted on "+rel.URL().String()]++
		}
		for _, ev := range rel.Query(nostr.Filter{IDs: []string{id}}) {
			found[rel.URL().String()]++
			what = fmt.Sprint(ev.Kind, " ", ev.CreatedAt.Time().Sub(w.start), " ", ev.Tags)
		}
	}
	return fmt.Sprint(id, " ", what, " on ", slices.Sorted(maps.Keys(found)))
}
