package sync_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/assert"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/fieldhub"
	"github.com/graspsync/graspsync/internal/racetest"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/relaytest"
	"github.com/graspsync/graspsync/sync/wire"
)

const (
	loadPart  = 10               // divisor of the production size for the default run
	loadDay   = 24 * time.Hour   // of life
	loadFirst = 12 * time.Hour   // maximum time of a first sync
	loadAfter = 26 * time.Hour   // after the day, for events that only the daily pass finds
	loadRate  = 3 * 24 * 60      // events of a day, in production
	loadCut   = 12 * time.Hour   // time of the day at which the hub's relay loses its connections
	loadStep  = 10 * time.Second // between two checks
)

// loadModels are the kinds of relay that the hub may run.
var loadModels = []struct {
	name  string
	relay func() relaytest.Behavior
	part  func(b *relaytest.Behavior) // scales limits to a smaller hub
}{
	{"rust-nostr, 1 MiB of REQs", relaytest.LocalRelay, loadRustPart},
	{"ngit-grasp, 5 MiB of REQs", relaytest.GraspRelay, loadRustPart},
	{"old rust-nostr, 120 queries a minute", func() relaytest.Behavior {
		b := relaytest.LocalRelay()
		b.RateLimit, b.NegRate, b.MessageRate = 120, 120, 300
		return b
	}, loadRustPart},
	{"strfry as nos.lol, 20 subscriptions", relaytest.StrfryNosLol, loadStrfryPart},
	{"strfry 1.1.1 that validates, 3 filters", relaytest.StrfryValidating, loadStrfryPart},
	{"strfry 1.0.3 as primal, no NIP-77", relaytest.StrfryPrimal, loadStrfryPart},
	{"khatru, 500 events, NIP-77", func() relaytest.Behavior {
		b := relaytest.Khatru()
		b.Cap, b.DefaultLimit, b.Negentropy = 500, 500, relaytest.NegOn
		return b
	}, func(*relaytest.Behavior) {}},
	{"khatru, 20 filters a minute", func() relaytest.Behavior {
		b := relaytest.KhatruDefaults()
		b.Cap, b.DefaultLimit = 500, 500
		return b
	}, func(*relaytest.Behavior) {}},
}

func loadRustPart(b *relaytest.Behavior) {
	b.MaxSubBytes, b.NegMax = b.MaxSubBytes/loadPart, b.NegMax/loadPart
}

func loadStrfryPart(b *relaytest.Behavior) {
	b.MaxMessage /= loadPart
	b.Info.MaxMessageLength = b.MaxMessage
}

// loadPhase contains the measurements of the first sync or of the day after it.
type loadPhase struct {
	name     string
	took     time.Duration // until all events are stored, or the maximum from published to stored
	lost     int
	typical  time.Duration // median
	pause    time.Duration // longest time without a stored event while some were missing
	requests map[wire.RequestType]int
	traffic  relaytest.Traffic
}

// A server that all repositories of a large hub list syncs with it for the first time, and then for
// a day, in which the hub's relay loses its connections. No event may be lost with any kind of
// relay. With -full the hub and the limits of its relay have production size.
func TestHubOfTheField(t *testing.T) {
	racetest.Amounts(t)
	size, rate := fieldhub.Production, loadRate
	if !*full {
		size, rate = size.Part(loadPart), rate/loadPart
	}
	began := time.Date(2000, time.January, 1, 0, 0, 0, 0, time.UTC) // the start time of bubbles
	hub := fieldhub.New(fieldhub.Config{Size: size, Server: us, Now: began.Add(-time.Hour)})
	for _, model := range racetest.Some(2, loadModels) {
		t.Run(model.name, func(t *testing.T) {
			b := model.relay()
			b.Latency = 50 * time.Millisecond
			if !*full {
				model.part(&b)
			}
			cpu := time.Now()
			var phases []loadPhase
			bubble(t, func(t *testing.T) { phases = loadLife(t, hub, b, rate) })
			t.Logf("%s: %d repositories, %d events\n%s", model.name, size.Repositories, len(hub.Events), loadTable(phases))
			t.Logf("%v in real time", time.Since(cpu).Round(time.Millisecond))
			for _, p := range phases {
				assert.Zero(t, p.lost, "%s: lost", p.name)
			}
		})
	}
}

// loadWorld is a hub with continuous activity.
type loadWorld struct {
	t     *testing.T
	hub   *relaytest.Relay
	net   *relaytest.Network
	store *diary
	rig   *rig
	seen  int // requests of earlier phases
	had   relaytest.Traffic
}

