package purgatory_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/egress"
	"github.com/graspsync/graspsync/internal/eventtest"
	"github.com/graspsync/graspsync/internal/gittest"
	"github.com/graspsync/graspsync/internal/racetest"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/purgatory/gitfetch"
	"github.com/graspsync/graspsync/purgatory/gitserve"
	"github.com/graspsync/graspsync/state"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// Environment variables of the process that TestPromiseKill9 runs: the step at which it kills
// itself, how often the step is reached before, its folder, and the clone URL.
const (
	envStep   = "PURGATORY_TEST_STEP"
	envNth    = "PURGATORY_TEST_NTH"
	envFolder = "PURGATORY_TEST_FOLDER"
	envOrigin = "PURGATORY_TEST_ORIGIN"
	envTip    = "PURGATORY_TEST_TIP"
	envGit    = "PURGATORY_TEST_GIT"    // another git
	envEvents = "PURGATORY_TEST_EVENTS" // other events, in JSON
)

// durably writes a file atomically.
func durably(path string, data []byte) error {
	tmp := path + ".tmp"
	f, err := os.Create(tmp)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Sync(), f.Close(), os.Rename(tmp, path)); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// fileRelay is a relay that stores events in files.
type fileRelay struct {
	relay
	dir string
}

func openRelay(dir string) (*fileRelay, error) {
	r := &fileRelay{dir: dir}
	names, err := filepath.Glob(filepath.Join(dir, "*.json"))
	for _, name := range names {
		data, rerr := os.ReadFile(name)
		var ev nostr.Event
		if err = errors.Join(err, rerr, json.Unmarshal(data, &ev)); err == nil {
			r.events = append(r.events, &ev)
		}
	}
	return r, err
}

func (r *fileRelay) Save(ctx context.Context, ev graspsync.Event) error {
	data, err := json.Marshal(ev.Event)
	if err == nil {
		err = durably(filepath.Join(r.dir, ev.Event.ID+".json"), data)
	}
	return errors.Join(err, r.relay.Save(ctx, ev))
}

// openFolders opens a folder of repositories.
func openFolders(dir string) (*gitserve.Repositories, error) {
	return gitserve.Open(dir, gitserve.RepositoriesConfig{PlainNames: true})
}

// folderOf returns the folder of a key's repository "r".
func folderOf(dir string, k *relaytest.Key) string { return filepath.Join(dir, k.Hex(), "r") }

