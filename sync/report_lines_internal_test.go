package sync

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/health"
	"github.com/graspsync/graspsync/internal/eventtest"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/sync/internal/ownfeed"
	"github.com/graspsync/graspsync/sync/internal/plan"
	"github.com/graspsync/graspsync/sync/internal/session"
	"github.com/graspsync/graspsync/sync/wire"
)

// sayerRelay is the relay of which something is said.
const sayerRelay = "wss://a.example"

// retryLater is an error that says when to try again.
type retryLater time.Duration

func (r retryLater) Error() string             { return "later" }
func (r retryLater) Unwrap() error             { return ErrNotDialed }
func (r retryLater) RetryAfter() time.Duration { return time.Duration(r) }

// stoic is a connection whose Close does what it is told to.
type stoic struct {
	Conn
	close func() error
}

func (s *stoic) Close() error { return s.close() }

// Of what happens now and then each time is told, in these words, and health goes by it.
func TestWhatIsSaidEachTime(t *testing.T) {
	of := " relay=" + sayerRelay
	ref := testRepo(1, "x")
	for name, x := range map[string]struct {
		do    func(t *testing.T, s *sayer, c *conn)
		lines []string
		told  []any // observations, or functions of the relay that return one
		drops map[string]uint64
	}{
		"connected": {
			do: func(t *testing.T, s *sayer, c *conn) {
				c.stands = false
				s.l.env.health.Attempt(c.url)
				s.l.handle(t.Context(), connected{conn: c, info: wire.Info{Software: "x"}})
				require.True(t, c.stands)
				require.EqualValues(t, 2, s.l.env.health.Status(c.url).Connections)
				require.Equal(t, "x", c.stats.software)
				require.Equal(t, time.Now(), c.stats.connectedAt)
			},
			lines: []string{"level=INFO msg=connected" + of},
			told:  []any{func(u graspsync.RelayURL) Observation { return RelayConnected{u} }},
		},
		"hostile": {
			do: func(t *testing.T, s *sayer, c *conn) {
				s.l.handle(t.Context(), lost{conn: c, err: fmt.Errorf("%w: x", errHostile)})
				require.Empty(t, s.l.conns)
				require.Equal(t, "hostile relay: x", c.stats.lastErr)
				require.GreaterOrEqual(t, time.Until(s.l.env.health.NextAttempt(c.url)), time.Hour)
			},
			lines: []string{`level=INFO msg="connection lost"` + of + ` error="hostile relay: x"`},
			told: []any{
				func(u graspsync.RelayURL) Observation { return RelayHostile{u} },
				func(u graspsync.RelayURL) Observation {
					return RelayLost{Relay: u, Err: fmt.Errorf("%w: x", errHostile)}
				},
			},
		},
		"unproductive": {
			do: func(t *testing.T, s *sayer, c *conn) {
				s.l.handle(t.Context(), lost{conn: c, err: errUnproductive})
				require.GreaterOrEqual(t, time.Until(s.l.env.health.NextAttempt(c.url)), time.Hour)
			},
			lines: []string{`level=INFO msg="connection lost"` + of + ` error="relay sends nothing that is of use"`},
			told: []any{
				func(u graspsync.RelayURL) Observation { return RelayHostile{u} },
				func(u graspsync.RelayURL) Observation { return RelayLost{Relay: u, Err: errUnproductive} },
			},
		},
		"lost": {
			do: func(t *testing.T, s *sayer, c *conn) {
				s.l.handle(t.Context(), lost{conn: c, err: errNoConn})
				require.Less(t, time.Until(s.l.env.health.NextAttempt(c.url)), time.Minute)
				require.EqualValues(t, 1, s.l.env.health.Status(c.url).Disconnects)
				require.Equal(t, errNoConn.Error(), c.stats.lastErr)
			},
			lines: []string{`level=INFO msg="connection lost"` + of + ` error="` + errNoConn.Error() + `"`},
			told:  []any{func(u graspsync.RelayURL) Observation { return RelayLost{Relay: u, Err: errNoConn} }},
		},
		"not dialed": {
			do: func(t *testing.T, s *sayer, c *conn) {
				s.l.handle(t.Context(), dialFailed{conn: c, err: fmt.Errorf("dialing: %w", retryLater(time.Hour))})
				require.Empty(t, s.l.conns)
				require.Zero(t, s.l.env.health.Status(c.url).FailedAttempts, "that is not the relay's fault")
				require.Equal(t, "dialing: later", c.stats.lastErr)
			},
			lines: []string{`level=DEBUG msg="relay not dialed"` + of + ` error="dialing: later"`},
			told:  []any{Dropped{Reason: "not_dialed", Count: 1}}, drops: map[string]uint64{"not_dialed": 1},
		},
		"not saved": {
			do: func(t *testing.T, s *sayer, c *conn) {
				s.l.handle(t.Context(), dialFailed{conn: c, err: fmt.Errorf("%w: x", errUnsaved)})
				require.Empty(t, s.l.conns)
				require.Zero(t, s.l.env.health.Status(c.url).FailedAttempts)
				require.Empty(t, c.stats.lastErr)
			},
		},
		"confirmed": {
			do: func(t *testing.T, s *sayer, c *conn) {
				s.l.perform(t.Context(), plan.Confirmed{Relay: c.url, Items: 3})
			},
			lines: []string{`level=INFO msg="batch confirmed"` + of + " items=3"},
		},
		"pass": {
			do: func(t *testing.T, s *sayer, c *conn) {
				c.stats.coverage.counted([][]graspsync.RepoRef{{ref}})
				s.l.perform(t.Context(), plan.Reset{Relay: c.url, Daily: true})
				lacks, _, _ := c.stats.coverage.of(ref)
				require.Zero(t, lacks, "it is compared anew")
				s.l.perform(t.Context(), plan.Reset{Relay: c.url})
				delete(s.l.stats, c.url)
				s.l.perform(t.Context(), plan.Reset{Relay: c.url})
			},
			lines: []string{
				`level=INFO msg="confirmed state forgotten"` + of + " daily=true",
				`level=INFO msg="confirmed state forgotten"` + of + " daily=false",
				`level=INFO msg="confirmed state forgotten"` + of + " daily=false",
			},
			told: []any{
				func(u graspsync.RelayURL) Observation { return PassStarted{Relay: u, Daily: true} },
				func(u graspsync.RelayURL) Observation { return PassStarted{Relay: u} },
				func(u graspsync.RelayURL) Observation { return PassStarted{Relay: u} },
			},
		},
		"bounds": {
			do: func(t *testing.T, s *sayer, _ *conn) {
				s.l.perform(t.Context(), plan.Dropped{Reason: "roots", Count: 3})
				require.False(t, s.l.incomplete)
				s.l.perform(t.Context(), plan.Incomplete{})
				require.True(t, s.l.incomplete)
			},
			told: []any{Dropped{Reason: "roots", Count: 3}}, drops: map[string]uint64{"roots": 3},
		},
		"in backoff": {
			do: func(t *testing.T, s *sayer, c *conn) {
				s.l.env.health.Hostile(c.url)
				at := s.l.env.health.NextAttempt(c.url)
				time.Sleep(time.Until(at) - time.Second)
				delete(s.l.conns, c.url)
				s.l.perform(t.Context(), plan.Dial{Relay: c.url, Epoch: 9})
				require.Empty(t, s.l.conns)
				require.Equal(t, []any{planInput{plan.DialFailed{Relay: c.url, Epoch: 9, RetryAt: at}}}, s.l.m.inbox.take())
				time.Sleep(time.Second)
				s.l.perform(t.Context(), plan.Dial{Relay: c.url, Epoch: 9})
				require.EqualValues(t, 9, s.l.conns[c.url].epoch)
				require.Same(t, c.stats, s.l.conns[c.url].stats)
				synctest.Wait()
				require.Len(t, s.l.m.inbox.take(), 1)
			},
			lines: []string{`level=DEBUG msg="attempt skipped by backoff"` + of + " backoff=1s"},
		},
		"peer lacks": {
			do: func(_ *testing.T, s *sayer, c *conn) {
				s.l.chronicle.peerLacks(c.url, c.stats, time.Now())
				c.stats.coverage.looking = 1
				for _, of := range []graspsync.RepoRef{ref, testRepo(2, "y")} {
					s.l.plan.Step(time.Now(), plan.Changes{Repos: []plan.RepoChange{{Ref: of, Relays: []graspsync.RelayURL{c.url}, Level: plan.LevelFull}}})
				}
				s.l.handle(context.Background(), lacking{conn: c, events: [][]graspsync.RepoRef{{ref}, {ref, testRepo(2, "y")}, {testRepo(2, "elsewhere")}}})
				s.l.chronicle.peerLacks(c.url, c.stats, time.Now())
				s.l.chronicle.peerLacks(c.url, c.stats, time.Now())
			},
			lines: []string{`level=INFO msg="peer lacks events that we have"` + of + " repo=" + ref.String() + " count=2 repos=2"},
			told:  []any{func(u graspsync.RelayURL) Observation { return PeerLacks{Relay: u, Repo: ref, Count: 2} }},
		},
		"forgotten": {
			do: func(t *testing.T, s *sayer, c *conn) {
				s.l.perform(t.Context(), plan.Forget{Relay: c.url})
				require.Empty(t, s.l.stats)
				require.False(t, s.l.env.health.KnownGood(c.url))
			},
			told: []any{func(u graspsync.RelayURL) Observation { return RelayForgotten{u} }},
		},
		"own relay lost": {
			do: func(_ *testing.T, s *sayer, _ *conn) { s.l.m.own.lost(errors.New(evil), time.Second) },
			lines: []string{
				`level=WARN msg="own feed ended" relay=wss://internal.example error="` + logged + `" backoff=1s`,
			},
			told: []any{OwnFeedLost{Err: errors.New(evil), Backoff: time.Second}},
		},
		"own relay read": {
			do: func(_ *testing.T, s *sayer, _ *conn) { s.l.m.own.wasRead(ownfeed.Result{Events: 4}) },
			lines: []string{
				`level=DEBUG msg="own relay was read" relay=wss://internal.example events=4`,
			},
			told: []any{OwnFeedRead{Events: 4}},
		},
		"own relay read in part": {
			do: func(_ *testing.T, s *sayer, _ *conn) { s.l.m.own.wasRead(ownfeed.Result{Events: 4, Gaps: 2}) },
			lines: []string{
				`level=DEBUG msg="own relay was read" relay=wss://internal.example events=4`,
				`level=WARN msg="own relay has seconds that hold more than a page" relay=wss://internal.example full_seconds=2`,
			},
			told: []any{Dropped{Reason: "own_feed_seconds", Count: 2}, OwnFeedRead{Events: 4}}, drops: map[string]uint64{"own_feed_seconds": 2},
		},
		"panic": {
			do: func(t *testing.T, s *sayer, c *conn) {
				require.EqualError(t, c.contain(func() { panic("x") }), "internal error: x")
				require.NoError(t, c.contain(func() {}))
				require.EqualValues(t, 1, s.l.m.report.panics["connection"])
			},
			lines: []string{`level=ERROR msg="panic in relay connection"` + of + " error=x stack=true"},
		},
		"closed": {
			do: func(_ *testing.T, _ *sayer, c *conn) {
				c.conn = &stoic{close: func() error { return nil }}
				c.close()
				c.conn = &stoic{close: func() error { return errDisk }}
				c.close()
				c.conn = &stoic{close: func() error { panic("x") }}
				c.close()
			},
			lines: []string{
				`level=DEBUG msg="closing a connection failed"` + of + ` error="disk on fire"`,
				`level=ERROR msg="panic in relay connection"` + of + " error=x stack=true",
			},
		},
		"used up": {
			do: func(t *testing.T, s *sayer, c *conn) {
				c.spend(c.env.cfg.fixed.Unproductive - 1)
				require.Empty(t, c.mailbox.take())
				c.spend(2)
				c.spend(2)
				for _, cmd := range c.mailbox.take() {
					require.Empty(t, cmd(c.session, time.Now()))
				}
				require.ErrorIs(t, c.ended, errUnproductive)
			},
			told: []any{Dropped{Reason: "unproductive", Count: 1}}, drops: map[string]uint64{"unproductive": 1},
		},
		"set that can't be loaded": {
			do: func(t *testing.T, s *sayer, c *conn) {
				c.env.sets = newSets(&twinStore{fail: errFault}, s.l.m.cfg.Holder, 10, s.l.m.ingest.absences.absent, s.l.m.report.counters)
				c.loadSet(session.LoadSet{})
				synctest.Wait()
				require.Len(t, c.mailbox.take(), 1)
				c.env.sets = newSets(&twinStore{}, s.l.m.cfg.Holder, 10, s.l.m.ingest.absences.absent, s.l.m.report.counters)
				c.loadSet(session.LoadSet{})
				synctest.Wait()
				require.Len(t, c.mailbox.take(), 1)
			},
			lines: []string{`level=WARN msg="what we have could not be read to be compared with a relay"` + of + ` error="reading what is stored: disk on fire"`},
		},
		"look-up that fails": {
			do: func(_ *testing.T, s *sayer, c *conn) {
				s.l.env.conn.reader.store = &twinStore{fail: errFault}
				c.compared(session.Report{Reconciled: 1})
				c.compared(session.Report{Lacking: []graspsync.EventID{testID(1)}})
				synctest.Wait()
				require.Zero(t, c.stats.coverage.looking)
				c.compared(session.Report{Reconciled: 1, Lacking: []graspsync.EventID{testID(1)}})
				synctest.Wait()
				s.l.env.conn.reader.store = &twinStore{}
				c.compared(session.Report{Reconciled: 1, Lacking: []graspsync.EventID{testID(1), testID(2)}})
				synctest.Wait()
				require.Len(t, s.l.m.inbox.take(), 2)
				s.l.env.conn.reader.store = &twinStore{fail: errFault}
				c.hangup()
				c.compared(session.Report{Reconciled: 1, Lacking: []graspsync.EventID{testID(3)}})
				synctest.Wait()
				require.Len(t, s.l.m.inbox.take(), 1)
			},
			lines: []string{`level=DEBUG msg="looking up what a relay lacks failed"` + of + ` error="disk on fire"`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSayer(t, Config{OwnRelay: testURL(t, "wss://internal.example")})
				c := s.conn(t, testURL(t, sayerRelay))
				x.do(t, s, c)
				var told []Observation
				for _, o := range x.told {
					switch o := o.(type) {
					case Observation:
						told = append(told, o)
					case func(graspsync.RelayURL) Observation:
						told = append(told, o(c.url))
					}
				}
				s.said(t, x.lines, told)
				var st EventStatus
				s.l.m.report.reasons(&st)
				if x.drops == nil {
					x.drops = map[string]uint64{}
				}
				require.Equal(t, x.drops, st.Dropped)
				c.hangup()
			})
		})
	}
}

