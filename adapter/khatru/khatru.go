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

// Config is the configuration of a [Sync]. The zero Config is valid.
type Config struct {
	// Sync configures the SyncManager. Servers should set its State, for example with state.Open,
	// because otherwise a restart loses all records.
	Sync relaysync.Config
	// Store configures the use of the backend. New sets its Identity.
	Store eventstoreadapter.Config
	// Transport opens connections to relays. Defaults to websockets that follow the rules of
	// Egress.
	Transport relaysync.Transport
	// Egress has the rules of the default Transport. List listeners of this process in Egress.Own;
	// New adds the names of the identity. AllowPlaintext of Egress or of Sync applies to both.
	Egress egress.Config
	// ApplyPolicyToClients applies the policy to published events too. Without it,
	// clients can store events that sync would refuse, and sync then also accepts events that refer
	// to them. If Sync has a Holder, the client of a held event receives OK and a NOTICE with the
	// reason.
	ApplyPolicyToClients bool
	// Free returns the bytes that are free on the disk of the backend. It is called at most once a
	// second. Below MinFree, published events are refused and synced events are retried later;
	// deletions (kinds 5 and 62) are stored down to a quarter of MinFree. If Free fails, nothing is
	// stored. Defaults to no check.
	Free func() (uint64, error)
	// MinFree is the number of bytes that must stay free. Defaults to 1 GiB.
	MinFree uint64
}

// ErrRoom is wrapped if an event is not stored because the disk is full.
var ErrRoom = embedding.ErrRoom

// Sync is graspsync embedded in a relay. Use [New] or [Open]. It is safe for concurrent use.
type Sync struct {
	core      *embedding.Core
	relay     *khatru.Relay
	elsewhere []query // the QueryEvents hooks before New
}

// New embeds graspsync in a relay that clients reach as identity. The caller has called Init of
// backend. If New fails, the error describes every invalid argument and the relay is unchanged.
func New(relay *khatru.Relay, backend eventstore.Store, identity nip34.Identity, cfg Config) (*Sync, error) {
	s, embed, err := Prepare(relay, backend, identity, cfg)
	if err != nil {
		return nil, err
	}
	embed()
	return s, nil
}

// Prepare is [New] in two steps for callers with more steps that can fail. Call embed once, before
// the relay serves; until then the relay is unchanged, and of the Sync only Release and Close may
// be called.
func Prepare(
	relay *khatru.Relay, backend eventstore.Store, identity nip34.Identity, cfg Config,
) (s *Sync, embed func(), err error) {
	cfg.Store.Identity = identity
	if s, err = build(relay, backend, cfg); err != nil {
		return nil, nil, err
	}
	if err := s.core.Manage(cfg.Transport, cfg.Egress); err != nil {
		return nil, nil, errors.Join(err, s.core.Store.Close()) // the Store locks the database
	}
	return s, func() {
		if relay.ServiceURL == "" {
			relay.ServiceURL = identity.URL() // else khatru derives it from the Host header
		}
		s.wire()
	}, nil
}

// build returns a Sync without manager and does not change the relay.
func build(relay *khatru.Relay, backend eventstore.Store, cfg Config) (*Sync, error) {
	if relay == nil {
		return nil, errors.New("khatru adapter: relay is nil")
	}
	if cfg.Sync.Holder != nil && cfg.ApplyPolicyToClients && len(relay.StoreEvent) > 0 && len(relay.ReplaceEvent) == 0 {
		return nil, errReplace
	}
	s, tell := &Sync{relay: relay}, cfg.Store.Removed
	cfg.Store.Removed = func(e graspsync.Event) {
		s.core.AddRemoved(e)
		s.core.Manager.NotifySuperseded(e) // Manager is set: nothing is saved before New returns
		if tell != nil {
			tell(e)
		}
	}
	store, err := eventstoreadapter.New(backend, cfg.Store)
	if err != nil {
		return nil, fmt.Errorf("khatru adapter: %w", err)
	}
	s.core = embedding.New(embedding.Config{
		Store: store, Sync: cfg.Sync, Us: cfg.Store.Identity, Gate: cfg.ApplyPolicyToClients, Free: cfg.Free, MinFree: cfg.MinFree,
		Hooks: embedding.Hooks{
			Admit: s.admit, AsksDeletions: func() bool { return len(relay.OverwriteDeletionOutcome) > 1 }, // the first hook is ours
			MayDelete: s.mayDelete, Query: s.query, Stored: s.imported, Removed: s.followRemoved,
			Send: func(e graspsync.Event) { relay.BroadcastEvent(e.Event) },
		},
	})
	return s, nil
}

