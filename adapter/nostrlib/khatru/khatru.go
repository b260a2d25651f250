package khatruadapter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"

	"fiatjaf.com/nostr/eventstore"
	"fiatjaf.com/nostr/khatru"

	"github.com/graspsync/graspsync"
	eventstoreadapter "github.com/graspsync/graspsync/adapter/eventstore"
	"github.com/graspsync/graspsync/adapter/internal/embedding"
	"github.com/graspsync/graspsync/adapter/nostrlib"
	"github.com/graspsync/graspsync/egress"
	"github.com/graspsync/graspsync/nip34"
	relaysync "github.com/graspsync/graspsync/sync"
)

const defaultMaxQuery = 500

// Config is the configuration of a [Sync]. The zero Config is valid. Fields without a comment are
// those of the Config of adapter/khatru.
type Config struct {
	Sync                 relaysync.Config
	Store                nostrlib.Config
	Transport            relaysync.Transport
	Egress               egress.Config
	ApplyPolicyToClients bool
	// MaxQuery is the maximum of stored events for a filter of a client, and at most PageSize of the
	// Store. Defaults to 500.
	MaxQuery        int
	Free            func() (uint64, error)
	MinFree         uint64
	Stored, Removed func(event graspsync.Event)
}

// Sync is graspsync embedded in a relay. It is safe for concurrent use and has the methods Run, Close,
// Manager, Collector, Remove, Room, Writable, Release and BroadcastsDropped of an embedded type.
type Sync struct {
	embedding.Sync
	// set by New, read-only
	core     *embedding.Core
	relay    *khatru.Relay
	theirs   hooks // the hooks that the relay had before New
	store    *nostrlib.Store
	hides    func(graspsync.Event) bool // Config.Store.Hides; may be nil
	embedded [7]uintptr                 // the hooks after Embed
	maxQuery int
	pace     func(ctx context.Context, r *http.Request, subscription string) // may be nil
}

// ErrHooks is wrapped by the error of [New] for a relay with hooks of a database.
var ErrHooks = errors.New("the relay has StoreEvent, ReplaceEvent or QueryStored hooks, or UseEventstore was called; remove them, because New adds those of the backend")

// New embeds graspsync in a relay that clients reach as identity, in place of UseEventstore. If New
// fails, the relay is unchanged.
func New(relay *khatru.Relay, backend eventstore.Store, identity nip34.Identity, cfg Config) (*Sync, error) {
	s, err := Prepare(relay, backend, identity, cfg)
	if err != nil {
		return nil, err
	}
	s.Embed()
	return s, nil
}

// Prepare is New without [Sync.Embed].
func Prepare(relay *khatru.Relay, backend eventstore.Store, identity nip34.Identity, cfg Config) (*Sync, error) {
	cfg.Store.Identity = identity
	s, err := build(relay, backend, cfg)
	if err != nil {
		return nil, err
	}
	return s, s.core.Manage()
}

func build(relay *khatru.Relay, backend eventstore.Store, cfg Config) (_ *Sync, err error) {
	switch {
	case relay == nil:
		return nil, errors.New("khatru adapter: relay is nil")
	case relay.StoreEvent != nil || relay.ReplaceEvent != nil || relay.QueryStored != nil:
		return nil, fmt.Errorf("khatru adapter: %w", ErrHooks)
	case cfg.MaxQuery < 0:
		return nil, fmt.Errorf("khatru adapter: Config.MaxQuery is %d, less than 0", cfg.MaxQuery)
	}
	s := &Sync{relay: relay, theirs: hooksOf(relay), hides: cfg.Store.Hides, maxQuery: cmp.Or(cfg.MaxQuery, defaultMaxQuery)}
	s.core, err = embedding.New(embedding.Config{
		Open: func(removed func(graspsync.Event)) (*eventstoreadapter.Store, error) {
			cfg.Store.Removed = removed
			if s.store, err = nostrlib.NewStore(backend, cfg.Store); err != nil {
				return nil, err
			}
			return s.store.Store, nil
		},
		Sync: cfg.Sync, Transport: cfg.Transport, Egress: cfg.Egress, Us: cfg.Store.Identity, ApplyPolicyToClients: cfg.ApplyPolicyToClients,
		Free: cfg.Free, MinFree: cfg.MinFree, Stored: cfg.Stored, Removed: cfg.Removed, Hooks: s.hooks(),
	})
	if err != nil {
		return nil, err
	}
	s.Sync = s.core.Methods()
	return s, nil
}

// Run blocks until ctx ends and returns the error that ended it, or one that wraps [ErrReplaced].
func (s *Sync) Run(ctx context.Context) error {
	if pointers(s.relay) != s.embedded {
		return fmt.Errorf("khatru adapter: %w", ErrReplaced)
	}
	return s.Sync.Run(ctx)
}

// Pace sets the Wait of a gate.Gate before the relay. Call it before the relay serves.
func (s *Sync) Pace(wait func(ctx context.Context, r *http.Request, subscription string)) {
	s.pace = wait
}

// Store returns the store of the events of the relay.
func (s *Sync) Store() *nostrlib.Store { return s.store }
