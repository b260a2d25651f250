package sync

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/eventtest"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/sync/internal/lazy"
	"github.com/graspsync/graspsync/sync/internal/plan"
	"github.com/graspsync/graspsync/sync/internal/session"
)

// nowhere is a Transport that reaches nobody.
type nowhere struct{}

// Dial implements [Transport].
func (nowhere) Dial(context.Context, graspsync.RelayURL) (Conn, error) {
	return nil, errors.New("no network")
}

// Export implements [Transport]: there is nothing to keep.
func (nowhere) Export() [][]byte { return nil }

// Import implements [Transport].
func (nowhere) Import([][]byte) {}

func testURL(t *testing.T, s string) graspsync.RelayURL {
	t.Helper()
	u, err := graspsync.ParseRelayURL(s)
	require.NoError(t, err)
	return u
}

// loopRig is the loop of a manager that does not run.
type loopRig struct {
	*loop
	m *SyncManager
}

// madeLoop is a loop that has begun: what it is told, and does, a test decides. What was
// started ends with the bubble that it is made in.
func madeLoop(t *testing.T, store Store, cfg Config) *loopRig {
	t.Helper()
	identity, err := nip34.ParseIdentity(graspHost)
	require.NoError(t, err)
	m, err := New(store, nowhere{}, identity, cfg)
	require.NoError(t, err)
	m.index.lists = listsByName
	m.loop.begin()
	t.Cleanup(m.wg.Wait)
	return &loopRig{m.loop, m}
}

// words is a log that is read.
type words struct{ strings.Builder }

func (w *words) logger() *slog.Logger { return w.loggerOf(slog.LevelInfo) }

func (w *words) loggerOf(least slog.Level) *slog.Logger {
	return slog.New(slog.NewTextHandler(&w.Builder, &slog.HandlerOptions{Level: least}))
}

func (w *words) count(what string) int { return strings.Count(w.String(), what) }

// A scan that failed is repeated sooner at the start than later, each time after twice as
// long, and from the beginning once one has succeeded.
func TestPauseBetweenScans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &words{}
		boot := testURL(t, "wss://boot.example")
		l := madeLoop(t, &twinStore{}, Config{
			Logger: log.logger(), fixed: constants{DailyMin: time.Hour, DailyMax: time.Hour}, Bootstrap: []graspsync.RelayURL{boot},
		})
		seconds := func(ds ...int) (out []time.Duration) {
			for _, d := range ds {
				out = append(out, time.Duration(d)*time.Second)
			}
			return out
		}
		failures := 0
		fail := func(n int) (pauses []time.Duration) {
			for range n {
				failures++
				l.scanning = true
				l.onScanned(t.Context(), scanned{err: errors.New("disk on fire")})
				require.False(t, l.scanning)
				pauses = append(pauses, time.Until(l.rescanAt))
			}
			require.Equal(t, failures, log.count("reading the store failed"))
			return pauses
		}
		require.Equal(t, seconds(10, 20, 40, 60, 60, 60), fail(6))
		require.False(t, l.started)
		require.Empty(t, l.plan.Status())
		for range 2 {
			l.window = time.After(time.Hour)
			l.scanning = true
			l.onScanned(t.Context(), scanned{})
			require.False(t, l.scanning)
			require.Nil(t, l.window, "what it brought is acted upon at once")
			require.True(t, l.started)
			require.Equal(t, time.Hour, time.Until(l.rescanAt))
			require.Len(t, l.plan.Status(), 1)
			require.True(t, l.plan.Status()[0].Bootstrap)
			require.Equal(t, seconds(10, 20, 40, 80, 160, 320, 640, 1280, 2560, 3600, 3600), fail(11))
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		l.onScanned(ended, scanned{err: context.Canceled})
		require.Equal(t, failures, log.count("reading the store failed"), "nothing is wrong when we end")
	})
}