// victim is the process that is killed. It continues with the state in its folder, and ends when no
// event is held.
func victim() error {
	ctx := context.Background()
	folder, step := os.Getenv(envFolder), os.Getenv(envStep)
	nth, _ := strconv.Atoi(os.Getenv(envNth))
	relay, err := openRelay(filepath.Join(folder, "events"))
	if err != nil {
		return err
	}
	dialer, err := egress.NewDialer(egress.Config{AllowPlaintext: true, Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
	if err != nil {
		return err
	}
	fetcher, err := gitfetch.New(ctx, gitfetch.Config{Dialer: dialer, MinFreeDisk: 1 << 20, Git: os.Getenv(envGit)})
	if err != nil {
		return err
	}
	var mu sync.Mutex
	say := func(line string) {
		mu.Lock()
		defer mu.Unlock()
		f, err := os.OpenFile(filepath.Join(folder, "log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err == nil {
			_, _ = f.WriteString(line + "\n")
			_ = f.Close()
		}
	}
	cfg := purgatory.Config{
		Times: purgatory.Times{
			Hold:    10 * time.Second,
			Backoff: 100 * time.Millisecond,
		}, Observe: func(o purgatory.Observation) {
			switch o := o.(type) {
			case purgatory.HoldStarted:
				say(fmt.Sprintf("began %s %d", o.ID, o.Deadline.UnixMilli()))
			case purgatory.HoldEnded:
				say(fmt.Sprintf("ended %s %s %d", o.ID, o.Reason, time.Now().UnixMilli()))
			}
		},
	}.With(purgatory.Fixed{MaxHold: time.Hour, Timeout: time.Hour, SyncDelay: 10 * time.Millisecond, SoftExpiry: time.Second})
	events := killEvents(os.Getenv(envOrigin), os.Getenv(envTip))
	if text := os.Getenv(envEvents); text != "" {
		events, cfg.Times.Hold = nil, time.Minute
		if err := json.Unmarshal([]byte(text), &events); err != nil {
			return err
		}
	}
	say(fmt.Sprintf("opened %d", time.Now().UnixMilli()))
	stalled := stalls()
	store, err := state.Open(filepath.Join(folder, "state"), state.Config{})
	if err != nil {
		return err
	}
	defer store.Close()
	repos, err := openFolders(filepath.Join(folder, "repos"))
	if err != nil {
		return err
	}
	defer repos.Close()
	var reached int
	p, err := purgatory.OpenWithStep(ctx, relay, repos, fetcher, fetcher, store, cfg, func(name string) {
		mu.Lock()
		defer mu.Unlock()
		if name == step {
			if reached++; reached == nth {
				_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
				select {}
			}
		}
	})
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { ended <- p.Run(ctx) }()
	for _, ev := range events {
		if relay.has(ev) {
			continue
		}
		if _, err := p.Submit(ctx, eventtest.Of(ev), graspsync.Source{Kind: graspsync.CatchUp}); err != nil {
			return err
		}
	}
	for st := p.Status(); st.Announcements+st.States > 0; st = p.Status() {
		time.Sleep(20 * time.Millisecond)
	}
	cancel()
	<-ended
	say(fmt.Sprintf("stalled %d", stalled()))
	return nil
}

// stalls measures delays of an idle goroutine by the machine, which do not count as ours. The
// returned function returns the longest delay in milliseconds.
func stalls() func() int64 {
	done, result := make(chan struct{}), make(chan int64)
	go func() {
		const pause = 5 * time.Millisecond
		longest := time.Duration(0)
		for last := time.Now(); ; {
			select {
			case <-done:
				result <- longest.Milliseconds()
				return
			case <-time.After(pause):
			}
			now := time.Now()
			longest, last = max(longest, now.Sub(last)-pause), now
		}
	}()
	return func() int64 {
		close(done)
		return <-result
	}
}

// killEvents are announcements and states: of alice, whose data is at the origin, of bob, whose
// repository alice maintains, and of carol, whose data is on no server.
func killEvents(origin, tip string) []*nostr.Event {
	const at = 1_700_000_000
	d, cl := nostrTag{"d", "r"}, nostrTag{"clone", origin}
	return []*nostr.Event{
		alice.Event(at, graspsync.KindAnnouncement, "", d, cl, nostrTag{"maintainers", bob.Hex()}),
		bob.Event(at, graspsync.KindAnnouncement, "", d, cl, nostrTag{"maintainers", alice.Hex()}),
		carol.Event(at, graspsync.KindAnnouncement, "", d),
		alice.Event(at, graspsync.KindState, "", d, nostrTag{"HEAD", "ref: refs/heads/main"}, nostrTag{"refs/heads/main", tip}, nostrTag{"refs/tags/v1", tip}),
		carol.Event(at, graspsync.KindState, "", d, nostrTag{"refs/heads/main", strings.Repeat("1", 40)}),
	}
}

// originOf serves a repository r.git with a commit for each branch.
func originOf(t *testing.T, branches ...string) (backend http.Handler, tips []string) {
	t.Helper()
	dir := t.TempDir()
	there := filepath.Join(dir, "r.git")
	gittest.Run(t, dir, "init", "-q", "--bare", "-b", "main", there)
	for _, branch := range branches {
		out, err := gittest.Input(t, there, "commit refs/heads/"+branch+"\ncommitter c <c@example.com> 1700000000 +0000\ndata 2\nhi\nM 100644 inline a/"+branch+"\ndata 2\nhi\n",
			"fast-import", "--quiet")
		require.NoError(t, err, out)
		tips = append(tips, gittest.Run(t, there, "rev-parse", branch))
	}
	return gittest.Backend(t, dir), tips
}

// TestPromiseKill9 kills the process with SIGKILL at every durable step, with real git and a real
// server, and restarts it.
func TestPromiseKill9(t *testing.T) {
	racetest.Amounts(t)
	backend, tips := originOf(t, "main")
	server := httptest.NewServer(backend)
	t.Cleanup(server.Close)
	slots := make(chan struct{}, 16) // processes mostly wait
	var wg sync.WaitGroup
	defer wg.Wait()
	most := 2
	if testing.Short() {
		most = 1
	}
	for nth := 1; nth <= most; nth++ {
		for _, step := range []string{
			"created", "held", "fetched", "promoted", "shared", "journalled", "aligned", "stored", "struck off",
			"removed", "expired softly", "remembered", "expired",
		} {
			wg.Go(func() {
				slots <- struct{}{}
				defer func() { <-slots }()
				t.Run(fmt.Sprintf("%s %d", step, nth), func(t *testing.T) {
					k := kill9{folder: t.TempDir(), origin: server.URL + "/r.git", tip: tips[0]}
					k.run(t, step, nth)
				})
			})
		}
	}
}

type kill9 struct{ folder, origin, tip string }

func (k kill9) process(t *testing.T, step string, nth int) error {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute) // a tenth suffices
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^$")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.Env = append(os.Environ(), envStep+"="+step, envNth+"="+strconv.Itoa(nth), envFolder+"="+k.folder, envOrigin+"="+k.origin, envTip+"="+k.tip)
	err := cmd.Run()
	require.NoError(t, ctx.Err(), "it comes to no end: %s", out.String())
	if err != nil {
		t.Logf("%s: %v %s", step, err, out.String())
	}
	return err
}

func (k kill9) run(t *testing.T, step string, nth int) {
	for _, name := range []string{"events", "repos", "state"} {
		require.NoError(t, os.Mkdir(filepath.Join(k.folder, name), 0o700))
	}
	err := k.process(t, step, nth)
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		require.Equal(t, syscall.SIGKILL, exit.Sys().(syscall.WaitStatus).Signal(), "it must die at the step")
	} else {
		require.Greater(t, nth, 1, "the step is never reached")
	}
	k.check(t)
	require.NoError(t, k.process(t, "", 0))
	k.check(t)
	k.checkEnd(t)
}

// check checks the served events and their repositories. The state of a member may be served while a
// repository that is locked or slow still follows (SPEC 10.4), so it needs its refs in one of them.
func (k kill9) check(t *testing.T) {
	served, err := openRelay(filepath.Join(k.folder, "events"))
	require.NoError(t, err)
	for _, ev := range served.events {
		require.NotEqual(t, carol.Hex(), ev.PubKey, "served without data")
		complete := make(map[string]bool) // by owner
		for _, owner := range []*relaytest.Key{alice, bob} {
			dir := folderOf(filepath.Join(k.folder, "repos"), owner)
			if _, err := os.Stat(dir); err != nil {
				continue // not created yet
			}
			refs := gittest.Run(t, dir, "for-each-ref", "--format=%(objectname) %(refname)")
			complete[owner.Hex()] = refs == k.tip+" refs/heads/main\n"+k.tip+" refs/tags/v1"
			gittest.Run(t, dir, "rev-list", "--objects", "--all")
			gittest.Run(t, dir, "fsck", "--strict")
		}
		if ev.Kind == graspsync.KindState {
			require.True(t, complete[alice.Hex()] || complete[bob.Hex()], "a state without its refs")
		} else {
			require.True(t, complete[ev.PubKey], "an announcement without its refs")
		}
	}
}

// checkEnd checks that each event was released, or expired at its original deadline.
func (k kill9) checkEnd(t *testing.T) {
	served, err := openRelay(filepath.Join(k.folder, "events"))
	require.NoError(t, err)
	events := killEvents(k.origin, k.tip)
	for i, ev := range events {
		require.Equal(t, i != 2 && i != 4, served.has(ev), "event %d", i)
	}
	for _, owner := range []*relaytest.Key{alice, bob} {
		for _, name := range []string{"refs/heads/main", "refs/tags/v1"} {
			require.Equal(t, k.tip, gittest.Run(t, folderOf(filepath.Join(k.folder, "repos"), owner), "rev-parse", name))
		}
	}
	data, err := os.ReadFile(filepath.Join(k.folder, "log"))
	require.NoError(t, err)
	deadlines := make(map[string]int64)
	var opened, late, stalled int64
	for line := range strings.Lines(string(data)) {
		w := strings.Fields(line)
		at, err := strconv.ParseInt(w[len(w)-1], 10, 64)
		require.NoError(t, err)
		switch {
		case w[0] == "opened":
			opened = at
		case w[0] == "began" && deadlines[w[1]] == 0:
			deadlines[w[1]] = at
		case w[0] == "ended" && w[2] == "expired" && w[1] == events[4].ID && deadlines[w[1]] > 0: // carol's state
			late = at - max(deadlines[w[1]], opened)
			require.GreaterOrEqual(t, at, deadlines[w[1]]-1)
		case w[0] == "stalled":
			stalled = max(stalled, at)
		}
	}
	t.Logf("expired %d ms late; the machine stalled for up to %d ms", late, stalled)
	require.Less(t, late, 3000+5*stalled)
}
