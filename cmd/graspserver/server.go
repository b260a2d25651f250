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
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/dgraph-io/badger/v4"
	"github.com/fiatjaf/eventstore"
	eventbadger "github.com/fiatjaf/eventstore/badger"
	"github.com/fiatjaf/khatru"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/adapter/gate"
	"github.com/graspsync/graspsync/adapter/grasp"
	"github.com/graspsync/graspsync/egress"
	"github.com/graspsync/graspsync/health"
	"github.com/graspsync/graspsync/internal/disk"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/purgatory/gitfetch"
	"github.com/graspsync/graspsync/purgatory/gitserve"
	"github.com/graspsync/graspsync/state"
	relaysync "github.com/graspsync/graspsync/sync"
)

func run(ctx context.Context, opt options, log *slog.Logger, started func(net.Addr)) error {
	if err := os.MkdirAll(opt.Data, 0o700); err != nil {
		return fmt.Errorf("making the data folder: %w", err)
	}
	records, err := state.Open(filepath.Join(opt.Data, "state"), state.Config{Logger: log})
	if err != nil {
		return fmt.Errorf("opening the state: %w", err)
	}
	defer records.Close()
	db, err := openDatabase(opt)
	if err != nil {
		return err
	}
	defer db.Close()
	listener, err := net.Listen("tcp", opt.Listen)
	if err != nil {
		return fmt.Errorf("-listen: %w", err)
	}
	defer listener.Close()
	if opt.Domain == "" {
		opt.Domain = listener.Addr().String()
		log.Warn("-domain is not set, only this machine can use the server", "domain", opt.Domain)
	}

	private, err := listenAdmin(opt, listener.Addr(), log)
	if err != nil {
		return err
	}
	if private != nil {
		defer private.Close()
	}
	op, err := openOperator(ctx, opt, log)
	if err != nil {
		return err
	}
	defer op.close()
	identity, err := identityOf(opt)
	if err != nil {
		return err
	}
	server, err := newServer(ctx, db, identity, records, op, opt, ownAddresses(listener, private), log)
	if err != nil {
		return err
	}
	defer server.Close()
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
	defer serveAdmin(ctx, private, admin, site, opt, log)()
	go op.reloads(ctx, server, opt.reload)
	go report(ctx, server.Sync().Manager(), log, opt.SummaryEvery)
	go notify(ctx, server.Sync().Manager())
	banner(log, identity, listener.Addr(), opt)
	if started != nil {
		started(listener.Addr())
	}
	return gate.Serve(ctx, listener, server.Git(withDeadline(site)), server.Run)
}

func ownAddresses(listeners ...net.Listener) (own []netip.AddrPort) {
	for _, l := range listeners {
		if l != nil {
			own = append(own, l.Addr().(*net.TCPAddr).AddrPort())
		}
	}
	return own
}

// databaseRoom is in free bytes. Badger ends the process if the disk has no block for its sparse file.
const databaseRoom = 128 << 20

func openDatabase(opt options) (eventstore.Store, error) {
	free, err := disk.Free(opt.Data)
	if err == nil && free < databaseRoom {
		err = fmt.Errorf("no room on the disk: %d MiB are free at %s, %d MiB are needed", free>>20, opt.Data, databaseRoom>>20)
	}
	if err != nil {
		return nil, fmt.Errorf("opening the database: %w", err)
	}
	db := &eventbadger.BadgerBackend{
		Path: filepath.Join(opt.Data, "events"),
		BadgerOptionsModifier: func(o badger.Options) badger.Options {
			return o.WithLogger(nil).WithSyncWrites(true)
		},
	}
	if err := db.Init(); err != nil {
		return nil, fmt.Errorf("opening the database: %w", err)
	}
	return db, nil
}