// The daily scan is at any moment between its bounds, these included.
func TestDailyScanIsBetweenItsBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := madeLoop(t, &twinStore{}, Config{fixed: constants{DailyMin: time.Hour, DailyMax: time.Hour + 2}})
		times := make(map[time.Duration]int)
		for range 300 {
			l.onScanned(t.Context(), scanned{})
			times[time.Until(l.rescanAt)]++
		}
		require.Len(t, times, 3)
		for d := range 3 {
			require.Positive(t, times[time.Hour+time.Duration(d)])
		}
	})
}

// Each end of a scan is told the loop, once, and only one scan is under way at a time.
func TestEachEndOfAScan(t *testing.T) {
	for name, c := range map[string]struct {
		events []*nostr.Event
		change func(l *loopRig, s *twinStore)
		err    string
		ready  bool
		warns  string
		drops  map[string]uint64
	}{
		"nothing is stored": {ready: true},
		"ours":              {events: []*nostr.Event{testAnnouncement(1, 1, "x", 1, "ours")}, ready: true},
		"foreign": {
			events: []*nostr.Event{testAnnouncement(1, 1, "x", 1, "foreign"), testAnnouncement(2, 2, "x", 1, "foreign")}, ready: true,
			warns: "announcements are stored, and none lists us: is this our domain?\" announcements=2",
		},
		"foreign and ours": {
			events: []*nostr.Event{testAnnouncement(1, 1, "x", 1, "foreign"), testAnnouncement(2, 2, "x", 1, "ours")}, ready: true,
		},
		"no announcement": {events: []*nostr.Event{testEvent(1, 1621, 1, 1)}, ready: true},
		"broken":          {change: func(_ *loopRig, s *twinStore) { s.fail = errFault }, err: "disk on fire"},
		"incomplete": {
			change: func(_ *loopRig, s *twinStore) { s.fail = ErrIncomplete }, ready: true,
			warns: "msg=\"not all that is stored could be read", drops: map[string]uint64{"scans": 1},
		},
		"overtaken": {
			events: []*nostr.Event{testAnnouncement(1, 1, "x", 1, "ours"), testAnnouncement(2, 2, "x", 1, "ours")},
			change: func(l *loopRig, s *twinStore) {
				s.during = func() {
					l.m.index.write.Lock()
					defer l.m.index.write.Unlock()
					l.m.index.pending = &snapshot{}
				}
			},
			err: "too much changed",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log, store := &words{}, &twinStore{}
				l := madeLoop(t, store, Config{Logger: log.logger()})
				for _, ev := range c.events {
					require.True(t, store.save(ev))
				}
				if c.change != nil {
					c.change(l, store)
				}
				for again := range 2 {
					l.rescanAt = time.Now()
					l.scan(t.Context())
					require.True(t, l.scanning)
					require.Zero(t, l.rescanAt)
					l.rescanAt = time.Now()
					l.scan(t.Context()) // one is under way
					require.Zero(t, l.rescanAt)
					synctest.Wait()
					var ends []scanned
					authors := 0
					for _, msg := range l.m.inbox.take() {
						switch msg := msg.(type) {
						case scanned:
							ends = append(ends, msg)
						case planInput:
							authors += len(msg.in.(plan.Authors))
						}
					}
					require.Len(t, ends, 1)
					if c.err != "" {
						require.ErrorContains(t, ends[0].err, c.err)
					} else {
						require.NoError(t, ends[0].err)
						require.Len(t, c.events, authors, "each by another author")
					}
					require.Equal(t, c.ready, l.m.readable.is())
					select {
					case <-l.m.Ready():
						require.True(t, c.ready)
					default:
						require.False(t, c.ready)
					}
					if c.warns != "" && (again == 0 || c.drops != nil) {
						require.Equal(t, again+1, log.count(c.warns))
					} else if c.warns == "" {
						require.Zero(t, log.count("WARN"))
					}
					l.scanning = false
				}
				require.LessOrEqual(t, log.count("none lists us"), 1, "said once")
				for reason, n := range c.drops {
					require.Equal(t, 2*n, l.m.report.dropped[reason])
				}
				require.Len(t, l.m.report.dropped, len(c.drops))
			})
		})
	}
}

