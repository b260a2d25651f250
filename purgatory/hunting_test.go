package purgatory_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/racetest"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/purgatory/fetchtest"
	"github.com/graspsync/graspsync/state"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// mortal is a store whose process can be killed. Later writes are lost.
type mortal struct {
	state.Store
	dead   atomic.Bool
	writes atomic.Int64
	slow   time.Duration // duration of each write
}

var errMortal = errors.New("the process is dead")

func (m *mortal) Put(ctx context.Context, records ...state.Record) error {
	if m.dead.Load() {
		return errMortal
	}
	m.writes.Add(1)
	time.Sleep(m.slow)
	return m.Store.Put(ctx, records...)
}

func (m *mortal) Delete(ctx context.Context, keys ...string) error {
	if m.dead.Load() {
		return errMortal
	}
	return m.Store.Delete(ctx, keys...)
}

// kill ends the process at any instruction, and starts another one.
func (w *world) kill() {
	m, ok := w.state.(*mortal)
	require.True(w.t, ok)
	m.dead.Store(true)
	w.stop()
	w.state = &mortal{Store: m.Store}
	w.start()
}

// calls returns the number of requests to each host.
func (w *world) calls() map[string]int {
	out := make(map[string]int)
	for _, c := range w.git.Calls() {
		out[c.URL.HostPort().Host]++
	}
	return out
}

// fetched runs a world of useless servers for total. The process is killed kills times, or never.
func fetched(t *testing.T, cfg purgatory.Config, kills int, every time.Duration, total time.Duration, servers map[string]fetchtest.Server) (calls map[string]int) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, cfg)
		w.state = &mortal{Store: w.state}
		w.start()
		var names []string
		for name, s := range servers {
			names = append(names, name+"/r.git")
			w.git.Serve(clone(name+"/r.git"), s)
		}
		w.relay.put(announce(alice, now()-500, names...))
		w.held(says(alice, now(), "main", 1))
		w.held(bob.Event(now(), graspsync.KindPullRequest, "", nostrTag{"a", repoOf(alice).String()},
			nostrTag{"c", object(9).String()}, nostrTag{"clone", "https://stranger.example/r.git"}))
		w.git.Serve(clone("stranger.example/r.git"), fetchtest.Server{Err: errors.New("busy")})
		began := time.Now()
		for range kills {
			wait(every)
			w.kill()
		}
		wait(total - time.Since(began))
		calls = w.calls()
		w.stop()
	})
	return calls
}

// A crash loop does not repeat requests to useless servers, and does not exceed the bytes of a day.
func TestPromiseP15_CrashLoop(t *testing.T) {
	servers := map[string]fetchtest.Server{
		"lacking.example": {}, "busy.example": {Err: errors.New("busy")}, "slow.example": {Err: errors.New("cut off"), Delay: 10 * time.Second},
		"broken.example":  {Err: purgatory.ErrServerUnusable},
		"endless.example": {Err: fmt.Errorf("%w: bytes", purgatory.ErrLimit), Bytes: 100},
	}
	cfg := purgatory.Config{Times: purgatory.Times{Hold: 3 * time.Hour}}
	for _, every := range []time.Duration{700 * time.Millisecond, 5 * time.Second, 47 * time.Second, 4 * time.Minute} {
		t.Run(every.String(), func(t *testing.T) {
			total := max(30*time.Minute, 21*every)
			base := fetched(t, cfg, 0, 0, total, servers)
			got := fetched(t, cfg, 20, every, total, servers)
			for host, n := range base {
				// An attempt that a crash cuts short is over sooner, so that one more may fit in.
				// Data of the last second before a crash is not recorded. Random times limit that
				// to few of the twenty starts.
				require.LessOrEqual(t, got[host], n+5, "%s; without crashes %v, with them %v", host, base, got)
				require.Positive(t, got[host], host)
			}
		})
	}
}

