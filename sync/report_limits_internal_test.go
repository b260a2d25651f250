package sync

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/eventtest"
	"github.com/graspsync/graspsync/sync/internal/ownfeed"
	"github.com/graspsync/graspsync/sync/internal/plan"
	"github.com/graspsync/graspsync/sync/internal/relaylimits"
	"github.com/graspsync/graspsync/sync/internal/session"
	"github.com/graspsync/graspsync/sync/wire"
)

// heard keeps what is said to the outside: all lines of the log in full, and all observations.
type heard struct {
	observer *observer

	mu  sync.Mutex
	log bytes.Buffer // guarded by mu
}

// Write implements [io.Writer].
func (h *heard) Write(b []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.log.Write(b)
}

// hear has a configuration say all to whom it returns.
func hear(cfg *Config) *heard {
	h := &heard{}
	cfg.Logger = slog.New(slog.NewTextHandler(h, &slog.HandlerOptions{
		Level: slog.LevelDebug,
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			switch a.Key {
			case slog.TimeKey:
				return slog.Attr{}
			case keyStack: // another one each time
				return slog.Bool(keyStack, a.Value.String() != "")
			}
			return a
		},
	}))
	cfg.Observe, cfg.fixed.ObserveQueue = func(Observation) {}, 1_000
	return h
}

// lines returns what was logged since it was asked last.
func (h *heard) lines() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := strings.TrimSuffix(h.log.String(), "\n")
	h.log.Reset()
	if all == "" {
		return nil
	}
	return strings.Split(all, "\n")
}

// told returns what was observed since it was asked last.
func (h *heard) told() (out []Observation) {
	for {
		select {
		case o := <-h.observer.queue:
			out = append(out, o)
		default:
			return out
		}
	}
}

// said checks what was said since that was done last.
func (h *heard) said(t *testing.T, lines []string, told []Observation, what ...any) {
	t.Helper()
	require.Equal(t, lines, h.lines(), what...)
	require.Equal(t, told, h.told(), what...)
}

// sayer is a loop with connections, none of which runs.
type sayer struct {
	*heard
	l *loopRig
}

func newSayer(t *testing.T, cfg Config) *sayer {
	t.Helper()
	h := hear(&cfg)
	l := madeLoop(t, &twinStore{}, cfg)
	h.observer = l.m.report.observer
	return &sayer{h, l}
}

// conn returns a connection that stands.
func (s *sayer) conn(t *testing.T, u graspsync.RelayURL) *conn {
	t.Helper()
	stats := s.l.stats[u]
	if stats == nil {
		stats = s.l.m.remember.stats(u)
		s.l.stats[u] = stats
	}
	c := newConn(t.Context(), s.l.env.conn, u, 7, stats)
	c.session = session.New(sessionConfig(s.l.m.cfg, stats, relaylimits.Limits{Requests: relaylimits.Declared(wire.Info{}, s.l.m.cfg.fixed.usual())}, wire.Info{}))
	c.stands = true
	s.l.conns[u] = c
	s.l.env.health.Attempt(u)
	s.l.env.health.Connected(u)
	return c
}

// strangers' words, and how they are shown.
const (
	evil   = "bad \x1b"
	tamed  = `bad \x1b`
	logged = `bad \\x1b` // slog escapes the backslash
)

// rarely is something that a relay has us say: a line at most once a minute, and all of the
// rest each time.
type rarely struct {
	name  string
	do    func(c *conn)
	loud  string // the line
	quiet string // instead of it
	told  func(c *conn) []Observation
	own   bool // it is of our own relay
}

