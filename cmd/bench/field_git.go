package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fiatjaf/khatru"
	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/adapter/grasp"
	"github.com/graspsync/graspsync/egress"
	"github.com/graspsync/graspsync/internal/cputime"
	"github.com/graspsync/graspsync/internal/fieldhub"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/state"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// gitServers is the number of servers with the repositories. The measured hub is 1/fieldPart of the
// whole. gitLimit is the time after which a sync counts as hung.
const (
	gitServers = 5
	fieldPart  = 5
	gitLimit   = 20 * time.Minute
)

// gitField is a hub with git data, as stored on disk. One repository contains all git data, with a
// namespace for each.
type gitField struct {
	Size         string // another size is another hub
	Port         int
	Events       []*nostr.Event
	Wanted       []string // ids
	Repositories []string // paths of URLs
}

func (f *gitField) address() string { return fmt.Sprintf("127.0.0.1:%d", f.Port) }

func namespace(i int) string       { return fmt.Sprint("r", i) }
func gitFolder(path string) string { return strings.TrimSuffix(path, ".json") + ".git" }

// fieldGitRow measures the first sync of a server like cmd/graspserver with a hub and its git data,
// from a relay and five git servers in another process. The number of requests to them is not
// limited; the rate of the default limits is printed too.
func fieldGitRow(r *run) error {
	f, path, err := loadGitField(r)
	if err != nil {
		return err
	}
	servers, err := startServers(r.ctx, path)
	if err != nil {
		return err
	}
	err = f.sync(r)
	return errors.Join(err, servers.close())
}

func readGitField(path string) (*gitField, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	f := &gitField{}
	return f, json.Unmarshal(data, f)
}

// loadGitField reads the hub and its git data, or generates them the first time.
func loadGitField(r *run) (f *gitField, path string, err error) {
	size := fieldhub.Production.Part(r.pick(fieldPart, 125))
	size.Tips, size.Answering = 0, 0 // without missing git data, because giving up takes half an hour
	size.LargeEvent = 60 << 10       // the maximum of the backend
	text, err := json.Marshal(size)
	if err != nil {
		return nil, "", err
	}
	path = filepath.Join(r.cache, fmt.Sprintf("field-git-%d.json", size.Repositories))
	if f, err := readGitField(path); err == nil && f.Size == string(text) && free(f.address()) {
		return f, path, nil
	}
	f = &gitField{Size: string(text)}
	if f.Port, err = freePort(); err != nil {
		return nil, "", err
	}
	cfg := fieldhub.Config{Size: size, Server: fieldServer, Host: fmt.Sprintf("ws://%s:%d", fieldRelay, f.Port), Now: fieldNow}
	for i := range gitServers {
		cfg.GitServers = append(cfg.GitServers, fmt.Sprintf("http://"+fieldGit+":%d", i, f.Port))
	}
	refs, err := makeGit(r.ctx, gitFolder(path), cfg)
	if err != nil {
		return nil, "", err
	}
	cfg.Key, cfg.Commit = relaytest.NewKey, func(repo int, name string) string { return refs[repo][name] }
	h := fieldhub.New(cfg)
	f.Events = h.Events
	for _, ev := range h.Wanted {
		f.Wanted = append(f.Wanted, ev.ID)
	}
	for i := range size.Repositories {
		_, where, _ := strings.Cut(strings.TrimPrefix(h.CloneURL(i), "http://"), "/")
		f.Repositories = append(f.Repositories, "/"+where)
	}
	data, err := json.Marshal(f)
	if err != nil {
		return nil, "", err
	}
	return f, path, keep(path, data)
}

func free(address string) bool {
	l, err := net.Listen("tcp", address)
	return err == nil && l.Close() == nil
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	addr, err := netip.ParseAddrPort(l.Addr().String())
	return int(addr.Port()), errors.Join(err, l.Close())
}