func newServer(ctx context.Context, db eventstore.Store, identity nip34.Identity, records state.Store, op *operator, opt options, own []netip.AddrPort, log *slog.Logger) (*grasp.Server, error) {
	limits := purgatory.Limits{
		DomainLimit: purgatory.Limit{Concurrent: opt.DomainConcurrent, PerMinute: opt.DomainRate}, DomainLimits: make(map[graspsync.HostPort]purgatory.Limit),
	}
	for _, d := range opt.DomainLimit {
		limits.DomainLimits[d.server] = d.limit
	}
	relay := khatru.NewRelay()
	relay.Log = slog.NewLogLogger(log.Handler(), slog.LevelDebug)
	relay.Negentropy = true
	relay.Info.Name = cmp.Or(opt.Name, bare(opt.Domain))
	relay.Info.Description = opt.Description
	relay.Info.Contact, relay.Info.Icon = opt.Contact, opt.Icon
	if opt.Pubkey != (graspsync.PubKey{}) {
		relay.Info.PubKey = opt.Pubkey.String()
	}
	relay.Info.Software, relay.Info.Version = software, version()
	relay.Info.SupportedNIPs = []any{1, 9, 11, 34, 40, 42, 62, 70, 77}
	if len(opt.Admin) > 0 {
		relay.Info.SupportedNIPs = append(relay.Info.SupportedNIPs, 86)
	}
	server, err := grasp.New(ctx, relay, db, identity, grasp.Config{
		Dir: filepath.Join(opt.Data, "git"), State: records, Logger: log, Curation: opt.Curation, GRASPLists: opt.GraspLists,
		Membership: nip34.Membership{OneSided: opt.OneSided}, Rules: op.rules, Audit: op.record,
		Egress: egress.Config{Allow: opt.AllowNet, Own: own},
		Sync: relaysync.Config{
			Bootstrap:      opt.Bootstrap,
			AllowPlaintext: opt.AllowPlaintext,
			BatchWindow:    opt.BatchWindow,
			Health:         health.Config{BaseBackoff: opt.BaseBackoff, RestartPause: opt.RestartPause},
		},
		Purgatory: purgatory.Config{
			Times: purgatory.Times{
				Hold:    opt.Expiry,
				Backoff: opt.FetchBackoff,
				Grace:   opt.Grace,
			}, Limits: limits, NoMaintenance: !opt.Maintenance,
		},
		Repositories: gitserve.RepositoriesConfig{
			MaxOwnerBytes: opt.MaxOwnerBytes, MaxBytes: opt.MaxBytes, StageHold: opt.StageHold, MaxStaged: opt.StagedBytes,
			MaxMemory: opt.MaxGitMemory,
		},
		Fetch: gitfetch.Config{AllowFaults: opt.FsckAllow},
		Serve: gitserve.Config{Client: clientOf(opt.ClientHeader, opt.TrustedProxy), MaxPush: opt.MaxPushBytes},
	})
	if err != nil {
		return nil, flagError{err}
	}
	return server, nil
}

type flagError struct{ error }

var fieldFlags = strings.NewReplacer("MaxMemory is", "-max-git-memory is", "AllowFaults:", "-fsck-allow:")

func (e flagError) Error() string { return fieldFlags.Replace(e.error.Error()) }

func (e flagError) Unwrap() error { return e.error }

const software = "https://github.com/graspsync/graspsync"

var released string

type serveCommand struct {
	Options options `embed:""`
}

func (c *serveCommand) Run(ctx context.Context) error {
	log := newLogger(os.Stderr, c.Options)
	adopt(log)
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	c.Options.reload = hangups
	if err := run(ctx, c.Options, log, nil); err != nil && ctx.Err() == nil {
		return err
	}
	log.Info("graspserver ended")
	return nil
}

func version() string {
	built := ""
	if info, ok := debug.ReadBuildInfo(); ok {
		built = info.Main.Version
	}
	return cmp.Or(released, built, "unknown")
}

func clientOf(header string, proxies []netip.Prefix) func(*http.Request) string {
	if header == "" {
		return nil
	}
	return gitserve.BehindProxy(header, proxies...)
}

func handleStatus(mux *http.ServeMux, server *grasp.Server, more ...prometheus.Collector) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "ngit_build_info", Help: "Always 1. The labels are the versions of graspserver and of Go.",
		ConstLabels: prometheus.Labels{"version": version(), "go": runtime.Version()},
	}, func() float64 { return 1 }))
	registry.MustRegister(server.Collector("ngit"), collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	registry.MustRegister(more...)
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.Handle("GET /status.json", statusHandler(server))
}

const answerBy = 30 * time.Second

// withDeadline limits the time of an answer, because a client may stop reading.
func withDeadline(h http.Handler) http.Handler { return deadlined(h, statusTime+answerBy) }

func deadlined(h http.Handler, most time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// Some connections have no deadlines.
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(most))
		h.ServeHTTP(w, r)
	})
}

func bare(domain string) string {
	domain = strings.TrimRight(domain, "/")
	if _, rest, ok := strings.Cut(domain, "://"); ok {
		return rest
	}
	return domain
}
