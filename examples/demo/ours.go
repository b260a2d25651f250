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

	khatruadapter "github.com/graspsync/graspsync/adapter/khatru"
	"github.com/graspsync/graspsync/egress"
	"github.com/graspsync/graspsync/filters"
	"github.com/graspsync/graspsync/health"
	"github.com/graspsync/graspsync/nip34"
	relaysync "github.com/graspsync/graspsync/sync"
)

// loopback is where everything of the demo lives. Elsewhere it would not be
// reachable: it is not public.
var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}

// ourRelay is a khatru relay with its events on disk that embeds graspsync.
type ourRelay struct {
	listener net.Listener
	server   *http.Server
	db       *eventbadger.BadgerBackend
	sync     *khatruadapter.Sync
	dir      string
}

func (o *ourRelay) addr() string { return o.listener.Addr().String() }

// reserve takes an address, so that the hub can list it.
func (o *ourRelay) reserve() (err error) {
	o.listener, err = net.Listen("tcp", "127.0.0.1:0")
	return err
}

// open makes the relay. It knows one other relay; the rest it has to find.
func (o *ourRelay) open(bootstrap string, verbose bool) error {
	logger := slog.New(slog.DiscardHandler)
	if verbose {
		logger = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	dir, err := os.MkdirTemp("", "graspsync-demo-")
	if err != nil {
		return fmt.Errorf("making a folder for events: %w", err)
	}
	o.dir = dir
	o.db = &eventbadger.BadgerBackend{
		Path:                  filepath.Join(dir, "events"),
		BadgerOptionsModifier: func(opts badger.Options) badger.Options { return opts.WithLogger(nil) },
	}
	if err := o.db.Init(); err != nil {
		return fmt.Errorf("opening the database: %w", err)
	}
	relay := khatru.NewRelay()
	relay.Log = log.New(io.Discard, "", 0)
	relay.Negentropy = true

	identity, err := nip34.ParseIdentity(o.addr())
	if err != nil {
		return err
	}
	first, err := filters.ParseRelayURL("ws://" + bootstrap)
	if err != nil {
		return err
	}
	o.sync, err = khatruadapter.New(relay, o.db, identity, khatruadapter.Config{
		GateDirect: true,
		Egress:     egress.Config{Allow: loopback, Own: []netip.AddrPort{netip.MustParseAddrPort(o.addr())}},
		Sync: relaysync.Config{
			Bootstrap:      []filters.RelayURL{first},
			AllowPlaintext: true,
			Logger:         logger,
			BatchWindow:    time.Second, // the default, 5 s, is for relays that are far away
			Health:         health.Config{BaseBackoff: time.Second},
		},
	})
	if err != nil {
		return err
	}
	o.server = &http.Server{Handler: relay, ReadHeaderTimeout: 5 * time.Second}
	return nil
}

// run serves and syncs until ctx ends.
func (o *ourRelay) run(ctx context.Context) {
	go o.server.Serve(o.listener)
	o.sync.Run(ctx)
	o.server.Close()
	o.db.Close()
	os.RemoveAll(o.dir)
}

// content returns the ids of all events that the relay has.
func (o *ourRelay) content(ctx context.Context) (map[string]bool, error) {
	out := make(map[string]bool)
	for st, err := range o.sync.Store().Stamps(ctx, nostr.Filter{}) {
		if err != nil {
			return nil, fmt.Errorf("reading what arrived: %w", err)
		}
		out[st.ID.String()] = true
	}
	return out, nil
}