func loadLife(t *testing.T, field *fieldhub.Hub, b relaytest.Behavior, rate int) []loadPhase {
	w := &loadWorld{t: t, net: relaytest.NewNetwork(), store: newDiary(0)}
	w.hub = w.net.Add("wss://"+field.Host, b)
	fits := func(ev *nostr.Event) bool { return b.MaxEvent == 0 || len(ev.String()) <= b.MaxEvent }
	there := make(map[string]bool)
	for _, ev := range field.Events {
		if fits(ev) {
			w.hub.Publish(ev)
			there[ev.ID] = true
		}
	}
	around := make(map[*fieldhub.Relay]*relaytest.Relay)
	for i, r := range field.Relays {
		behavior := relaytest.Behavior{Latency: 100 * time.Millisecond}
		switch {
		case r.Answers:
		case i%3 == 0:
			behavior.NoAnswer = true
		case i%3 == 1:
			behavior.DialError = errors.New("connection refused")
		default:
			behavior.DialError = errors.New("no such host")
		}
		around[r] = w.net.Add(r.URL, behavior)
		around[r].Publish(r.Events...)
		for _, ev := range r.Events {
			there[ev.ID] = true
		}
	}
	wanted := make(map[string]time.Time)
	for _, ev := range field.Wanted {
		if there[ev.ID] && follows(ev, there) {
			wanted[ev.ID] = time.Now()
		}
	}
	bootstrap := []graspsync.RelayURL{relayURL(t, w.hub.URL().String())}
	w.rig = start(t, w.net, w.store, relaysync.Config{Bootstrap: bootstrap}.With(relaysync.Fixed{Workers: 2}))
	defer w.rig.stop()
	phases := []loadPhase{w.phase("first sync", wanted, time.Now().Add(loadFirst))}

	from := time.Now()
	updates := field.Live(rate, from, from.Add(loadDay))
	wanted = make(map[string]time.Time)
	newest := make(map[string]string) // address -> id
	cut := false
	for _, u := range updates {
		if !cut && u.At.Sub(from) > loadCut {
			w.hub.Cut()
			cut = true
		}
		time.Sleep(time.Until(u.At))
		to := w.hub
		if u.Relay != nil {
			to = around[u.Relay]
		}
		to.Publish(u.Event)
		if !follows(u.Event, there) {
			continue
		}
		if nostr.IsAddressableKind(u.Event.Kind) {
			delete(wanted, newest[addressOf(u.Event)])
			newest[addressOf(u.Event)] = u.Event.ID
		}
		wanted[u.Event.ID] = u.At
	}
	return append(phases, w.phase("a day", wanted, time.Now().Add(loadAfter)))
}

// follows reports whether the root event of an event exists. It is true for an event without a root
// event.
func follows(ev *nostr.Event, there map[string]bool) bool {
	for _, tag := range ev.Tags {
		if tag[0] == "E" || tag[0] == "e" {
			return there[tag[1]]
		}
	}
	return true
}

// phase waits until all events are stored or the time is over, and returns the measurements. wanted
// contains the time from which each event was available.
func (w *loadWorld) phase(name string, wanted map[string]time.Time, end time.Time) loadPhase {
	missing := slices.Collect(maps.Keys(wanted))
	here := func(id string) bool {
		_, ok := w.store.when(&nostr.Event{ID: id})
		return ok
	}
	for {
		if missing = slices.DeleteFunc(missing, here); len(missing) == 0 || time.Now().After(end) {
			break
		}
		after(loadStep)
	}
	for _, id := range missing[:min(len(missing), 5)] {
		w.t.Logf("%s: lost: %s", name, w.about(id))
	}
	p := loadPhase{name: name, lost: len(missing), requests: make(map[wire.RequestType]int)}
	var delays []time.Duration
	came := []time.Time{}
	for id, since := range wanted {
		if when, ok := w.store.when(&nostr.Event{ID: id}); ok {
			delays = append(delays, when.Sub(since))
			came = append(came, when)
		} else if len(missing) > 0 {
			came = append(came, time.Now())
		}
	}
	slices.Sort(delays)
	slices.SortFunc(came, time.Time.Compare)
	for i := range came[1:] {
		p.pause = max(p.pause, came[i+1].Sub(came[i]))
	}
	if len(delays) > 0 {
		p.took, p.typical = delays[len(delays)-1], delays[len(delays)/2]
	}
	seen := w.hub.Requests()
	for _, r := range seen[min(w.seen, len(seen)):] {
		p.requests[r.Type]++
	}
	now := w.hub.Traffic()
	p.traffic = relaytest.Traffic{
		MessagesSent: now.MessagesSent - w.had.MessagesSent, MessagesReceived: now.MessagesReceived - w.had.MessagesReceived,
		BytesSent: now.BytesSent - w.had.BytesSent, BytesReceived: now.BytesReceived - w.had.BytesReceived,
	}
	w.seen, w.had = len(seen), now
	return p
}

// about describes an event and its relays, for a failed test.
func (w *loadWorld) about(id string) string {
	var text string
	var on []string
	for _, r := range w.net.Relays() {
		for _, ev := range r.Query(nostr.Filter{IDs: []string{id}}) {
			on = append(on, r.URL().String())
			text = fmt.Sprintf("kind %d, %d s, %d bytes, %.200v", ev.Kind, ev.CreatedAt, len(ev.String()), ev.Tags)
		}
	}
	return fmt.Sprint(text, " on ", on)
}

func loadTable(phases []loadPhase) string {
	var b strings.Builder
	tab := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(tab, "\tlost\ttook\thalf in\tlongest pause\tREQ\tNEG-OPEN\tNEG-MSG\tmessages\tsent\treceived\t")
	for _, p := range phases {
		fmt.Fprintf(tab, "%s\t%d\t%v\t%v\t%v\t%d\t%d\t%d\t%d\t%.1f MB\t%.1f MB\t\n", p.name, p.lost,
			p.took.Round(time.Second), p.typical.Round(time.Millisecond), p.pause.Round(time.Second),
			p.requests[wire.TypeReq], p.requests[wire.TypeNegOpen], p.requests[wire.TypeNegSend], p.traffic.MessagesReceived,
			float64(p.traffic.BytesReceived)/1e6, float64(p.traffic.BytesSent)/1e6)
	}
	tab.Flush()
	return b.String()
}
