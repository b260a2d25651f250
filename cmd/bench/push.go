package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cgi"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/coder/websocket"
	"github.com/dgraph-io/badger/v4"
	eventbadger "github.com/fiatjaf/eventstore/badger"
	"github.com/fiatjaf/khatru"
	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync/adapter/grasp"
	"github.com/graspsync/graspsync/egress"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/state"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// pushRow measures a push of one commit to a repository with many commits, until its state is
// served.
var pushRow = row{
	name:    "push",
	work:    "push of 1 commit to a repository of 10,000, until its events are served",
	measure: measurePush,
}

const (
	pushRounds  = 15
	pushCounted = 5
	// pushMost is the maximum time of any wait.
	pushMost = 2 * time.Minute
	// pushQuiet is the time for work to end that continues after the client got its answer.
	pushQuiet = 200 * time.Millisecond
)

// measurePush pushes the same commits alternately to our server and to git http-backend. Then it
// pushes more commits and counts processes, which makes the pushes slower.
func measurePush(r *run) error {
	rounds, counted := r.pick(pushRounds, 4), r.pick(pushCounted, 1)
	commits := r.pick(10_000, 1000)
	history, err := pushHistory(r, commits, 1+pushRounds+pushCounted)
	if err != nil {
		return err
	}
	ours, err := newPushServer(r, history)
	if err != nil {
		return err
	}
	defer ours.close()
	plain, err := newPlainServer(r, history)
	if err != nil {
		return err
	}
	defer plain.close()

	next := history.newest[0]
	for _, s := range []pushed{ours, plain} {
		if err := s.fill(r.ctx, next); err != nil {
			return err
		}
	}
	var costs [2]pushCosts
	round := func(i int) error {
		for n := range 2 {
			which := (n + i) % 2
			cost, err := pushOnce(r.ctx, []pushed{ours, plain}[which], history, history.newest[1+i])
			if err != nil {
				return err
			}
			costs[which] = append(costs[which], cost)
		}
		return nil
	}
	for i := range rounds {
		if err := round(i); err != nil {
			return err
		}
	}
	mine, theirs := costs[0].median(), costs[1].median()
	for _, s := range []pushed{ours, plain} {
		if err := s.count(r.ctx); err != nil {
			return err
		}
	}
	costs = [2]pushCosts{}
	for i := range counted {
		if err := round(rounds + i); err != nil {
			return err
		}
	}
	if err := errors.Join(ours.check(r.ctx, history.newest[rounds+counted]), plain.check(r.ctx, history.newest[rounds+counted])); err != nil {
		return err
	}
	myGits, theirGits := costs[0].median(), costs[1].median()

	ms := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
	r.atMost("time, of git http-backend's", float64(mine.time)/float64(theirs.time), "", 1.5)
	r.figure("time", ms(mine.time), "ms")
	r.figure("time of git http-backend", ms(theirs.time), "ms")
	r.atMost("CPU of the server, its children included, of git http-backend's", float64(mine.cpu)/float64(theirs.cpu), "", 1.5)
	r.figure("CPU of the server", ms(mine.cpu), "ms")
	r.figure("CPU of git http-backend", ms(theirs.cpu), "ms")
	r.figure("CPU of the server when the state was published, before", ms(mine.before), "ms")
	r.atMost("git processes of a push, those included that git starts", float64(myGits.gits), "", 4)
	r.figure("of these we start", float64(myGits.started), "")
	r.figure("git processes of git http-backend", float64(theirGits.gits), "")
	r.figure("git processes when the state was published, before", float64(myGits.gitsBefore), "")
	return nil
}

type pushCost struct {
	time, cpu     time.Duration
	before        time.Duration // CPU time before the push is allowed
	gits, started int           // git processes, and those not started by git
	gitsBefore    int
}

type pushCosts []pushCost

func (all pushCosts) median() (m pushCost) {
	m.time, m.cpu = middle(all, func(c pushCost) time.Duration { return c.time }), middle(all, func(c pushCost) time.Duration { return c.cpu })
	m.before = middle(all, func(c pushCost) time.Duration { return c.before })
	m.gits, m.started = middle(all, func(c pushCost) int { return c.gits }), middle(all, func(c pushCost) int { return c.started })
	m.gitsBefore = middle(all, func(c pushCost) int { return c.gitsBefore })
	return m
}

