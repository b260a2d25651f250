package khatruadapter

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"sync/atomic"

	"github.com/fiatjaf/eventstore"
	"github.com/fiatjaf/khatru"
	"github.com/nbd-wtf/go-nostr"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/graspsync/graspsync"
	eventstoreadapter "github.com/graspsync/graspsync/adapter/eventstore"
	"github.com/graspsync/graspsync/adapter/internal/collectors"
	"github.com/graspsync/graspsync/adapter/internal/embedding"
	"github.com/graspsync/graspsync/adapter/internal/settings"
	"github.com/graspsync/graspsync/egress"
	"github.com/graspsync/graspsync/internal/disk"
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

	fixed constants
}

// constants are the numbers about which no two operators would differ. Only tests have others.
type constants struct {
	// BroadcastQueue bounds the synced events that wait for being sent to
	// subscribers; more are stored but not broadcast. Defaults to 1,024.
	BroadcastQueue int
	// MaxExpiring bounds the events whose expiry is awaited in memory, those that
	// expire first; the store is read again when it is the others' turn. A small one
	// has it read often. Defaults to 100,000.
	MaxExpiring int
}

const (
	defaultBroadcastQueue = 1024
	defaultMaxExpiring    = 100_000
)

// ErrRoom is wrapped where an event is not stored since too little of the disk is free.
var ErrRoom = embedding.ErrRoom

func (c Config) withDefaults() Config {
	if c.fixed.BroadcastQueue == 0 {
		c.fixed.BroadcastQueue = defaultBroadcastQueue
	}
	if c.fixed.MaxExpiring == 0 {
		c.fixed.MaxExpiring = defaultMaxExpiring
	}
	if c.MinFree == 0 {
		c.MinFree = disk.MinFree
	}
	if c.Sync.Logger == nil {
		c.Sync.Logger = slog.New(slog.DiscardHandler)
	}
	c.Egress.AllowPlaintext = c.Egress.AllowPlaintext || c.Sync.AllowPlaintext
	c.Sync.AllowPlaintext = c.Egress.AllowPlaintext
	return c
}

func (c Config) validate() error {
	var errs []error
	if c.fixed.BroadcastQueue < 0 {
		errs = append(errs, fmt.Errorf("Config.BroadcastQueue is %d, less than 0", c.fixed.BroadcastQueue))
	}
	if c.fixed.MaxExpiring < 0 {
		errs = append(errs, fmt.Errorf("Config.MaxExpiring is %d, less than 0", c.fixed.MaxExpiring))
	}
	return errors.Join(errs...)
}

// manager is what is needed of a [relaysync.SyncManager].
type manager interface {
	embedding.SyncManager
	Refs(ctx context.Context) ([]graspsync.RepoRef, error)
	Outlines(ctx context.Context, refs ...graspsync.RepoRef) ([]relaysync.RepoStatus, error)
	EventState(ctx context.Context, id graspsync.EventID) (relaysync.EventState, error)
	RepoFollowState(ctx context.Context, ref graspsync.RepoRef) (relaysync.RepoFollowState, error)
	RelayFollowState(ctx context.Context, u graspsync.RelayURL) (relaysync.RelayFollowState, error)
}

