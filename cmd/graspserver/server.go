package main

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"

	"github.com/dgraph-io/badger/v4"
	eventbadger "github.com/fiatjaf/eventstore/badger"
	"github.com/fiatjaf/khatru"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/graspsync/graspsync/adapter/gate"
	"github.com/graspsync/graspsync/adapter/grasp"
	khatruadapter "github.com/graspsync/graspsync/adapter/khatru"
	"github.com/graspsync/graspsync/egress"
	"github.com/graspsync/graspsync/health"
	"github.com/graspsync/graspsync/internal/disk"
	"github.com/graspsync/graspsync/internal/front"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/purgatory/gitfetch"
	"github.com/graspsync/graspsync/purgatory/gitserve"
	"github.com/graspsync/graspsync/state"
	relaysync "github.com/graspsync/graspsync/sync"
)

// run serves until ctx ends. It calls started with the address, if started is not nil.
func run(ctx context.Context, opt options, log *slog.Logger, started func(net.Addr)) error {
	if err := os.MkdirAll(opt.data, 0o700); err != nil {
		return fmt.Errorf("making the data folder: %w", err)
	}
	records, err := state.Open(filepath.Join(opt.data, "state"), state.Config{Logger: log})
	if err != nil {
		return fmt.Errorf("opening the state: %w", err)
	}
	defer records.Close()
	db, err := openDatabase(opt)
	if err != nil {
		return err
	}
	defer db.Close()
	listener, err := net.Listen("tcp", opt.listen)
	if err != nil {
		return fmt.Errorf("listening: %w", err)
	}
	defer listener.Close()

	op, err := openOperator(ctx, opt, log)
	if err != nil {
		return err
	}
	defer op.close()
	server, err := newServer(ctx, db, records, op, opt, listener.Addr(), log)
	if err != nil {
		return err
	}
	defer server.Close()
	identity, err := identityOf(opt)
	if err != nil {
		return err
	}
	relay, err := administered(server.Relay(), server, identity, records, opt, listener.Addr(), log)
	if err != nil {
		return err
	}
	site := http.NewServeMux()
	site.Handle("/", relay)
	site.HandleFunc("GET /healthz", healthy)
	site.HandleFunc("GET /readyz", ready(server, false))
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	admin, err := newAdminSite(server, opt, records.Collector("ngit"), op.kept.Collector("ngit_rules"))
	if err != nil {
		return err
	}
	stop, err := serveAdmin(admin, site, opt, listener.Addr(), log)
	if err != nil {
		return err
	}
	defer stop()
	go op.reloads(ctx, server, opt.reload)
	go summarize(ctx, server.Sync(), log, opt.summaryEvery)
	log.Info("serving", "address", listener.Addr().String(), "domain", cmp.Or(bare(opt.domain), listener.Addr().String()))
	if started != nil {
		started(listener.Addr())
	}
	return gate.Serve(ctx, listener, server.Git(withDeadline(site)), server.Run)
}

// databaseRoom is the number of free bytes that are required to open the database. Badger maps a
// sparse file of this size for its newest events. A write to a block that the full disk cannot
// provide would end the process by a signal.
const databaseRoom = 128 << 20

// openDatabase opens the event database in the data folder.
func openDatabase(opt options) (*eventbadger.BadgerBackend, error) {
	free, err := disk.Free(opt.data)
	if err == nil && free < databaseRoom {
		err = fmt.Errorf("no room on the disk: %d MiB are free at %s, %d MiB are needed", free>>20, opt.data, databaseRoom>>20)
	}
	if err != nil {
		return nil, fmt.Errorf("opening the database: %w", err)
	}
	db := &eventbadger.BadgerBackend{
		Path: filepath.Join(opt.data, "events"),
		BadgerOptionsModifier: func(o badger.Options) badger.Options {
			return o.WithLogger(nil).WithSyncWrites(true)
		},
	}
	if err := db.Init(); err != nil {
		return nil, fmt.Errorf("opening the database: %w", err)
	}
	return db, nil
}