// makeGit generates the git data of a hub's events and returns the refs of each repository. A
// repository has ten commits of a few files, tags at some of them, and one more commit for each
// pull request.
func makeGit(ctx context.Context, dir string, cfg fieldhub.Config) (map[int]map[string]string, error) {
	var mu sync.Mutex
	named := make(map[int]map[string]bool)
	cfg.Commit = func(repo int, name string) string { // collects the names
		mu.Lock()
		defer mu.Unlock()
		if named[repo] == nil {
			named[repo] = make(map[string]bool)
		}
		named[repo][name] = true
		return strings.Repeat("1", 40)
	}
	fieldhub.New(cfg)
	if err := os.RemoveAll(dir); err != nil {
		return nil, err
	}
	var stream bytes.Buffer
	for _, i := range slices.Sorted(maps.Keys(named)) {
		writeRepository(&stream, i, slices.Sorted(maps.Keys(named[i])))
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, err
	}
	if _, err := gitIn(ctx, dir, nil, "init", "-q", "--bare"); err != nil {
		return nil, err
	}
	if _, err := gitIn(ctx, dir, &stream, "fast-import", "--quiet"); err != nil {
		return nil, err
	}
	if _, err := gitIn(ctx, dir, nil, "pack-refs", "--all"); err != nil {
		return nil, err
	}
	out, err := gitIn(ctx, dir, nil, "for-each-ref", "--format=%(objectname) %(refname)")
	if err != nil {
		return nil, err
	}
	refs := make(map[int]map[string]string)
	for line := range strings.Lines(out) {
		var i int
		id, name, _ := strings.Cut(strings.TrimSpace(line), " ")
		if _, err := fmt.Sscanf(name, "refs/namespaces/r%d/", &i); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if refs[i] == nil {
			refs[i] = make(map[string]string)
		}
		refs[i][filepath.Base(name)] = id
	}
	return refs, nil
}

func writeRepository(w io.Writer, i int, names []string) {
	const commits = 10
	commit := func(ref, from, text, path string) {
		content := strings.Repeat(fmt.Sprintf("%s of repository %d\n", text, i), 40)
		fmt.Fprintf(w, "commit %s\ncommitter a <a@example.com> %d +0000\ndata %d\n%s\n", ref, 1_700_000_000+i, len(text), text)
		if from != "" {
			fmt.Fprintf(w, "from %s\n", from)
		}
		fmt.Fprintf(w, "M 644 inline %s\ndata %d\n%s\n", path, len(content), content)
	}
	space := "refs/namespaces/" + namespace(i) + "/refs/"
	main := space + "heads/main"
	for n := range commits {
		commit(main, "", fmt.Sprint("commit ", n), fmt.Sprintf("folder%d/file%d", n%3, n%5))
		if tag := fmt.Sprint("v0.", n/2); n%2 == 0 && slices.Contains(names, tag) {
			fmt.Fprintf(w, "reset %stags/%s\nfrom %s\n\n", space, tag, main)
		}
	}
	for _, name := range names {
		if strings.HasPrefix(name, "pull-") {
			commit(space+"heads/"+name, main, name, "proposed")
		}
	}
}

func gitIn(ctx context.Context, dir string, in io.Reader, args ...string) (string, error) {
	cmd := gitCommand(ctx, dir, args...)
	cmd.Stdin = in
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("git %s: %w: %s", args[0], err, out)
	}
	return string(out), nil
}

// gitCommand returns a git without the configuration of the machine.
func gitCommand(ctx context.Context, dir string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir, cmd.Env = dir, gitEnv()
	return cmd
}

func gitEnv() []string {
	return append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null", "GIT_TERMINAL_PROMPT=0")
}

// fieldNames resolves the host names of the events to loopback.
type fieldNames struct{}

// LookupNetIP implements [egress.Resolver].
func (fieldNames) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	if host == fieldRelay || strings.HasPrefix(host, "git") {
		return []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1})}, nil
	}
	return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
}

