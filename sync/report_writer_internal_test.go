package sync

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/eventtest"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/sync/internal/pending"
)

// saidWriter is the pipeline of a manager whose steps a test takes one by one.
type saidWriter struct {
	*heard
	*bench
	l     *loopRig
	asked []askedFor
}

// askedFor is what is to be asked of a relay by its id.
type askedFor struct {
	relay graspsync.RelayURL
	ids   []graspsync.EventID
}

func newSaidWriter(t *testing.T, store Store, policy policyThatHolds) *saidWriter {
	t.Helper()
	s := newSayer(t, Config{})
	w := &saidWriter{heard: s.heard, bench: &bench{ingest: s.l.m.ingest}, l: s.l}
	w.store.of, w.policy.of, w.policy.holder, w.policy.view = store, policy, policy, newWholeIndex(store, listsByName, nip34.Identity{})
	w.bench.refetch.ask = func(relay graspsync.RelayURL, ids []graspsync.EventID) {
		w.asked = append(w.asked, askedFor{relay, append([]graspsync.EventID(nil), ids...)})
	}
	return w
}

// counts returns all that is counted of events.
func (w *saidWriter) counts() map[string]uint64 {
	c := w.report
	out := map[string]uint64{
		"received": c.received.Load(), "duplicates": c.duplicates.Load(), "verified": c.verified.Load(),
		"failed": c.failed.Load(), "held": c.held.Load(), "forged": c.forged.Load(),
	}
	var s EventStatus
	c.reasons(&s)
	for what, m := range map[string]map[string]uint64{
		"rejected ": s.Rejected, "dropped ": s.Dropped, "panics ": s.Panics, "source ": c.bySource(),
	} {
		for k, n := range m {
			out[what+k] = n
		}
	}
	for r := graspsync.Stored; r <= graspsync.Failed; r++ {
		out["result "+r.String()] = c.results[r].Load()
	}
	for k, n := range out {
		if n == 0 {
			delete(out, k)
		}
	}
	return out
}

// That events can't be saved is said at once and then once a minute at most, with how many did
// since; that they can be again if it was said, once. Nothing is counted twice.
func TestTroubleAgainstItsTwin(t *testing.T) {
	seen := make(map[string]int)
	for seed := range uint64(60) {
		synctest.Test(t, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 9)) //nolint:gosec // the same each time
			w := newSaidWriter(t, &oddStore{}, &saidPolicy{})
			relay := testURL(t, "wss://a.example")
			var failures, unsaid, unsaved int
			var saidAt time.Time
			down, said := false, false
			for range 60 {
				time.Sleep([]time.Duration{0, time.Second, time.Minute - 1, time.Minute}[rnd.IntN(4)])
				now := time.Now()
				var lines []string
				var told []Observation
				switch rnd.IntN(5) {
				case 0:
					w.waiting(t, relay, 100)
					unsaved++
				case 1:
					_, ok := w.retrier.retries.owe(&job{key: copyKey{id: w.id()}}, now)
					require.True(t, ok)
					unsaved++
				case 2, 3:
					err := fmt.Errorf("fault %d", failures)
					failures++
					unsaid++
					down = true
					if saidAt.IsZero() || now.Sub(saidAt) >= time.Minute {
						lines = append(lines, fmt.Sprintf(
							`level=WARN msg="events could not be saved, and are tried again" failures=%d unsaved=%d error="%v"`, unsaid, unsaved+1, err))
						told = append(told, StoreFailed{Err: err})
						saidAt, unsaid, said = now, 0, true
						seen["said"]++
					}
					w.retrier.troubled(err)
				default:
					w.saving.nothing, w.saving.again = true, false
					for _, o := range w.retrier.retries.owed {
						o.at, o.tries = now.Add(time.Hour), 5
					}
					w.retrier.savedAgain()
					require.Equal(t, down, w.saving.again)
					require.Equal(t, !down, w.saving.nothing)
					for _, o := range w.retrier.retries.owed {
						require.Equal(t, down, o.at.Equal(now), "it is asked for soon")
					}
					if down && said {
						lines = append(lines, fmt.Sprintf(`level=INFO msg="events can be saved again" unsaved=%d`, unsaved))
						said = false
						seen["again"]++
					}
					down = false
				}
				w.said(t, lines, told)
				require.EqualValues(t, failures, w.retrier.trouble.failures)
			}
			w.retrier.giveUp(w.retrier.retries.all())
		})
	}
	require.Greater(t, seen["said"], 200)
	require.Greater(t, seen["again"], 100)
}

