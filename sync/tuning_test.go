package sync

import (
	"log/slog"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/doctest"
	"github.com/graspsync/graspsync/internal/eventtest"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/sync/batchverify"
	"github.com/graspsync/graspsync/sync/internal/plan"
	"github.com/graspsync/graspsync/sync/internal/relaylimits"
	"github.com/graspsync/graspsync/sync/internal/session"
	"github.com/graspsync/graspsync/sync/wire"
)

// numbers returns the fields of a struct that are numbers or durations.
func numbers(v any) map[string]int64 {
	out := make(map[string]int64)
	r := reflect.ValueOf(v)
	for i := range r.NumField() {
		if f := r.Field(i); f.CanInt() {
			out[r.Type().Field(i).Name] = f.Int()
		}
	}
	return out
}

// The documented defaults, which other servers of this kind also use.
func TestDefaults(t *testing.T) {
	cfg := Config{}.withDefaults()
	assert.IsType(t, new(batchverify.Verifier), cfg.Verifier, "checked one by one, signatures are most of the work")
	assert.Equal(t, map[string]int64{
		"BatchWindow": int64(5 * time.Second),
		"PassEvery":   int64(24 * time.Hour),
	}, numbers(cfg.Times))
	assert.Equal(t, map[string]int64{
		"MaxConnections": 256, "MaxRelaysPerRepo": 16, "MaxRootsPerRepo": 5_000,
		"InFlight": 48 << 20,
	}, numbers(cfg.Limits))
	assert.Equal(t, 50_000, cfg.Health.MaxRecords)
	fixed := numbers(cfg.fixed)
	delete(fixed, "Workers") // depends on the machine
	assert.Equal(t, map[string]int64{
		"MaxRelays": 50_000, "MaxDials": 10, "Unproductive": 8 << 20, "ConnectTimeout": int64(10 * time.Second), "StoreTimeout": int64(time.Minute),
		"QuickReconnect": int64(15 * time.Minute), "Overlap": int64(45 * time.Minute),
		"IdleTimeout": int64(30 * time.Second), "TotalTimeout": int64(5 * time.Minute), "BatchTimeout": int64(30 * time.Minute),
		"RetryBase": int64(30 * time.Second), "RetryMax": int64(time.Hour),
		"NegentropyRetry": int64(4 * time.Hour), "FutureTolerance": int64(15 * time.Minute), "MaxBatches": 4,
		"Waiting": 10_000, "WaitingBytes": 32 << 20, "Remembered": 200_000, "RejectedFor": int64(7 * 24 * time.Hour),
		"FeedQueue": 10_000, "MaxSet": 1_000_000, "ObserveQueue": 1_024,
		"PageLimit": 500, "MaxPage": 50_000, "IDsPerRequest": 250, "OpenTimeout": int64(2 * time.Second),
		"FirstAnswer": int64(2 * time.Minute), "DialEvery": int64(250 * time.Millisecond),
		"NegentropyFrame": 30_000, "NegentropyRounds": 64, "NegentropyIDs": 65_536,
		"NegentropyFirst": int64(10 * time.Second), "NegentropyTimeout": int64(2 * time.Minute),
		"MessageSize": 64 << 10, "Filters": 20, "Subscriptions": 20,
		"RebuildFilters": 70, "PollEvery": int64(10 * time.Minute),
		"MaxAuthors": 10_000, "AuthorsPerPass": 1_000,
		"Strikes": 3, "Refill": 64 << 10, "WholeFor": int64(2 * time.Minute), "GapAge": int64(time.Minute),
		"DailyMin": int64(23 * time.Hour), "DailyMax": int64(25 * time.Hour), "MaxLabels": 1_000,
	}, fixed)
	cfg = Config{Times: Times{PassEvery: 48 * time.Hour}}.withDefaults()
	assert.Equal(t, []time.Duration{46 * time.Hour, 50 * time.Hour}, []time.Duration{cfg.fixed.DailyMin, cfg.fixed.DailyMax})
	require.NoError(t, cfg.validate())
}