// sync syncs until all events are served.
func (f *gitField) sync(r *run) error {
	ctx, cancel := context.WithTimeoutCause(r.ctx, gitLimit, fmt.Errorf("not all is here after %s", gitLimit))
	defer cancel()
	db, err := openBadger(r.dir)
	if err != nil {
		return err
	}
	defer db.Close()
	records, err := state.Open(filepath.Join(r.dir, "state"), state.Config{})
	if err != nil {
		return err
	}
	defer records.Close()
	identity, err := nip34.ParseIdentity(fieldServer)
	if err != nil {
		return err
	}
	first, err := graspsync.ParseRelayURL(fmt.Sprintf("ws://%s:%d", fieldRelay, f.Port))
	if err != nil {
		return err
	}
	wanted, err := f.wanted()
	if err != nil {
		return err
	}
	relay := khatru.NewRelay()
	relay.Log = slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)
	own, git, began := cputime.Used(), cputime.Children(), time.Now()
	server, err := grasp.New(ctx, relay, db, identity, grasp.Config{
		Dir: filepath.Join(r.dir, "git"), State: records,
		Egress: egress.Config{Resolver: fieldNames{}, Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}},
		Sync:   relaysync.Config{Bootstrap: []graspsync.RelayURL{first}, AllowPlaintext: true},
		Purgatory: purgatory.Config{Limits: purgatory.Limits{
			DomainLimit: purgatory.Limit{Concurrent: 5, PerMinute: 1_000_000},
		}},
	})
	if err != nil {
		return err
	}
	defer server.Close()
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	running.Go(func() {
		if err := server.Run(ctx); err != nil {
			cancel()
		}
	})
	if err := arrive(ctx, server.Sync().Store(), wanted); err != nil {
		return err
	}
	own, git, took := cputime.Used()-own, cputime.Children()-git, time.Since(began)
	status := server.Purgatory().Status()
	r.figure(fmt.Sprintf("repositories, of the hub's %d", fieldhub.Production.Repositories), float64(len(f.Repositories)), "")
	r.figure("events on the hub", float64(len(f.Events)), "")
	r.figure("events that are wanted", float64(len(wanted)), "")
	part := float64(fieldhub.Production.Repositories) / float64(len(f.Repositories))
	r.figure("CPU, that of git included", (own + git).Seconds(), "s")
	r.figure("of it git", git.Seconds(), "s")
	r.atMost("CPU for as many repositories as the hub has, if each takes as much", (own+git).Seconds()*part, "s", 25)
	r.figure("requests for git data", float64(status.Fetches), "")
	r.figure("time without a throttle", took.Seconds(), "s")
	r.figure("time that 30 requests a minute and server take, at least", float64(status.Fetches)/30/gitServers, "min")
	return nil
}

func (f *gitField) wanted() (ids []graspsync.EventID, err error) {
	most := relaytest.GraspRelay().MaxEvent
	large := make(map[string]bool)
	for _, ev := range f.Events {
		large[ev.ID] = most > 0 && len(ev.String()) > most
	}
	for _, text := range f.Wanted {
		id, err := graspsync.ParseEventID(text)
		if err != nil {
			return nil, err
		}
		if tooLarge, there := large[text]; there && !tooLarge {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// arrive waits until a store contains all events. It checks a few events at a time.
func arrive(ctx context.Context, store relaysync.Store, missing []graspsync.EventID) error {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		for len(missing) > 0 {
			some := missing[:min(len(missing), 100)]
			here, err := store.Has(ctx, some)
			if err != nil {
				return errors.Join(err, context.Cause(ctx))
			}
			i := slices.Index(here, false)
			if i >= 0 {
				missing = missing[i:]
				break
			}
			missing = missing[len(some):]
		}
		if len(missing) == 0 {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%w: %d events, one of them %s", context.Cause(ctx), len(missing), missing[0])
		}
	}
}