// Whatever the Policy says of an event, and however it came to be judged: that is what becomes
// of it, it is told and counted once, and nothing of it is left where it was.
func TestWhatBecomesOfWhatIsJudged(t *testing.T) {
	deps := []graspsync.Dependency{graspsync.OnEvent(testID(9))}
	for name, c := range map[string]struct {
		policy  saidPolicy
		tags    func() nostr.Tags
		ahead   bool
		nowhere bool   // there is no Holder
		came    string // to: accepted, held, waits, rejected, later, failed
		reason  string
	}{
		"accepted": {policy: saidPolicy{verdict: graspsync.Verdict{Decision: graspsync.Accept}}, came: "accepted"},
		"expired": {
			policy: saidPolicy{verdict: graspsync.Verdict{Decision: graspsync.Accept}}, came: "rejected", reason: reasonExpired,
			tags: func() nostr.Tags { return nostr.Tags{{"expiration", fmt.Sprint(int64(nostr.Now()))}} },
		},
		"not expired": {
			policy: saidPolicy{verdict: graspsync.Verdict{Decision: graspsync.Accept}}, came: "accepted",
			tags: func() nostr.Tags { return nostr.Tags{{"expiration", fmt.Sprint(int64(nostr.Now()) + 1)}} },
		},
		"ahead": {policy: saidPolicy{verdict: graspsync.Verdict{Decision: graspsync.Accept}}, ahead: true, came: "later", reason: reasonFuture},
		"held":  {policy: saidPolicy{verdict: graspsync.Verdict{Decision: graspsync.Hold}}, came: "held"},
		"held nowhere": {
			policy: saidPolicy{verdict: graspsync.Verdict{Decision: graspsync.Hold}}, nowhere: true, came: "failed", reason: errHolder.Error(),
		},
		"depends":          {policy: saidPolicy{verdict: graspsync.Verdict{Decision: graspsync.Depend, DependsOn: deps}}, came: "waits"},
		"depends on none":  {policy: saidPolicy{verdict: graspsync.Verdict{Decision: graspsync.Depend}}, came: "failed", reason: errVerdict.Error()},
		"rejected":         {policy: saidPolicy{verdict: reject("blocked: x")}, came: "rejected", reason: "blocked: x"},
		"rejected, waits":  {policy: saidPolicy{verdict: graspsync.Verdict{Decision: graspsync.Reject, Reason: "r", DependsOn: deps}}, came: "rejected", reason: "r"},
		"later":            {policy: saidPolicy{verdict: graspsync.Verdict{Decision: graspsync.Later, Reason: "full"}}, came: "later", reason: "full"},
		"no verdict":       {policy: saidPolicy{verdict: graspsync.Verdict{Decision: 99}}, came: "failed", reason: errVerdict.Error()},
		"failed":           {policy: saidPolicy{err: errDisk}, came: "failed", reason: errDisk.Error()},
		"failed, rejected": {policy: saidPolicy{err: errDisk, verdict: reject("x")}, came: "failed", reason: errDisk.Error()},
		"panicked":         {policy: saidPolicy{panics: true}, came: "failed", reason: "policy panicked: no policy"},
	} {
		for _, how := range []string{"came", "waited", "again"} {
			for _, kind := range []graspsync.SourceKind{graspsync.Live, graspsync.CatchUp} {
				t.Run(fmt.Sprint(name, " ", how, " ", kind), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						time.Sleep(24 * time.Hour) // so that nothing is at zero
						w := newSaidWriter(t, &twinStore{}, &c.policy)
						if c.nowhere {
							w.policy.holder = nil
						}
						relay := testURL(t, "wss://a.example")
						stats := w.l.m.remember.stats(relay)
						ev := testAnnouncement(1, 1, "x", nostr.Now(), "ours")
						if c.tags != nil {
							ev.Tags = append(ev.Tags, c.tags()...)
						}
						if c.ahead {
							ev.CreatedAt += 901
						}
						j := w.waiting(t, relay, 10_000, func(j *job) { j.revived, j.tries = how != "came", 0 })
						w.flights.failing(w.retrier.retries.all(), false)
						tok := j.tokens[0]
						delete(w.flights.inFlight, j.key)
						delete(w.flights.coming, j.key.id)
						j.key.id = testID(1)
						j.incoming = graspsync.Incoming{Event: eventtest.Of(ev), Source: graspsync.Source{Kind: kind, Relay: relay}}
						j.stats = stats
						if how == "came" {
							j.release()
							require.NoError(t, w.flights.admit(t.Context(), j))
							w.flights.unsettled.Add(-1)
							require.True(t, w.flights.enter(j))
						}
						if j.again = how == "again"; j.again {
							w.absences.rejected.Add(pending.Note{Incoming: j.incoming, ID: j.key.id, Size: j.size, Later: true})
						}

						accepted, woken := w.writer.judge(t.Context(), []*job{j})

						require.Empty(t, woken)
						require.Equal(t, c.came == "accepted", len(accepted) == 1)
						var lines []string
						var told []Observation
						counts := map[string]uint64{}
						kept := how == "again" && c.came == "later"
						switch {
						case c.came == "failed":
							err := fmt.Sprintf("judging event %s: %s", testID(1), c.reason)
							lines = []string{fmt.Sprintf(`level=WARN msg="events could not be saved, and are tried again" failures=1 unsaved=1 error=%q`, err)}
							counts["failed"] = 1
							if c.policy.panics {
								counts["panics policy"] = 1
							}
							o := w.told()
							require.Len(t, o, 1)
							require.EqualError(t, o[0].(StoreFailed).Err, err)
							require.Equal(t, errors.Is(c.policy.err, errDisk), errors.Is(o[0].(StoreFailed).Err, errDisk))
						case c.reason != "" && !kept:
							told = []Observation{EventRejected{ID: testID(1), Source: j.incoming.Source, Reason: c.reason}}
							counts["rejected "+c.reason] = 1
							lines = []string{rejectedLine(j, c.reason)}
						case c.came == "held":
							counts["held"] = 1
							lines = []string{lineOf(j, "event held", "by", "the policy")}
						case c.came == "waits":
							lines = []string{lineOf(j, "event waits", "for", deps[0].String())}
						}
						w.said(t, lines, told)
						require.Equal(t, counts, w.counts())
						require.Equal(t, c.came == "held", w.absences.known.Has(testID(1)))
						require.Equal(t, c.came == "held", w.holds.has(testID(1)))
						require.Len(t, w.feed.take().held, map[bool]int{true: 1}[c.came == "held"], "its states are followed")
						e, remembered := w.absences.rejected.Look(testID(1))
						switch c.came {
						case "waits", "rejected", "later":
							require.True(t, remembered)
							require.Equal(t, len(c.policy.verdict.DependsOn), e.Awaits)
							require.Equal(t, c.came == "waits" || c.came == "later" || e.Awaits > 0, e.Whole != nil)
							if e.Whole != nil {
								in := map[string]bool{"waits": e.Waits, "rejected": e.Fresh, "later": e.Later}
								require.True(t, in[c.came])
							}
						case "held":
							require.False(t, remembered)
						case "failed":
							require.Nil(t, e.Whole, "it is tried again, not judged as it was kept")
						}
						require.Equal(t, c.came == "held", j.useful)
						if c.came == "later" && !kept {
							require.True(t, w.later.any)
						}
						if c.came == "accepted" || c.came == "failed" {
							if c.came == "failed" {
								require.Equal(t, []*job{j}, w.retrier.retries.jobs)
								require.False(t, j.again, "what is remembered of it is that it is judged")
								require.Equal(t, how == "again", e.Wanted)
							}
							return
						}
						require.Empty(t, w.retrier.retries.jobs)
						require.Empty(t, w.flights.inFlight)
						require.Empty(t, w.asked)
						if how == "came" {
							require.EqualValues(t, 1, tok.open.Load())
						}
						require.False(t, tok.failed.Load())
						w.leftOver(t)
					})
				})
			}
		}
	}
}