func middle[T ~int | ~int64](all pushCosts, of func(pushCost) T) T {
	values := make([]T, len(all))
	for i, c := range all {
		values[i] = of(c)
	}
	slices.Sort(values)
	return values[len(values)/2]
}

type pushed interface {
	// fill stores all commits up to a commit.
	fill(ctx context.Context, commit string) error
	// announce announces a commit that will be pushed. The returned function waits until it is
	// served.
	announce(ctx context.Context, commit string) (served func(ctx context.Context) error, err error)
	url() string
	// count starts counting processes.
	count(ctx context.Context) error
	gits() (starts, error)
	// check fails unless exactly a commit is served.
	check(ctx context.Context, commit string) error
}

func pushOnce(ctx context.Context, to pushed, from *history, commit string) (c pushCost, err error) {
	ctx, cancel := context.WithTimeout(ctx, pushMost)
	defer cancel()
	if _, err := to.gits(); err != nil {
		return c, err
	}
	used := spent()
	served, err := to.announce(ctx, commit)
	if err != nil {
		return c, err
	}
	time.Sleep(pushQuiet)
	before, err := to.gits()
	if err != nil {
		return c, err
	}
	c.before, c.gitsBefore = spent()-used, before.all
	used = spent()
	began := time.Now()
	client, err := from.push(ctx, to.url(), commit)
	if err == nil {
		err = served(ctx)
	}
	if err != nil {
		return c, err
	}
	c.time = time.Since(began)
	time.Sleep(pushQuiet)
	c.cpu = spent() - used - client
	now, err := to.gits()
	c.gits, c.started = now.all, now.first
	return c, err
}

// spent returns the CPU time of this process and of its finished children.
func spent() (sum time.Duration) {
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var u syscall.Rusage
		if syscall.Getrusage(who, &u) == nil { // else it is unknown
			sum += time.Duration(u.Utime.Nano() + u.Stime.Nano())
		}
	}
	return sum
}

// history is the repository of the client.
type history struct {
	dir    string
	home   string // an empty folder, so that no git configuration applies
	newest []string
}

// pushHistory returns a history with commits commits and the ids of more further ones. It is
// cached, because it is always the same.
func pushHistory(r *run, commits, more int) (*history, error) {
	h := &history{home: filepath.Join(r.dir, "home"), dir: filepath.Join(r.cache, fmt.Sprintf("history-%d-%d.git", commits, more))}
	if err := errors.Join(os.MkdirAll(r.cache, 0o700), os.Mkdir(h.home, 0o700)); err != nil {
		return nil, err
	}
	if _, err := os.Stat(h.dir); err != nil {
		made := *h
		made.dir = filepath.Join(r.cache, filepath.Base(r.dir)) // on the disk of the cache
		defer os.RemoveAll(made.dir)
		if err := made.make(r.ctx, commits+more-1); err != nil {
			return nil, err
		}
		if err := os.Rename(made.dir, h.dir); err != nil {
			return nil, err
		}
	}
	ids, err := h.git(r.ctx, nil, "rev-list", "--reverse", fmt.Sprintf("--max-count=%d", more), "refs/heads/main")
	h.newest = strings.Fields(ids)
	if err == nil && len(h.newest) != more {
		err = fmt.Errorf("%s: %d commits, want %d", h.dir, len(h.newest), more)
	}
	return h, err
}

// The files of a history are in folders. Each commit changes one file.
const (
	historyFolders = 50
	historyFiles   = 20
)

func (h *history) make(ctx context.Context, commits int) error {
	if err := os.Mkdir(h.dir, 0o700); err != nil {
		return err
	}
	if _, err := h.git(ctx, nil, "init", "-q", "--bare", "-b", "main"); err != nil {
		return err
	}
	out, in := io.Pipe()
	go func() { _ = in.CloseWithError(writeHistory(in, commits)) }() // git reports a failure
	_, err := h.git(ctx, out, "fast-import", "--quiet")
	_ = out.Close()
	if err == nil {
		_, err = h.git(ctx, nil, "repack", "-a", "-d", "-q")
	}
	return err
}

func writeHistory(w io.Writer, commits int) error {
	var b bytes.Buffer
	for i := range commits {
		var text bytes.Buffer
		for line := range 40 {
			fmt.Fprintf(&text, "line %d of file %d as of change %d\n", line, i%1000, i*(line%7)/6)
		}
		message := fmt.Sprintf("change %d\n", i)
		fmt.Fprintf(&b, "commit refs/heads/main\ncommitter Somebody <somebody@mail.example> %d +0000\ndata %d\n%s", 1_600_000_000+600*i, len(message), message)
		fmt.Fprintf(&b, "M 100644 inline dir%d/file%d.txt\ndata %d\n%s\n", i%historyFolders, i/historyFolders%historyFiles, text.Len(), text.Bytes())
		if _, err := b.WriteTo(w); err != nil {
			return err
		}
	}
	return nil
}