// newServer makes a khatru relay into a GRASP server.
func newServer(ctx context.Context, db *eventbadger.BadgerBackend, records state.Store, op *operator, opt options, addr net.Addr, log *slog.Logger) (*grasp.Server, error) {
	identity, err := identityOf(opt)
	if err != nil {
		return nil, err
	}
	own, err := netip.ParseAddrPort(addr.String())
	if err != nil {
		return nil, fmt.Errorf("own address: %w", err)
	}
	relay := khatru.NewRelay()
	relay.Log = slog.NewLogLogger(log.Handler(), slog.LevelDebug)
	relay.Negentropy = true
	relay.Info.Name = cmp.Or(opt.name, bare(opt.domain))
	relay.Info.Description = opt.description
	relay.Info.PubKey, relay.Info.Contact, relay.Info.Icon = opt.pubkey, opt.contact, opt.icon
	relay.Info.Software, relay.Info.Version = "https://github.com/graspsync/graspsync", version()
	relay.Info.SupportedNIPs = []any{1, 9, 11, 34, 40, 42, 62, 70, 77}
	if len(opt.admins) > 0 {
		relay.Info.SupportedNIPs = append(relay.Info.SupportedNIPs, 86)
	}
	server, err := grasp.New(ctx, relay, db, identity, grasp.Config{
		Dir: filepath.Join(opt.data, "git"), State: records, Logger: log, Curation: opt.curation, GRASPLists: opt.graspLists,
		Membership: nip34.Membership{OneSided: opt.oneSided}, Rules: op.book, Audit: op.record,
		Egress: egress.Config{Allow: opt.allowNet, Own: []netip.AddrPort{own}},
		Sync: relaysync.Config{
			Bootstrap:      opt.bootstrap,
			AllowPlaintext: opt.allowPlaintext,
			Times:          relaysync.Times{BatchWindow: opt.batchWindow},
			Health:         health.Config{BaseBackoff: opt.baseBackoff, RestartPause: opt.restartPause},
		},
		Purgatory: purgatory.Config{
			Times: purgatory.Times{
				Hold:    opt.expiry,
				Backoff: opt.huntBackoff,
				Grace:   opt.grace,
			}, Limits: purgatory.Limits{DomainLimit: opt.perDomain, DomainLimits: opt.domainLimits}, NoMaintenance: !opt.maintenance,
		},
		Repositories: gitserve.RepositoriesConfig{
			MaxOwnerBytes: opt.maxOwnerBytes, MaxBytes: opt.maxBytes, StageHold: opt.stageHold, MaxStaged: opt.stagedBytes,
			MaxMemory: opt.maxGitMemory,
		},
		Fetch: gitfetch.Config{AllowFaults: opt.fsckAllow},
		Serve: gitserve.Config{Client: clientOf(opt.clientHeader, opt.proxies), MaxPush: opt.maxPushBytes},
	})
	if err != nil {
		return nil, flagError{err}
	}
	return server, nil
}

// flagError is an error about the configuration that names flags instead of fields.
type flagError struct{ error }

var fieldFlags = strings.NewReplacer("MaxMemory is", "-max-git-memory is", "AllowFaults:", "-fsck-allow:")

// Error implements [error].
func (e flagError) Error() string { return fieldFlags.Replace(e.error.Error()) }

// Unwrap returns the original error.
func (e flagError) Unwrap() error { return e.error }

// released is the version of a build of .ci/dist.
var released string

// version returns the version of this program, or its commit and the time of that.
func version() string {
	if released != "" {
		return released
	}
	info, _ := debug.ReadBuildInfo()
	if info == nil {
		return "unknown"
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	vcs := make(map[string]string)
	for _, s := range info.Settings {
		vcs[s.Key] = s.Value
	}
	if vcs["vcs.revision"] == "" {
		return "unknown"
	}
	text := vcs["vcs.revision"] + " of " + vcs["vcs.time"]
	if vcs["vcs.modified"] == "true" {
		text += ", modified"
	}
	return text
}

// clientOf returns the client of a request by a header that trusted proxies set. Without a header
// gitserve decides.
func clientOf(header string, proxies []netip.Prefix) func(*http.Request) string {
	if header == "" {
		return nil
	}
	return gitserve.BehindProxy(header, proxies...)
}

// handleStatus serves /metrics and /status.json.
func handleStatus(mux *http.ServeMux, server *grasp.Server, more ...prometheus.Collector) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(server.Collector("ngit"), collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	registry.MustRegister(more...)
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.Handle("GET /status.json", statusHandler(server))
}

// answerBy is the time to read an answer, except git data, websockets and streaming pages.
const answerBy = 30 * time.Second

// withDeadline limits the time of an answer, because a client that does not read would keep its
// connection. Git and websockets have deadlines of their own.
func withDeadline(h http.Handler) http.Handler { return deadlined(h, statusTime+answerBy) }

func deadlined(h http.Handler, most time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// Some connections have no deadlines.
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(most))
		h.ServeHTTP(w, r)
	})
}

// newFront returns a server with timeouts for headers, bodies and idle connections.
func newFront(h http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           front.Bodies(h, answerBy),
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		ConnState:         front.Idle(),
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
}

// summarize logs the status periodically until ctx ends.
func summarize(ctx context.Context, sync *khatruadapter.Sync, log *slog.Logger, every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			log.Info("sync", "status", sync.Manager().Status())
		case <-ctx.Done():
			return
		}
	}
}
