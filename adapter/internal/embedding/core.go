// Package embedding has what is the same for every relay that graspsync is embedded in: which of the relay's hooks
// are called when, what is known of the events that it has stored, and of the disk.
package embedding

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/graspsync/graspsync"
	eventstoreadapter "github.com/graspsync/graspsync/adapter/eventstore"
	"github.com/graspsync/graspsync/adapter/internal/settings"
	"github.com/graspsync/graspsync/egress"
	"github.com/graspsync/graspsync/internal/disk"
	"github.com/graspsync/graspsync/nip34"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/wstransport"
)

// Sentinels of the outcomes of synced events.
var (
	// ErrRejected is wrapped by the reason of an event that a hook of the relay, or a rule, refused.
	ErrRejected = errors.New("rejected by the relay")
	// ErrHook is wrapped where a hook of the relay panicked.
	ErrHook = errors.New("hook of the relay failed")
)

const (
	// maxBroadcasts is the maximum number of synced events that wait to be sent to subscribers. More are stored, but not
	// sent.
	maxBroadcasts = 1024
	// broadcastGrace is how long Run waits at its end for a client that does not read.
	broadcastGrace = time.Second
	// maxExpiring is the maximum number of events whose expiry is awaited in memory.
	maxExpiring = 100_000
)

// Manager is what is needed of a [relaysync.SyncManager].
type Manager interface {
	Run(ctx context.Context) error
	Stored(event graspsync.Event)
	Removed(event graspsync.Event)
	Departed(event graspsync.Event)
	Refused(event graspsync.Event, reason string)
	HeldFrom(id graspsync.EventID) graspsync.Source
	NotReleased(id graspsync.EventID, o graspsync.Outcome)
	Ready() <-chan struct{}
	Judge(ctx context.Context, event graspsync.Event) (graspsync.Verdict, error)
	Collector(namespace string) prometheus.Collector
}

// Hooks are those of a relay. All of them are set, and may be called concurrently.
type Hooks struct {
	// Admit asks whether an event that comes by sync, or is released, may be stored. The zero Outcome says that
	// it may. It does not panic.
	Admit func(ctx context.Context, in graspsync.Incoming) graspsync.Outcome
	// AsksDeletions reports whether a hook of the embedder decides about deletions, and MayDelete why a deletion must
	// not remove an event, "" if it may.
	AsksDeletions func() bool
	MayDelete     func(ctx context.Context, target, deletion graspsync.Event) (msg string, err error)
	// Query returns the events that hooks of the embedder give for a filter: not all of them need be in the backend.
	Query func(ctx context.Context, f nostr.Filter) []graspsync.Event
	// Stored is called for an event that is newly stored, and Removed for one that has left the backend. They do not
	// panic.
	Stored, Removed func(ctx context.Context, e graspsync.Event)
	// Send sends an event to subscribers. It may block.
	Send func(e graspsync.Event)
}

// Config is what a Core is made of.
type Config struct {
	Store   *eventstoreadapter.Store
	Sync    relaysync.Config
	Us      nip34.Identity
	Gate    bool                   // the policy judges what clients publish
	Free    func() (uint64, error) // bytes of the disk; nil: there is always room
	MinFree uint64                 // defaults to 1 GiB
	Hooks   Hooks
}

// Core is graspsync in a relay, whatever library that is made of. It is made by [New]. Its fields are not changed once
// the relay serves.
type Core struct {
	Config

	Holding   bool                   // the policy holds events
	Manager   Manager                // set by Manage
	Records   settings.Opened        // nil if they belong to the embedder
	Unsure    Unsure                 // submissions that could not be saved
	Room      *Room                  // on the disk
	Questions *Questions             // of clients
	Upkeep    *Upkeep                // removes what has to go
	Imports   *Imports               // the Store of the manager
	Log       *slog.Logger           // that of Sync
	syncs     *relaysync.SyncManager // the manager, if Manage made it

	broadcasts chan graspsync.Event
	dropped    atomic.Uint64
	ran        atomic.Bool
	warned     atomic.Bool // that a hook refuses what comes by sync

	mu       sync.Mutex
	removed  []graspsync.Event // the hooks have not been called for these; guarded by mu
	removals uint64            // that there were, ever; guarded by mu
}

