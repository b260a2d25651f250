package khatruadapter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"

	"fiatjaf.com/nostr/eventstore"
	"fiatjaf.com/nostr/khatru"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/adapter/internal/embedding"
	"github.com/graspsync/graspsync/adapter/nostrlib"
	"github.com/graspsync/graspsync/egress"
	"github.com/graspsync/graspsync/nip34"
	relaysync "github.com/graspsync/graspsync/sync"
)

// defaultMaxQuery is the default of Config.MaxQuery.
const defaultMaxQuery = 500

// Config is what may be set about the embedding. The zero Config works.
type Config struct {
	// Sync is the configuration of the SyncManager. For a server its field State
	// should be set, as with state.Open: without it a restart begins with nothing.
	Sync relaysync.Config
	// Store says how the backend is used. Its Identity is set by New.
	Store nostrlib.Config
	// Transport opens connections to relays. Defaults to websockets through a
	// dialer with the rules of Egress.
	Transport relaysync.Transport
	// Egress has the rules of the default Transport's dialer. Our own listeners
	// belong into its field Own; the names of the identity are ours by themselves.
	// Plaintext is allowed if its field AllowPlaintext or that of Sync says so: either counts for both.
	Egress egress.Config
	// GateDirect judges what clients publish by the same policy as what comes by
	// sync, but for ephemeral events, which are not stored. Without it a client may
	// store what no other relay would bring us, and what that refers to, or is referred
	// to by, is then accepted by sync as well. If Sync has a Holder, a client whose event is
	// held hears OK, and why it is not served in a NOTICE.
	GateDirect bool
	// MaxQuery is how many stored events a filter of a client's gets at most: it is the
	// maxQueryLimit of UseEventstore, which New stands in for. A reconciliation (NIP-77) is
	// about all. It is no more than the PageSize of Store; a relay that has a QueryStored hook has a
	// limit of its own. Defaults to 500.
	MaxQuery int
	// Free says how many bytes of the backend's disk may still be used. It is asked at most
	// once a second. Where that is less than MinFree, what clients publish is refused for as
	// long, and what comes by sync is tried again until it can be stored; deletions (kinds 5
	// and 62) are stored down to a quarter of it. While Free fails nothing is. Without it the
	// disk may be filled.
	Free func() (uint64, error)
	// MinFree is what is to stay free, in bytes. Defaults to 1 GiB.
	MinFree uint64
	// Stored and Removed are told each event that is newly stored, and that has left the
	// backend, whoever brought it or had it removed. They are called by whoever does so, and
	// should only take note.
	Stored, Removed func(event graspsync.Event)
	// Withholds says which deletions (kind 5) and requests to vanish (kind 62) are served to no client, though they
	// are stored and count: what they removed would come back without them, and anybody can write anything into them.
	// It may change over time, and is called concurrently. With it hooks of the relay called QueryStored and
	// PreventBroadcast are to be set before New as well. Where much is withheld an answer of the relay's own QueryStored has
	// fewer events than the client asked for. Defaults to none.
	Withholds func(event graspsync.Event) bool
}

// Sync is graspsync embedded in a relay. Use [New].
type Sync struct {
	// set by New, read-only
	core     *embedding.Core
	relay    *khatru.Relay
	theirs   hooks // those that the relay had
	store    *nostrlib.Store
	maxQuery int
	pace     func(ctx context.Context, r *http.Request, subscription string, bytes int) // may be nil
	stored   func(graspsync.Event)                                                      // told of what is stored; may be nil
	gone     func(graspsync.Event)                                                      // told of what is removed; may be nil
	withheld withheld
}

// New embeds graspsync in a relay that is reached as identity and keeps its events
// in backend, on which Init was called. It stands in for UseEventstore. The error names what
// is wrong with any of the arguments; the relay is then unchanged.
func New(relay *khatru.Relay, backend eventstore.Store, identity nip34.Identity, cfg Config) (*Sync, error) {
	s, embed, err := Prepare(relay, backend, identity, cfg)
	if err != nil {
		return nil, err
	}
	embed()
	return s, nil
}

// Prepare is [New] for who has more to make that may fail: the relay is unchanged until embed is called,
// once, before it serves. Until then the Sync can release and be closed, but not run.
func Prepare(
	relay *khatru.Relay, backend eventstore.Store, identity nip34.Identity, cfg Config,
) (s *Sync, embed func(), err error) {
	cfg.Store.Identity = identity
	if s, err = build(relay, backend, cfg); err != nil {
		return nil, nil, err
	}
	if err := s.core.Manage(cfg.Transport, cfg.Egress); err != nil {
		return nil, nil, errors.Join(err, s.store.Close())
	}
	return s, func() {
		if relay.ServiceURL == "" {
			relay.ServiceURL = identity.URL() // else it believes what clients say that it is called
		}
		s.wire()
	}, nil
}

