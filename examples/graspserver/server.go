package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/dgraph-io/badger/v4"
	eventbadger "github.com/fiatjaf/eventstore/badger"
	"github.com/fiatjaf/khatru"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	khatruadapter "github.com/graspsync/graspsync/adapter/khatru"
	"github.com/graspsync/graspsync/filters"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/state/filestate"
	relaysync "github.com/graspsync/graspsync/sync"
)

// shutdownTime is how long requests under way may take at the end.
const shutdownTime = 2 * time.Second

// run serves until ctx ends. started, if not nil, is told the address.
func run(ctx context.Context, opt options, log *slog.Logger, started func(net.Addr)) error {
	if err := os.MkdirAll(opt.data, 0o700); err != nil {
		return fmt.Errorf("making the data folder: %w", err)
	}
	db := &eventbadger.BadgerBackend{
		Path: filepath.Join(opt.data, "events"),
		BadgerOptionsModifier: func(o badger.Options) badger.Options {
			return o.WithLogger(nil).WithSyncWrites(true)
		},
	}
	if err := db.Init(); err != nil {
		return fmt.Errorf("opening the database: %w", err)
	}
	defer db.Close()
	kept, err := filestate.Open(filepath.Join(opt.data, "state"), filestate.Config{Logger: log})
	if err != nil {
		return fmt.Errorf("opening the state: %w", err)
	}
	defer kept.Close()
	listener, err := net.Listen("tcp", opt.listen)
	if err != nil {
		return fmt.Errorf("listening: %w", err)
	}
	defer listener.Close()

	relay := newRelay(opt, log)
	p, err := newParts(ctx, relay, db, kept, opt, listener.Addr(), log)
	if err != nil {
		return err
	}
	defer p.close()
	server := &http.Server{
		Handler:           p.git.Before(handler(relay, p, kept.Collector("ngit"))),
		ReadHeaderTimeout: 10 * time.Second,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go summarize(ctx, p.sync, log, opt.summaryEvery)
	return serve(ctx, server, listener, p, log, started)
}

func newRelay(opt options, log *slog.Logger) *khatru.Relay {
	relay := khatru.NewRelay()
	relay.Log = slog.NewLogLogger(log.Handler(), slog.LevelDebug)
	relay.Negentropy = true
	relay.Info.Name = opt.domain
	relay.Info.Description = "Nostr relay for Git repositories (NIP-34)"
	relay.Info.Software = "https://github.com/graspsync/graspsync"
	relay.Info.AddSupportedNIPs([]int{9, 34, 77})
	return relay
}

// handler serves the relay at / and what operators want to see beside it.
func handler(relay *khatru.Relay, p *parts, more ...prometheus.Collector) http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(p.sync.Collector(), p.purgatory.Collector(""), collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	registry.MustRegister(more...)
	mux := http.NewServeMux()
	mux.Handle("/", khatruadapter.Information(relay, map[string]any{
		"supported_grasps":         []string{"GRASP-01", "GRASP-02"},
		"repo_acceptance_criteria": "announcements that list this server in relays and clone",
	}))
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "ok")
	})
	mux.HandleFunc("GET /status.json", func(w http.ResponseWriter, r *http.Request) {
		status, err := statusOf(r.Context(), p, r.FormValue("repo"))
		if err != nil {
			http.Error(w, err.Error(), http.StatusNotFound)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		_ = enc.Encode(status) // the client is gone if this fails
	})
	return mux
}

// statusOf returns what /status.json shows: all about relays, and what waits for git data; about all repositories
// for "all", which takes a while where there are many; or about one of them.
func statusOf(ctx context.Context, p *parts, repo string) (any, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	switch repo {
	case "":
		return struct {
			relaysync.Status
			Purgatory purgatory.Status `json:"purgatory"`
		}{p.sync.Status(), p.purgatory.Status()}, nil
	case "all":
		all := []relaysync.RepoStatus{}
		for s, err := range p.sync.Repositories(ctx) {
			if err != nil {
				return nil, err
			}
			all = append(all, s)
		}
		return all, nil
	}
	ref, err := filters.ParseRepoRef(repo)
	if err != nil {
		return nil, err
	}
	return p.sync.RepoStatus(ctx, ref)
}

// summarize writes one line to the log again and again until ctx ends.
func summarize(ctx context.Context, sync *khatruadapter.Sync, log *slog.Logger, every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for before := (relaysync.Status{}); ; {
		select {
		case <-tick.C:
			now := sync.Status()
			log.Info("sync", "status", now.Summary(before))
			before = now
		case <-ctx.Done():
			return
		}
	}
}

func serve(ctx context.Context, server *http.Server, l net.Listener, p *parts, log *slog.Logger, started func(net.Addr)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	failed := make(chan error, 1)
	go func() {
		failed <- server.Serve(l)
		cancel()
	}()
	log.Info("serving", "address", l.Addr().String())
	if started != nil {
		started(l.Addr())
	}
	p.run(ctx)

	ending, stop := context.WithTimeout(context.WithoutCancel(ctx), shutdownTime)
	defer stop()
	if err := server.Shutdown(ending); err != nil {
		server.Close()
	}
	if err := <-failed; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving: %w", err)
	}
	return nil
}