// Our own relay is nobody to sync from, and plaintext is for those who allow it.
func TestUsableRelays(t *testing.T) {
	for _, plaintext := range []bool{false, true} {
		l := madeLoop(t, &twinStore{}, Config{AllowPlaintext: plaintext, OwnRelay: testURL(t, "wss://internal.example")})
		var urls []graspsync.RelayURL
		for _, s := range []string{
			"wss://a.example", "wss://" + graspHost, "ws://b.example", "wss://internal.example", "ws://c.example", "wss://d.example",
		} {
			urls = append(urls, testURL(t, s))
		}
		want, dropped := []graspsync.RelayURL{urls[0], urls[2], urls[4], urls[5]}, map[string]uint64(nil)
		if !plaintext {
			want, dropped = []graspsync.RelayURL{urls[0], urls[5]}, map[string]uint64{"plaintext": 2}
		}
		l.wants.countDropped(&nip34.Announcement{ID: graspsync.EventID{1}, Relays: urls})
		require.Equal(t, dropped, l.m.report.dropped)
		urls = slices.DeleteFunc(urls, func(u graspsync.RelayURL) bool { return !l.env.targeting.usable(u) })
		require.Equal(t, want, urls)
	}
}

// What an announcement lists beyond what is followed is counted: what we left out, and what
// nobody reads.
func TestWhatAnAnnouncementListsTooMuch(t *testing.T) {
	for listed, dropped := range map[int]map[string]uint64{2: nil, 3: nil, 4: {"relays_listed": 1}, 9: {"relays_listed": 6}} {
		l := madeLoop(t, &twinStore{}, Config{Limits: Limits{MaxRelaysPerRepo: 3}})
		a := &nip34.Announcement{ID: graspsync.EventID{1}, Ref: testRepo(1, "x")}
		for i := range listed {
			a.Relays = append(a.Relays, testURL(t, fmt.Sprintf("wss://r%d.example", i)))
		}
		out := l.wants.changes(indexChange{repos: map[graspsync.RepoRef]*nip34.Announcement{a.Ref: a}})
		require.Len(t, out.Repos, 1)
		require.Equal(t, plan.RepoChange{Ref: a.Ref, Level: plan.LevelFull, Relays: a.Relays[:min(3, listed)]}, out.Repos[0])
		require.Equal(t, dropped, l.m.report.dropped)
	}
	l := madeLoop(t, &twinStore{}, Config{})
	a := &nip34.Announcement{
		ID: graspsync.EventID{1}, Ref: testRepo(1, "x"), DroppedRelays: 2, DroppedClones: 3, DroppedMaintainers: 4,
		UnusableRelays: 5, UnusableClones: 6, UnusableMaintainers: 7,
	}
	l.wants.held[a.Ref] = a
	gone := indexChange{repos: map[graspsync.RepoRef]*nip34.Announcement{a.Ref: nil}}
	require.Equal(t, plan.LevelStateOnly, l.wants.changes(gone).Repos[0].Level)
	require.Equal(t, plan.LevelFull, l.wants.changes(indexChange{repos: map[graspsync.RepoRef]*nip34.Announcement{a.Ref: a}}).Repos[0].Level)
	want := map[string]uint64{
		"relays_listed": 2, "clones_listed": 3, "maintainers_listed": 4,
		"relays_unusable": 5, "clones_unusable": 6, "maintainers_unusable": 7,
	}
	require.Equal(t, want, l.m.report.dropped, "once, though it was held first")
	require.Empty(t, l.wants.held, "it is ours")
	require.Equal(t, []plan.RepoChange{{Ref: a.Ref}}, l.wants.changes(gone).Repos)
	require.Empty(t, l.wants.counted, "it is forgotten with the repository")
}