// New returns a Core without a manager.
func New(cfg Config) *Core {
	if cfg.MinFree == 0 {
		cfg.MinFree = disk.MinFree
	}
	if cfg.Sync.Logger == nil {
		cfg.Sync.Logger = slog.New(slog.DiscardHandler)
	}
	c := &Core{
		Config: cfg, Holding: cfg.Sync.Holder != nil, Room: NewRoom(cfg.Free, cfg.MinFree, cfg.Sync.Logger), Questions: NewQuestions(cfg.Sync.Logger),
		Log: cfg.Sync.Logger, broadcasts: make(chan graspsync.Event, maxBroadcasts),
	}
	c.Upkeep = NewUpkeep(c, maxExpiring)
	c.Imports = &Imports{Store: cfg.Store, env: c}
	return c
}

// Manage makes the manager. The default transport goes by the rules of out. Plaintext is allowed if either configuration
// allows it.
func (c *Core) Manage(transport relaysync.Transport, out egress.Config) (err error) {
	plaintext := out.AllowPlaintext || c.Sync.AllowPlaintext
	out.AllowPlaintext, c.Sync.AllowPlaintext = plaintext, plaintext
	if transport == nil {
		out.OwnNames = append(c.Us.HostPorts(), out.OwnNames...)
		dialer, err := egress.NewDialer(out)
		if err != nil {
			return fmt.Errorf("khatru adapter: %w", err)
		}
		if transport, err = wstransport.New(wstransport.Config{Dialer: dialer, Logger: c.Log}); err != nil {
			return fmt.Errorf("khatru adapter: %w", err)
		}
	}
	if c.Holding && c.Sync.Policy != nil { // the default one holds nothing
		c.Sync.Policy = c.Imports.Policy(c.Sync.Policy)
	}
	if c.syncs, err = relaysync.New(c.Imports, transport, c.Us, c.Sync); err != nil {
		return err
	}
	c.Manager = c.syncs
	return nil
}

// Syncs returns the manager.
func (c *Core) Syncs() *relaysync.SyncManager { return c.syncs }

// Run runs the manager and what goes with it until ctx ends, and returns what ended the manager;
// [relaysync.ErrRunning] if it was called before. A broadcast that a client has been blocking for a second is left
// behind; it ends with the connection of that client.
func (c *Core) Run(ctx context.Context) error {
	if c.ran.Swap(true) {
		return relaysync.ErrRunning
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	wg.Go(func() { c.Upkeep.Run(ctx) })
	broadcasting := make(chan struct{})
	go func() {
		defer close(broadcasting)
		c.broadcast(ctx)
	}()
	err := c.Manager.Run(ctx)
	cancel()
	wg.Wait()
	grace := time.NewTimer(broadcastGrace)
	defer grace.Stop()
	select {
	case <-broadcasting:
	case <-grace.C:
		c.Log.Warn("a client that does not read still blocks a broadcast")
	}
	return err
}

// broadcast sends events until ctx ends, or longer, while a client does not read.
func (c *Core) broadcast(ctx context.Context) {
	for {
		select {
		case e := <-c.broadcasts:
			if err := Protect(func() { c.Hooks.Send(e) }); err != nil {
				c.Log.Error("broadcast failed", "err", err)
			}
		case <-ctx.Done():
			return
		}
	}
}

// Broadcast has a synced event sent to subscribers, unless too many wait for that.
func (c *Core) Broadcast(e graspsync.Event) {
	select {
	case c.broadcasts <- e:
	default:
		c.dropped.Add(1)
	}
}

// Broadcasts returns the number of events that wait to be sent, and the total of those that were dropped.
func (c *Core) Broadcasts() (waiting int, dropped uint64) { return len(c.broadcasts), c.dropped.Load() }

// Close ends the use of the store, and closes the records if they are ours.
func (c *Core) Close() error {
	c.Questions.Close()
	err := c.Store.Close()
	if c.Records != nil {
		err = errors.Join(err, c.Records.Close())
	}
	return err
}

// Writable returns why nothing is stored now, or nil: what Room says, or Writable of the Store.
func (c *Core) Writable() error {
	if err := c.Room.Of(&nostr.Event{Kind: nostr.KindTextNote}); err != nil {
		return err
	}
	return c.Store.Writable()
}

// Collector has the metrics of the manager, of broadcasts, and of the records if they are ours.
func (c *Core) Collector(namespace string) prometheus.Collector {
	dropped := prometheus.NewCounterFunc(prometheus.CounterOpts{
		Namespace: namespace, Subsystem: "sync", Name: "broadcasts_dropped_total",
		Help: "Total number of stored events that were not sent to subscribers because clients read too slowly.",
	}, func() float64 { return float64(c.dropped.Load()) })
	all := settings.Collectors{c.Manager.Collector(namespace), dropped}
	if c.Records != nil {
		all = append(all, c.Records.Collector(namespace))
	}
	return all
}

// AddRemoved records an event that has left the backend, and for which hooks are called later.
func (c *Core) AddRemoved(e graspsync.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.removed = append(c.removed, e)
	c.removals++
}

// countRemoved returns how many events have left the backend, ever.
func (c *Core) countRemoved() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.removals
}

