package sync_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/racetest"
	"github.com/graspsync/graspsync/state"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/memstore"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// fullDisk reports a failure for each event while it is full, like the adapters, or only for the
// events in refuses.
type fullDisk struct {
	relaysync.Store
	full    atomic.Bool
	refuses func(*nostr.Event) bool
	calls   atomic.Int64
}

func (f *fullDisk) Save(ctx context.Context, events []graspsync.Incoming) ([]graspsync.Outcome, error) {
	f.calls.Add(1)
	out := make([]graspsync.Outcome, len(events))
	for i, in := range events {
		if f.full.Load() || f.refuses != nil && f.refuses(in.Event.Event) {
			out[i] = graspsync.Outcome{Result: graspsync.Failed, Err: errors.New("no space left on device")}
			continue
		}
		o, err := f.Store.Save(ctx, []graspsync.Incoming{in})
		if err != nil {
			return nil, err
		}
		out[i] = o[0]
	}
	return out, nil
}

// lines counts log lines.
type lines struct {
	slog.Handler
	n atomic.Int64
}

func (l *lines) Handle(context.Context, slog.Record) error {
	l.n.Add(1)
	return nil
}

func (l *lines) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelWarn }
func (l *lines) WithAttrs([]slog.Attr) slog.Handler               { return l }
func (l *lines) WithGroup(string) slog.Handler                    { return l }

// A Store that reports failures per event was called every second. After twelve minutes the events
// were dropped, and everything counted as synced.
func TestStoreThatFailsPerEventLosesNothing(t *testing.T) {
	racetest.Amounts(t)
	for outage, most := range map[time.Duration]int64{20 * time.Minute: 60, 72 * time.Hour: 4_000} {
		t.Run(outage.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				net := relaytest.NewNetwork()
				a := net.Add("wss://a.example", relaytest.Behavior{})
				owner := relaytest.NewCheapKey("owner")
				store, log := &fullDisk{Store: memstore.New()}, &lines{}
				(&rig{t: t, store: store}).save(owner.Hosted(at(24*time.Hour), "repo", us, "a.example"))
				r := start(t, net, store, relaysync.Config{Logger: slog.New(log)})
				defer r.stop()
				after(5 * time.Minute)
				store.full.Store(true)
				store.calls.Store(0)
				var issues []*nostr.Event
				for i := range 40 {
					issue := owner.Issue(at(0), owner.Ref("repo"), fmt.Sprint(i))
					issues = append(issues, issue)
					a.Publish(issue)
					after(outage / 80)
				}
				after(outage / 2)
				status := r.manager.Status()
				assert.False(t, status.Synced)
				assert.Less(t, store.calls.Load(), most)
				assert.Less(t, log.n.Load(), int64(outage/time.Minute)+60, "lines of the log")
				store.full.Store(false)
				after(5 * time.Minute)
				lost := 0
				for _, issue := range issues {
					if !r.has(issue) {
						lost++
					}
				}
				assert.Zero(t, lost, "events lost")
				assert.Zero(t, r.manager.Status().Events.Dropped["unsaved"])
				after(2 * time.Hour) // a failed pass is repeated within an hour
				assert.True(t, r.manager.Status().Synced)
			})
		})
	}
}