// When everything is told anew, what the policy holds is, too.
func TestWhatIsHeldIsToldAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &twinStore{}
		l := madeLoop(t, store, Config{})
		l.m.feed.stored(eventtest.Of(testAnnouncement(1, 1, "x", 1, "ours")))
		for _, repo := range []string{"x", "y"} { // of which one is ours by now
			a, err := nip34.ParseAnnouncement(eventtest.Of(testAnnouncement(2, 1, repo, 1, "ours")))
			require.NoError(t, err)
			l.wants.held[a.Ref] = a
		}
		level := func(repo string) plan.Level {
			l.m.feed.tellAll()
			l.closeWindow(t.Context())
			s, _ := l.plan.RepoStatus(testRepo(1, repo))
			return s.Level
		}
		for range 2 {
			require.Equal(t, plan.LevelFull, level("x"))
			require.Equal(t, plan.LevelStateOnly, level("y"))
			require.Len(t, l.wants.held, 1)
		}
		delete(l.wants.held, testRepo(1, "y"))
		require.Equal(t, plan.LevelNone, level("y"))
		require.Equal(t, plan.LevelFull, level("x"))
	})
}

// Everything is planned anew once a minute at most, and only where a bound was reached.
func TestCompleteOnceAMinute(t *testing.T) {
	l := madeLoop(t, &twinStore{}, Config{})
	now := time.Unix(1_800_000_000, 0)
	told := func() bool { return l.m.feed.take().all }
	l.complete(now)
	require.False(t, told(), "nothing is incomplete")
	l.incomplete = true
	l.complete(now)
	require.True(t, told())
	require.False(t, l.incomplete)
	l.complete(now.Add(time.Hour))
	require.False(t, told())
	l.incomplete = true
	l.complete(now.Add(time.Minute - 1))
	require.False(t, told())
	l.complete(now.Add(time.Minute))
	require.True(t, told())
}

// The loop wakes for whatever comes first.
func TestNextWake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := madeLoop(t, &twinStore{}, Config{})
		_, ok := l.nextWake()
		require.False(t, ok)
		soon := time.Now().Add(time.Second)
		l.rescanAt = soon
		at, ok := l.nextWake()
		require.True(t, ok)
		require.Equal(t, soon, at)
		// A relay that can't be reached is tried again in some seconds.
		u := testURL(t, "wss://a.example")
		l.step(t.Context(), plan.Bootstrap{Relay: u})
		synctest.Wait()
		for _, msg := range l.m.inbox.take() {
			l.handle(t.Context(), msg)
		}
		later, ok := l.plan.NextWake()
		require.True(t, ok)
		require.True(t, later.After(soon))
		at, _ = l.nextWake()
		require.Equal(t, soon, at)
		l.rescanAt = later.Add(time.Hour)
		at, _ = l.nextWake()
		require.Equal(t, later, at)
		l.rescanAt = time.Time{}
		at, _ = l.nextWake()
		require.Equal(t, later, at)

		scans := func() bool {
			l.tick(t.Context())
			defer func() { l.scanning = false }()
			return l.scanning
		}
		require.False(t, scans(), "none is due")
		l.rescanAt = time.Now().Add(1)
		require.False(t, scans())
		l.rescanAt = time.Now()
		require.True(t, scans())
		a, b := time.Now(), time.Now().Add(1)
		require.Equal(t, b, latest(a, b))
		require.Equal(t, b, latest(b, a))
	})
}

// refusing is a Transport that gives no connection.
type refusing struct {
	nowhere
	err error
}

// Dial implements [Transport].
func (r refusing) Dial(context.Context, graspsync.RelayURL) (Conn, error) { return nil, r.err }

// A relay that was not dialed is tried again when it is its time, or when the Transport says,
// if that is later.
func TestWhenWhatWasNotDialedIsTriedAgain(t *testing.T) {
	for err, asks := range map[error]time.Duration{
		ErrNotDialed: 0, retryLater(0): 0, retryLater(1): 1, retryLater(time.Hour): time.Hour, retryLater(2 * time.Hour): 2 * time.Hour,
	} {
		synctest.Test(t, func(t *testing.T) {
			l := madeLoop(t, &twinStore{}, Config{})
			l.env.conn.transport = refusing{err: fmt.Errorf("dialing: %w", err)}
			u := testURL(t, "wss://a.example")
			l.step(t.Context(), plan.Bootstrap{Relay: u})
			synctest.Wait()
			for _, msg := range l.m.inbox.take() {
				l.handle(t.Context(), msg)
			}
			require.Empty(t, l.conns)
			require.EqualValues(t, 1, l.m.report.dropped["not_dialed"])
			want := latest(l.env.health.NextAttempt(u), time.Now().Add(asks))
			got := l.plan.Status()[0].RetryAt
			if asks >= time.Hour {
				require.Equal(t, want, got)
			} else { // the plan does not come back at once
				require.False(t, got.Before(want))
				require.Less(t, time.Until(got), 12*time.Minute)
			}
		})
	}
}

