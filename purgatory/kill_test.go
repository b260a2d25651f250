package purgatory_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"net/http/cgi"
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
	"github.com/graspsync/graspsync/internal/racetest"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/purgatory/gitfetch"
	"github.com/graspsync/graspsync/state"
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

// folders are bare repositories in a folder.
type folders struct {
	dir string
	mu  sync.Mutex
	one map[graspsync.RepoRef]chan struct{} // one slot each
}

func (f *folders) Owned(_ context.Context, owner graspsync.PubKey) iter.Seq2[graspsync.RepoRef, error] {
	return func(yield func(graspsync.RepoRef, error) bool) {
		entries, err := os.ReadDir(f.dir)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			yield(graspsync.RepoRef{}, err)
			return
		}
		for _, e := range entries {
			hex, is := strings.CutSuffix(e.Name(), ".git")
			who, err := graspsync.ParsePubKey(hex)
			if is && err == nil && (owner == who || owner == graspsync.PubKey{}) && !yield(graspsync.RepoRef{Owner: who, Identifier: "r"}, nil) {
				return
			}
		}
	}
}

// Retire is atomic: after a kill, an incomplete repository counts as missing.
func (f *folders) Retire(_ context.Context, ref graspsync.RepoRef, _ time.Duration) (bool, error) {
	out, err := userGit(f.dir, "--git-dir="+f.path(ref), "for-each-ref").CombinedOutput()
	if err == nil && len(out) > 0 {
		return true, os.Rename(f.path(ref), f.path(ref)+".departed")
	}
	if err := os.Remove(filepath.Join(f.path(ref), "ready")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	return false, os.RemoveAll(f.path(ref))
}

func (f *folders) Staged(graspsync.RepoRef, graspsync.EventID) []purgatory.Upload { return nil }

func (f *folders) Reserve(context.Context, graspsync.RepoRef, bool, int64, func(graspsync.PubKey) int64) (func(), error) {
	return func() {}, nil
}

func (f *folders) path(ref graspsync.RepoRef) string {
	return filepath.Join(f.dir, ref.Owner.String()+".git")
}

func (f *folders) Lock(ctx context.Context, ref graspsync.RepoRef) (string, func(), error) {
	f.mu.Lock()
	if f.one[ref] == nil {
		f.one[ref] = make(chan struct{}, 1)
	}
	slot := f.one[ref]
	f.mu.Unlock()
	select {
	case slot <- struct{}{}:
	case <-ctx.Done():
		return "", nil, ctx.Err()
	}
	if _, err := os.Stat(filepath.Join(f.path(ref), "ready")); err != nil {
		<-slot
		return "", nil, purgatory.ErrNoRepository
	}
	return f.path(ref), func() { <-slot }, nil
}

func (f *folders) Create(_ context.Context, ref graspsync.RepoRef, _ nip34.ObjectFormat) error {
	if _, err := os.Stat(filepath.Join(f.path(ref), "ready")); err == nil {
		return nil
	}
	out, err := userGit(f.dir, "init", "-q", "--bare", "-b", "main", f.path(ref)).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return durably(filepath.Join(f.path(ref), "ready"), nil)
}

func userGit(dir string, args ...string) *exec.Cmd {
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "HOME=/nonexistent",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=c", "GIT_COMMITTER_EMAIL=c@example.com")
	return cmd
}

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
			Hold:    holdKilled,
			Backoff: 100 * time.Millisecond,
		}, Observe: func(o purgatory.Observation) {
			switch o := o.(type) {
			case purgatory.HoldStarted:
				say(fmt.Sprintf("began %s %d", o.ID, o.Deadline.UnixMilli()))
			case purgatory.HoldEnded:
				say(fmt.Sprintf("ended %s %s %d", o.ID, o.Reason, time.Now().UnixMilli()))
			}
		},
	}.With(purgatory.Fixed{MaxHold: time.Hour, SyncDelay: 10 * time.Millisecond, SoftExpiry: time.Second})
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
	repos := &folders{dir: filepath.Join(folder, "repos"), one: make(map[graspsync.RepoRef]chan struct{})}
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

// TestPromiseKill9 kills the process with SIGKILL at every durable step, with real git and a real
// server, and restarts it.
func TestPromiseKill9(t *testing.T) {
	racetest.Amounts(t)
	there := filepath.Join(t.TempDir(), "r.git")
	must := func(cmd *exec.Cmd, stdin string) string {
		cmd.Stdin = strings.NewReader(stdin)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		return strings.TrimSpace(string(out))
	}
	must(userGit(t.TempDir(), "init", "-q", "--bare", "-b", "main", there), "")
	must(userGit(there, "fast-import", "--quiet"), "commit refs/heads/main\ncommitter c <c@example.com> 1700000000 +0000\ndata 2\nhi\nM 100644 inline a/b\ndata 2\nhi\n")
	tip := must(userGit(there, "rev-parse", "main"), "")
	server := httptest.NewServer(&cgi.Handler{
		Path: filepath.Join(must(userGit(there, "--exec-path"), ""), "git-http-backend"), Dir: there,
		Env: []string{"GIT_PROJECT_ROOT=" + filepath.Dir(there), "GIT_HTTP_EXPORT_ALL=1", "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null"},
	})
	t.Cleanup(server.Close)
	most := 2
	if testing.Short() {
		most = 1
	}
	for nth := 1; nth <= most; nth++ {
		for _, step := range []string{
			"created", "held", "fetched", "promoted", "shared", "journalled", "aligned", "stored", "struck off",
			"removed", "expired softly", "remembered", "expired",
		} {
			t.Run(fmt.Sprintf("%s %d", step, nth), func(t *testing.T) {
				t.Parallel()
				k := kill9{folder: t.TempDir(), origin: server.URL + "/r.git", tip: tip}
				k.run(t, step, nth)
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

// check checks the served events and every repository.
func (k kill9) check(t *testing.T) {
	served, err := openRelay(filepath.Join(k.folder, "events"))
	require.NoError(t, err)
	for _, ev := range served.events {
		ref := alice.Ref("r")
		if ev.PubKey == bob.Hex() {
			ref = bob.Ref("r")
		}
		require.NotEqual(t, carol.Hex(), ev.PubKey, "served without data")
		dir := (&folders{dir: filepath.Join(k.folder, "repos")}).path(ref)
		for _, name := range []string{"refs/heads/main", "refs/tags/v1"} {
			out, err := userGit(dir, "rev-parse", name).CombinedOutput()
			require.NoError(t, err, "%s", out)
			require.Equal(t, k.tip, strings.TrimSpace(string(out)))
		}
		out, err := userGit(dir, "rev-list", "--objects", "--all").CombinedOutput()
		require.NoError(t, err, "%s", out)
		out, err = userGit(dir, "fsck", "--strict").CombinedOutput()
		require.NoError(t, err, "%s", out)
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
	require.Less(t, late, 1000+5*stalled)
}
