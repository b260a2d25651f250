// Command demo shows an empty GRASP server that syncs with four faulty relays and two git servers.
//
//	go run ./examples/demo
//
// Everything except git runs in this process and uses loopback. The demo prints PASS and exits with
// 0 only if nothing is missing, nothing is foreign, and git clones match the events.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"math/rand/v2"
	"net/http/cgi"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/fiatjaf/eventstore/slicestore"
	"github.com/fiatjaf/khatru"
	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/adapter/grasp"
	"github.com/graspsync/graspsync/egress"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/state"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/relaytest"
	"github.com/graspsync/graspsync/sync/relaytest/relayserver"
)

const stageTime = 10 * time.Minute // enough for a slow or busy machine

func main() {
	log.SetOutput(io.Discard) // hides start messages of relay and database
	ctx, _ := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	w := &world{start: time.Now(), stage: "start", wanted: make(map[string]bool), ended: make(chan struct{})}
	fmt.Printf("An empty GRASP server fetches %d repositories, with their issues and comments, from four relays and two\n"+
		"git servers on this machine. This takes about a minute. The relays and their faults:\n", ourRepos)
	for i, fault := range faults {
		fmt.Printf("    %d  %s\n", i+1, fault)
	}
	for i, stage := range []struct {
		name string
		run  func(context.Context) string
	}{
		{"make the others", w.make}, {"start our server", w.run}, {"catch up", w.catchUp}, {"clone", w.clone},
	} {
		began := time.Now()
		w.stage = stage.name
		ctx, cancel := context.WithTimeoutCause(ctx, stageTime, errors.New("it takes too long"))
		result := stage.run(ctx)
		cancel()
		fmt.Printf("%d %-16s %5.1f s  %s\n", i+1, stage.name, time.Since(began).Seconds(), result)
	}
	fmt.Printf("\nPASS in %.1f s: nothing is missing, nothing is foreign, and every repository can be cloned.\n", time.Since(w.start).Seconds())
	w.end()
}

var faults = [relays]string{
	alpha:   "none; it is the only relay that our server knows at first",
	bravo:   "no NIP-77, and at most 100 events per answer",
	charlie: "down when our server connects for the first time",
	delta:   "no NIP-77, and twice it cuts the connection within an answer",
}

func (w *world) check(err error) {
	if err != nil {
		fmt.Printf("FAIL after %.1f s: %s: %v\n", time.Since(w.start).Seconds(), w.stage, err)
		w.end()
		os.Exit(1)
	}
}

// end stops our relay and removes its files.
func (w *world) end() {
	if w.cancel != nil {
		w.cancel()
		<-w.ended
		w.server.Close()
	}
	os.RemoveAll(w.dir)
}

// await calls done five times a second until it returns true.
func (w *world) await(ctx context.Context, done func() bool) {
	for ; !done(); time.Sleep(200 * time.Millisecond) {
		w.check(context.Cause(ctx))
	}
}

// catchUp waits until everything was fetched, also from the relay that is down at first.
func (w *world) catchUp(ctx context.Context) string {
	w.await(ctx, func() bool {
		s := w.server.Sync().Manager().Status()
		for _, r := range s.Relays {
			if r.URL == w.urls[charlie].URL() && r.FailedAttempts > 0 {
				w.relays[charlie].SetDown(false)
			}
		}
		missing, foreign := w.difference(ctx)
		return s.Synced && len(s.Relays) == relays && missing+foreign == 0 && len(w.server.Purgatory().Status().Waiting) == 0
	})
	git := w.server.Purgatory().Status()
	return fmt.Sprintf("all %d events for our server, of %d, and %d git objects (%d kB) in %d fetches", len(w.wanted), w.events, git.Objects, git.Fetched/1000, git.Fetches)
}

func (w *world) difference(ctx context.Context) (missing, foreign int) {
	missing = len(w.wanted)
	for st, err := range w.server.Sync().Store().Keys(ctx, nostr.Filter{}) {
		if w.check(err); w.wanted[st.ID.String()] {
			missing--
		} else {
			foreign++
		}
	}
	return missing, foreign
}

const (
	repos, ourRepos                      = 190, 160
	alpha, bravo, charlie, delta, relays = 0, 1, 2, 3, 4
	branch, tag                          = "refs/heads/main", "refs/tags/v1"
)