// Every negative number must be rejected. Otherwise nothing validates the field.
func TestEachNumberIsBounded(t *testing.T) {
	doctest.Bounded(t, Config{}.withDefaults(), Config.withDefaults, Config.validate)
}

func TestConfigBounds(t *testing.T) {
	for name, c := range map[string]struct {
		cfg Config
		bad string // "": the value is valid
	}{
		"relays of a repository":          {Config{Limits: Limits{MaxRelaysPerRepo: nip34.MaxListed}}, ""},
		"too many of them":                {Config{Limits: Limits{MaxRelaysPerRepo: nip34.MaxListed + 1}}, "MaxRelaysPerRepo"},
		"small page":                      {Config{fixed: constants{PageLimit: 5}}, ""},
		"too small a page":                {Config{fixed: constants{PageLimit: 4}}, "PageLimit"},
		"page that is taken":              {Config{fixed: constants{PageLimit: 50, MaxPage: 100}}, ""},
		"page that is asked for, refused": {Config{fixed: constants{PageLimit: 50, MaxPage: 99}}, "MaxPage"},
		"frame":                           {Config{fixed: constants{NegentropyFrame: 4096}}, ""},
		"frame below what NIP-77 allows":  {Config{fixed: constants{NegentropyFrame: 4095}}, "NegentropyFrame"},
		"first answer":                    {Config{fixed: constants{NegentropyFirst: time.Second, NegentropyTimeout: time.Second}}, ""},
		"first answer after the end":      {Config{fixed: constants{NegentropyTimeout: 9 * time.Second}}, "NegentropyTimeout"},
		"least limits":                    {Config{fixed: constants{MessageSize: 4 << 10, Filters: 1, Subscriptions: 2}}, ""},
		"most limits":                     {Config{fixed: constants{MessageSize: 128 << 10, Filters: 100, Subscriptions: 200}}, ""},
		"message too short":               {Config{fixed: constants{MessageSize: 4<<10 - 1}}, "MessageSize"},
		"message too long":                {Config{fixed: constants{MessageSize: 128<<10 + 1}}, "MessageSize"},
		"too many filters":                {Config{fixed: constants{Filters: 101}}, "Filters"},
		"too few subscriptions":           {Config{fixed: constants{Subscriptions: 1}}, "Subscriptions"},
		"too many subscriptions":          {Config{fixed: constants{Subscriptions: 201}}, "Subscriptions"},
		"polls without a pause":           {Config{fixed: constants{PollEvery: time.Millisecond}}, "PollEvery"},
	} {
		t.Run(name, func(t *testing.T) {
			err := c.cfg.withDefaults().validate()
			if c.bad == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.bad+" is ")
		})
	}
}

// tuned contains the values that the parts of a manager use.
type tuned struct {
	plan    plan.Config
	session session.Config
	limits  relaylimits.Requests // of a relay that declares none
	manager *SyncManager
	relay   *relayStats
}

func tune(cfg Config) tuned {
	cfg = cfg.withDefaults()
	m := &SyncManager{cfg: &cfg, telemetry: newTelemetry(Config{}), inbox: newMailbox[loopMessage](), unproductive: newUnproductive(&cfg.fixed)}
	m.persistence = newPersistence(&cfg, nip34.Identity{}, nil, nil, nil, m.telemetry)
	m.self = newSelfSubscriber(nil, cfg.fixed.FeedQueue, cfg.fixed.MaxAuthors)
	m.ingest = newIngest(cfg, nil, nil, nil, m.self, m.telemetry, nil)
	m.loop = newLoop(m)
	c := tuned{manager: m, plan: m.loop.planConfig(), limits: relaylimits.Declared(wire.Info{}, m.cfg.fixed.usual()), relay: m.persistence.stats(graspsync.RelayURL{})}
	c.relay.host.ID = "a.example"
	c.session = sessionConfig(m.cfg, c.relay, relaylimits.Limits{Requests: c.limits}, wire.Info{})
	return c
}