// build makes all but the manager, and leaves the relay alone.
func build(relay *khatru.Relay, backend eventstore.Store, cfg Config) (*Sync, error) {
	if relay == nil {
		return nil, errors.New("khatru adapter: relay is nil")
	}
	if cfg.MaxQuery < 0 {
		return nil, fmt.Errorf("khatru adapter: Config.MaxQuery is %d, less than 0", cfg.MaxQuery)
	}
	s := &Sync{
		relay: relay, theirs: hooksOf(relay), maxQuery: cmp.Or(cfg.MaxQuery, defaultMaxQuery), stored: cfg.Stored, gone: cfg.Removed,
	}
	tell := cfg.Store.Removed
	cfg.Store.Removed = func(e graspsync.Event) {
		s.core.AddRemoved(e)
		s.core.Manager.Departed(e) // nothing is saved before New has returned
		if tell != nil {
			tell(e)
		}
	}
	var err error
	if s.store, err = nostrlib.NewStore(backend, cfg.Store); err != nil {
		return nil, fmt.Errorf("khatru adapter: %w", err)
	}
	s.withheld = withheld{names: cfg.Withholds, store: s.store}
	s.core = embedding.New(embedding.Config{
		Store: s.store.Store, Sync: cfg.Sync, Us: cfg.Store.Identity, Gate: cfg.GateDirect, Free: cfg.Free, MinFree: cfg.MinFree,
		Hooks: embedding.Hooks{
			Admit: s.admit, AsksDeletions: func() bool { return s.theirs.allowDeleting != nil }, MayDelete: s.mayDelete, Query: s.queryElsewhere,
			Stored: s.imported, Removed: s.tellRemoved, Send: s.send,
		},
	})
	return s, nil
}

// Run syncs until ctx ends and returns what ended it; [relaysync.ErrRunning] if it
// was called before, and an error that wraps [ErrReplaced] if a hook of the relay was set after New.
// A broadcast that a client has been blocking for a second is left behind; it ends with that
// client's connection.
func (s *Sync) Run(ctx context.Context) error {
	if err := s.inPlace(); err != nil {
		return err
	}
	if s.theirs.queryStored != nil && s.relay.Negentropy {
		s.core.Log.Warn("the relay keeps its own QueryStored: other servers can reconcile (NIP-77) with no more than that gives")
	}
	return s.core.Run(ctx)
}

// Close ends the use of the backend by the relay, as far as its hooks are ours: clients are
// told that the server is ending, and what is being read and written is waited for, for 10 s at
// most. It is called after Run, and before the backend is closed. It may be called again.
func (s *Sync) Close() error { return s.core.Close() }

// Pace has wait called before each stored event is written for a REQ, and wait may block: it is Wait of a gate.Gate that
// stands before the relay. Without it, and with a QueryStored hook, answers come as fast as they are read. It is called
// before the relay serves.
func (s *Sync) Pace(wait func(ctx context.Context, r *http.Request, subscription string, bytes int)) {
	s.pace = wait
}

// Writable returns why nothing is stored now, or nil: what Room says, or Writable of the Store.
func (s *Sync) Writable() error { return s.core.Writable() }

// Manager is what follows other relays: status, commands and questions. A policy that holds events reports to its Held,
// Removed and Postponed. What the relay stores and removes it hears from us.
func (s *Sync) Manager() *relaysync.SyncManager { return s.core.Syncs() }

// Remove removes an event as moderation does: the hooks are called, and it does not come back by sync
// as long as its id is remembered. A client may submit it again. One that is not stored is no error.
func (s *Sync) Remove(ctx context.Context, e graspsync.Event) error { return s.core.Remove(ctx, e) }

// Collector has the metrics of the SyncManager, for a registry of the embedder's; see there for the namespace. With [Open] it
// has those of the records as well.
func (s *Sync) Collector(namespace string) prometheus.Collector { return s.core.Collector(namespace) }

// Store is what the relay's events are kept in, complete answers included.
func (s *Sync) Store() *nostrlib.Store { return s.store }

// BroadcastsDropped is how many synced events were stored but not broadcast,
// because clients did not read fast enough.
func (s *Sync) BroadcastsDropped() uint64 {
	_, dropped := s.core.Broadcasts()
	return dropped
}

// Room returns why there is no room for an event, wrapping [ErrRoom], or nil if there is: by
// Config.Free and MinFree. A policy that holds events asks this before it keeps one.
func (s *Sync) Room(e graspsync.Event) error { return s.core.Room.Of(e.Event) }

// Release stores an event that the policy has held, sends it to subscribers and takes
// note of it. It returns when the event is durable; with Stored or Duplicate it is
// served. The OnEvent hook is asked again, since it may have come to refuse its
// author meanwhile: then it is Refused, for good.
func (s *Sync) Release(ctx context.Context, e graspsync.Event) (graspsync.Outcome, error) {
	return s.core.Imports.Release(ctx, e)
}