// Events that cannot be saved used up the room that all relays share: with twelve of them no other
// relay was read for eleven minutes.
func TestEventsThatCannotBeSavedHoldUpNobody(t *testing.T) {
	racetest.Amounts(t)
	bubble(t, func(t *testing.T) {
		net := relaytest.NewNetwork()
		a := net.Add("wss://a.example", relaytest.Behavior{})
		b := net.Add("wss://b.example", relaytest.Behavior{})
		owner, stranger := relaytest.NewCheapKey("owner"), relaytest.NewCheapKey("stranger")
		var cured atomic.Bool
		store := &fullDisk{Store: memstore.New()}
		store.refuses = func(ev *nostr.Event) bool { return strings.HasPrefix(ev.Content, "\x00") && !cured.Load() }
		(&rig{t: t, store: store}).save(owner.Hosted(at(24*time.Hour), "repo", us, "a.example", "b.example"))
		r := start(t, net, store, relaysync.Config{InFlight: 4 << 20})
		defer r.stop()
		after(time.Minute)
		var bad []*nostr.Event
		for i := range 12 {
			bad = append(bad, stranger.Event(at(0), 1621, "\x00"+strings.Repeat("x", 400_000),
				nostr.Tag{"a", owner.Ref("repo").String()}, nostr.Tag{"n", fmt.Sprint(i)}))
		}
		a.Publish(bad[:6]...)
		b.Publish(bad[6:]...) // so that none of what is kept for relays of which nothing is inside is for it
		after(time.Second)
		issue := owner.Issue(at(0), owner.Ref("repo"), "honest")
		b.Publish(issue)
		published := time.Now()
		for !r.has(issue) && time.Since(published) < 5*time.Minute {
			after(time.Second)
		}
		took := time.Since(published)
		require.Less(t, took, 20*time.Second, "until a live event was saved")
		for i := range 5 { // the Store saves other events
			b.Publish(owner.Issue(at(0), owner.Ref("repo"), fmt.Sprint("later", i)))
			after(3 * time.Minute)
		}
		require.False(t, r.manager.Status().Synced, "something is still to be saved")
		after(24 * time.Hour)
		cured.Store(true)
		after(5 * time.Hour)
		for _, ev := range bad {
			require.True(t, r.has(ev), "it is saved when that is possible")
		}
		require.True(t, r.manager.Status().Synced)
		require.Zero(t, r.manager.Status().Events.Dropped["unsaved"])
	})
}

// Many small events that cannot be saved stopped the reading of all relays for most of a day: there
// were more than are remembered, and because no other event entered, no success showed that the
// Store works.
func TestSmallEventsThatCannotBeSavedHoldUpNobody(t *testing.T) {
	racetest.Amounts(t)
	for _, c := range []struct {
		relays, each, size int
		inFlight           int64
	}{{4, 1900, 0, 4 << 20}, {30, 1900, 500, 0}} {
		t.Run(fmt.Sprintf("%d/%d", c.relays, c.each), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newPoisoned(t, c.relays, relaysync.Config{InFlight: c.inFlight})
				defer w.stop()
				w.poison(c.each, c.size)
				after(time.Minute)
				for i := range 5 {
					issue := w.owner.Issue(at(0), w.owner.Ref("repo"), fmt.Sprint("honest", i))
					w.honest.Publish(issue)
					require.LessOrEqual(t, w.until(issue), 5*time.Second, "until a live event of another relay was saved")
				}
			})
		})
	}
}

// A revived event that could not be saved was dropped immediately and requested a minute later,
// from a relay that may be gone.
func TestWhatHasWaitedIsKeptUntilItCanBeSaved(t *testing.T) {
	bubble(t, func(t *testing.T) {
		net := relaytest.NewNetwork()
		a := net.Add("wss://a.example", relaytest.Behavior{})
		owner, bob := relaytest.NewCheapKey("owner"), relaytest.NewCheapKey("bob")
		var tries atomic.Int64
		store := &fullDisk{Store: memstore.New()}
		store.refuses = func(ev *nostr.Event) bool { return ev.Kind == graspsync.KindState && tries.Add(1) <= 2 }
		(&rig{t: t, store: store}).save(owner.Hosted(at(24*time.Hour), "repo", us, "a.example"))
		r := start(t, net, store, relaysync.Config{})
		defer r.stop()
		waiting := bob.State(at(time.Hour), "bobs", nil, "")
		a.Publish(waiting)
		after(time.Minute)
		asked := a.Traffic().BytesSent
		r.save(bob.Hosted(at(2*time.Hour), "bobs", us, "elsewhere.example"))
		after(10 * time.Second)
		require.EqualValues(t, 3, tries.Load())
		require.True(t, r.has(waiting))
		require.Less(t, a.Traffic().BytesSent-asked, int64(400), "it is not sent again")
	})
}

// The remembered ids of unsaved events were all of a few relays. A live event of another relay that
// failed once was lost until the next day.
func TestUnsavedEventsTakeNoRoomFromOtherRelays(t *testing.T) {
	racetest.Amounts(t)
	bubble(t, func(t *testing.T) {
		w := newPoisoned(t, 8, relaysync.Config{})
		defer w.stop()
		w.poison(1800, 0)
		publish := func(content string) *nostr.Event {
			issue := w.owner.Issue(at(0), w.owner.Ref("repo"), content)
			w.honest.Publish(issue)
			after(5 * time.Second)
			return issue
		}
		for i := range 60 { // other events are saved, so that only the ids of these are left
			publish(fmt.Sprint("other", i))
		}
		odd := publish("odd")
		for i := range 15 {
			publish(fmt.Sprint("later", i))
		}
		require.False(t, w.has(odd))
		w.cured.Store(true)
		require.Less(t, w.until(odd), 10*time.Minute)
	})
}