// FollowRemovals calls the hooks for what has left the backend. Whoever comes first does so for all.
func (c *Core) FollowRemovals(ctx context.Context) {
	c.mu.Lock()
	removed := c.removed
	c.removed = nil
	c.mu.Unlock()
	for _, e := range removed {
		c.Hooks.Removed(ctx, e)
	}
}

// Remove removes an event as moderation does. One that is not stored is no error.
func (c *Core) Remove(ctx context.Context, e graspsync.Event) error {
	if err := c.Store.Remove(ctx, e); err != nil {
		return err
	}
	c.AddRemoved(e)
	c.FollowRemovals(context.WithoutCancel(ctx))
	c.Manager.Removed(e)
	return nil
}

// Blocked returns why a rule blocks an event, "" if none does.
func (c *Core) Blocked(e graspsync.Event) string {
	if c.Sync.Rules == nil {
		return ""
	}
	reason, _ := c.Sync.Rules.Blocks(e)
	return reason
}

// Refusal returns the outcome of an event that comes by sync, or is released, and that a hook refuses. It is the zero
// Outcome for a refusal that does not count: limits for clients are not for relays, and what a client was allowed to
// submit needs no authentication when it is released.
func (c *Core) Refusal(in graspsync.Incoming, msg string) (o graspsync.Outcome) {
	if strings.HasPrefix(msg, "rate-limited:") || in.Source.Kind == graspsync.Direct && strings.HasPrefix(msg, "auth-required:") {
		return o
	}
	if !c.warned.Swap(true) {
		c.Log.Warn("a hook refuses what comes by sync; khatruadapter.IsSynced tells it", "reason", msg)
	}
	o = graspsync.Outcome{Result: graspsync.Refused, Err: fmt.Errorf("%w: %.300q", ErrRejected, msg)}
	if strings.HasPrefix(msg, "error:") {
		o.Result = graspsync.Failed
	}
	return o
}

// Call calls a hook of the relay whose failure changes nothing.
func (c *Core) Call(name string, hook func() error) {
	var err error
	if perr := Protect(func() { err = hook() }); perr != nil {
		err = perr
	}
	if err != nil {
		c.Log.Error("hook of the relay failed", "hook", name, "err", err)
	}
}

// Protect turns a panic of the embedder's code into an error.
func Protect(f func()) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	f()
	return nil
}

type syncedKey struct{}

// synced marks the context of hooks that are called for an event that came by sync.
func synced(ctx context.Context) context.Context { return context.WithValue(ctx, syncedKey{}, true) }

// IsSynced reports whether a hook of the relay is called for an event that came by sync.
func IsSynced(ctx context.Context) bool { return ctx.Value(syncedKey{}) != nil }

type submissionKey struct{}

// submission marks the context of a policy that is asked about what somebody publishes right now: the hooks of the
// relay have let it pass.
func submission(ctx context.Context) context.Context {
	return context.WithValue(ctx, submissionKey{}, true)
}

func isSubmission(ctx context.Context) bool { return ctx.Value(submissionKey{}) != nil }
