package khatruadapter

import (
	"errors"
	"fmt"

	"github.com/fiatjaf/eventstore"
	"github.com/fiatjaf/khatru"

	"github.com/graspsync/graspsync"
	eventstoreadapter "github.com/graspsync/graspsync/adapter/eventstore"
	"github.com/graspsync/graspsync/adapter/internal/embedding"
	"github.com/graspsync/graspsync/egress"
	"github.com/graspsync/graspsync/nip34"
	relaysync "github.com/graspsync/graspsync/sync"
)

// Config is the configuration of a [Sync]. The zero Config is valid.
type Config struct {
	// Sync configures the SyncManager. Without its State a restart loses all records.
	Sync relaysync.Config
	// Store configures the use of the backend. New sets its Identity and Removed.
	Store eventstoreadapter.Config
	// Transport opens connections to relays. Defaults to websockets by the rules of Egress.
	Transport relaysync.Transport
	// Egress has the rules of the default Transport. List own listeners in Egress.Own. AllowPlaintext
	// of Egress or of Sync applies to both.
	Egress egress.Config
	// ApplyPolicyToClients applies the policy to published events too. Otherwise clients may store each
	// event that the hooks accept. The policy judges events of relays in both cases. The client of a held
	// event receives OK and a NOTICE.
	ApplyPolicyToClients bool
	// Free returns the free bytes on the disk of the backend, asked at most once a second. Below MinFree
	// only deletions (kinds 5 and 62) are stored, down to a quarter of it. Defaults to no check.
	Free func() (uint64, error)
	// MinFree is in bytes. Defaults to 1 GiB.
	MinFree uint64
	// Stored and Removed are called with each event that is newly stored or has left the backend, and
	// must return quickly. They may be nil.
	Stored, Removed func(event graspsync.Event)
}

// ErrRoom is wrapped if an event is not stored because the disk is full.
var ErrRoom = embedding.ErrRoom

// Sync is graspsync embedded in a relay. It is safe for concurrent use and has the methods Run, Close,
// Manager, Collector, Remove, Room, Writable, Release and BroadcastsDropped of an embedded type.
type Sync struct {
	embedding.Sync
	core  *embedding.Core
	relay *khatru.Relay
	hides func(graspsync.Event) bool // Config.Store.Hides; may be nil
}

// ErrHooks is wrapped by the error of [New] for a relay with hooks of a database.
var ErrHooks = errors.New("the relay has StoreEvent, ReplaceEvent or QueryEvents hooks; remove them, because New adds those of the backend")

// New embeds graspsync in a relay that clients reach as identity. The caller has called Init of
// backend. If New fails, the relay is unchanged.
func New(relay *khatru.Relay, backend eventstore.Store, identity nip34.Identity, cfg Config) (*Sync, error) {
	s, err := Prepare(relay, backend, identity, cfg)
	if err != nil {
		return nil, err
	}
	s.Embed()
	return s, nil
}

// Prepare is New without [Sync.Embed]. The relay is unchanged, and only Release and Close of the Sync
// may be called.
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
	case len(relay.StoreEvent)+len(relay.ReplaceEvent)+len(relay.QueryEvents) > 0:
		return nil, fmt.Errorf("khatru adapter: %w", ErrHooks)
	}
	s := &Sync{relay: relay, hides: cfg.Store.Hides}
	s.core, err = embedding.New(embedding.Config{
		Open: func(removed func(graspsync.Event)) (*eventstoreadapter.Store, error) {
			cfg.Store.Removed = removed
			return eventstoreadapter.New(backend, cfg.Store)
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

// Store returns the store of the events of the relay.
func (s *Sync) Store() *eventstoreadapter.Store { return s.core.Store }
