package gitserve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http/httptest"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
)

// What a configuration comes to: how many places there are of each kind, how many of them one
// client may have, and what all of a kind may keep.
func TestWhatAConfigurationComesTo(t *testing.T) {
	type figures struct {
		pushes, fetches, asks, staging [3]int // places, how many are loose, and those of a client
		kept                           [2]int64
	}
	for _, c := range []struct {
		pushes, fetches int
		want            figures
	}{
		{1, 1, figures{[3]int{1, 0, 1}, [3]int{1, 0, 1}, [3]int{1, 0, 1}, [3]int{1, 0, 1}, [2]int64{1600, 900}}},
		{3, 4, figures{[3]int{3, 0, 1}, [3]int{4, 0, 1}, [3]int{2, 0, 1}, [3]int{3, 0, 1}, [2]int64{1600, 900}}},
		{8, 7, figures{[3]int{8, 0, 2}, [3]int{7, 0, 2}, [3]int{4, 0, 1}, [3]int{4, 0, 1}, [2]int64{1600, 900}}},
		{20, 32, figures{[3]int{20, 0, 5}, [3]int{32, 0, 8}, [3]int{8, 0, 2}, [3]int{5, 0, 1}, [2]int64{1600, 900}}},
	} {
		h, err := New(newRepositories(t), &authority{}, Config{
			MaxPushes: c.pushes, MaxFetches: c.fetches, MaxPush: 100, fixed: numbers{
				MaxAsk:       100,
				MaxReaders:   9,
				MinRate:      2,
				RateWindow:   100 * time.Second,
				MaxPerClient: 3,
			},
		})
		require.NoError(t, err)
		of := func(p *places) [3]int { return [3]int{p.most, p.loose, p.perClient} }
		require.Equal(t, c.want, figures{
			of(h.pushes.places), of(h.fetches.places), of(h.asks.places), of(h.staging),
			[2]int64{h.pushes.visits.bytes, h.fetches.visits.bytes},
		})
		for _, l := range []lane{h.pushes, h.fetches, h.asks} {
			require.Equal(t, [3]int{9, 4, 3}, of(l.visits.room))
			require.Equal(t, 3, l.visits.perClient)
			require.Equal(t, 10*time.Second, l.visits.settle)
			require.InDelta(t, 128, l.visits.fast, 0)
		}
		require.Equal(t, [3]int{9, 4, 3}, of(h.settling))
		require.EqualValues(t, 64<<20, h.ahead)
		h.Close()
	}
}

// A push that has come to its end waits six times as long as a question for its turn, and as
// long as that counts as a wait for the lock.
func TestWaitForATurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, err := Open(filepath.Join(t.TempDir(), "git"), RepositoriesConfig{})
		require.NoError(t, err)
		x := owner.Ref("x")
		require.NoError(t, r.Create(t.Context(), x, nip34.SHA1))
		h, err := New(r, &authority{}, Config{fixed: numbers{Wait: 7 * time.Second}})
		require.NoError(t, err)
		who := party{client: "c", network: "n", owner: "o", repo: "r"}
		began := time.Now()
		done, err := h.turn(t.Context(), who, x)
		require.NoError(t, err)
		require.Zero(t, time.Since(began))
		_, err = h.turn(t.Context(), who, x)
		require.ErrorIs(t, err, errBusy)
		require.ErrorContains(t, err, "it was never its turn")
		require.Equal(t, 42*time.Second, time.Since(began))
		require.EqualValues(t, 42*time.Second, h.locks.Load(), "it waited behind who has it")
		done()
		_, unlock, err := r.Lock(t.Context(), x)
		require.NoError(t, err)
		_, err = h.turn(t.Context(), who, x)
		require.ErrorIs(t, err, errBusy)
		require.EqualValues(t, 84*time.Second, h.locks.Load())
		unlock()
		empty := fill(t, h.pushes.places)
		began = time.Now()
		_, err = h.turn(t.Context(), who, x)
		require.ErrorIs(t, err, errBusy)
		require.Equal(t, 7*time.Second, time.Since(began), "a place is not worth more than that")
		require.EqualValues(t, 84*time.Second, h.locks.Load())
		empty()
		_, err = h.turn(t.Context(), who, owner.Ref("none"))
		require.ErrorIs(t, err, purgatory.ErrNoRepository)
		done, err = h.turn(t.Context(), who, x)
		require.NoError(t, err)
		done()
		done()
		h.Close()
		h.idle(t)
		r.idle(t)
		require.NoError(t, r.Close())
	})
}

