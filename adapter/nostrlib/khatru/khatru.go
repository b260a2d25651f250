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

const defaultMaxQuery = 500

// Config is the configuration of a [Sync]. The zero Config is valid.
type Config struct {
	// Sync configures the SyncManager. Servers should set its State, for example with state.Open,
	// because otherwise a restart loses all records.
	Sync relaysync.Config
	// Store configures the use of the backend. New sets its Identity.
	Store nostrlib.Config
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
	// MaxQuery is the maximum number of stored events for a filter of a client, like the
	// maxQueryLimit of UseEventstore. PageSize of Store limits it too. It limits neither
	// reconciliations (NIP-77) nor a QueryStored hook of the relay. Defaults to 500.
	MaxQuery int
	// Free returns the bytes that are free on the disk of the backend. It is called at most once a
	// second. Below MinFree, published events are refused and synced events are retried later;
	// deletions (kinds 5 and 62) are stored down to a quarter of MinFree. If Free fails, nothing is
	// stored. Defaults to no check.
	Free func() (uint64, error)
	// MinFree is the number of bytes that must stay free. Defaults to 1 GiB.
	MinFree uint64
	// Stored and Removed, if set, are called with each event that is newly stored or has left the
	// backend. They run on the goroutine that did so and must return quickly.
	Stored, Removed func(event graspsync.Event)
	// Hides reports whether a stored deletion (kind 5) or request to vanish (kind 62) is hidden
	// from clients. Such events must stay stored, because otherwise the removed events would come
	// back, but anybody can write any content into them. Results can change over time, and calls
	// can be concurrent. With Hides, set QueryStored and PreventBroadcast hooks before New.
	// Your QueryStored hook may then return fewer events than the client asked for. Defaults to
	// hiding none.
	Hides func(event graspsync.Event) bool
}

// Sync is graspsync embedded in a relay. Use [New] or [Open]. It is safe for concurrent use.
type Sync struct {
	// set by New, read-only
	core     *embedding.Core
	relay    *khatru.Relay
	theirs   hooks // the hooks that the relay had before New
	store    *nostrlib.Store
	maxQuery int
	pace     func(ctx context.Context, r *http.Request, subscription string, bytes int) // may be nil
	stored   func(graspsync.Event)                                                      // Config.Stored; may be nil
	gone     func(graspsync.Event)                                                      // Config.Removed; may be nil
	withheld withheld
}

// New embeds graspsync in a relay that clients reach as identity, in place of UseEventstore. The
// caller has called Init of backend. If New fails, the error describes every invalid argument and
// the relay is unchanged.
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
		return nil, nil, errors.Join(err, s.store.Close())
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
	if cfg.MaxQuery < 0 {
		return nil, fmt.Errorf("khatru adapter: Config.MaxQuery is %d, less than 0", cfg.MaxQuery)
	}
	s := &Sync{
		relay: relay, theirs: hooksOf(relay), maxQuery: cmp.Or(cfg.MaxQuery, defaultMaxQuery), stored: cfg.Stored, gone: cfg.Removed,
	}
	tell := cfg.Store.Removed
	cfg.Store.Removed = func(e graspsync.Event) {
		s.core.AddRemoved(e)
		s.core.Manager.NotifySuperseded(e) // Manager is set: nothing is saved before New returns
		if tell != nil {
			tell(e)
		}
	}
	var err error
	if s.store, err = nostrlib.NewStore(backend, cfg.Store); err != nil {
		return nil, fmt.Errorf("khatru adapter: %w", err)
	}
	s.withheld = withheld{names: cfg.Hides, store: s.store}
	s.core = embedding.New(embedding.Config{
		Store: s.store.Store, Sync: cfg.Sync, Us: cfg.Store.Identity, Gate: cfg.ApplyPolicyToClients, Free: cfg.Free, MinFree: cfg.MinFree,
		Hooks: embedding.Hooks{
			Admit: s.admit, AsksDeletions: func() bool { return s.theirs.allowDeleting != nil }, MayDelete: s.mayDelete, Query: s.queryElsewhere,
			Stored: s.imported, Removed: s.tellRemoved, Send: s.send,
		},
	})
	return s, nil
}

// Run blocks until ctx ends and returns the error that ended it. A second call returns
// [relaysync.ErrRunning]. The error wraps [ErrReplaced] if a hook of the relay was set after New.
// If a client blocks a broadcast for more than a second, Run returns without its goroutine, which
// ends with the connection of that client.
func (s *Sync) Run(ctx context.Context) error {
	if err := s.inPlace(); err != nil {
		return err
	}
	if s.theirs.queryStored != nil && s.relay.Negentropy {
		s.core.Log.Warn("relay keeps its own QueryStored, its limits apply to reconciliations (NIP-77)")
	}
	return s.core.Run(ctx)
}

// Close refuses further reads and writes by the hooks of New and waits up to 10 seconds for current
// ones. Clients receive an error message. Call it after Run, and close the backend after it. It can
// be called again.
func (s *Sync) Close() error { return s.core.Close() }

// Pace makes the relay call wait before it sends a stored event for a REQ. wait may block; use Wait
// of a gate.Gate before the relay. Without Pace, or with your own QueryStored hook, answers are
// sent as fast as they are read. Call it before the relay serves.
func (s *Sync) Pace(wait func(ctx context.Context, r *http.Request, subscription string, bytes int)) {
	s.pace = wait
}

// Writable returns nil if events can be stored, else the error of Room or of Store.Writable.
func (s *Sync) Writable() error { return s.core.Writable() }

// Manager returns the SyncManager. A policy that holds events calls its Held, Removed and
// Postponed. Sync itself reports stored and removed events to it.
func (s *Sync) Manager() *relaysync.SyncManager { return s.core.Syncs() }

// Remove removes an event as moderation and calls the hooks. Sync does not fetch the event again
// while its id is remembered. Clients can submit it again. Removing a missing event is no error.
func (s *Sync) Remove(ctx context.Context, e graspsync.Event) error { return s.core.Remove(ctx, e) }

// Collector returns the metrics of the SyncManager, see there for namespace. After [Open] it
// includes the records.
func (s *Sync) Collector(namespace string) prometheus.Collector { return s.core.Collector(namespace) }

// Store returns the store of the events of the relay.
func (s *Sync) Store() *nostrlib.Store { return s.store }

// BroadcastsDropped returns the total number of synced events that were stored but not broadcast,
// because clients read too slowly.
func (s *Sync) BroadcastsDropped() uint64 {
	_, dropped := s.core.Broadcasts()
	return dropped
}

// Room returns nil if the disk has room for an event according to Config.Free and MinFree, else an
// error that wraps [ErrRoom]. A policy must call it before it holds an event.
func (s *Sync) Room(e graspsync.Event) error { return s.core.Room.Of(e.Event) }

// Release stores a held event, broadcasts it and reports it to the SyncManager. It returns when the
// event is durable. The event is served if the result is Stored or Duplicate. Release calls the
// OnEvent hook again, because it can refuse the author since the event was held. The result is then
// Refused, which is final.
func (s *Sync) Release(ctx context.Context, e graspsync.Event) (graspsync.Outcome, error) {
	return s.core.Imports.Release(ctx, e)
}