// What the Store has done with an event is told as it came, whoever brought it.
func TestWhatIsToldOfWhatIsStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		relay := testURL(t, "wss://a.example")
		ev := testEvent(1, 1621, 1, 1)
		for _, kind := range []graspsync.SourceKind{graspsync.Live, graspsync.CatchUp, graspsync.Daily} {
			for _, gap := range []bool{false, true} {
				for _, from := range []bool{false, true} {
					w := newSaidWriter(t, &twinStore{}, &saidPolicy{})
					c := (&sayer{w.heard, w.l}).conn(t, relay)
					j := &job{key: copyKey{id: testID(1)}, gap: gap, size: 5, stats: c.stats}
					j.incoming = graspsync.Incoming{Event: eventtest.Of(ev), Source: graspsync.Source{Kind: kind, Relay: relay}}
					if from {
						j.from = c
					}
					w.writer.brought(j)
					told := []Observation{EventStored(j.incoming)}
					lines := []string{fmt.Sprintf("level=DEBUG msg=\"event stored\" event=%s kind=1621 source=%s relay=wss://a.example", ev.ID, kind)}
					if gap && from {
						told = append(told, GapFound{Relay: relay, ID: testID(1), Lasting: kind == graspsync.Daily})
						line := "level=INFO msg=\"catch-up"
						if kind == graspsync.Daily {
							line = "level=ERROR msg=\"daily pass"
						}
						lines = append(lines, line+" found an event that was missed\" relay=wss://a.example event="+ev.ID)
					}
					w.said(t, lines, told)
					require.EqualValues(t, 1, c.stats.stored.Load())
					j.stats = nil
					w.writer.brought(j)
					require.EqualValues(t, 1, c.stats.stored.Load())
				}
			}
		}
	})
}

