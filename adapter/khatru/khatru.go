package khatruadapter

import (
	"context"
	"errors"
	"fmt"

	"github.com/fiatjaf/eventstore"
	"github.com/fiatjaf/khatru"
	"github.com/nbd-wtf/go-nostr"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/graspsync/graspsync"
	eventstoreadapter "github.com/graspsync/graspsync/adapter/eventstore"
	"github.com/graspsync/graspsync/adapter/internal/embedding"
	"github.com/graspsync/graspsync/egress"
	"github.com/graspsync/graspsync/nip34"
	relaysync "github.com/graspsync/graspsync/sync"
)

// Config is what may be set about the embedding. The zero Config works.
type Config struct {
	// Sync is the configuration of the SyncManager. For a server its field State
	// should be set, as with state.Open: without it a restart begins with nothing.
	Sync relaysync.Config
	// Store says how the backend is used. Its Identity is set by New.
	Store eventstoreadapter.Config
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
	// Free says how many bytes of the backend's disk may still be used. It is asked at most
	// once a second. Where that is less than MinFree, what clients publish is refused for as
	// long, and what comes by sync is tried again until it can be stored; deletions (kinds 5
	// and 62) are stored down to a quarter of it. While Free fails nothing is. Without it the
	// disk may be filled.
	Free func() (uint64, error)
	// MinFree is what is to stay free, in bytes. Defaults to 1 GiB.
	MinFree uint64
}

// ErrRoom is wrapped where an event is not stored since too little of the disk is free.
var ErrRoom = embedding.ErrRoom

// Sync is graspsync embedded in a relay. Use [New].
type Sync struct {
	core      *embedding.Core
	relay     *khatru.Relay
	elsewhere []query // the QueryEvents hooks that the relay had
}

// New embeds graspsync in a relay that is reached as identity and keeps its events
// in backend, on which Init was called. The error names what is wrong with any of
// the arguments; the relay is then unchanged.
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
		return nil, nil, errors.Join(err, s.core.Store.Close()) // it has the database to itself
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
	if cfg.Sync.Holder != nil && cfg.GateDirect && len(relay.StoreEvent) > 0 && len(relay.ReplaceEvent) == 0 {
		return nil, errReplace
	}
	s, tell := &Sync{relay: relay}, cfg.Store.Removed
	cfg.Store.Removed = func(e graspsync.Event) {
		s.core.AddRemoved(e)
		s.core.Manager.Departed(e) // nothing is saved before New has returned
		if tell != nil {
			tell(e)
		}
	}
	store, err := eventstoreadapter.New(backend, cfg.Store)
	if err != nil {
		return nil, fmt.Errorf("khatru adapter: %w", err)
	}
	s.core = embedding.New(embedding.Config{
		Store: store, Sync: cfg.Sync, Us: cfg.Store.Identity, Gate: cfg.GateDirect, Free: cfg.Free, MinFree: cfg.MinFree,
		Hooks: embedding.Hooks{
			Admit: s.admit, AsksDeletions: func() bool { return len(relay.OverwriteDeletionOutcome) > 1 }, // one is ours
			MayDelete: s.mayDelete, Query: s.query, Stored: s.imported, Removed: s.followRemoved,
			Send: func(e graspsync.Event) { relay.BroadcastEvent(e.Event) },
		},
	})
	return s, nil
}

// Run syncs until ctx ends and returns what ended it; [relaysync.ErrRunning] if it
// was called before. A broadcast that a client has been blocking for a second is
// left behind; it ends with that client's connection.
func (s *Sync) Run(ctx context.Context) error { return s.core.Run(ctx) }

// Close ends the use of the backend by the relay, as far as its hooks are ours: clients are
// told that the server is ending, and what is being read and written is waited for, for 10 s at
// most. It is called after Run, and before the backend is closed. It may be called again.
func (s *Sync) Close() error { return s.core.Close() }

// Writable returns why nothing is stored now, or nil: what Room says, or Writable of the Store.
func (s *Sync) Writable() error { return s.core.Writable() }

// Collector has the metrics of the SyncManager, for a registry of the embedder's; see there for the namespace. With [Open] it
// has those of the records as well.
func (s *Sync) Collector(namespace string) prometheus.Collector { return s.core.Collector(namespace) }

// Manager is what follows other relays: status, commands and questions. A policy that holds events reports to its Held,
// Removed and Postponed. What the relay stores and removes it hears from us.
func (s *Sync) Manager() *relaysync.SyncManager { return s.core.Syncs() }

// Remove removes an event as moderation does: the DeleteEvent hooks are called, and it does not come
// back by sync as long as its id is remembered, or until a rule is lifted that blocks it. A client
// may submit it again, unless such a rule is there. One that is not stored is no error.
func (s *Sync) Remove(ctx context.Context, e graspsync.Event) error { return s.core.Remove(ctx, e) }

// Store is what the relay's events are kept in, complete answers included.
func (s *Sync) Store() *eventstoreadapter.Store { return s.core.Store }

// BroadcastsDropped is how many synced events were stored but not broadcast,
// because clients did not read fast enough.
func (s *Sync) BroadcastsDropped() uint64 {
	_, dropped := s.core.Broadcasts()
	return dropped
}

// Room returns why there is no room for an event, wrapping [ErrRoom], or nil if there is: by
// Config.Free and MinFree. A policy that holds events asks this before it keeps one.
func (s *Sync) Room(e graspsync.Event) error { return s.core.Room.Of(e.Event) }

// errReplace is returned by New for a relay that removes older versions of an event
// before anybody can say that the new one is held.
var errReplace = errors.New("khatru adapter: a relay whose policy holds events needs ReplaceEvent hooks where it has StoreEvent hooks")

// hold is the first of the hooks that store: khatru has no answer between stored and
// refused. Here no hook of the relay has anything against the event any more, and only
// now may the policy hold it. A held one is said to be a duplicate: the client hears OK,
// nothing is stored, nothing is broadcast, and OnEventSaved is not called.
func (s *Sync) hold(ctx context.Context, e *nostr.Event) error {
	parsed, err := graspsync.ParseEvent(e)
	if err != nil {
		return errors.New(embedding.MsgMalformed)
	}
	verdict, msg := s.core.Verdict(ctx, parsed)
	switch verdict.Decision {
	case graspsync.Accept:
		return nil
	case graspsync.Hold:
		if ws := khatru.GetConnection(ctx); ws != nil {
			_ = ws.WriteJSON(nostr.NoticeEnvelope(msg)) // who is gone needs not know
		}
		return eventstore.ErrDupEvent
	}
	return errors.New(msg)
}

// Release stores an event that the policy has held, sends it to subscribers and takes
// note of it. It returns when the event is durable; with Stored or Duplicate it is
// served. The RejectEvent hooks are asked again, since they may have come to refuse its
// author meanwhile: then it is Refused, for good.
func (s *Sync) Release(ctx context.Context, e graspsync.Event) (graspsync.Outcome, error) {
	return s.core.Imports.Release(ctx, e)
}