// poisoned is a rig with relays whose events cannot be saved, and an honest relay.
type poisoned struct {
	*rig
	owner, stranger *relaytest.Key
	honest          *relaytest.Relay
	evil            []*relaytest.Relay
	cured           atomic.Bool // "odd" can be saved
}

func newPoisoned(t *testing.T, evil int, cfg relaysync.Config) *poisoned {
	t.Helper()
	net := relaytest.NewNetwork()
	w := &poisoned{
		owner: relaytest.NewCheapKey("owner"), stranger: relaytest.NewCheapKey("stranger"),
		honest: net.Add("wss://b.example", relaytest.Behavior{}),
	}
	store := &fullDisk{Store: memstore.New()}
	store.refuses = func(ev *nostr.Event) bool {
		return strings.HasPrefix(ev.Content, "\x00") || ev.Content == "odd" && !w.cured.Load()
	}
	before := &rig{t: t, store: store}
	before.save(w.owner.Hosted(at(24*time.Hour), "repo", us, "b.example"))
	for i := range evil {
		host := fmt.Sprintf("e%d.example", i)
		w.evil = append(w.evil, net.Add("wss://"+host, relaytest.Behavior{}))
		before.save(w.stranger.Hosted(at(24*time.Hour), fmt.Sprint("s", i), us, host))
	}
	w.rig = start(t, net, store, cfg)
	after(time.Minute)
	return w
}

// poison makes each relay send a number of events that cannot be saved.
func (w *poisoned) poison(each, size int) {
	for k, a := range w.evil {
		var bad []*nostr.Event
		for i := range each {
			bad = append(bad, w.stranger.Event(at(0), 1621, "\x00"+strings.Repeat("x", size),
				nostr.Tag{"a", w.stranger.Ref(fmt.Sprint("s", k)).String()}, nostr.Tag{"n", fmt.Sprint(i)}))
		}
		a.Publish(bad...)
	}
}

// until returns the time until an event is stored, at most an hour.
func (w *poisoned) until(ev *nostr.Event) time.Duration {
	began := time.Now()
	for !w.has(ev) && time.Since(began) < time.Hour {
		after(5 * time.Second)
	}
	return time.Since(began)
}

// Events that could not be saved before the process was killed are fetched by the next process,
// even if their relay stayed connected and the rest of its history was confirmed.
func TestRestartWhileTheStoreFails(t *testing.T) {
	for _, killed := range []bool{false, true} {
		t.Run(fmt.Sprint("killed=", killed), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				net := relaytest.NewNetwork()
				a := net.Add("wss://a.example", relaytest.Behavior{})
				b := net.Add("wss://b.example", relaytest.Behavior{})
				owner, kept := relaytest.NewCheapKey("owner"), state.NewMemory()
				store := &fullDisk{Store: memstore.New(), refuses: func(ev *nostr.Event) bool { return strings.HasPrefix(ev.Content, "odd") }}
				(&rig{t: t, store: store}).save(owner.Hosted(at(24*time.Hour), "repo", us, "a.example", "b.example"))
				r := start(t, net, store, relaysync.Config{State: kept})
				after(5 * time.Minute)
				var missing []*nostr.Event
				for i := range 5 { // old and new events; a catch-up finds only recent ones
					missing = append(missing, owner.Issue(at(100*time.Hour), owner.Ref("repo"), fmt.Sprint("odd and old", i)),
						owner.Issue(at(0), owner.Ref("repo"), fmt.Sprint("odd", i)))
				}
				a.Publish(missing...)
				for i := range 6 { // other events are saved, so that only the ids of these are left
					b.Publish(owner.Issue(at(0), owner.Ref("repo"), fmt.Sprint("even", i)))
					after(time.Minute)
				}
				store.full.Store(true) // from now on no event is saved
				last := owner.Issue(at(0), owner.Ref("repo"), "last")
				a.Publish(last)
				after(3 * time.Minute)
				if killed {
					kept = copied(t, kept)
				}
				r.stop()
				store.full.Store(false)
				store.refuses = nil
				r = r.again(relaysync.Config{State: kept})
				defer r.stop()
				after(5 * time.Minute)
				for _, ev := range append(missing, last) {
					require.True(t, r.has(ev), ev.Content)
				}
			})
		})
	}
}
