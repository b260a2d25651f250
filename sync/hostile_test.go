package sync_test

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/racetest"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/memstore"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// Costs of work in tests that measure. Simulated time does not include CPU time.
const (
	verifyCost = 190 * time.Microsecond // of one signature
	saveCost   = time.Millisecond       // of one call
)

// diary is a slow Store that records when events were saved.
type diary struct {
	relaysync.Store
	cost time.Duration

	mu    sync.Mutex
	ahead time.Duration        // error of our clock, guarded by mu
	at    map[string]time.Time // by id, guarded by mu
	twice []string             // saved although already stored, guarded by mu
	sick  int                  // one of this number of events cannot be saved, guarded by mu
	tries map[string]int       // failed saves by id, guarded by mu

	questions atomic.Int64 // number of queries
	partly    atomic.Bool  // Events ends with ErrIncomplete
}

func newDiary(cost time.Duration) *diary {
	return &diary{Store: memstore.New(), cost: cost, at: make(map[string]time.Time), tries: make(map[string]int)}
}

func (d *diary) Save(ctx context.Context, events []graspsync.Incoming) ([]graspsync.Outcome, error) {
	if d.cost > 0 {
		time.Sleep(d.cost)
	}
	well, failed := d.triage(events)
	saved, err := d.Store.Save(ctx, well)
	if err != nil {
		return nil, err
	}
	var out []graspsync.Outcome
	for _, f := range failed {
		if f != nil {
			out = append(out, graspsync.Outcome{Result: graspsync.Failed, Err: f})
			continue
		}
		out = append(out, saved[0])
		saved = saved[1:]
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for i, o := range out {
		id := events[i].Event.ID
		if _, here := d.at[id.String()]; here || o.Result == graspsync.Duplicate {
			if o.Result == graspsync.Stored || o.Result == graspsync.Duplicate {
				d.twice = append(d.twice, id.String())
			}
		}
		if o.Result == graspsync.Stored {
			d.at[id.String()] = time.Now().Add(-d.ahead)
		}
	}
	return out, err
}

// Events reads the store. It may return ErrIncomplete at the end.
func (d *diary) Events(ctx context.Context, f nostr.Filter) iter.Seq2[graspsync.Event, error] {
	d.questions.Add(1)
	return func(yield func(graspsync.Event, error) bool) {
		for ev, err := range d.Store.Events(ctx, f) {
			if !yield(ev, err) {
				return
			}
		}
		if d.partly.Load() && f.Authors == nil && f.IDs == nil && f.Tags == nil {
			yield(graspsync.Event{}, fmt.Errorf("reading: %w", relaysync.ErrIncomplete))
		}
	}
}

func (d *diary) Keys(ctx context.Context, f nostr.Filter) iter.Seq2[graspsync.EventKey, error] {
	d.questions.Add(1)
	return d.Store.Keys(ctx, f)
}

func (d *diary) Has(ctx context.Context, ids []graspsync.EventID) ([]bool, error) {
	d.questions.Add(1)
	return d.Store.Has(ctx, ids)
}

func (d *diary) Deleted(ctx context.Context, ev graspsync.Event) (bool, error) {
	d.questions.Add(1)
	return d.Store.Deleted(ctx, ev)
}

// triage divides events into those that can be saved now and errors for the others.
func (d *diary) triage(events []graspsync.Incoming) (well []graspsync.Incoming, failed []error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	failed = make([]error, len(events))
	for i, in := range events {
		if d.sick > 0 && int(in.Event.ID[0])%d.sick == 0 {
			failed[i] = errBroken
			d.tries[in.Event.ID.String()]++
			continue
		}
		well = append(well, in)
	}
	return well, failed
}

// setSick makes one of oneOf events fail from now on, or none if it is 0.
func (d *diary) setSick(oneOf int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.sick = oneOf
}

// mostTries returns the maximum number of failed saves of one event.
func (d *diary) mostTries() (most int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, n := range d.tries {
		most = max(most, n)
	}
	return most
}

// setClock sets the error of our clock.
func (d *diary) setClock(ahead time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ahead = ahead
}

// when returns the correct time at which an event was stored.
func (d *diary) when(ev *nostr.Event) (time.Time, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	t, ok := d.at[ev.ID]
	return t, ok
}

func (d *diary) savedTwice() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.twice)
}

// costly is a Verifier that takes the time of real signature checks.
type costly struct{ relaytest.CheapVerifier }

func (v costly) Verify(events []*nostr.Event) []error {
	time.Sleep(time.Duration(len(events)) * verifyCost)
	return v.CheapVerifier.Verify(events)
}

// speed contains times of following honest relays.
type speed struct {
	first   time.Duration // from the start until all their events are stored
	live    time.Duration // median from published to stored
	slowest time.Duration // maximum of it; live subscriptions are rebuilt sometimes
}

const honestRelays, honestEvents = 5, 40