// What could not be saved is asked for again with ever longer pauses as long as it fails,
// and with short ones once it has not for a while. Relays that are not connected are asked
// as soon as they are, and those that are forgotten are not.
func TestPausesOfResuming(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := madeLoop(t, &twinStore{}, Config{})
		g := l.m.ingest
		saving := func() bool {
			g.saving.again = true
			l.resumed(t.Context(), time.Now())
			return !g.saving.again
		}
		time.Sleep(24 * time.Hour)
		require.True(t, saving())
		for _, pause := range []time.Duration{1, 2, 4, 8, 16, 32, 60, 60} {
			time.Sleep(pause*time.Minute - 1)
			require.False(t, saving())
			time.Sleep(time.Nanosecond)
			require.True(t, saving(), pause)
		}
		time.Sleep(2 * time.Hour)
		require.True(t, saving())
		require.Equal(t, time.Hour, l.resume.pause)
		time.Sleep(2*time.Hour + 1)
		require.True(t, saving())
		require.Equal(t, time.Minute, l.resume.pause, "it went well for two hours")

		// That nothing can be saved is told the plan once.
		g.saving.nothing = true
		time.Sleep(time.Hour)
		l.resumed(t.Context(), time.Now())
		require.True(t, l.resume.nothing)
		g.saving.nothing = false

		urls := []graspsync.RelayURL{testURL(t, "wss://gone.example"), testURL(t, "wss://down.example"), testURL(t, "wss://dialed.example"), testURL(t, "wss://up.example")}
		for i, u := range urls {
			lazy.Put(&g.saving.missed, u, time.Now())
			if i > 0 {
				l.stats[u] = l.m.remember.stats(u)
			}
			if i > 1 {
				l.conns[u] = newConn(t.Context(), l.env.conn, u, 1, l.stats[u])
				l.conns[u].stands = i > 2
			}
		}
		since := time.Now()
		require.True(t, saving())
		require.False(t, l.resume.nothing)
		require.Equal(t, map[graspsync.RelayURL]time.Time{urls[1]: since, urls[2]: since}, l.resume.missed)
		time.Sleep(time.Hour) // the earliest time counts
		lazy.Put(&g.saving.missed, urls[1], time.Now())
		lazy.Put(&g.saving.missed, urls[2], since.Add(-time.Minute))
		require.True(t, saving())
		require.Equal(t, map[graspsync.RelayURL]time.Time{urls[1]: since, urls[2]: since.Add(-time.Minute)}, l.resume.missed)
		l.conns[urls[2]].stands = true
		delete(l.stats, urls[1])
		time.Sleep(time.Hour)
		l.resumed(t.Context(), time.Now())
		require.Empty(t, l.resume.missed)
	})
}

// What a connection reports counts only as long as it is the one of its relay.
func TestReportsOfOtherConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := madeLoop(t, &twinStore{}, Config{})
		u := testURL(t, "wss://a.example")
		l.stats[u] = l.m.remember.stats(u)
		now, was := newConn(t.Context(), l.env.conn, u, 7, l.stats[u]), newConn(t.Context(), l.env.conn, u, 6, l.stats[u])
		l.conns[u] = now
		l.env.health.Attempt(u)
		before := l.env.health.Status(u)
		for _, msg := range []any{
			connected{conn: was}, dialFailed{conn: was, err: errNoConn}, lost{conn: was, err: errNoConn},
			rateLimited{conn: was, until: time.Now().Add(time.Minute)},
		} {
			l.handle(t.Context(), msg)
			require.Equal(t, before, l.env.health.Status(u), "%T", msg)
			require.Same(t, now, l.conns[u])
		}
		require.Same(t, now, l.conn(u, 7))
		require.Nil(t, l.conn(u, 6))
		require.Nil(t, l.conn(testURL(t, "wss://b.example"), 7))
		l.hangup(u, 6)
		require.Same(t, now, l.conns[u])
		require.NoError(t, now.ctx.Err())
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		for _, msg := range []any{dialFailed{conn: now, err: errNoConn}, lost{conn: now, err: errNoConn}} {
			l.handle(ended, msg)
			require.Equal(t, before, l.env.health.Status(u), "we end: that is not its failure")
		}
		l.hangup(u, 7)
		require.Empty(t, l.conns)
		require.Error(t, now.ctx.Err())
		r, _ := l.env.health.Export(u)
		require.False(t, r.Dialing, "nobody waits for it")
	})
}

