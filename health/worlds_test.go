package health

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/backoff"
	"github.com/graspsync/graspsync/internal/goldentest"
	"github.com/graspsync/graspsync/internal/racetest"
)

// worldURLs are relays at hosts that have one, several, or none of their own.
var worldURLs = []string{
	"wss://a.example", "wss://a.example/x", "wss://a.example:7000/y", "wss://b.example", "wss://b.example/z",
	"wss://c.example", "ws://10.0.0.1", "ws://10.0.0.1:7000",
}

// trackerWorld is a tracker to which anything happens, and to whose records, over restarts,
// anything has happened.
type trackerWorld struct {
	t      *testing.T
	rng    *rand.Rand
	config Config
	tr     *RelayHealthTracker
	urls   []graspsync.RelayURL
	all    []string
}

type waitError time.Duration

func (e waitError) Error() string             { return "wait" }
func (e waitError) RetryAfter() time.Duration { return time.Duration(e) }

// sleep passes times at, before and behind every bound of the rules.
func (w *trackerWorld) sleep() {
	bounds := []time.Duration{
		0, 0, 0, time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, time.Minute, time.Minute,
		65 * time.Second, 5 * time.Minute, 10 * time.Minute, time.Hour, 2 * time.Hour, 24 * time.Hour,
	}
	d := bounds[w.rng.IntN(len(bounds))] + time.Duration(w.rng.IntN(3)-1)
	if w.rng.IntN(3) == 0 {
		d = time.Until(w.tr.NextAttempt(w.url()))
	}
	time.Sleep(d)
}

func (w *trackerWorld) url() graspsync.RelayURL { return w.urls[w.rng.IntN(len(w.urls))] }

func (w *trackerWorld) step() {
	tr, u := w.tr, w.url()
	n := w.rng.IntN(30)
	w.all = append(w.all, fmt.Sprint(time.Now().UTC(), n, u))
	switch {
	case n < 7:
		tr.Attempt(u)
	case n < 12:
		tr.Connected(u)
	case n < 15:
		tr.Failed(u, errors.New("refused"))
	case n < 16:
		tr.Failed(u, waitError(w.rng.IntN(4)-1)*waitError(time.Hour)/2)
	case n < 19:
		tr.Lost(u, errors.New("gone"))
	case n < 20:
		tr.Closed(u)
	case n < 21:
		tr.Stopped(u)
	case n < 22:
		tr.RateLimited(u, time.Now().Add(time.Duration(w.rng.IntN(80))*time.Minute))
	case n < 23:
		tr.Hostile(u)
	case n < 26:
		tr.Forget(u)
	case n < 28:
		w.restart()
	default:
		w.imported()
	}
}

// restart has another tracker take over what this one knows, or a part of that.
func (w *trackerWorld) restart() {
	before := w.tr
	var err error
	w.tr, err = NewTracker(w.config)
	require.NoError(w.t, err)
	time.Sleep(time.Duration(w.rng.IntN(2)*w.rng.IntN(1000)) * time.Second)
	relays := func() {
		for _, u := range w.urls {
			if r, ok := before.Export(u); ok && w.rng.IntN(6) > 0 {
				w.tr.Import(u, r)
			}
		}
	}
	hosts := func() {
		for _, host := range []string{"a.example", "b.example", "c.example", ""} {
			if r, ok := before.ExportHost(host); ok && w.rng.IntN(6) > 0 {
				w.tr.ImportHost(host, r)
			}
		}
	}
	if w.rng.IntN(2) == 0 {
		hosts()
		relays()
	} else {
		relays()
		hosts()
	}
}

