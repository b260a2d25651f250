package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/graspsync/graspsync/internal/cputime"

	"github.com/dgraph-io/badger/v4"
	eventbadger "github.com/fiatjaf/eventstore/badger"
	"github.com/fiatjaf/khatru"
	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync/adapter/grasp"
	"github.com/graspsync/graspsync/sync/relaytest"
)

const (
	pushRounds = 15
	// pushMost is the maximum time of a push.
	pushMost = 2 * time.Minute
	// pushQuiet is the time for work to end that continues after the client got its answer.
	pushQuiet = 200 * time.Millisecond
)

// measurePush pushes the same commits alternately to our server and to git http-backend.
func measurePush(r *run) error {
	rounds := r.pick(pushRounds, 4)
	history, err := pushHistory(r, r.pick(10_000, 1000), 1+pushRounds)
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
	defer plain.Close()
	var costs [2][]pushCost
	for i := range rounds {
		for n := range 2 {
			which := (n + i) % 2
			cost, err := [2]func(context.Context, string) (pushCost, error){ours.push, plain.push}[which](r.ctx, history.newest[1+i])
			if err != nil {
				return err
			}
			costs[which] = append(costs[which], cost)
		}
	}
	mine, theirs := middle(costs[0]), middle(costs[1])
	ms := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
	r.atMost("time, of git http-backend's", ratio(mine.time, theirs.time), "", 1.5)
	r.figure("time", ms(mine.time), "ms")
	r.figure("time of git http-backend", ms(theirs.time), "ms")
	r.atMost("CPU of the server, its children included, of git http-backend's", ratio(mine.cpu, theirs.cpu), "", 1.5)
	r.figure("CPU of the server", ms(mine.cpu), "ms")
	r.figure("CPU of git http-backend", ms(theirs.cpu), "ms")
	return nil
}

type pushCost struct{ time, cpu time.Duration }

// middle returns the median of each quantity.
func middle(all []pushCost) (m pushCost) {
	var times, cpus []time.Duration
	for _, c := range all {
		times, cpus = append(times, c.time), append(cpus, c.cpu)
	}
	slices.Sort(times)
	slices.Sort(cpus)
	return pushCost{times[len(all)/2], cpus[len(all)/2]}
}

// pushOnce pushes a commit and waits until it is served.
func pushOnce(ctx context.Context, from *history, url, commit string, served func() error) (c pushCost, err error) {
	used, began := spent(), time.Now()
	client, err := from.push(ctx, url, commit)
	if err == nil {
		err = served()
	}
	c.time = time.Since(began)
	time.Sleep(pushQuiet)
	c.cpu = spent() - used - client
	return c, err
}

// spent returns the CPU time of this process and of its finished children.
func spent() time.Duration { return cputime.Used() + cputime.Children() }

// history is the repository of the client.
type history struct {
	dir    string
	newest []string
}

// pushHistory returns a history with commits commits and the ids of more further ones. It is
// cached, because it is always the same.
func pushHistory(r *run, commits, more int) (*history, error) {
	h := &history{dir: filepath.Join(r.cache, fmt.Sprintf("history-%d-%d.git", commits, more))}
	if err := os.MkdirAll(r.cache, 0o700); err != nil {
		return nil, err
	}
	if _, err := os.Stat(h.dir); err != nil {
		made := history{dir: filepath.Join(r.cache, filepath.Base(r.dir))} // on the disk of the cache
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
	cmd := gitCommand(ctx, h.dir, "push", "-q", url, commit+":refs/heads/main")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("git push: %w: %s", err, out)
	}
	return cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), nil
}

func (h *history) git(ctx context.Context, stdin io.Reader, args ...string) (string, error) {
	return gitIn(ctx, h.dir, stdin, args...)
}

// pushServer is our server, a relay with repositories on disk.
type pushServer struct {
	from   *history
	addr   string
	client *nostr.Relay
	owner  *relaytest.Key
	states int // number of published states
	close  func()
}

const pushRepo = "repo"

