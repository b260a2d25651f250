// Command follower keeps the relay of another program for Git repositories (NIP-34) in sync, over a
// websocket.
//
//	go run ./cmd/follower -relay ws://127.0.0.1:7777 -domain grasp.example.com
//
// The relay must store published events and serve them without AUTH.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/graspsync/graspsync"
	remoteadapter "github.com/graspsync/graspsync/adapter/remote"
	"github.com/graspsync/graspsync/egress"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/state"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/wstransport"
)

type options struct {
	relay          graspsync.RelayURL
	identity       nip34.Identity
	bootstrap      []graspsync.RelayURL
	allowNet       []netip.Prefix
	allowPlaintext bool
	batchWindow    time.Duration
	data           string
}

func main() {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	opt, err := parse(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "follower: %v (-h shows all flags)\n", err)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, opt, log); err != nil {
		log.Error("follower ended", "error", err)
		stop()
		os.Exit(1)
	}
	log.Info("follower ended")
}

func parse(args []string) (opt options, err error) {
	fs := flag.NewFlagSet("follower", flag.ContinueOnError)
	fs.SetOutput(io.Discard) // an error is printed without the list of all flags
	fs.TextVar(&opt.relay, "relay", graspsync.RelayURL{}, "`URL` of the relay to keep in sync (required)")
	fs.Func("domain", "`host[:port]` of the relay in announcements (default: that of -relay)", func(s string) (err error) {
		opt.identity, err = nip34.ParseIdentity(s)
		return err
	})
	fs.StringVar(&opt.data, "data", "follower-data", "`folder` for records that survive a restart")
	fs.Func("bootstrap", "`URL` of a relay that is always followed (repeatable)", list(&opt.bootstrap, graspsync.ParseRelayURL))
	fs.Func("allow-net", "`CIDR` of private addresses to connect to (repeatable)", list(&opt.allowNet, netip.ParsePrefix))
	fs.BoolVar(&opt.allowPlaintext, "allow-plaintext", false, "connect to ws:// relays")
	fs.DurationVar(&opt.batchWindow, "batch-window", 5*time.Second, "`time` to gather changes before relays are asked")
	if err := fs.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			fs.SetOutput(os.Stdout)
			fs.PrintDefaults()
		}
		return opt, err
	}
	switch {
	case fs.NArg() > 0:
		return opt, fmt.Errorf("unexpected argument %q", fs.Arg(0))
	case opt.relay.IsZero():
		return opt, errors.New("-relay is needed: the URL of the relay to keep in sync")
	case opt.batchWindow <= 0:
		return opt, errors.New("-batch-window: want more than 0")
	case opt.identity.IsZero():
		opt.identity, err = nip34.ParseIdentity(opt.relay.HostPort().String())
	}
	return opt, err
}

func list[T any](to *[]T, parse func(string) (T, error)) func(string) error {
	return func(s string) error {
		v, err := parse(s)
		*to = append(*to, v)
		return err
	}
}

func run(ctx context.Context, opt options, log *slog.Logger) error {
	everywhere := []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}
	own, err := dialWith(egress.Config{Allow: everywhere, AllowPlaintext: true}, log)
	if err != nil {
		return err
	}
	// Strangers choose the addresses of other relays.
	rules := egress.Config{
		Allow: opt.allowNet, AllowPlaintext: opt.allowPlaintext,
		OwnNames: opt.identity.HostPorts(),
	}
	if opt.relay.Path() == "" { // with a path other services may share the host
		rules.OwnNames = append(rules.OwnNames, opt.relay.HostPort())
	}
	others, err := dialWith(rules, log)
	if err != nil {
		return err
	}
	store, err := remoteadapter.New(opt.relay, own, remoteadapter.Config{Identity: opt.identity})
	if err != nil {
		return err
	}
	defer store.Close()
	kept, err := state.Open(opt.data, state.Config{Logger: log})
	if err != nil {
		return fmt.Errorf("opening the state: %w", err)
	}
	defer kept.Close()
	manager, err := relaysync.New(store, others, opt.identity, relaysync.Config{
		State:    kept,
		OwnRelay: opt.relay, OwnTransport: own,
		Bootstrap: opt.bootstrap, AllowPlaintext: opt.allowPlaintext, BatchWindow: opt.batchWindow, Logger: log,
	})
	if err != nil {
		return err
	}
	go summarize(ctx, manager, log)
	log.Info("following", "relay", opt.relay.String())
	manager.Run(ctx) // until ctx ends
	return nil
}

func dialWith(rules egress.Config, log *slog.Logger) (relaysync.Transport, error) {
	dialer, err := egress.NewDialer(rules)
	if err != nil {
		return nil, err
	}
	return wstransport.New(wstransport.Config{Dialer: dialer, Logger: log})
}

func summarize(ctx context.Context, manager *relaysync.SyncManager, log *slog.Logger) {
	tick := time.NewTicker(time.Minute)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			s := manager.Status()
			log.Info("sync", slog.Group("status", "synced", s.Synced, "relays", len(s.Relays), "repos", s.Repos, "roots", s.Roots,
				"received", s.Events.Received, "stored", s.Events.Stored, "waiting", s.Events.Waiting, "in_flight", s.Events.InFlight))
		case <-ctx.Done():
			return
		}
	}
}