// Run blocks until ctx ends and returns the error that ended it. A second call returns
// [relaysync.ErrRunning]. If a client blocks a broadcast for more than a second, Run returns
// without its goroutine, which ends with the connection of that client.
func (s *Sync) Run(ctx context.Context) error { return s.core.Run(ctx) }

// Close refuses further reads and writes by the hooks of New and waits up to 10 seconds for current
// ones. Clients receive an error message. Call it after Run, and close the backend after it. It can
// be called again.
func (s *Sync) Close() error { return s.core.Close() }

// Writable returns nil if events can be stored, else the error of Room or of Store.Writable.
func (s *Sync) Writable() error { return s.core.Writable() }

// Collector returns the metrics of the SyncManager, see there for namespace. After [Open] it
// includes the records.
func (s *Sync) Collector(namespace string) prometheus.Collector { return s.core.Collector(namespace) }

// Manager returns the SyncManager. A policy that holds events calls its Held, Removed and
// Postponed. Sync itself reports stored and removed events to it.
func (s *Sync) Manager() *relaysync.SyncManager { return s.core.Syncs() }

// Remove removes an event as moderation and calls the DeleteEvent hooks. Sync does not fetch the
// event again while its id is remembered, or until a rule that blocks it is lifted. Clients can
// submit it again unless a rule blocks it. Removing a missing event is no error.
func (s *Sync) Remove(ctx context.Context, e graspsync.Event) error { return s.core.Remove(ctx, e) }

// Store returns the store of the events of the relay.
func (s *Sync) Store() *eventstoreadapter.Store { return s.core.Store }

// BroadcastsDropped returns the total number of synced events that were stored but not broadcast,
// because clients read too slowly.
func (s *Sync) BroadcastsDropped() uint64 {
	_, dropped := s.core.Broadcasts()
	return dropped
}

// Room returns nil if the disk has room for an event according to Config.Free and MinFree, else an
// error that wraps [ErrRoom]. A policy must call it before it holds an event.
func (s *Sync) Room(e graspsync.Event) error { return s.core.Room.Of(e.Event) }

// errReplace is returned by New for a relay that would remove older versions of an event before the
// policy can hold the new one.
var errReplace = errors.New("khatru adapter: a relay whose policy holds events needs ReplaceEvent hooks where it has StoreEvent hooks")

// hold is the first StoreEvent and ReplaceEvent hook. It runs after all RejectEvent hooks, so that
// the policy holds only events that no hook refuses. For a held event it returns ErrDupEvent,
// because khatru knows only stored or refused: the client receives OK, and nothing is stored,
// broadcast or passed to OnEventSaved.
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
			_ = ws.WriteJSON(nostr.NoticeEnvelope(msg)) // fails only if the client has disconnected
		}
		return eventstore.ErrDupEvent
	}
	return errors.New(msg)
}

// Release stores a held event, broadcasts it and reports it to the SyncManager. It returns when the
// event is durable. The event is served if the result is Stored or Duplicate. Release calls the
// RejectEvent hooks again, because they can refuse the author since the event was held. The result
// is then Refused, which is final.
func (s *Sync) Release(ctx context.Context, e graspsync.Event) (graspsync.Outcome, error) {
	return s.core.Imports.Release(ctx, e)
}