// push returns the CPU time of the client.
func (h *history) push(ctx context.Context, url, commit string) (time.Duration, error) {
	cmd := h.command(ctx, "push", "-q", url, commit+":refs/heads/main")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("git push: %w: %s", err, out)
	}
	return cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), nil
}

func (h *history) git(ctx context.Context, stdin io.Reader, args ...string) (string, error) {
	cmd := h.command(ctx, args...)
	cmd.Stdin = stdin
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("git %s: %w: %s", args[0], err, said.Bytes())
	}
	return string(out), err
}

func (h *history) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir, cmd.Env = h.dir, h.env()
	return cmd
}

func (h *history) env() []string {
	return []string{"PATH=" + os.Getenv("PATH"), "HOME=" + h.home, "GIT_CONFIG_NOSYSTEM=1", "GIT_TERMINAL_PROMPT=0"}
}

// at returns the commit of a server's branch.
func (h *history) at(ctx context.Context, url string) (string, error) {
	out, err := h.git(ctx, nil, "ls-remote", url, "refs/heads/main")
	id, _, _ := strings.Cut(out, "\t")
	return id, err
}

// starts are numbers of git processes.
type starts struct {
	all   int
	first int // not started by another git process
	what  []string
}

// gitTrace makes git write a file for each process that it starts.
type gitTrace struct{ dir string } // "": not counting yet

func (t gitTrace) env() string { return "GIT_TRACE2_EVENT=" + t.dir }

// take returns the processes since the last call.
func (t gitTrace) take() (s starts, err error) {
	if t.dir == "" {
		return s, nil
	}
	files, err := os.ReadDir(t.dir)
	if err != nil {
		return s, err
	}
	for _, f := range files {
		path := filepath.Join(t.dir, f.Name())
		data, err := os.ReadFile(path)
		if err != nil {
			return s, err
		}
		if err := os.Remove(path); err != nil {
			return s, err
		}
		s.all++
		for line := range bytes.Lines(data) {
			var e struct {
				Event string   `json:"event"`
				SID   string   `json:"sid"`
				Argv  []string `json:"argv"`
			}
			if json.Unmarshal(line, &e) != nil || e.Event != "start" {
				continue
			}
			if !strings.Contains(e.SID, "/") {
				s.first++
			}
			s.what = append(s.what, strings.Join(e.Argv, " "))
		}
	}
	return s, nil
}

// pushServer is our server, a relay with repositories on disk.
type pushServer struct {
	from   *history
	dir    string
	front  *http.Server
	addr   string
	now    atomic.Pointer[http.Handler]
	events *eventbadger.BadgerBackend
	state  *state.DB
	stop   func() error
	client *nostrClient
	owner  *relaytest.Key
	states int // number of published states
	newest *nostr.Event
	trace  gitTrace
}

const pushRepo = "repo"

func newPushServer(r *run, from *history) (_ *pushServer, err error) {
	s := &pushServer{from: from, dir: filepath.Join(r.dir, "ours"), owner: relaytest.NewKey("owner of what is pushed to")}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if err := os.Mkdir(s.dir, 0o700); err != nil {
		return nil, err
	}
	s.events = &eventbadger.BadgerBackend{
		Path: filepath.Join(s.dir, "events"),
		BadgerOptionsModifier: func(o badger.Options) badger.Options {
			return o.WithLogger(nil).WithSyncWrites(true)
		},
	}
	if err := s.events.Init(); err != nil {
		s.events = nil
		return nil, err
	}
	if s.state, err = state.Open(filepath.Join(s.dir, "state"), state.Config{}); err != nil {
		return nil, err
	}
	if s.front, s.addr, err = listen(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { (*s.now.Load()).ServeHTTP(w, r) })); err != nil {
		return nil, err
	}
	return s, s.start(r.ctx, "git")
}

func listen(h http.Handler) (*http.Server, string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, "", err
	}
	front := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = front.Serve(l) }() // until it is closed
	return front, l.Addr().String(), nil
}