// tunedElsewhere are the fields that other tests cover, or tests of the plan.
var tunedElsewhere = []string{
	"QuickReconnect", "Overlap", "IdleTimeout", "TotalTimeout", "BatchTimeout", "RetryBase", "RetryMax", "NegentropyRetry",
	"FutureTolerance", "MaxBatches", "Waiting", "WaitingBytes", "Remembered", "RejectedFor", "FeedQueue", "MaxSet", "ObserveQueue",
	"MaxRelays", "MaxDials", "Unproductive", "ConnectTimeout", "StoreTimeout", "Workers", "MaxLabels", "DailyMin", "DailyMax",
}

func TestTuningHasAnEffect(t *testing.T) {
	fields := map[string]struct {
		set int64
		got func(tuned) int64
	}{
		"PageLimit": {77, func(c tuned) int64 { return int64(c.session.PageLimit) }},
		"MaxPage":   {7_777, func(c tuned) int64 { return int64(c.session.MaxPage) }},
		"IDsPerRequest": {77, func(c tuned) int64 {
			if c.plan.NamedIDs != c.session.IDChunk {
				return -1
			}
			return int64(c.session.IDChunk)
		}},
		"DialEvery":   {77, func(c tuned) int64 { return int64(c.plan.DialEvery) }},
		"FirstAnswer": {77, func(c tuned) int64 { return int64(c.session.FirstAnswer) }},
		"OpenTimeout": {77, func(c tuned) int64 { return int64(c.session.OpenTimeout) }},
		"NegentropyFrame": {7_777, func(c tuned) int64 {
			large := relaylimits.Requests{MaxMessage: relaylimits.MostSaid}
			return int64(sessionConfig(c.manager.cfg, c.relay, relaylimits.Limits{Requests: large}, wire.Info{}).NegFrame)
		}},
		"NegentropyRounds":  {77, func(c tuned) int64 { return int64(c.session.NegRounds) }},
		"NegentropyIDs":     {77, func(c tuned) int64 { return int64(c.session.NegIDs) }},
		"NegentropyFirst":   {77, func(c tuned) int64 { return int64(c.session.FirstNeg) }},
		"NegentropyTimeout": {77, func(c tuned) int64 { return int64(c.session.NegTimeout) }},
		"MessageSize":       {7_777, func(c tuned) int64 { return int64(c.limits.MaxMessage) }},
		"Filters":           {77, func(c tuned) int64 { return int64(c.limits.MaxFilters) }},
		"Subscriptions":     {77, func(c tuned) int64 { return int64(c.limits.MaxSubscriptions) }},
		"RebuildFilters":    {77, func(c tuned) int64 { return int64(c.plan.RebuildFilters) }},
		"PollEvery":         {int64(77 * time.Second), func(c tuned) int64 { return int64(c.plan.PollEvery) }},
		"MaxAuthors":        {77, func(c tuned) int64 { return int64(c.plan.MaxAuthors) }},
		"AuthorsPerPass":    {77, func(c tuned) int64 { return int64(c.plan.AuthorsPerPass) }},
		"Strikes":           {77, func(c tuned) int64 { return int64(c.session.MaxStrikes) }},
		"Refill": {7_777, func(c tuned) int64 {
			return c.manager.cfg.fixed.Refill // TestRefill
		}},
		"WholeFor": {77, func(c tuned) int64 { return int64(rejectedConfig(*c.manager.cfg).WholeFor) }},
		"GapAge":   {77, func(c tuned) int64 { return int64(c.session.GapAge) }},
	}
	for name, value := range numbers(constants{}.withDefaults()) {
		if slices.Contains(tunedElsewhere, name) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			f, ok := fields[name]
			require.True(t, ok, "what does it do?")
			require.Equal(t, value, f.got(tune(Config{})))
			var cfg Config
			reflect.ValueOf(&cfg.fixed).Elem().FieldByName(name).SetInt(f.set)
			require.Equal(t, f.set, f.got(tune(cfg)))
		})
	}
}