// That a relay is dead is said once, and again when it has lived in between.
func TestDeadIsSaidOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSayer(t, Config{})
		u := testURL(t, sayerRelay)
		c := s.conn(t, u)
		s.l.env.health.Lost(u, errNoConn)
		for range 2 {
			dead := 0
			for range 40 {
				time.Sleep(time.Until(s.l.env.health.NextAttempt(u)))
				s.l.conns[u] = c
				s.l.env.health.Attempt(u)
				s.l.handle(t.Context(), dialFailed{conn: c, err: errNoConn})
				st := s.l.env.health.Status(u)
				lines, told := slices.DeleteFunc(s.lines(), func(l string) bool { return strings.Contains(l, "relay has failed for long") }), s.told()
				require.Equal(t, RelayFailed{Relay: u, Attempt: st.Failures, Backoff: time.Until(st.NextAttempt).Round(time.Millisecond), Err: errNoConn}, told[0])
				if st.State == health.Dead && dead == 0 {
					dead++
					require.Len(t, lines, 2)
					require.Equal(t, fmt.Sprintf(`level=INFO msg="relay dead" relay=%s attempt=%d since=%s`, u, st.Failures, st.FailingSince.Format("2006-01-02T15:04:05.000Z07:00")), lines[1])
					require.Equal(t, []Observation{RelayDead{Relay: u, Since: st.FailingSince}}, told[1:])
					continue
				}
				require.Len(t, lines, 1)
				require.Len(t, told, 1)
			}
			require.Equal(t, 1, dead)
			s.l.env.health.Attempt(u)
			s.l.env.health.Connected(u)
			time.Sleep(time.Hour)
			s.l.env.health.Lost(u, errNoConn)
			s.l.conns[u] = c
			s.l.env.health.Attempt(u)
			s.l.handle(t.Context(), dialFailed{conn: c, err: errNoConn})
			s.lines()
			s.told()
		}
	})
}