func (s *pushServer) start(ctx context.Context, git string) error {
	own, err := netip.ParseAddrPort(s.addr)
	if err != nil {
		return err
	}
	identity, err := nip34.ParseIdentity(s.addr)
	if err != nil {
		return err
	}
	cfg := grasp.Config{
		Dir: filepath.Join(s.dir, "git"), State: s.state, Egress: egress.Config{Own: []netip.AddrPort{own}}, Sync: relaysync.Config{AllowPlaintext: true},
	}
	cfg.Fetch.Git = git
	server, err := grasp.New(ctx, khatru.NewRelay(), s.events, identity, cfg)
	if err != nil {
		return err
	}
	handler := server.Handler()
	s.now.Store(&handler)
	running, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.Run(running) // its error is the end of the context
	}()
	s.stop = func() error {
		cancel()
		<-ended
		return server.Close()
	}
	s.client, err = dialNostr(ctx, "ws://"+s.addr)
	return err
}

func (s *pushServer) end() (err error) {
	if s.client != nil {
		s.client.close()
		s.client = nil
	}
	if s.stop != nil {
		err = s.stop()
		s.stop = nil
	}
	return err
}

func (s *pushServer) close() {
	_ = s.end() // the measurement has ended
	if s.front != nil {
		_ = s.front.Close()
	}
	if s.state != nil {
		_ = s.state.Close()
	}
	if s.events != nil {
		s.events.Close()
	}
}

func (s *pushServer) url() string { return s.owner.CloneURL("ws://"+s.addr, pushRepo) }

func (s *pushServer) fill(ctx context.Context, commit string) error {
	ctx, cancel := context.WithTimeout(ctx, pushMost)
	defer cancel()
	if err := s.client.publish(ctx, s.owner.Hosted(nostr.Now()-1000, pushRepo, "ws://"+s.addr)); err != nil {
		return err
	}
	served, err := s.announce(ctx, commit)
	if err == nil {
		_, err = s.from.push(ctx, s.url(), commit)
	}
	if err == nil {
		err = served(ctx)
	}
	return err
}

// announce publishes a state, which must not be served before the push.
func (s *pushServer) announce(ctx context.Context, commit string) (served func(ctx context.Context) error, err error) {
	s.states++
	ev := s.owner.State(nostr.Now()-900+nostr.Timestamp(s.states), pushRepo, map[string]string{"refs/heads/main": commit}, "main")
	if err := s.client.publish(ctx, ev); err != nil {
		return nil, err
	}
	s.newest = ev
	there, err := s.client.ask(ctx, ev.ID)
	if err == nil && there {
		err = errors.New("a state was served before its data was here")
	}
	return func(ctx context.Context) error { return s.client.await(ctx, ev.ID) }, err
}

// count restarts the server with a traced git.
func (s *pushServer) count(ctx context.Context) error {
	if err := s.end(); err != nil {
		return err
	}
	git, err := exec.LookPath("git")
	if err != nil {
		return err
	}
	s.trace.dir = filepath.Join(s.dir, "trace")
	traced := filepath.Join(s.dir, "traced-git")
	script := fmt.Sprintf("#!/bin/sh\n%s exec '%s' \"$@\"\n", s.trace.env(), git)
	if err := errors.Join(os.Mkdir(s.trace.dir, 0o700), os.WriteFile(traced, []byte(script), 0o700)); err != nil {
		return err
	}
	return s.start(ctx, traced)
}

func (s *pushServer) gits() (starts, error) { return s.trace.take() }

func (s *pushServer) check(ctx context.Context, commit string) error {
	if at, err := s.from.at(ctx, s.url()); err != nil || at != commit {
		return errors.Join(err, fmt.Errorf("our server is at %s, want %s", at, commit))
	}
	there, err := s.client.ask(ctx, s.newest.ID)
	if err == nil && !there {
		err = errors.New("the newest state is not served")
	}
	return err
}

// plainServer is git http-backend.
type plainServer struct {
	from  *history
	dir   string
	addr  string
	front *http.Server
	now   atomic.Pointer[cgi.Handler]
	trace gitTrace
}

func newPlainServer(r *run, from *history) (*plainServer, error) {
	s := &plainServer{from: from, dir: filepath.Join(r.dir, "plain")}
	where, err := from.git(r.ctx, nil, "--exec-path")
	if err != nil {
		return nil, err
	}
	s.now.Store(&cgi.Handler{
		Path: filepath.Join(strings.TrimSpace(where), "git-http-backend"), Root: "/",
		Env: append(from.env(), "GIT_PROJECT_ROOT="+s.dir, "GIT_HTTP_EXPORT_ALL=1"),
	})
	if err := os.Mkdir(s.dir, 0o700); err != nil {
		return nil, err
	}
	s.front, s.addr, err = listen(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.now.Load().ServeHTTP(w, r) }))
	return s, err
}