func (s *sayer) rarely(t *testing.T) []rarely {
	ctx := t.Context()
	ev := testEvent(1, 1621, 1, 1)
	until := time.Now().Add(time.Hour)
	one := func(o Observation) func(*conn) []Observation {
		return func(*conn) []Observation { return []Observation{o} }
	}
	batch := func(c *conn, r session.Report, result plan.Result) {
		f := &fetching{batch: plan.Batch{Items: 3}, since: time.Now().Add(-time.Minute)}
		s.l.chronicle.batchEnded(batchDone{conn: c, fetching: f, done: session.Done{Report: r}}, result)
	}
	attempt := func(c *conn) (n int, backoff time.Duration) {
		st := s.l.env.health.Status(c.url)
		return st.Failures, time.Until(st.NextAttempt).Round(time.Millisecond)
	}
	failure := errors.New(evil)
	return []rarely{
		{
			name: "strike", do: func(c *conn) { c.perform([]session.Action{session.Strike{Reason: evil}}) },
			loud: `level=DEBUG msg="relay broke the rules" relay=U reason="` + logged + `"`,
		},
		{
			name: "notice", do: func(c *conn) { c.perform([]session.Action{session.Notice{Text: evil}}) },
			loud: `level=INFO msg="relay says" relay=U reason="` + logged + `"`,
		},
		{
			name: "refusal",
			do:   func(c *conn) { c.perform([]session.Action{session.LiveClosed{Live: 1, Reason: evil}}) },
			loud: `level=DEBUG msg="live subscription refused" relay=U reason="` + logged + `"`,
			told: func(c *conn) []Observation { return []Observation{RelayRefused{Relay: c.url, Reason: tamed}} },
		},
		{
			name: "rate limit",
			do: func(c *conn) {
				s.l.m.inbox.take()
				c.perform([]session.Action{session.RateLimited{Until: until, Reason: evil}})
				for _, msg := range s.l.m.inbox.take() {
					s.l.handle(ctx, msg)
				}
			},
			loud: `level=INFO msg="relay limits us" relay=U reason="` + logged + `"`,
			told: func(c *conn) []Observation { return []Observation{RelayLimited{Relay: c.url, Until: until}} },
		},
		{
			name: "lesson",
			do: func(c *conn) {
				c.perform([]session.Action{session.Learned{Kind: relaylimits.MaxFilters, Value: 7, Reason: evil}})
			},
			loud: `level=INFO msg="relay taught a limit" relay=U fact=max_filters value=7 reason="` + logged + `"`,
			told: func(c *conn) []Observation {
				return []Observation{RelayLearned{Relay: c.url, Fact: "max_filters", Value: 7}}
			},
		},
		{
			name: "value set aside",
			do: func(c *conn) {
				c.perform([]session.Action{session.SetAside{Value: relaylimits.Value{Tag: "t", Value: evil}}})
			},
			loud: `level=INFO msg="relay refuses a value" relay=U list=t value="` + logged + `"`,
			told: one(Dropped{Reason: "poison", Count: 1}),
		},
		{
			name: "gap", do: func(c *conn) {
				c.gap(graspsync.Incoming{Event: eventtest.Of(ev), Source: graspsync.Source{Kind: graspsync.CatchUp}})
			},
			loud: `level=INFO msg="catch-up found an event that was missed" relay=U event=` + ev.ID,
			told: func(c *conn) []Observation { return []Observation{GapFound{Relay: c.url, ID: testID(1)}} },
		},
		{
			name: "lasting gap", do: func(c *conn) {
				c.gap(graspsync.Incoming{Event: eventtest.Of(ev), Source: graspsync.Source{Kind: graspsync.Daily}})
			},
			loud: `level=ERROR msg="daily pass found an event that was missed" relay=U event=` + ev.ID,
			told: func(c *conn) []Observation {
				return []Observation{GapFound{Relay: c.url, ID: testID(1), Lasting: true}}
			},
		},
		{
			name: "batch that failed", do: func(c *conn) { batch(c, session.Report{Err: evil}, plan.Failed) },
			loud: `level=INFO msg="fetching history failed" relay=U items=3 error="` + logged + `"`,
			told: func(c *conn) []Observation {
				return []Observation{BatchFailed{Relay: c.url, Kind: "history", Items: 3, Reason: tamed}}
			},
		},
		{
			name: "batch with gaps",
			do: func(c *conn) {
				batch(c, session.Report{Missing: 2, Seconds: 5, Events: 9, Method: session.Pages}, plan.Gaps)
			},
			loud: `level=INFO msg="history has gaps" relay=U items=3 missing_events=2 full_seconds=5`,
			told: func(c *conn) []Observation {
				return []Observation{BatchConfirmed{
					Relay: c.url, Kind: "history", Items: 3, Events: 9, Method: "REQ", Gaps: true, Duration: time.Minute,
				}}
			},
		},
		{
			name: "failed attempt",
			do: func(c *conn) {
				s.l.conns[c.url] = c
				s.l.env.health.Attempt(c.url)
				s.l.handle(ctx, dialFailed{conn: c, err: failure})
			},
			loud:  `level=INFO msg="connection failed" relay=U attempt=N backoff=B error="` + logged + `"`,
			quiet: `level=DEBUG msg="connection failed" relay=U attempt=N backoff=B`,
			told: func(c *conn) []Observation {
				n, backoff := attempt(c)
				return []Observation{RelayFailed{Relay: c.url, Attempt: n, Backoff: backoff, Err: failure}}
			},
		},
		{
			name: "lost connection",
			do: func(c *conn) {
				s.l.conns[c.url] = c
				s.l.env.health.Attempt(c.url)
				s.l.env.health.Connected(c.url)
				s.l.handle(ctx, lost{conn: c, err: failure})
			},
			loud:  `level=INFO msg="connection lost" relay=U error="` + logged + `"`,
			quiet: `level=DEBUG msg="connection lost" relay=U`,
			told:  func(c *conn) []Observation { return []Observation{RelayLost{Relay: c.url, Err: failure}} },
		},
		{
			name: "wrong id",
			do: func(*conn) {
				o := &ownConn{own: s.l.m.own}
				require.NoError(t, o.do(ctx, ownfeed.Result{Event: eventtest.Of(&nostr.Event{ID: testID(1).String()})}))
			},
			loud: `level=WARN msg="own relay gave an event whose id is wrong" relay=wss://internal.example event=` + testID(1).String(),
			told: one(Dropped{Reason: "own_feed_ids", Count: 1}), own: true,
		},
	}
}