// Sync is graspsync embedded in a relay. Use [New].
type Sync struct {
	// set by New, read-only
	relay   *khatru.Relay
	store   *eventstoreadapter.Store
	manager manager
	syncs   *relaysync.SyncManager   // the same
	send    func(e *nostr.Event) int // to subscribers; may block
	gate    bool
	log     *slog.Logger
	records settings.Opened // nil if they are whose State it is

	env        *embedding.Env
	upkeep     *embedding.Upkeep
	imports    *embedding.Imports
	broadcasts *embedding.Broadcasts[*nostr.Event]
	elsewhere  []query // the QueryEvents hooks that the relay had
	questions  *embedding.Questions
	passing    *passing

	unsure embedding.Unsure // of what clients submit
	ran    atomic.Bool
	told   atomic.Bool // that a hook refuses what comes by sync
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
	s, cfg, err = build(relay, backend, cfg)
	if err != nil {
		return nil, nil, err
	}
	store := s.store
	defer func() {
		if err != nil {
			err = errors.Join(err, store.Close()) // it has the database to itself
		}
	}()
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
func (s *Sync) managed(m manager) { s.manager, s.env.Manager = m, m }

// build makes all but the manager, and leaves the relay alone.
func build(relay *khatru.Relay, backend eventstore.Store, cfg Config) (*Sync, Config, error) {
	if relay == nil {
		return nil, cfg, errors.New("khatru adapter: relay is nil")
	}
	if err := cfg.validate(); err != nil {
		return nil, cfg, fmt.Errorf("khatru adapter: %w", err)
	}
	cfg = cfg.withDefaults()
	holds := cfg.Sync.Holder != nil
	if holds && cfg.GateDirect && len(relay.StoreEvent) > 0 && len(relay.ReplaceEvent) == 0 {
		return nil, cfg, errReplace
	}
	removed, tell := &embedding.Removals{}, cfg.Store.Removed
	var s *Sync
	cfg.Store.Removed = func(e graspsync.Event) {
		removed.Add(e)
		s.manager.Departed(e) // nothing is saved before New has returned
		if tell != nil {
			tell(e)
		}
	}
	store, err := eventstoreadapter.New(backend, cfg.Store)
	if err != nil {
		return nil, cfg, fmt.Errorf("khatru adapter: %w", err)
	}
	s = &Sync{
		relay: relay, store: store, send: relay.BroadcastEvent, gate: cfg.GateDirect, log: cfg.Sync.Logger,
		broadcasts: embedding.NewBroadcasts[*nostr.Event](cfg.fixed.BroadcastQueue, cfg.Sync.Logger),
		passing:    newPassing(),
		questions:  embedding.NewQuestions(cfg.Sync.Logger),
	}
	s.env = &embedding.Env{
		Store: store, Rules: cfg.Sync.Rules, Us: cfg.Store.Identity, Holding: holds, Removed: removed, Log: cfg.Sync.Logger,
		Room:  embedding.NewRoom(cfg.Free, cfg.MinFree, cfg.Sync.Logger),
		Hooks: embedding.Hooks{Admit: s.admit, Undeletable: s.undeletable, Stored: s.imported, Removed: s.followRemoved},
	}
	s.upkeep = embedding.NewUpkeep(s.env, cfg.fixed.MaxExpiring)
	s.imports = embedding.NewImports(s.env, s.upkeep)
	return s, cfg, nil
}

// Run syncs until ctx ends and returns what ended it; [relaysync.ErrRunning] if it
// was called before. A broadcast that a client has been blocking for a second is
// left behind; it ends with that client's connection.
func (s *Sync) Run(ctx context.Context) error {
	if s.ran.Swap(true) {
		return relaysync.ErrRunning
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

// Refs are those of the SyncManager.
func (s *Sync) Refs(ctx context.Context) ([]graspsync.RepoRef, error) { return s.manager.Refs(ctx) }

// Outlines are those of the SyncManager.
func (s *Sync) Outlines(ctx context.Context, refs ...graspsync.RepoRef) ([]relaysync.RepoStatus, error) {
	return s.manager.Outlines(ctx, refs...)
}

// Ready is that of the SyncManager: closed once the store has been read.
func (s *Sync) Ready() <-chan struct{} { return s.manager.Ready() }

// Writable returns why nothing is stored now, or nil: what Room says, or Writable of the Store.
func (s *Sync) Writable() error {
	if err := s.env.Room.Of(&nostr.Event{Kind: nostr.KindTextNote}); err != nil {
		return err
	}
	return s.store.Writable()
}

// EventState is that of the SyncManager. It knows besides what hooks of the relay have refused to clients:
// with their words, but of hooks that were added after New that they must have done so.
func (s *Sync) EventState(ctx context.Context, id graspsync.EventID) (relaysync.EventState, error) {
	x, err := s.manager.EventState(ctx, id)
	if err == nil {
		s.passing.explainEvent(&x)
	}
	return x, err
}

// RepoFollowState is that of the SyncManager, with what hooks of the relay have refused.
func (s *Sync) RepoFollowState(ctx context.Context, ref graspsync.RepoRef) (relaysync.RepoFollowState, error) {
	x, err := s.manager.RepoFollowState(ctx, ref)
	if err == nil {
		s.passing.explainRepo(&x)
	}
	return x, err
}

// RelayFollowState is that of the SyncManager.
func (s *Sync) RelayFollowState(ctx context.Context, u graspsync.RelayURL) (relaysync.RelayFollowState, error) {
	return s.manager.RelayFollowState(ctx, u)
}

// Collector has the metrics of the SyncManager, for a registry of the embedder's; see there for the namespace. With [Open] it
// has those of the records as well.
func (s *Sync) Collector(namespace string) prometheus.Collector {
	if s.records == nil {
		return s.manager.Collector(namespace)
	}
	return collectors.All{s.manager.Collector(namespace), s.records.Collector(namespace)}
}

// Manager is what follows other relays. It is for commands and questions: what the relay stores and
// removes it hears from us.
func (s *Sync) Manager() *relaysync.SyncManager { return s.syncs }

// Remove removes an event as moderation does: the DeleteEvent hooks are called, and it does not come
// back by sync as long as its id is remembered, or until a rule is lifted that blocks it. A client
// may submit it again, unless such a rule is there. One that is not stored is no error.
func (s *Sync) Remove(ctx context.Context, e graspsync.Event) error { return s.env.Remove(ctx, e) }

// Store is what the relay's events are kept in, complete answers included.
func (s *Sync) Store() *eventstoreadapter.Store { return s.store }

// BroadcastsDropped is how many synced events were stored but not broadcast,
// because clients did not read fast enough.
func (s *Sync) BroadcastsDropped() uint64 { return s.broadcasts.Dropped() }

// Room returns why there is no room for an event, wrapping [ErrRoom], or nil if there is: by
// Config.Free and MinFree. A policy that holds events asks this before it keeps one.
func (s *Sync) Room(e *nostr.Event) error { return s.env.Room.Of(e) }

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
	verdict, msg := s.env.Verdict(ctx, parsed)
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
	return s.imports.Release(ctx, e)
}

// Held is that of the SyncManager: what the policy held before, it holds again.
func (s *Sync) Held(e graspsync.Event) { s.manager.Held(e) }

// Removed is that of the SyncManager: an event was removed by moderation or expiry, or what the
// policy held will not be released.
func (s *Sync) Removed(e graspsync.Event) { s.manager.Removed(e) }

// Postponed is that of the SyncManager: what the policy held finds no room any more, and is
// judged again.
func (s *Sync) Postponed(e graspsync.Event) { s.manager.Postponed(e) }