// That we were asked who we are is said, and whether we could say it.
func TestWhatIsSaidOfAuthentication(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		key := nostr.GeneratePrivateKey()
		pub, err := nostr.GetPublicKey(key)
		require.NoError(t, err)
		fails := false
		s := newSayer(t, Config{Signer: signing(func(_ context.Context, ev *nostr.Event) error {
			if fails {
				return errFault
			}
			return ev.Sign(key)
		})})
		c := s.conn(t, testURL(t, sayerRelay))
		for range 2 {
			c.perform([]session.Action{session.Authenticate{Challenge: "x"}})
			synctest.Wait()
			require.Len(t, c.mailbox.take(), 1)
			if fails {
				s.said(t, []string{`level=WARN msg="authentication failed" relay=` + sayerRelay + ` error="signing: disk on fire"`}, nil)
			} else {
				s.said(t, []string{`level=INFO msg=authenticating relay=` + sayerRelay + " pubkey=" + pub}, nil)
			}
			fails = true
		}
	})
}

// What the Verifier can't do is said each time, and told of no event.
func TestWhatIsSaidOfTheVerifier(t *testing.T) {
	for _, together := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			cfg := Config{fixed: constants{Workers: 1}, Verifier: ruling(func(events []*nostr.Event) []error {
				if together {
					return nil
				}
				return []error{errFault, nil, ErrSignature, errDisk}
			})}
			s := newSayer(t, cfg)
			w := &bench{ingest: s.l.m.ingest}
			w.store.of = &oddStore{err: errFault}
			c := s.conn(t, testURL(t, sayerRelay))
			for range 4 {
				j := &job{key: copyKey{id: w.id()}, size: 10, from: c, stats: c.stats, tokens: []*token{newToken(c.url)}, incoming: graspsync.Incoming{Event: eventtest.Of(&nostr.Event{})}}
				require.NoError(t, w.flights.admit(t.Context(), j))
				j.tokens[0].hold()
				require.True(t, w.flights.enter(j))
				w.toVerify <- j
			}
			ctx, cancel := context.WithCancel(t.Context())
			go w.verification.run(ctx)
			synctest.Wait()
			cancel()
			synctest.Wait()
			if together {
				s.said(t, []string{`level=WARN msg="verifier failed" error="0 verdicts on 4 events"`}, nil)
				require.EqualValues(t, 4, w.report.failed.Load())
			} else {
				s.said(t, []string{
					`level=WARN msg="verifier failed" error="disk on fire"`, `level=WARN msg="verifier failed" error="` + errDisk.Error() + `"`,
				}, nil)
				require.EqualValues(t, 2, w.report.failed.Load())
				require.EqualValues(t, 1, w.report.forged.Load())
			}
			w.drain()
		})
	}
}

// What was held and could not be stored is said of whom it came from.
func TestWhatIsSaidOfWhatWasHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, err := nip34.ParseAnnouncement(eventtest.Of(testAnnouncement(1, 1, "x", 1, "ours")))
		require.NoError(t, err)
		policy := &saidPolicy{announcements: []*nip34.Announcement{a, a}, failAt: 2}
		s := newSayer(t, Config{Policy: policy, Holder: policy})
		s.l.m.followHeld(t.Context())
		s.said(t, []string{`level=WARN msg="held announcements could not be read" error="` + errDisk.Error() + `"`}, nil)
		s.l.m.NotReleased(eventtest.Of(testEvent(1, 1, 1, 1)).ID, graspsync.Outcome{Result: graspsync.Refused, Err: errDisk})
		s.said(t, []string{fmt.Sprintf(`level=WARN msg="an event that was held is refused by the store" event=%s error=%q`, testID(1), errDisk.Error())},
			[]Observation{EventRejected{ID: testID(1), Reason: "released and refused"}})
	})
}