// What a batch came to is what its session says, unless events of it could not be saved, or
// nothing could while it was under way.
func TestWhatABatchCameTo(t *testing.T) {
	began := time.Unix(1_800_000_000, 0)
	cursors := make([]plan.Cursor, 1)
	for _, result := range []plan.Result{plan.Complete, plan.Failed} {
		for _, lost := range []bool{false, true} {
			for since, stuck := range map[time.Time]bool{began.Add(-1): false, began: true, began.Add(1): true} {
				for method, reconciled := range map[session.Method]bool{
					0: false, session.Pages: false, session.Negent: true, session.Pages | session.Negent: true,
				} {
					for _, late := range []bool{false, true} {
						l := madeLoop(t, &twinStore{}, Config{})
						u := testURL(t, "wss://a.example")
						c := newConn(t.Context(), l.env.conn, u, 3, l.m.remember.stats(u))
						f := &fetching{batch: plan.Batch{ID: 5}, token: newToken(), since: began}
						f.token.failed.Store(lost)
						l.m.ingest.saving.stuckAt = since
						msg := batchDone{conn: c, fetching: f, done: session.Done{
							Batch: 5, Result: result, Cursors: cursors, Report: session.Report{Method: method, Late: late},
						}}
						want := plan.Done{Relay: u, Epoch: 3, Batch: 5, Result: result, Cursors: cursors, Reconciled: reconciled}
						switch {
						case lost:
							want.Result, want.Cursors, want.Unsaved = plan.Failed, nil, true
						case result == plan.Failed && stuck:
							want.Unsaved = true
						case result == plan.Failed:
							want.Late = late
						}
						require.Equal(t, want, l.cameTo(msg))
						l.handle(t.Context(), msg)
						require.Equal(t, want.Unsaved, l.resume.late)
						l.resume.late = true
						l.handle(t.Context(), batchDone{conn: c, fetching: &fetching{token: newToken()}})
						require.True(t, l.resume.late, "until all was asked for again")
					}
				}
			}
		}
	}
}

// What the loop did between a tick and the status was taken for what the status takes, and the
// next one came twenty times as long after it: it was said half a minute late that all is
// synced.
func TestStatusIsPutOffForItsOwnCostOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := madeLoop(t, &twinStore{}, Config{})
		publish := func() time.Time {
			tick := time.Now()
			time.Sleep(time.Second) // as long as the loop does something else
			l.overview.changed = true
			l.overview.publish(tick, l.plan, true)
			return tick
		}
		publish()
		second := publish()
		require.Equal(t, second, l.env.snapshot.Load().At)
	})
}

// One snapshot that waited for a processor for 60 ms put the next one off by 1.2 s, as if each cost so much.
func TestStatusIsPutOffForWhatItAlwaysCosts(t *testing.T) {
	l := madeLoop(t, &twinStore{}, Config{})
	pause := func(took time.Duration) time.Duration {
		l.overview.paused(took)
		return l.overview.publishPause
	}
	require.Equal(t, statusLeast, pause(60*time.Millisecond))
	require.Equal(t, statusLeast, pause(time.Millisecond))
	require.Equal(t, statusLeast, pause(60*time.Millisecond))
	require.Equal(t, 1200*time.Millisecond, pause(60*time.Millisecond), "with very many relays each does")
}
