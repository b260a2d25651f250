package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/dgraph-io/badger/v4"
	eventbadger "github.com/fiatjaf/eventstore/badger"
	"github.com/fiatjaf/khatru"
	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/adapter/grasp"
	"github.com/graspsync/graspsync/egress"
	"github.com/graspsync/graspsync/health"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/state/filestate"
	relaysync "github.com/graspsync/graspsync/sync"
)

// loopback is where everything of the demo lives. Elsewhere it would not be
// reachable: it is not public.
var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}

// holdFor is how long an event may wait for its git data, elsewhere half an hour: so much
// of the time that the sync may take. On a slow machine more of both is needed.
func holdFor(limit time.Duration) time.Duration { return limit * 2 / 5 }

// ourRelay is a khatru relay with its events and repositories on disk, made a GRASP
// server by graspsync.
type ourRelay struct {
	listener net.Listener
	front    *http.Server
	db       *eventbadger.BadgerBackend
	kept     *filestate.Store
	server   *grasp.Server
	hold     time.Duration // how long events wait for git data
}

func (o *ourRelay) addr() string { return o.listener.Addr().String() }

// url is where one of our repositories is.
func (o *ourRelay) url(path string) string { return "http://" + o.addr() + "/" + path }

// reserve takes an address, so that the hub can list it.
func (o *ourRelay) reserve() (err error) {
	o.listener, err = net.Listen("tcp", "127.0.0.1:0")
	return err
}

// open makes the relay. It knows one other relay; the rest it has to find.
func (o *ourRelay) open(ctx context.Context, dir, bootstrap string, verbose bool, observe func(purgatory.Observation)) (err error) {
	logger := slog.New(slog.DiscardHandler)
	if verbose {
		logger = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	o.db = &eventbadger.BadgerBackend{
		Path:                  filepath.Join(dir, "events"),
		BadgerOptionsModifier: func(opts badger.Options) badger.Options { return opts.WithLogger(nil) },
	}
	if err := o.db.Init(); err != nil {
		return fmt.Errorf("opening the database: %w", err)
	}
	if o.kept, err = filestate.Open(filepath.Join(dir, "state"), filestate.Config{Logger: logger}); err != nil {
		return fmt.Errorf("opening the state: %w", err)
	}
	relay := khatru.NewRelay()
	relay.Log = log.New(io.Discard, "", 0)
	relay.Negentropy = true

	identity, err := nip34.ParseIdentity(o.addr())
	if err != nil {
		return err
	}
	first, err := graspsync.ParseRelayURL("ws://" + bootstrap)
	if err != nil {
		return err
	}
	o.server, err = grasp.New(ctx, relay, o.db, identity, grasp.Config{
		Dir: filepath.Join(dir, "git"), State: o.kept, Logger: logger,
		Egress: egress.Config{Allow: loopback, Own: []netip.AddrPort{netip.MustParseAddrPort(o.addr())}},
		Sync: relaysync.Config{
			Bootstrap:      []graspsync.RelayURL{first},
			AllowPlaintext: true,
			Times:          relaysync.Times{BatchWindow: time.Second}, // the default, 5 s, is for relays that are far away
			Health:         health.Config{BaseBackoff: time.Second},
		},
		Purgatory: purgatory.Config{
			Observe: observe, Times: purgatory.Times{Hold: o.hold, Backoff: time.Second, MaxBackoff: 5 * time.Second}, Limits: purgatory.Limits{DomainLimit: purgatory.Limit{Concurrent: 8, PerMinute: 6000}},
		},
	})
	if err != nil {
		return err
	}
	o.front = &http.Server{Handler: o.server.Handler(), ReadHeaderTimeout: 5 * time.Second}
	return nil
}

// run serves and syncs until ctx ends.
func (o *ourRelay) run(ctx context.Context) {
	go o.front.Serve(o.listener)
	o.server.Run(ctx)
	o.front.Close()
	o.server.Close()
	o.kept.Close()
	o.db.Close()
}

// content returns the ids of all events that the relay serves.
func (o *ourRelay) content(ctx context.Context) (map[string]bool, error) {
	out := make(map[string]bool)
	for st, err := range o.server.Sync().Store().Stamps(ctx, nostr.Filter{}) {
		if err != nil {
			return nil, fmt.Errorf("reading what arrived: %w", err)
		}
		out[st.ID.String()] = true
	}
	return out, nil
}