// What is stored without the writer is counted once: as submitted, or as what it was when it
// came and was held; what the writer has dealt with it has counted.
func TestCountOfWhatTheWriterDidNotStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		relay := testURL(t, "wss://a.example")
		ev := testEvent(1, 1621, 1, 1)
		for _, kind := range []graspsync.SourceKind{graspsync.Direct, graspsync.Live, graspsync.CatchUp, graspsync.Daily} {
			for _, held := range []string{"", "here", "before", "user"} {
				for _, met := range []string{"", "known", "rejected", "coming"} {
					w := newSaidWriter(t, &twinStore{}, &saidPolicy{held: held == "before" || held == "user", byUser: held == "user"})
					stats := w.l.m.remember.stats(relay)
					if held == "here" {
						w.holds.add(testID(1), heldEvent{source: graspsync.Source{Kind: kind, Relay: relay}, size: 5, stats: stats})
					}
					switch met {
					case "known":
						w.absences.known.Add(testID(1))
					case "rejected":
						w.absences.note(pending.Note{Incoming: graspsync.Incoming{Event: eventtest.Of(ev)}, ID: testID(1)})
					case "coming":
						w.flights.coming[testID(1)] = 1
					}
					w.count(eventtest.Of(ev))
					require.False(t, w.holds.has(testID(1)))
					src := graspsync.Source{}
					switch held {
					case "here":
						src = graspsync.Source{Kind: kind, Relay: relay}
					case "before":
						src.Kind = graspsync.CatchUp
					}
					counts := map[string]uint64{"source " + src.Kind.String(): 1}
					var told []Observation
					if src.Kind != graspsync.Direct {
						counts["result "+graspsync.Stored.String()] = 1
						told = []Observation{EventStored{Event: eventtest.Of(ev), Source: src}}
					}
					lines := []string{fmt.Sprintf("level=DEBUG msg=\"event stored\" event=%s kind=%d source=%s relay=%s",
						testID(1), ev.Kind, src.Kind, cmp.Or(src.Relay.String(), `""`))}
					if held != "here" && met != "" {
						counts, told, lines = map[string]uint64{}, nil, nil
					}
					w.said(t, lines, told)
					require.Equal(t, counts, w.counts(), "%s %s %s", kind, held, met)
					require.Equal(t, held == "here" && kind != graspsync.Direct, stats.stored.Load() == 1)
				}
			}
		}
	})
}