// A fetch that a crash cuts short counts with its maximum, so that a server whose data crashes us
// cannot repeat that forever.
func TestPromiseP17_CrashLoop(t *testing.T) {
	servers := map[string]fetchtest.Server{"big.example": {Err: errors.New("cut off"), Bytes: 3000, Delay: time.Minute}}
	most := purgatory.Fixed{MaxFetch: 3000}
	for name, cfg := range map[string]purgatory.Config{
		"of a repository": {Limits: purgatory.Limits{MaxRepoDay: 10_000}, Times: purgatory.Times{Hold: 20 * time.Hour}},
		"of a server":     {Limits: purgatory.Limits{MaxHostDay: 10_000}, Times: purgatory.Times{Hold: 20 * time.Hour}},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, 4, fetched(t, cfg.With(most), 0, 0, 10*time.Hour, servers)["big.example"])
			for _, every := range []time.Duration{150 * time.Second, 31 * time.Second} {
				require.LessOrEqual(t, fetched(t, cfg.With(most), 20, every, 10*time.Hour, servers)["big.example"], 4)
			}
		})
	}
}

// P17: the daily bytes of one server are bounded for all repositories together, and the server is
// asked again a day later.
func TestPromiseP17_BytesOfAServer(t *testing.T) {
	run(t, purgatory.Config{Limits: purgatory.Limits{MaxHostDay: 1000}, Times: purgatory.Times{Backoff: time.Minute, Hold: 50 * time.Hour}}, func(t *testing.T, w *world) {
		for i, k := range []*relaytest.Key{alice, bob, carol, dave} {
			u := fmt.Sprintf("a.example/%d.git", i)
			w.git.Serve(clone(u), fetchtest.Server{Err: errors.New("junk"), Bytes: 400, Delay: time.Second})
			w.relay.put(announce(k, now()-500, u))
			w.held(says(k, now(), "main", i))
			wait(10 * time.Second)
		}
		wait(20 * time.Hour)
		require.Equal(t, 3, w.calls()["a.example"])
		require.Positive(t, w.p.Status().Dropped["host_day"])
		wait(5 * time.Hour)
		require.Greater(t, w.calls()["a.example"], 3)
	})
}

// A restart does not reset the limit of requests per minute.
func TestPromiseP15_WindowOverRestarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, purgatory.Config{Limits: purgatory.Limits{DomainLimit: purgatory.Limit{Concurrent: 2, PerMinute: 3}}})
		w.state = &mortal{Store: w.state}
		w.start()
		for i := range 10 {
			k := relaytest.NewKey(fmt.Sprint("k", i))
			u := fmt.Sprintf("a.example/%d.git", i)
			w.git.Serve(clone(u), fetchtest.Server{Err: errors.New("busy")})
			w.relay.put(announce(k, now()-500, u))
			w.held(says(k, now(), "main", i))
		}
		for range 20 {
			wait(11 * time.Second)
			w.kill()
		}
		wait(2 * time.Minute)
		calls := w.git.Calls()
		require.Greater(t, len(calls), 9)
		for i := range len(calls) - 3 {
			require.GreaterOrEqual(t, calls[i+3].At.Sub(calls[i].At), time.Minute-time.Second)
		}
		w.stop()
	})
}

// A request that cannot be recorded on the disk is not sent, because the next process would repeat
// it.
func TestPromiseP15_NotWithoutTheDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, purgatory.Config{})
		m := &mortal{Store: w.state}
		w.state = m
		w.start()
		w.git.Serve(clone("a.example/r.git"), serving(1))
		w.relay.put(announce(alice, now()-500, "a.example/r.git"))
		s := says(alice, now(), "main", 1)
		w.held(s)
		m.dead.Store(true)
		wait(time.Minute)
		require.Empty(t, w.git.Calls())
		require.Positive(t, w.p.Status().Dropped["unsaved"])
		m.dead.Store(false)
		wait(3 * time.Minute)
		require.True(t, w.relay.has(s))
		w.stop()
	})
}