var behaviors = [relays]relaytest.Behavior{
	bravo: {Negentropy: relaytest.NegNotice, Cap: 100}, charlie: {Down: true},
	delta: {Negentropy: relaytest.NegNotice, CutAfter: 400, Cuts: 2},
}

type world struct {
	dir    string
	stage  string
	start  time.Time
	relays [relays]*relaytest.Relay
	urls   [relays]*relayserver.Server
	hosts  [2]*httptest.Server // git servers
	keys   []*relaytest.Key
	repos  []*repo // repositories that list our relay
	events int
	wanted map[string]bool  // ids that our relay must store in the end
	front  *httptest.Server // serves our relay
	server *grasp.Server
	ended  chan struct{} // closed when its Run has returned
	cancel context.CancelFunc
}

// repo is a repository. The last repositories do not list our relay.
type repo struct {
	owner *relaytest.Key
	n     int
	refs  map[string]string
}

func (r *repo) name() string { return fmt.Sprintf("repo-%03d", r.n) }
func (r *repo) ours() bool   { return r.n < ourRepos }
func (r *repo) path() string { return r.owner.Npub() + "/" + r.name() + ".git" }

// make starts the other relays and publishes their events.
func (w *world) make(ctx context.Context) string {
	var err error
	w.dir, err = os.MkdirTemp("", "graspsync-demo-")
	w.check(err)
	w.front = httptest.NewUnstartedServer(nil)
	for i, b := range behaviors {
		w.relays[i] = relaytest.New(fmt.Sprintf("wss://relay%d.example", i), b)
		w.urls[i], err = relayserver.Start(w.relays[i])
		w.check(err)
	}
	git, err := exec.LookPath("git")
	w.check(err)
	for i := range w.hosts {
		w.hosts[i] = httptest.NewServer(&cgi.Handler{
			Path: git, Args: []string{"http-backend"}, Stderr: io.Discard, Logger: log.Default(),
			Env: append(gitEnv, "GIT_PROJECT_ROOT="+filepath.Join(w.dir, fmt.Sprint("git", i)), "GIT_HTTP_EXPORT_ALL=1"),
		})
	}
	w.keys = relaytest.Keys("person of the demo", 50)
	for i := range repos {
		r := &repo{owner: w.someone(), n: i}
		r.refs = w.fastImport(ctx, filepath.Join(w.dir, fmt.Sprint("git", r.n%2), r.path()), r.path())
		w.repos = append(w.repos, r)
		w.fill(r)
	}
	return fmt.Sprintf("4 relays with %d events, 2 git servers, %d repositories", w.events, repos)
}

func (w *world) host() string            { return w.front.Listener.Addr().String() }
func (w *world) someone() *relaytest.Key { return w.keys[rand.IntN(len(w.keys))] }

func (w *world) publish(ev *nostr.Event, wanted bool, at ...int) {
	if w.events++; wanted {
		w.wanted[ev.ID] = true
	}
	for _, i := range at {
		w.relays[i].Publish(ev)
	}
}

// fill publishes the events of a repository. Our relay discovers each relay through an earlier one.
func (w *world) fill(r *repo) {
	listed := [][]int{{alpha, bravo}, {bravo, charlie}, {charlie, delta}, {delta}}[max(0, r.n%10-6)]
	some := func() []int { return listed[rand.IntN(len(listed)):] }
	ago := func(days int) nostr.Timestamp { return nostr.Now() - nostr.Timestamp(86_400*days+rand.IntN(80_000)) }
	at := []string{"ws://" + w.host()}
	if !r.ours() {
		at[0] = "ws://elsewhere.example"
	}
	clones := []string{r.owner.CloneURL(at[0], r.name()), w.hosts[r.n%2].URL + "/" + r.path()}
	for _, l := range listed {
		at = append(at, w.urls[l].URL().String())
	}
	w.publish(r.owner.State(ago(90), r.name(), map[string]string{branch: r.refs[tag]}, "main"), false, some()...) // an older version must not win
	w.publish(r.owner.Announcement(ago(300), r.name(), at, clones, r.owner), r.ours(), listed[0])
	w.publish(r.owner.State(ago(20), r.name(), r.refs, "main"), r.ours(), some()...)
	for n := range 4 {
		issue := w.someone().Issue(ago(50), r.owner.Ref(r.name()), fmt.Sprint("issue ", n))
		w.publish(issue, r.ours(), some()...)
		w.publish(r.owner.Status(ago(45), 1630, issue), r.ours(), some()...)
		for c := range 3 + rand.IntN(4) {
			w.publish(w.someone().Comment(ago(40-c), issue, fmt.Sprint("a few words ", c)), r.ours(), some()...)
		}
	}
}

