package khatruadapter

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"net/http"
	"sync/atomic"

	"fiatjaf.com/nostr"
	"fiatjaf.com/nostr/eventstore"
	"fiatjaf.com/nostr/khatru"
	gonostr "github.com/nbd-wtf/go-nostr"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/adapter/internal/collectors"
	"github.com/graspsync/graspsync/adapter/internal/embedding"
	"github.com/graspsync/graspsync/adapter/internal/settings"
	"github.com/graspsync/graspsync/adapter/nostrlib"
	"github.com/graspsync/graspsync/egress"
	"github.com/graspsync/graspsync/internal/disk"
	"github.com/graspsync/graspsync/nip34"
	relaysync "github.com/graspsync/graspsync/sync"
)

const (
	// broadcastQueue bounds the synced events that wait for being sent to subscribers; more
	// are stored but not broadcast.
	broadcastQueue = 1024
	// maxExpiring bounds the events whose expiry is awaited in memory.
	maxExpiring = 100_000
	// defaultMaxQuery is the default of Config.MaxQuery.
	defaultMaxQuery = 500
)

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
	// Pace is called before each stored event is written for a REQ, and may wait: it is Wait of a
	// gate.Gate that stands before the relay. Without it, and with a QueryStored hook, answers
	// come as fast as they are read.
	Pace func(ctx context.Context, r *http.Request, subscription string, bytes int)
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