// Purgatory opens with any records on the disk. Times in the future do not delay requests beyond
// the maximum.
func TestKeptIsDistrusted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, purgatory.Config{Times: purgatory.Times{
			Hold: 40 * time.Hour,
		}}.With(purgatory.Fixed{SyncDelay: time.Second}))
		put := func(key, value string) {
			err := w.state.Put(t.Context(), state.Record{Key: key, Value: []byte(value)})
			require.NoError(t, err)
		}
		hashed := func(text string) string {
			sum := sha256.Sum256([]byte(text))
			return hex.EncodeToString(sum[:16])
		}
		named := func(name, fields string) {
			put("purgatory/fetches/"+hashed(name), `{"name":"`+name+`"`+fields+`}`)
		}
		for i, bad := range []string{``, `{`, `[]`, `{"name":"a.example:443"}`} {
			put(fmt.Sprintf("purgatory/fetches/%d", i), bad)
		}
		for _, bad := range []string{"http://x", "A.example:443", "a.example", "x"} {
			named(bad, "")
		}
		named(repoOf(bob).String(), `,"lacks":7`)
		const future = `"2300-01-01T00:00:00Z"`
		named("old.example:443", `,"last":"2000-01-01T00:00:00Z","lacks":null`)
		named("a.example:443", `,"last":`+future+`,"recent":1000000000,"pause":{"Times":-5,"Until":`+future+`},"bytes":{"Since":`+future+`,"Units":9000000000000000000}`)
		named(repoOf(alice).String(), `,"pause":{"Times":1000000000,"Until":`+future+`},"futile":{"Times":1000000000,"Until":`+future+`},
			"bytes":{"Since":`+future+`,"Units":9000000000000000000},"lacks":{"`+hashed("https://a.example/r.git")+`":{"Until":`+future+`}}`)
		w.start()
		require.EqualValues(t, 9, w.p.Status().Unreadable)
		w.git.Serve(clone("a.example/r.git"), serving(1))
		w.relay.put(announce(alice, now()-500, "a.example/r.git"))
		s := says(alice, now(), "main", 1)
		w.held(s)
		wait(23 * time.Hour)
		require.False(t, w.relay.has(s))
		wait(2 * time.Hour)
		require.True(t, w.relay.has(s), "a day later")
		w.stop()
	})
}

// lines is a slog.Handler that stores lines.
type lines struct {
	slog.Handler
	mu  sync.Mutex
	all []logLine
}

type logLine struct {
	at    time.Time
	msg   string
	attrs map[string]string
}

func (l *lines) Enabled(context.Context, slog.Level) bool { return true }

func (l *lines) Handle(_ context.Context, r slog.Record) error {
	line := logLine{at: time.Now(), msg: r.Message, attrs: make(map[string]string)}
	r.Attrs(func(a slog.Attr) bool {
		line.attrs[a.Key] = a.Value.String()
		return true
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, line)
	return nil
}

// P11: texts of git servers are quoted, cut, and logged at most once a minute per host.
func TestPromiseP11_RemoteText(t *testing.T) {
	racetest.Amounts(t)
	log := &lines{Handler: slog.DiscardHandler}
	evil := "\x1b[31mred\nlevel=ERROR msg=forged \u202etxt.exe " + strings.Repeat("\x01", 500) + strings.Repeat("x", 5000)
	limit := purgatory.Limit{Concurrent: 100, PerMinute: 1000}
	run(t, purgatory.Config{Logger: slog.New(log), Limits: purgatory.Limits{DomainLimit: limit}}, func(t *testing.T, w *world) {
		for i := range 40 { // two hosts, many ports and repositories
			u := fmt.Sprintf("%s.example:%d/%s.git", []string{"a", "b"}[i%2], 8000+i, strings.Repeat("y", 500))
			w.git.Serve(clone(u), fetchtest.Server{Err: errors.New(evil)})
			k := relaytest.NewKey(fmt.Sprint("k", i))
			w.relay.put(announce(k, now()-500, u))
			w.held(says(k, now(), "main", i))
			wait(7 * time.Second)
		}
		wait(20 * time.Minute)
		require.Greater(t, len(w.git.Calls()), 200)
	})
	last, failed := make(map[string]time.Time), 0
	for _, l := range log.all {
		for key, text := range l.attrs {
			require.LessOrEqual(t, len(text), 300, "%s: %s", l.msg, key)
			for _, r := range text {
				require.False(t, r < ' ' || r > '~', "%s: %q", l.msg, text)
			}
		}
		if strings.Contains(l.attrs["error"], "red") {
			failed++
			host := strings.SplitN(strings.TrimPrefix(l.attrs["url"], "https://"), ":", 2)[0]
			require.Contains(t, []string{"a.example", "b.example"}, host)
			if at, ok := last[host]; ok {
				require.GreaterOrEqual(t, l.at.Sub(at), time.Minute)
			}
			last[host] = l.at
		}
	}
	require.Greater(t, failed, 20)
	require.Len(t, last, 2)
}