// run starts our relay, a khatru relay with package grasp. It knows one other relay.
func (w *world) run(ctx context.Context) string {
	db := &slicestore.SliceStore{}
	w.check(db.Init())
	relay := khatru.NewRelay()
	relay.Log, relay.Negentropy = log.Default(), true
	identity, err := nip34.ParseIdentity(w.host())
	w.check(err)
	w.server, err = grasp.New(ctx, relay, db, identity, grasp.Config{
		Dir: filepath.Join(w.dir, "git"), State: state.NewMemory(),
		// Loopback addresses are blocked by default, because URLs come from strangers.
		Egress: egress.Config{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, Own: []netip.AddrPort{netip.MustParseAddrPort(w.host())}},
		Sync: relaysync.Config{
			Bootstrap: []graspsync.RelayURL{w.urls[alpha].URL()}, AllowPlaintext: true,
			BatchWindow: time.Second, // the default of 5 s is for distant relays
		},
		Purgatory: purgatory.Config{
			Times: purgatory.Times{Backoff: time.Second},
			// Two servers have all git data, so they get more requests than usual.
			Limits: purgatory.Limits{DomainLimit: purgatory.Limit{Concurrent: 8, PerMinute: 6000}},
		},
	})
	w.check(err)
	ctx, w.cancel = context.WithCancel(context.WithoutCancel(ctx))
	go func() {
		err := w.server.Run(ctx)
		if close(w.ended); ctx.Err() == nil {
			w.check(fmt.Errorf("our relay has ended: %w", err))
		}
	}()
	w.front.Config.Handler = w.server.Handler()
	w.front.Start()
	return "ws://" + w.host() + ", empty, which knows relay 1"
}

// clone clones all repositories of our relay, and compares their refs with the events.
func (w *world) clone(ctx context.Context) string {
	for _, r := range w.repos[:ourRepos] {
		dir := filepath.Join(w.dir, "clones", r.path())
		w.git(ctx, ".", "", "clone", "--quiet", "--mirror", "http://"+w.host()+"/"+r.path(), dir)
		if got := w.refs(ctx, dir); !maps.Equal(got, r.refs) {
			w.check(fmt.Errorf("%s has %v, want %v", r.name(), got, r.refs))
		}
	}
	return fmt.Sprintf("%d repositories by git; their refs are as the states say", ourRepos)
}

// fastImport creates a bare repository with two commits and returns its refs.
func (w *world) fastImport(ctx context.Context, dir, text string) map[string]string {
	in := ""
	for i, ref := range []string{tag, branch} {
		in += fmt.Sprintf("commit %s\nmark :%d\ncommitter A <a@example.com> 1700000000 +0000\ndata 6\ncommit\n", ref, i+1)
		if i > 0 {
			in += fmt.Sprintf("from :%d\n", i)
		}
		in += fmt.Sprintf("M 100644 inline %d\ndata %d\n%s\n", i, len(text)*40, strings.Repeat(text, 40))
	}
	w.git(ctx, ".", "", "init", "-q", "--bare", "-b", "main", dir)
	w.git(ctx, dir, in, "fast-import", "--quiet")
	return w.refs(ctx, dir)
}

func (w *world) refs(ctx context.Context, dir string) map[string]string {
	out := make(map[string]string)
	for line := range strings.Lines(w.git(ctx, dir, "", "for-each-ref", "--format=%(refname) %(objectname)")) {
		ref, id, _ := strings.Cut(strings.TrimSpace(line), " ")
		out[ref] = id
	}
	return out
}

var gitEnv = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.DevNull, "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=" + os.DevNull, "GIT_TEMPLATE_DIR="}

// git runs git without any configuration.
func (w *world) git(ctx context.Context, dir, input string, args ...string) string {
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir, cmd.Env, cmd.Stdin = dir, gitEnv, strings.NewReader(input)
	out, err := cmd.Output()
	if err != nil {
		w.check(fmt.Errorf("git %s in %s: %w", args[0], dir, err))
	}
	return string(out)
}