func (c Config) withDefaults() Config {
	if c.MaxQuery == 0 {
		c.MaxQuery = defaultMaxQuery
	}
	if c.MinFree == 0 {
		c.MinFree = disk.MinFree
	}
	if c.Sync.Logger == nil {
		c.Sync.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Stored == nil {
		c.Stored = func(graspsync.Event) {}
	}
	if c.Removed == nil {
		c.Removed = func(graspsync.Event) {}
	}
	c.Egress.AllowPlaintext = c.Egress.AllowPlaintext || c.Sync.AllowPlaintext
	c.Sync.AllowPlaintext = c.Egress.AllowPlaintext
	return c
}

// Sync is graspsync embedded in a relay. Use [New].
type Sync struct {
	// set by New, read-only
	relay    *khatru.Relay
	theirs   hooks // those that the relay had
	store    *nostrlib.Store
	manager  embedding.SyncManager
	syncs    *relaysync.SyncManager  // the manager, if New made it
	records  settings.Opened         // nil if they are whose State it is
	send     func(e nostr.Event) int // to subscribers; may block
	gate     bool
	maxQuery int
	pace     func(ctx context.Context, r *http.Request, subscription string, bytes int) // may be nil
	stored   func(graspsync.Event)                                                      // told of what is stored
	gone     func(graspsync.Event)                                                      // told of what is removed
	withheld withheld
	log      *slog.Logger

	env        *embedding.Env
	upkeep     *embedding.Upkeep
	imports    *embedding.Imports
	broadcasts *embedding.Broadcasts[nostr.Event]
	beside     *beside
	replaced   func(graspsync.Event) // takes note of what was removed for another's sake
	questions  *embedding.Questions

	unsure embedding.Unsure // of what clients submit
	ran    atomic.Bool
	told   atomic.Bool // that a hook refuses what comes by sync
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
	s, cfg, err = build(relay, backend, cfg)
	if err != nil {
		return nil, nil, err
	}
	transport := cfg.Transport
	if transport == nil {
		cfg.Egress.OwnNames = append(identity.HostPorts(), cfg.Egress.OwnNames...)
		if transport, err = embedding.Dial(cfg.Egress, cfg.Sync.Logger); err != nil {
			return nil, nil, err
		}
	}
	if s.env.Holding && cfg.Sync.Policy != nil { // the default one holds nothing
		cfg.Sync.Policy = s.imports.Policy(cfg.Sync.Policy)
	}
	m, err := relaysync.New(s.imports, transport, identity, cfg.Sync)
	if err != nil {
		return nil, nil, err
	}
	s.syncs = m
	s.managed(m)
	return s, func() {
		if relay.ServiceURL == "" {
			relay.ServiceURL = identity.URL() // else it believes what clients say that it is called
		}
		s.wire()
	}, nil
}

// managed sets the manager, before anything is stored.
func (s *Sync) managed(m embedding.SyncManager) { s.manager, s.env.Manager = m, m }

// build makes all but the manager, and leaves the relay alone.
func build(relay *khatru.Relay, backend eventstore.Store, cfg Config) (*Sync, Config, error) {
	if relay == nil {
		return nil, cfg, errors.New("khatru adapter: relay is nil")
	}
	if cfg.MaxQuery < 0 {
		return nil, cfg, fmt.Errorf("khatru adapter: Config.MaxQuery is %d, less than 0", cfg.MaxQuery)
	}
	removed, beside, tell := &embedding.Removals{}, &beside{}, cfg.Store.Removed
	var s *Sync
	cfg.Store.Removed = func(e graspsync.Event) {
		removed.Add(e)
		beside.tell(e)
		s.manager.Departed(e) // nothing is saved before New has returned
		if tell != nil {
			tell(e)
		}
	}
	store, err := nostrlib.NewStore(backend, cfg.Store)
	if err != nil {
		return nil, cfg, fmt.Errorf("khatru adapter: %w", err)
	}
	cfg = cfg.withDefaults()
	s = &Sync{
		relay: relay, theirs: hooksOf(relay), store: store, send: relay.BroadcastEvent, gate: cfg.GateDirect,
		maxQuery: cfg.MaxQuery, pace: cfg.Pace, stored: cfg.Stored, gone: cfg.Removed, log: cfg.Sync.Logger,
		broadcasts: embedding.NewBroadcasts[nostr.Event](broadcastQueue, cfg.Sync.Logger),
		beside:     beside,
		replaced:   cfg.Store.Removed,
		questions:  embedding.NewQuestions(cfg.Sync.Logger),
		withheld:   withheld{names: cfg.Withholds, store: store},
	}
	s.env = &embedding.Env{
		Store: store.Store, Rules: cfg.Sync.Rules, Us: cfg.Store.Identity, Holding: cfg.Sync.Holder != nil, Removed: removed,
		Log: cfg.Sync.Logger, Room: embedding.NewRoom(cfg.Free, cfg.MinFree, cfg.Sync.Logger),
		Hooks: embedding.Hooks{Admit: s.admit, Undeletable: s.undeletable, Stored: s.imported, Removed: s.tellRemoved},
	}
	s.upkeep = embedding.NewUpkeep(s.env, maxExpiring)
	s.imports = embedding.NewImports(s.env, s.upkeep)
	return s, cfg, nil
}

// Run syncs until ctx ends and returns what ended it; [relaysync.ErrRunning] if it
// was called before, and an error that wraps [ErrReplaced] if a hook of the relay was set after New.
// A broadcast that a client has been blocking for a second is left behind; it ends with that
// client's connection.
func (s *Sync) Run(ctx context.Context) error {
	if err := s.inPlace(); err != nil {
		return err
	}
	if s.ran.Swap(true) {
		return relaysync.ErrRunning
	}
	if s.theirs.queryStored != nil && s.relay.Negentropy {
		s.log.Warn("the relay keeps its own QueryStored: other servers can reconcile (NIP-77) with no more than that gives")
	}
	return embedding.Run(ctx, s.manager, s.upkeep, s.broadcasts, s.send)
}

// Close ends the use of the backend by the relay, as far as its hooks are ours: clients are
// told that the server is ending, and what is being read and written is waited for, for 10 s at
// most. It is called after Run, and before the backend is closed. It may be called again.
func (s *Sync) Close() error {
	s.questions.Close()
	err := s.store.Close()
	if s.records != nil {
		err = errors.Join(err, s.records.Close())
	}
	return err
}

// Pace sets Config.Pace, for a gate that is made after the relay is embedded. It is called before the
// relay serves.
func (s *Sync) Pace(wait func(ctx context.Context, r *http.Request, subscription string, bytes int)) {
	s.pace = wait
}

// Status is that of the SyncManager.
func (s *Sync) Status() relaysync.Status { return s.manager.Status() }

// RepoStatus is that of the SyncManager.
func (s *Sync) RepoStatus(ctx context.Context, ref graspsync.RepoRef) (relaysync.RepoStatus, error) {
	return s.manager.RepoStatus(ctx, ref)
}

// Repositories are those of the SyncManager.
func (s *Sync) Repositories(ctx context.Context) iter.Seq2[relaysync.RepoStatus, error] {
	return s.manager.Repositories(ctx)
}

// Ready is that of the SyncManager: closed once the store has been read.
func (s *Sync) Ready() <-chan struct{} { return s.manager.Ready() }

// Writable returns why nothing is stored now, or nil: what Room says, or Writable of the Store.
func (s *Sync) Writable() error {
	if err := s.env.Room.Of(&gonostr.Event{Kind: gonostr.KindTextNote}); err != nil {
		return err
	}
	return s.store.Writable()
}

// Manager is what follows other relays. It is for commands and questions: what the relay stores and
// removes it hears from us.
func (s *Sync) Manager() *relaysync.SyncManager { return s.syncs }

// Remove removes an event as moderation does: the hooks are called, and it does not come back by sync
// as long as its id is remembered. A client may submit it again. One that is not stored is no error.
func (s *Sync) Remove(ctx context.Context, e graspsync.Event) error { return s.env.Remove(ctx, e) }

// Collector has the metrics of the SyncManager, for a registry of the embedder's; see there for the namespace. With [Open] it
// has those of the records as well.
func (s *Sync) Collector(namespace string) prometheus.Collector {
	if s.records == nil {
		return s.manager.Collector(namespace)
	}
	return collectors.All{s.manager.Collector(namespace), s.records.Collector(namespace)}
}

// Store is what the relay's events are kept in, complete answers included.
func (s *Sync) Store() *nostrlib.Store { return s.store }

// BroadcastsDropped is how many synced events were stored but not broadcast,
// because clients did not read fast enough.
func (s *Sync) BroadcastsDropped() uint64 { return s.broadcasts.Dropped() }

// Room returns why there is no room for an event, wrapping [ErrRoom], or nil if there is: by
// Config.Free and MinFree. A policy that holds events asks this before it keeps one.
func (s *Sync) Room(e graspsync.Event) error { return s.env.Room.Of(e.Event) }

// Held is that of the SyncManager: what the policy held before, it holds again.
func (s *Sync) Held(e graspsync.Event) { s.manager.Held(e) }

// Removed is that of the SyncManager: an event was removed by moderation or expiry, or what the
// policy held will not be released.
func (s *Sync) Removed(e graspsync.Event) { s.manager.Removed(e) }

// Postponed is that of the SyncManager: what the policy held finds no room any more, and is
// judged again.
func (s *Sync) Postponed(e graspsync.Event) { s.manager.Postponed(e) }

// Release stores an event that the policy has held, sends it to subscribers and takes
// note of it. It returns when the event is durable; with Stored or Duplicate it is
// served. The OnEvent hook is asked again, since it may have come to refuse its
// author meanwhile: then it is Refused, for good.
func (s *Sync) Release(ctx context.Context, e graspsync.Event) (graspsync.Outcome, error) {
	return s.imports.Release(ctx, e)
}