// imported takes over a record that no tracker has made.
func (w *trackerWorld) imported() {
	now := time.Now()
	at := func() time.Time {
		return []time.Time{
			{}, now, now.Add(-time.Second), now.Add(-time.Minute), now.Add(-2 * time.Hour), now.Add(-30 * time.Hour),
			now.Add(time.Minute), now.Add(100 * time.Hour), time.Unix(0, 0), time.Unix(-1, 0),
		}[w.rng.IntN(10)]
	}
	may := func() bool { return w.rng.IntN(4) == 0 }
	r := Record{
		Failures: w.rng.IntN(8) - 2, FailingSince: at(), LastFailure: at(), LastSuccess: at(), RecoveredAt: at(),
		LastAttempt: at(), NextAttempt: at(), StoppedAt: at(), Restarts: w.rng.IntN(6) - 1, RestartsSince: at(),
		RateLimitedUntil: at(), ConnectedAt: at(), Held: may(), Dialing: may(), Proven: may(),
		LastError: "broken\n", WasLost: may(), Up: time.Duration(w.rng.IntN(3) - 1),
		Down: time.Duration(w.rng.IntN(3)-1) * backoff.Longest, CountedTo: at(),
	}
	u := w.url()
	if host, _ := w.tr.hosts.table.get(Host(u)); host.inUse() {
		return // it comes before the first attempt
	}
	if w.rng.IntN(2) == 0 {
		w.tr.records.remove(u)
		w.tr.Import(u, r)
		return
	}
	w.tr.ImportHost(Host(u), r)
}

// look writes down all that there is to be seen.
func (w *trackerWorld) look() {
	tr := w.tr
	spell := func(v any, ok bool) {
		text, err := json.Marshal(v)
		require.NoError(w.t, err)
		w.all = append(w.all, fmt.Sprintf("%t %s", ok, text))
	}
	for _, u := range w.urls {
		next := tr.NextAttempt(u)
		w.all = append(w.all, fmt.Sprint(u, next.UTC(), tr.KnownGood(u)))
		s := tr.Status(u)
		require.Equal(w.t, next, s.NextAttempt)
		spell(s, s.State != Disconnected)
		r, ok := tr.Export(u)
		spell(r, ok)
	}
	for _, host := range []string{"a.example", "b.example", "c.example", ""} {
		r, ok := tr.ExportHost(host)
		spell(r, ok)
		w.all = append(w.all, fmt.Sprint(host, tr.HostNext(host).UTC(), tr.HostProven(host)))
	}
	known := 0
	for u, s := range tr.All() {
		require.True(w.t, tr.records.isWanted(u))
		require.Equal(w.t, tr.Status(u), s)
		known++
	}
	names := tr.Hosts()
	slices.Sort(names)
	w.all = append(w.all, fmt.Sprint(known, tr.Len(), tr.Dropped(), names))
	for host := range tr.hosts.by {
		r, _ := tr.hosts.table.get(host)
		require.True(w.t, r.inUse(), "%s is in use by nobody", host)
	}
	require.LessOrEqual(w.t, tr.Len(), w.config.MaxRecords)
	require.LessOrEqual(w.t, len(names), w.config.fixed.MaxHosts)
}

func TestTrackerWorlds(t *testing.T) {
	racetest.Amounts(t)
	sums := goldentest.NewSums(t, "testdata/worlds.sum")
	for seed := range uint64(40) {
		synctest.Test(t, func(t *testing.T) {
			w := &trackerWorld{t: t, rng: rand.New(rand.NewPCG(seed, 5)), config: Config{MaxRecords: 50, fixed: constants{MaxHosts: 50}}}
			w.config.fixed.Rand = func() float64 { return float64(w.rng.IntN(4)) / 4 }
			if seed%4 == 0 {
				w.config.MaxRecords, w.config.fixed.MaxHosts = 1+w.rng.IntN(6), 1+w.rng.IntN(3)
			}
			for _, s := range worldURLs {
				u, err := graspsync.ParseRelayURL(s)
				require.NoError(t, err)
				w.urls = append(w.urls, u)
			}
			var err error
			w.tr, err = NewTracker(w.config)
			require.NoError(t, err)
			for range 150 {
				w.sleep()
				w.step()
				w.look()
			}
			sums.Equal(t, fmt.Sprint(seed), w.all)
		})
	}
}