// Git that says nothing in a period is ended, unless it waits for its client; after eight
// periods it is in any case.
func TestHowLongGitIsHeard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, c := range map[string]struct {
			says func(s *spool)
			ends time.Duration
		}{
			"nothing":         {func(*spool) {}, 2 * time.Minute},
			"something":       {func(s *spool) { s.taken++ }, 8 * time.Minute},
			"it waits for it": {func(s *spool) { s.taken, s.sent = 100, 0 }, 8 * time.Minute},
			"it does not":     {func(s *spool) { s.taken, s.sent = 100, 1 }, 2 * time.Minute},
		} {
			s := &spool{most: 100}
			began := time.Now()
			ctx, stop := s.whileMoving(t.Context(), time.Minute)
			for ctx.Err() == nil {
				s.mu.Lock()
				c.says(s)
				s.mu.Unlock()
				select {
				case <-ctx.Done():
				case <-time.After(7 * time.Second):
				}
			}
			stop()
			require.ErrorIs(t, context.Cause(ctx), errMute)
			require.Equal(t, c.ends, time.Since(began), name)
		}
	})
}

// Whatever keeps a request from being served has an answer of its own; what is no fault of the
// client is in the log.
func TestAnswerToEachFailure(t *testing.T) {
	var log strings.Builder
	cfg := Config{Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{ReplaceAttr: untimed}))}
	for err, want := range map[error]struct {
		status int
		text   string
		logged bool
	}{
		fmt.Errorf("x: %w", errBusy):                          {503, "x: too many requests at once", false},
		fmt.Errorf("x: %w", purgatory.ErrNoRepository):        {404, "no such repository", false},
		fmt.Errorf("x: %w", &limitError{"more than 7 bytes"}): {413, "more than 7 bytes", true},
		fmt.Errorf("%w: not so", errRequest):                  {403, "push not understood: not so", false},
		fmt.Errorf("x: %w", errBody):                          {400, "the request could not be read", false},
		fmt.Errorf("x: %w", io.ErrUnexpectedEOF):              {400, "the request could not be read", false},
		fmt.Errorf("x: %w", errOwnerFull):                     {507, errOwnerFull.Error(), true},
		fmt.Errorf("x: %w", errPullsFull):                     {507, errPullsFull.Error(), true},
		fmt.Errorf("x: %w", errFull):                          {507, errFull.Error(), true},
		fmt.Errorf("x: %w", errDisk):                          {507, refusedDisk, true},
		errors.New("a secret\x1b[2J of ours"):                 {500, "internal error", true},
		fmt.Errorf("git: %w", errors.Join(errMute, nil)):      {500, "internal error", true},
	} {
		log.Reset()
		h := &Handler{cfg: cfg, failures: &failures{log: cfg.Logger}}
		for range 2 {
			w := httptest.NewRecorder()
			h.fail(w, owner.Ref("x"), err)
			require.Equal(t, want.status, w.Code, "%v", err)
			require.Equal(t, want.text+"\n", w.Body.String(), "%v", err)
			after := ""
			if want.status == 503 {
				after = "30"
			}
			require.Equal(t, after, w.Header().Get("Retry-After"))
		}
		said := ""
		if want.logged { // once in a while
			said = fmt.Sprintf("level=WARN msg=\"git request failed\" repo=%s error=%s\n", quoted(owner.Ref("x").String()), quoted(err.Error()))
		}
		require.Equal(t, said, log.String())
	}
}

func untimed(_ []string, a slog.Attr) slog.Attr {
	if a.Key == slog.TimeKey {
		return slog.Attr{}
	}
	return a
}