// Limits that a relay declares precede assumed limits.
func TestTuningYieldsToTheRelay(t *testing.T) {
	c := tune(Config{fixed: constants{PageLimit: 100, IDsPerRequest: 90, Filters: 5, Subscriptions: 5, MessageSize: 8 << 10}})
	info := wire.Info{MaxLimit: 60, MaxFilters: 7, MaxSubscriptions: 9, MaxMessageLength: 16 << 10}
	limits := relaylimits.Declared(info, c.manager.cfg.fixed.usual())
	assert.Equal(t, relaylimits.Requests{MaxMessage: 16 << 10, MaxFilters: 7, MaxSubscriptions: 9}, limits)
	s := sessionConfig(c.manager.cfg, c.relay, relaylimits.Limits{Requests: limits}, info)
	assert.Equal(t, []int{60, 60, 4 << 10}, []int{s.PageLimit, s.IDChunk, s.NegFrame})
	s = sessionConfig(c.manager.cfg, c.relay, relaylimits.Limits{Requests: limits}, wire.Info{MaxLimit: 1_000})
	assert.Equal(t, []int{200, 90}, []int{s.PageLimit, s.IDChunk})
	// A declared limit below that of any real relay is ignored.
	s = sessionConfig(c.manager.cfg, c.relay, relaylimits.Limits{Requests: limits}, wire.Info{MaxLimit: 1})
	assert.Equal(t, []int{5, 5}, []int{s.PageLimit, s.IDChunk})
}

// The own feed also limits the number of authors that it reports.
func TestMaxAuthorsOfTheFeed(t *testing.T) {
	f := newSelfSubscriber(newEventIndex(listsByName, nip34.Identity{}, nil), 10, 3)
	for i := range 5 {
		f.stored(eventtest.Of(testAnnouncement(i+1, i+1, "repo", 1, "ours")))
	}
	require.Len(t, f.take().authors, 3)
	f.stored(eventtest.Of(testAnnouncement(9, 9, "repo", 1, "ours")))
	require.Len(t, f.take().authors, 1, "who comes later is not kept out for ever")
}

// A limit learned from a relay is reported to the plan once and applies for a day, because the
// relay may improve.
func TestLimitsThatChangeAreTold(t *testing.T) {
	for kind, value := range map[relaylimits.Kind]int{
		relaylimits.MaxMessage: 7_777, relaylimits.MaxFilters: 7, relaylimits.MaxSubscriptions: 7, relaylimits.MaxValues: 7, relaylimits.NeedsKinds: 1,
	} {
		t.Run(kind.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := tune(Config{Logger: slog.New(slog.DiscardHandler)})
				n := newRelayConn(t.Context(), c.manager, graspsync.RelayURL{}, 3, c.relay)
				told := func() (out []plan.LimitsChanged) {
					for _, msg := range c.manager.inbox.take() {
						out = append(out, msg.(planInput).in.(plan.LimitsChanged))
					}
					return out
				}
				n.current(time.Now())
				require.Empty(t, told(), "it is not connected")
				n.session = session.New(c.session)
				usual := n.applied.limits.Requests
				n.current(time.Now())
				require.Empty(t, told(), "as before")
				for range 3 {
					n.learn(session.Learned{Kind: kind, Value: value})
				}
				got := told()
				require.Len(t, got, 1)
				require.NotEqual(t, usual, got[0].Limits)
				require.EqualValues(t, 3, got[0].Epoch)
				time.Sleep(24*time.Hour - 1)
				n.outgrow(time.Now())
				require.Empty(t, told(), "believed for a day")
				time.Sleep(time.Nanosecond)
				n.outgrow(time.Now())
				require.Equal(t, []plan.LimitsChanged{{Epoch: 3, Limits: usual}}, told())
			})
		})
	}
}

// A request by id never has more ids than the relay's maximum number of values, down to one.
func TestIDsInARequest(t *testing.T) {
	c := tune(Config{})
	for values, want := range map[int]int{0: c.session.IDChunk, 1: 1, 2: 2, 100: 100, 100_000: c.session.IDChunk} {
		limits := relaylimits.Limits{Requests: c.limits}
		limits.MaxValues = values
		got := sessionConfig(c.manager.cfg, c.relay, limits, wire.Info{})
		require.Equal(t, want, got.IDChunk, "of a relay that takes %d", values)
	}
}