// What is let go of unsaved is asked for again: by its id, or with all that its relay has.
func TestWhatIsLetGoOfUnsaved(t *testing.T) {
	for _, kind := range []graspsync.SourceKind{graspsync.Live, graspsync.CatchUp, graspsync.Daily} {
		for _, apart := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				w := newSaidWriter(t, &twinStore{}, &saidPolicy{})
				relay := testURL(t, "wss://a.example")
				j := w.waiting(t, relay, 100, func(j *job) {
					j.apart = apart
					j.incoming.Source.Kind = kind
				})
				since := j.since
				time.Sleep(time.Hour)
				w.flights.failing(w.retrier.retries.all(), false)
				w.absences.known.Add(j.key.id)
				w.absences.note(pending.Note{Incoming: j.incoming, ID: j.key.id})
				w.told()
				w.retrier.drop(j)
				w.said(t, nil, []Observation{Dropped{Reason: "unsaved", Count: 1}})
				require.Equal(t, map[string]uint64{"dropped unsaved": 1}, w.counts())
				require.False(t, w.absences.dealtWith(j.key.id))
				var asked []askedFor
				if kind == graspsync.Live {
					asked = []askedFor{{relay, []graspsync.EventID{j.key.id}}}
				}
				require.Equal(t, asked, w.asked)
				require.True(t, j.tokens[0].failed.Load(), "its batch is repeated")
				require.EqualValues(t, 1, j.tokens[0].open.Load())
				require.Equal(t, map[graspsync.RelayURL]time.Time{relay: since}, w.saving.missed)
				require.Len(t, w.flights.waits, 1, "what the relay has counts as incomplete")
				w.leftOver(t)
				for _, at := range []time.Time{since.Add(time.Second), since.Add(-time.Second)} {
					w.retrier.miss(relay, at)
					require.Equal(t, map[bool]time.Time{true: since.Add(-time.Second), false: since}[at.Before(since)], w.saving.missed[relay])
				}
			})
		}
	}
}