// beside measures the speed next to an odd relay, or without one, and checks the limits for the odd
// relay.
func beside(t *testing.T, behavior *relaytest.Behavior) (s speed) {
	net := relaytest.NewNetwork()
	owner, stranger := relaytest.NewCheapKey("owner"), relaytest.NewCheapKey("stranger")
	var honest []*relaytest.Relay
	hosts := []string{us}
	for i := range honestRelays {
		hosts = append(hosts, fmt.Sprintf("honest%d.example", i))
		honest = append(honest, net.Add("wss://"+hosts[i+1], relaytest.Behavior{Latency: 20 * time.Millisecond}))
	}
	allowed := make(map[string]bool)
	var strange *relaytest.Relay
	if behavior != nil {
		hosts = append(hosts, "odd.example")
		strange = net.Add("wss://odd.example", *behavior)
	}
	announcement := owner.Hosted(at(24*time.Hour), "repo", hosts...)
	var here []*nostr.Event
	for i := range honestRelays * honestEvents {
		ev := owner.Issue(at(time.Duration(i+1)*time.Minute), owner.Ref("repo"), fmt.Sprint("here", i))
		here = append(here, ev)
		honest[i%honestRelays].Publish(ev)
	}
	for _, ev := range append(slices.Clone(here), announcement) {
		allowed[ev.ID] = true
	}
	if strange != nil {
		for i := range 30 {
			ev := owner.Issue(at(time.Duration(i+1)*time.Minute), owner.Ref("repo"), fmt.Sprint("there", i))
			allowed[ev.ID] = true
			strange.Publish(ev, here[i], stranger.Deletion(at(0), here[i]),
				stranger.Event(at(0), 1, fmt.Sprint("foreign", i)))
		}
		strange.Publish(stranger.Hosted(at(0), "foreign", "elsewhere.example"))
	}

	store := newDiary(saveCost)
	first := &rig{t: t, store: store}
	first.save(announcement)
	began := time.Now()
	r := start(t, net, store, relaysync.Config{Verifier: costly{}}.With(relaysync.Fixed{Workers: 2}))
	after(time.Minute)
	for _, ev := range here {
		when, ok := store.when(ev)
		require.True(t, ok, "an honest relay was not synced")
		s.first = max(s.first, when.Sub(began))
	}
	var live []time.Duration
	for i := range 4 * honestRelays {
		ev := owner.Comment(at(0), here[i], "live")
		allowed[ev.ID] = true
		published := time.Now()
		honest[i%honestRelays].Publish(ev)
		after(5 * time.Second)
		when, ok := store.when(ev)
		require.True(t, ok, "a live event of an honest relay did not come")
		live = append(live, when.Sub(published))
	}
	slices.Sort(live)
	s.live, s.slowest = live[len(live)/2], live[len(live)-1]
	after(10 * time.Minute)
	for _, rel := range honest {
		require.Equal(t, uint64(1), r.relay(rel.URL().String()).Connects)
		require.Empty(t, rel.Violations())
	}
	if strange != nil {
		require.Less(t, len(strange.Requests()), 2000, "it is not hammered")
		require.Less(t, len(strange.Dials()), 40)
	}
	ending := time.Now()
	r.stop()
	require.Less(t, time.Since(ending), 5*time.Second)
	for ev, err := range store.Events(t.Context(), nostr.Filter{}) {
		require.NoError(t, err)
		require.True(t, allowed[ev.ID.String()], "foreign event %s", ev)
	}
	require.Empty(t, store.savedTwice())
	return s
}

// No relay affects others, whatever it does: honest relays are synced in the same time as without
// it, no foreign event is stored, and Run ends in time. Times are simulated and exact. Signature
// checks and saves take time.
func TestOddRelaysAreContained(t *testing.T) {
	racetest.Amounts(t)
	var alone speed
	bubble(t, func(t *testing.T) { alone = beside(t, nil) })
	wild := temper{pace: 10 * time.Millisecond, bulk: 1000}
	// The behaviors are made inside the bubbles, because they may contain values of a bubble.
	var names []string
	bubble(t, func(*testing.T) { names = slices.Sorted(maps.Keys(zoo(wild))) })
	speeds := make(map[string]speed)
	names = racetest.Some(len(names)/3, names)
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				b := zoo(wild)[name]
				s := beside(t, &b)
				speeds[name] = s
				// A first sync takes an eighth of a second. The order of goroutines changes it by
				// tens of milliseconds.
				const slack = 150 * time.Millisecond
				require.LessOrEqual(t, s.first, alone.first*3/2+slack, "the first sync of the honest relays")
				require.LessOrEqual(t, s.live, alone.live*3/2+slack, "live events of the honest relays")
				require.Less(t, s.slowest, time.Second)
			})
		})
	}
	row := func(name string, s speed) {
		t.Logf("%-32s %12v %6.2f %12v %6.2f %12v", name, s.first, ratio(s.first, alone.first), s.live, ratio(s.live, alone.live), s.slowest)
	}
	t.Logf("%-32s %12s %6s %12s %6s %12s", "relay", "first sync", "ratio", "live", "ratio", "slowest")
	row("(none)", alone)
	worst := speed{}
	for _, name := range slices.Sorted(maps.Keys(speeds)) {
		s := speeds[name]
		worst = speed{max(worst.first, s.first), max(worst.live, s.live), max(worst.slowest, s.slowest)}
		row(name, s)
	}
	row(fmt.Sprintf("worst of %d", len(speeds)), worst)
}

func ratio(a, b time.Duration) float64 { return float64(a) / float64(b) }