func (s *plainServer) close() { _ = s.front.Close() } // the measurement has ended

func (s *plainServer) url() string { return "http://" + s.addr + "/repo.git" }

// fill pushes to the folder, because net/http/cgi accepts no body of unknown length.
func (s *plainServer) fill(ctx context.Context, commit string) error {
	ctx, cancel := context.WithTimeout(ctx, pushMost)
	defer cancel()
	dir := filepath.Join(s.dir, "repo.git")
	for _, args := range [][]string{{"init", "-q", "--bare", "-b", "main", dir}, {"--git-dir=" + dir, "config", "http.receivepack", "true"}} {
		if _, err := s.from.git(ctx, nil, args...); err != nil {
			return err
		}
	}
	_, err := s.from.push(ctx, dir, commit)
	return err
}

func (s *plainServer) announce(context.Context, string) (func(context.Context) error, error) {
	return func(context.Context) error { return nil }, nil
}

func (s *plainServer) count(context.Context) error {
	s.trace.dir = filepath.Join(s.dir, "trace")
	traced := *s.now.Load()
	traced.Env = append(slices.Clone(traced.Env), s.trace.env())
	s.now.Store(&traced)
	return os.Mkdir(s.trace.dir, 0o700)
}

func (s *plainServer) gits() (starts, error) { return s.trace.take() }

func (s *plainServer) check(ctx context.Context, commit string) error {
	at, err := s.from.at(ctx, s.url())
	if err == nil && at != commit {
		err = fmt.Errorf("git http-backend is at %s, want %s", at, commit)
	}
	return err
}

// nostrClient is a client of a relay. Only one goroutine uses it.
type nostrClient struct{ conn *websocket.Conn }

func dialNostr(ctx context.Context, url string) (*nostrClient, error) {
	conn, _, err := websocket.Dial(ctx, url, nil) //nolint:bodyclose // a websocket's answer has none
	return &nostrClient{conn}, err
}

func (c *nostrClient) close() {
	if c.conn != nil {
		_ = c.conn.CloseNow()
	}
}

func (c *nostrClient) publish(ctx context.Context, ev *nostr.Event) error {
	if err := c.write(ctx, "EVENT", ev); err != nil {
		return err
	}
	for {
		answer, err := c.read(ctx)
		if err != nil {
			return err
		}
		if ok, is := answer.(*nostr.OKEnvelope); is && ok.EventID == ev.ID {
			if !ok.OK {
				return fmt.Errorf("the relay refuses an event: %s", ok.Reason)
			}
			return nil
		}
	}
}

// ask subscribes to an event and reports whether it is stored.
func (c *nostrClient) ask(ctx context.Context, id string) (there bool, err error) {
	if err := c.write(ctx, "REQ", id, nostr.Filter{IDs: []string{id}}); err != nil {
		return false, err
	}
	for {
		answer, err := c.read(ctx)
		if err != nil {
			return false, err
		}
		switch answer := answer.(type) {
		case *nostr.EventEnvelope:
			there = there || answer.Event.ID == id
		case *nostr.EOSEEnvelope:
			if string(*answer) == id {
				return there, nil
			}
		case *nostr.ClosedEnvelope:
			return false, fmt.Errorf("the relay closes a subscription: %s", answer.Reason)
		}
	}
}

// await waits for an event that ask subscribed to, and ends the subscription.
func (c *nostrClient) await(ctx context.Context, id string) error {
	for {
		answer, err := c.read(ctx)
		if err != nil {
			return err
		}
		if ev, is := answer.(*nostr.EventEnvelope); is && ev.Event.ID == id {
			return c.write(ctx, "CLOSE", id)
		}
	}
}

func (c *nostrClient) write(ctx context.Context, message ...any) error {
	data, err := json.Marshal(message)
	if err != nil {
		return err
	}
	return c.conn.Write(ctx, websocket.MessageText, data)
}

func (c *nostrClient) read(ctx context.Context) (nostr.Envelope, error) {
	_, data, err := c.conn.Read(ctx)
	if err != nil {
		return nil, err
	}
	return nostr.NewMessageParser().ParseMessage(string(data))
}