// What relays are asked for again is what the Store does not have, or all if it can't tell; what
// is here is not wanted any more.
func TestAskedForUnlessItIsHere(t *testing.T) {
	for _, fails := range []bool{false, true} {
		for here := range 8 {
			synctest.Test(t, func(t *testing.T) {
				store := &listedStore{stored: make(map[graspsync.EventID]bool)}
				if fails {
					store.fails = 1
				}
				w := newSaidWriter(t, store, &saidPolicy{})
				relay := testURL(t, "wss://a.example")
				var ids, want []graspsync.EventID
				for n := range 3 {
					id := w.id()
					ids = append(ids, id)
					if store.stored[id] = here>>n&1 == 1; !store.stored[id] || fails {
						want = append(want, id)
					}
					_, ok := w.retrier.retries.owe(&job{key: copyKey{id: id}}, time.Now())
					require.True(t, ok)
					w.absences.note(pending.Note{Incoming: graspsync.Incoming{Event: eventtest.Of(testEvent(n, 1, 1, 1))}, ID: id})
				}
				w.retrier.owed.Store(3)
				w.retrier.askAgain(t.Context(), relay, append([]graspsync.EventID(nil), ids...))
				var asked []askedFor
				if len(want) > 0 {
					asked = []askedFor{{relay, want}}
				}
				require.Equal(t, asked, w.asked)
				require.EqualValues(t, len(want), w.retrier.owed.Load())
				for _, id := range ids {
					wanted := fails || !store.stored[id]
					require.Equal(t, wanted, w.retrier.retries.isOwed(id))
					require.Equal(t, wanted, w.absences.rejected.Has(id))
				}
				w.said(t, nil, nil)
			})
		}
	}
}

// An announcement that gave way to others is judged again, as what it was.
func TestWhatGaveWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		relay := testURL(t, "wss://a.example")
		ev := testAnnouncement(1, 1, "x", 1, "ours")
		a, err := nip34.ParseAnnouncement(eventtest.Of(ev))
		require.NoError(t, err)
		for _, known := range []bool{false, true} {
			for _, size := range []int64{0, 700, 1 << 40} {
				w := newSaidWriter(t, &twinStore{}, &saidPolicy{})
				stats := w.l.m.remember.stats(relay)
				src := graspsync.Source{Kind: graspsync.CatchUp}
				wantSize, wantStats := held(eventtest.Of(ev), len(ev.String())), (*relayStats)(nil)
				if known {
					src, wantStats = graspsync.Source{Kind: graspsync.Daily, Relay: relay}, stats
					w.holds.add(testID(1), heldEvent{source: src, size: size, stats: stats, tries: 2})
					if size > 0 {
						wantSize = min(size, w.writer.cfg.Limits.InFlight)
					}
				}
				w.feed.hold(a)
				w.feed.take()
				w.absences.known.Add(testID(1))
				w.l.m.Postponed(eventtest.Of(ev))
				require.False(t, w.holds.has(testID(1)))
				require.False(t, w.absences.known.Has(testID(1)))
				e, remembered := w.absences.rejected.Look(testID(1))
				require.True(t, remembered)
				if wantSize > w.writer.cfg.fixed.WaitingBytes/4 { // there is no room to keep it whole
					require.Nil(t, e.Whole)
				} else {
					kept := e.Whole
					require.Equal(t, graspsync.Incoming{Event: eventtest.Of(ev), Source: src}, kept.Incoming)
					require.Equal(t, wantSize, kept.Size)
					require.Same(t, wantStats, kept.Payer)
				}
				require.Equal(t, map[bool]int{true: 3, false: 1}[known], e.Tries)
				require.True(t, w.later.more.Load())
				require.Len(t, w.news.wake, 1, "the writer is told")
				require.Len(t, w.feed.take().unheld, 1)
			}
		}
	})
}

// rejectedLine is what is logged of an event that is rejected.
func rejectedLine(j *job, reason string) string { return lineOf(j, "event rejected", "reason", reason) }

// lineOf is what is logged of an event that is not stored, or not now.
func lineOf(j *job, msg, why, what string) string {
	in := j.incoming
	return fmt.Sprintf("level=DEBUG msg=%q event=%s kind=%d source=%s relay=%s %s=%s",
		msg, in.Event.ID, in.Event.Kind, in.Source.Kind, logText(in.Source.Relay.String()), why, logText(what))
}

// logText is how log/slog writes a string.
func logText(s string) string {
	if s == "" || strings.ContainsAny(s, " =\"") {
		return strconv.Quote(s)
	}
	return s
}