func openBadger(dir string) (*eventbadger.BadgerBackend, error) {
	db := &eventbadger.BadgerBackend{
		Path:                  filepath.Join(dir, "events"),
		BadgerOptionsModifier: func(o badger.Options) badger.Options { return o.WithLogger(nil).WithSyncWrites(true) },
	}
	return db, db.Init()
}

// newPushServer starts a server and pushes the first commit.
func newPushServer(r *run, from *history) (_ *pushServer, err error) {
	dir := filepath.Join(r.dir, "ours")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	db, err := openBadger(dir)
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &pushServer{from: from, addr: l.Addr().String(), owner: relaytest.NewKey("owner of what is pushed to")}
	server, err := grasp.Open(r.ctx, khatru.NewRelay(), db, s.addr, dir)
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	front := &http.Server{Handler: server.Handler(), ReadHeaderTimeout: headTimeout}
	go func() { _ = front.Serve(l) }() // until it is closed
	running, cancel := context.WithCancel(r.ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.Run(running) // its error is the end of the context
	}()
	s.close = func() {
		front.Close()
		cancel()
		<-ended
		server.Close()
		db.Close()
	}
	if s.client, err = nostr.RelayConnect(running, "ws://"+s.addr); err == nil {
		err = s.client.Publish(r.ctx, *s.owner.Hosted(nostr.Now()-1000, pushRepo, "ws://"+s.addr))
	}
	if err == nil {
		_, err = s.push(r.ctx, from.newest[0])
	}
	if err != nil {
		s.close()
	}
	return s, err
}

func (s *pushServer) url() string { return s.owner.CloneURL("ws://"+s.addr, pushRepo) }

// push publishes a state, which must not be served before the push, and pushes its commit.
func (s *pushServer) push(ctx context.Context, commit string) (c pushCost, err error) {
	ctx, cancel := context.WithTimeout(ctx, pushMost)
	defer cancel()
	s.states++
	ev := s.owner.State(nostr.Now()-900+nostr.Timestamp(s.states), pushRepo, map[string]string{"refs/heads/main": commit}, "main")
	if err := s.client.Publish(ctx, *ev); err != nil {
		return c, err
	}
	sub, err := s.client.Subscribe(ctx, nostr.Filters{{IDs: []string{ev.ID}}})
	if err != nil {
		return c, err
	}
	defer sub.Unsub()
	select {
	case <-sub.Events:
		return c, errors.New("a state was served before its data was pushed")
	case <-sub.EndOfStoredEvents:
	case <-ctx.Done():
		return c, ctx.Err()
	}
	time.Sleep(pushQuiet)
	return pushOnce(ctx, s.from, s.url(), commit, func() error {
		select {
		case <-sub.Events:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
}

// plainServer is git http-backend.
type plainServer struct {
	*httptest.Server
	from *history
}

// newPlainServer starts git http-backend with the first commit. That commit is pushed to the
// folder, because net/http/cgi accepts no body of unknown length.
func newPlainServer(r *run, from *history) (*plainServer, error) {
	dir := filepath.Join(r.dir, "plain")
	repo := filepath.Join(dir, "repo.git")
	where, err := from.git(r.ctx, nil, "--exec-path")
	if err != nil {
		return nil, err
	}
	for _, args := range [][]string{{"init", "-q", "--bare", "-b", "main", repo}, {"--git-dir=" + repo, "config", "http.receivepack", "true"}} {
		if _, err := from.git(r.ctx, nil, args...); err != nil {
			return nil, err
		}
	}
	if _, err := from.push(r.ctx, repo, from.newest[0]); err != nil {
		return nil, err
	}
	return &plainServer{httptest.NewServer(&cgi.Handler{
		Path: filepath.Join(strings.TrimSpace(where), "git-http-backend"), Root: "/",
		Env: append(gitEnv(), "GIT_PROJECT_ROOT="+dir, "GIT_HTTP_EXPORT_ALL=1"),
	}), from}, nil
}

func (s *plainServer) url() string { return s.URL + "/repo.git" }

func (s *plainServer) push(ctx context.Context, commit string) (pushCost, error) {
	ctx, cancel := context.WithTimeout(ctx, pushMost)
	defer cancel()
	return pushOnce(ctx, s.from, s.url(), commit, func() error { return nil })
}