// Of each thing that relays have us say there is a line at once, and the next a minute later,
// whatever else is said, and however many relays a host has. All of it is told each time.
func TestWhatIsSaidAtMostOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSayer(t, Config{OwnRelay: testURL(t, "wss://internal.example")})
		all := s.rarely(t)
		a := testURL(t, "wss://a.example")
		play := func(u graspsync.RelayURL, loud bool) {
			t.Helper()
			for _, x := range all {
				c := s.conn(t, u)
				x.do(c)
				require.NoError(t, c.ended)
				line := x.quiet
				if own := x.own && u.HostPort().Host != "a.example"; loud && !own {
					line = x.loud
				}
				st := s.l.env.health.Status(u)
				var lines []string
				if line != "" {
					line = strings.ReplaceAll(line, "relay=U", "relay="+u.String())
					line = strings.ReplaceAll(line, "attempt=N", fmt.Sprint("attempt=", st.Failures))
					backoff := time.Until(st.NextAttempt).Round(time.Millisecond)
					lines = []string{strings.ReplaceAll(line, "backoff=B", fmt.Sprint("backoff=", backoff))}
				}
				var told []Observation
				if x.told != nil {
					told = x.told(c)
				}
				s.said(t, lines, told, x.name)
			}
		}
		play(a, true)
		play(a, false)
		play(testURL(t, "wss://a.example:8443"), false)
		play(testURL(t, "wss://b.example"), true)
		time.Sleep(time.Minute - 1)
		play(a, false)
		time.Sleep(time.Nanosecond)
		play(a, true)
		play(a, false)

		stats := s.l.stats[a]
		require.EqualValues(t, 5, stats.strikes.Load())
		require.EqualValues(t, 10, stats.gaps.Load())
		require.EqualValues(t, 5, stats.lasting.Load())
		var st EventStatus
		s.l.m.report.reasons(&st)
		require.Equal(t, map[string]uint64{"max_filters": 7}, st.Learned)
		require.Equal(t, map[string]uint64{"poison": 7, "own_feed_ids": 7}, st.Dropped)
	})
}

// Each end of a batch is told, with all that is to be known of it; what was not fetched says why.
func TestWhatIsSaidOfABatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for kind, name := range map[plan.Kind]string{
			plan.History: "history", plan.DailyHistory: "daily", plan.Recent: "recent", plan.Deletions: "deletions", plan.Audit: "other",
		} {
			for result := plan.Complete; result <= plan.Refused; result++ {
				for _, why := range []string{"", evil} {
					for missing := range 2 {
						for seconds := range 2 {
							s := newSayer(t, Config{})
							c := s.conn(t, testURL(t, "wss://a.example"))
							f := &fetching{batch: plan.Batch{Kind: kind, Items: 4}, since: time.Now().Add(-time.Second)}
							r := session.Report{Err: why, Missing: missing, Seconds: seconds, Events: 8, Method: session.Negent}
							s.l.chronicle.batchEnded(batchDone{conn: c, fetching: f, done: session.Done{Report: r}}, result)
							var lines []string
							told := []Observation{BatchConfirmed{
								Relay: c.url, Kind: name, Items: 4, Events: 8, Method: "NIP-77", Gaps: result == plan.Gaps, Duration: time.Second,
							}}
							const of = " relay=wss://a.example items=4 "
							if result >= plan.Failed {
								reason, shown := "", `""`
								switch {
								case why != "":
									reason, shown = tamed, `"`+logged+`"`
								case result == plan.Failed:
									reason = "some events could not be saved"
									shown = `"` + reason + `"`
								}
								lines = append(lines, `level=INFO msg="fetching history failed"`+of+"error="+shown)
								told = []Observation{BatchFailed{Relay: c.url, Kind: name, Items: 4, Reason: reason}}
							}
							if missing+seconds > 0 {
								lines = append(lines, fmt.Sprint(`level=INFO msg="history has gaps"`, of, "missing_events=", missing, " full_seconds=", seconds))
							}
							s.said(t, lines, told)
						}
					}
				}
			}
		}
	})
}