// quoted is a text of others as a log has it.
func quoted(s string) string {
	s = graspsync.Printable(s)
	if strings.ContainsAny(s, ` ="\`) {
		return strconv.Quote(s)
	}
	return s
}

// What is done though nobody who pushed hears of it is in the log: that a push could not be
// reported, and that what it waited for did not come.
func TestLogOfAPush(t *testing.T) {
	var log strings.Builder
	boom := errors.New("boom")
	logger := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{ReplaceAttr: untimed}))
	h := &Handler{cfg: Config{Logger: logger}, failures: &failures{log: logger}, settling: newPlaces(1, 1, 1)}
	h.auth = reporting{&authority{}, func(ctx context.Context) error {
		require.NoError(t, ctx.Err(), "the client is gone, and what it pushed is here")
		until, limited := ctx.Deadline()
		require.True(t, limited)
		require.InDelta(t, 59.5, time.Until(until).Seconds(), 0.5)
		return boom
	}}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	h.pushed(ctx, owner.Ref("x"), nil)
	h.auth = reporting{&authority{}, func(context.Context) error { return nil }}
	h.pushed(ctx, owner.Ref("x"), nil)
	for range 2 {
		h.auth = settling{&authority{}, func(context.Context) error { return boom }}
		h.settled(t.Context(), &visit{leave: func() {}}, owner.Ref("x"), func() {})
	}
	name := owner.Ref("x").String()
	require.Equal(t, "level=ERROR msg=\"a push could not be reported\" repo="+name+" error=boom\n"+
		"level=WARN msg=\"a push was answered before its events are served\" repo="+name+" error=boom\n", log.String())
}

// reporting is an authority that does something when it is told of a push.
type reporting struct {
	*authority
	told func(ctx context.Context) error
}

func (r reporting) AfterPush(ctx context.Context, _ graspsync.RepoRef, _ []nip34.RefName) error {
	return r.told(ctx)
}

// Each figure is where its name says.
func TestEachFigure(t *testing.T) {
	h, err := New(newRepositories(t), &authority{}, Config{})
	require.NoError(t, err)
	var want strings.Builder
	n := 0
	figure := func(name, labels string) int {
		n++
		fmt.Fprintf(&want, "x_gitserve_%s{%s} %d\n", name, labels, n)
		return n
	}
	metric := func(name, kind, help string) {
		fmt.Fprintf(&want, "# HELP x_gitserve_%[1]s %[2]s\n# TYPE x_gitserve_%[1]s %[3]s\n", name, help, kind)
	}
	lanes := map[string]lane{"push": h.pushes, "fetch": h.fetches, "ask": h.asks}
	runs := map[string]*places{"push": h.pushes.places, "fetch": h.fetches.places, "ask": h.asks.places, "stage": h.staging}
	each := func(do func(kind string, l lane)) {
		for _, kind := range []string{"ask", "fetch", "push"} {
			do(kind, lanes[kind])
		}
	}
	waits := func(do func(labels string, p *places)) {
		each(func(kind string, l lane) { do(`for="room",kind="`+kind+`"`, l.visits.room) })
		for _, kind := range []string{"ask", "fetch", "push", "stage"} {
			do(`for="run",kind="`+kind+`"`, runs[kind])
		}
	}
	metric("absent_requests_total", "counter", "Number of requests for objects that are not in the repository.")
	want.WriteString("x_gitserve_absent_requests_total 0\n")
	metric("disk_free_bytes", "gauge", "Free space of the disk of the repositories.")
	want.WriteString("x_gitserve_disk_free_bytes 77\n")
	h.disk.free = func(string) (uint64, error) { return 77, nil }
	metric("kept_bytes", "gauge", "What is kept on the disk of requests that are here.")
	each(func(kind string, l lane) { l.visits.kept = int64(figure("kept_bytes", `kind="`+kind+`"`)) })
	metric("lock_waited_seconds_total", "counter", "Time that pushes have waited for the locks of repositories.")
	want.WriteString("x_gitserve_lock_waited_seconds_total 2.5\n")
	h.locks.Store(int64(2500 * time.Millisecond))
	metric("pushes_refused_total", "counter", "Pushes that were refused, by why.")
	for _, why := range []string{"deletion", "disk", "meanwhile", "no_state", "other", "room", "stale", "state", "tip"} {
		h.refusals.counts[why] = uint64(figure("pushes_refused_total", `reason="`+why+`"`))
	}
	metric("refused_total", "counter", "Requests that were told to come again, for want of room or of a run of git.")
	waits(func(labels string, p *places) { p.refused = uint64(figure("refused_total", labels)) })
	metric("requests", "gauge", "Requests that are here: being read, waiting, or being answered.")
	each(func(kind string, l lane) {
		for range figure("requests", `kind="`+kind+`"`) {
			l.visits.here[&visit{}] = struct{}{}
		}
	})
	metric("running", "gauge", "Runs of git for requests.")
	for _, kind := range []string{"ask", "fetch", "push", "stage"} {
		runs[kind].taken = figure("running", `kind="`+kind+`"`)
	}
	metric("shed_total", "counter", "Requests that had to make room for others, since their clients were slow.")
	each(func(kind string, l lane) { l.visits.shed = uint64(figure("shed_total", `kind="`+kind+`"`)) })
	metric("waited_seconds_total", "counter", "Time that requests have waited, for room or for a run of git.")
	waits(func(labels string, p *places) {
		p.waited = time.Duration(figure("waited_seconds_total", labels)) * time.Second
	})
	metric("waiting", "gauge", "Requests that wait, for room or for a run of git.")
	waits(func(labels string, p *places) { p.waiting = make([]*turn, figure("waiting", labels)) })
	require.NoError(t, testutil.CollectAndCompare(h.Collector("x"), strings.NewReader(want.String())))
	h.disk.free = func(string) (uint64, error) { return 0, errDisk }
	require.Equal(t, n+2, testutil.CollectAndCount(h.Collector("x")), "of the disk there is nothing to say")
	h.Close()
}

// What an owner has is measured again after a minute, and what pull requests have of it where
// it is more than half of what he may have: if more has come since, or could not be found out.
func TestWhenAnOwnerIsMeasured(t *testing.T) {
	repos := newRepositories(t)
	x := owner.Ref("x")
	require.NoError(t, repos.Create(t.Context(), x, nip34.SHA1))
	folder := x.Owner.String()
	now := time.Unix(1_700_000_000, 0)
	var weighed int
	c := measuring(repos, RepositoriesConfig{MaxOwnerBytes: 1000})
	fails := error(nil)
	c.weigh = func(ctx context.Context, dir string) (int64, error) {
		until, limited := ctx.Deadline()
		require.True(t, limited)
		require.InDelta(t, 19.5, time.Until(until).Seconds(), 0.5)
		require.Equal(t, filepath.Join(repos.dir, filepath.FromSlash(hashed(x))), dir)
		weighed++
		return 300, fails
	}
	displaced := func(graspsync.PubKey) int64 { return 40 }
	for age, again := range map[time.Duration]bool{0: false, time.Minute - 1: false, time.Minute: true} {
		c.sizes[folder] = size{bytes: 7, measured: 5, at: now}
		require.NoError(t, c.measure(t.Context(), folder, now.Add(age)))
		require.Equal(t, again, c.sizes[folder].measured != 5, age)
		require.Equal(t, again, c.sizes[folder].at != now, age)
	}
	for _, s := range []struct {
		what  string
		size  size
		after time.Duration
		done  bool
	}{
		{"it can't matter", size{bytes: 500, measured: 500}, time.Hour, false},
		{"it may", size{bytes: 501, measured: 501}, time.Hour, true},
		{"it is known", size{bytes: 501, measured: 501, parted: 501, tried: now}, time.Minute - 1, false},
		{"and a minute is over", size{bytes: 501, measured: 501, parted: 501, tried: now}, time.Minute, true},
		{"more has come", size{bytes: 501, measured: 501, parted: 500, tried: now}, 0, true},
		{"it could not be found out", size{bytes: 501, measured: 501, parted: 500, tried: now, failed: true}, time.Minute - 1, false},
		{"and is tried again", size{bytes: 501, measured: 501, parted: 500, tried: now, failed: true}, time.Minute, true},
	} {
		weighed = 0
		c.sizes[folder] = s.size
		c.part(t.Context(), x, displaced, now.Add(s.after))
		want := s.size
		if s.done {
			want.parted, want.tried, want.failed, want.theirs = want.measured, now.Add(s.after), false, 340
			want.known = true
		}
		require.Equal(t, want, c.sizes[folder], s.what)
		require.Equal(t, s.done, weighed == 1, s.what)
	}
	c.sizes[folder] = size{bytes: 501, measured: 320, theirs: 7}
	c.part(t.Context(), x, displaced, now)
	require.EqualValues(t, 320, c.sizes[folder].theirs, "no more than there is")
	var warned strings.Builder
	c.failures.log = slog.New(slog.NewTextHandler(&warned, &slog.HandlerOptions{ReplaceAttr: untimed}))
	fails = errDisk
	c.sizes[folder] = size{bytes: 501, measured: 320, theirs: 7}
	c.part(t.Context(), x, displaced, now)
	require.Equal(t, size{bytes: 501, measured: 320, theirs: 7, parted: 320, tried: now, failed: true}, c.sizes[folder])
	require.Equal(t, fmt.Sprintf("level=WARN msg=\"git request failed\" repo=%s error=\"measuring pull requests: not enough free disk\"\n", x), warned.String())
	c.owner, weighed = 0, 0
	c.part(t.Context(), x, displaced, now.Add(time.Hour))
	require.Zero(t, weighed, "there is no limit")
}
