// Package embedding contains the part of the khatru adapters that is the same for both libraries.
package embedding

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/graspsync/graspsync"
	eventstoreadapter "github.com/graspsync/graspsync/adapter/eventstore"
	"github.com/graspsync/graspsync/adapter/internal/settings"
	"github.com/graspsync/graspsync/egress"
	"github.com/graspsync/graspsync/internal/disk"
	"github.com/graspsync/graspsync/internal/loglimit"
	"github.com/graspsync/graspsync/nip34"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/wstransport"
)

var (
	// ErrRejected is wrapped if a hook of the relay or a rule refuses an event.
	ErrRejected = errors.New("rejected by the relay")
	// ErrHook is wrapped if a hook of the relay panics.
	ErrHook = errors.New("relay hook failed")
)

const (
	// maxBroadcasts is the number of synced events that may wait to be broadcast.
	maxBroadcasts  = 1024
	broadcastGrace = time.Second
	maxUnsure      = 10_000
)

// Manager is the part of a [relaysync.SyncManager] that a Core uses.
type Manager interface {
	Run(ctx context.Context) error
	NotifyStored(event graspsync.Event)
	NotifyRemoved(event graspsync.Event)
	NotifySuperseded(event graspsync.Event)
	NotifyRefused(event graspsync.Event, reason string)
	HeldFrom(id graspsync.EventID) graspsync.Source
	Ready() <-chan struct{}
	Judge(ctx context.Context, event graspsync.Event) (graspsync.Verdict, error)
	Collector(namespace string) prometheus.Collector
}

// Hooks are the functions of a relay. Calls can be concurrent.
type Hooks struct {
	Refusals func(ctx context.Context, e graspsync.Event) iter.Seq[string]
	// AsksDeletions reports whether the embedder decides about deletions, MayDelete why target must
	// stay, or "".
	AsksDeletions func() bool
	MayDelete     func(ctx context.Context, target, deletion graspsync.Event) (msg string, err error)
	// Stored and Removed follow a change of the backend by sync. They must not panic.
	Stored, Removed func(ctx context.Context, e graspsync.Event)
	Send            func(e graspsync.Event)

	Duplicate    error                            // makes the library answer OK and store nothing
	Client       func(ctx context.Context) Client // returns nil if there is none
	Subscription func(ctx context.Context) string // panics or returns "" if no REQ is answered
}

// Client is the websocket of a client. Writing fails only if the client has disconnected.
type Client interface {
	WriteJSON(message any) error
	WriteMessage(kind int, payload []byte) error
}

// Config is the configuration of a [Core], as the adapters document it.
type Config struct {
	// Open opens the store. removed is its Config.Removed.
	Open                 func(removed func(graspsync.Event)) (*eventstoreadapter.Store, error)
	Sync                 relaysync.Config
	Transport            relaysync.Transport
	Egress               egress.Config
	Us                   nip34.Identity
	ApplyPolicyToClients bool
	Free                 func() (uint64, error)
	MinFree              uint64
	Stored, Removed      func(graspsync.Event)
	Hooks                Hooks
}

// Core is graspsync in a relay of either library.
type Core struct {
	Config

	Store   *eventstoreadapter.Store
	Manager Manager         // set by Manage
	Records settings.Opened // nil if the embedder closes them
	Room    *Room
	Upkeep  *Upkeep
	Imports *Imports     // the Store of the manager
	Log     *slog.Logger // Sync.Logger

	broadcasts chan graspsync.Event
	dropped    atomic.Uint64
	ran        atomic.Bool
	closed     atomic.Bool
	warned     atomic.Bool // the first refusal of a synced event by a hook was logged
	lines      loglimit.Limiter[struct{}]

	mu sync.Mutex
	// guarded by mu
	removed  []graspsync.Event              // events without calls of Hooks.Removed
	removals uint64                         // total number of removed events
	unsure   map[graspsync.EventID]struct{} // events that may be stored although saving them failed
}

// New returns a Core without a manager.
func New(cfg Config) (c *Core, err error) {
	if cfg.MinFree == 0 {
		cfg.MinFree = disk.MinFree
	}
	if cfg.Sync.Logger == nil {
		cfg.Sync.Logger = slog.New(slog.DiscardHandler)
	}
	c = &Core{
		Config: cfg, Room: NewRoom(cfg.Free, cfg.MinFree, cfg.Sync.Logger), Log: cfg.Sync.Logger,
		broadcasts: make(chan graspsync.Event, maxBroadcasts), unsure: make(map[graspsync.EventID]struct{}),
	}
	if c.Store, err = cfg.Open(func(e graspsync.Event) {
		c.AddRemoved(e)
		c.Manager.NotifySuperseded(e) // Manager is set: nothing is saved before Manage returns
	}); err != nil {
		return nil, fmt.Errorf("khatru adapter: %w", err)
	}
	c.Upkeep = NewUpkeep(c, maxExpiring)
	c.Imports = &Imports{Store: c.Store, env: c}
	return c, nil
}

// Manage creates the manager. If it fails, it closes the store.
func (c *Core) Manage() (err error) {
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Store.Close()) // the Store locks the database
		}
	}()
	c.Egress.AllowPlaintext = c.Egress.AllowPlaintext || c.Sync.AllowPlaintext
	c.Sync.AllowPlaintext = c.Egress.AllowPlaintext
	if c.Transport == nil {
		c.Egress.OwnNames = append(c.Us.HostPorts(), c.Egress.OwnNames...)
		dialer, err := egress.NewDialer(c.Egress)
		if err != nil {
			return fmt.Errorf("khatru adapter: %w", err)
		}
		if c.Transport, err = wstransport.New(wstransport.Config{Dialer: dialer, Logger: c.Log}); err != nil {
			return fmt.Errorf("khatru adapter: %w", err)
		}
	}
	if c.holds() && c.Sync.Policy != nil { // the default policy holds nothing
		c.Sync.Policy = c.Policy(c.Sync.Policy)
	}
	c.Manager, err = relaysync.New(c.Imports, c.Transport, c.Us, c.Sync)
	return err
}

func (c *Core) holds() bool { return c.Sync.Holder != nil }

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

// Broadcast drops a synced event if the queue is full.
func (c *Core) Broadcast(e graspsync.Event) {
	select {
	case c.broadcasts <- e:
	default:
		c.dropped.Add(1)
	}
}

// Waiting returns the length of the queue of broadcasts.
func (c *Core) Waiting() int { return len(c.broadcasts) }

// AddRemoved records a removed event for FollowRemovals.
func (c *Core) AddRemoved(e graspsync.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.removed = append(c.removed, e)
	c.removals++
}

func (c *Core) countRemoved() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.removals
}

// FollowRemovals calls the hooks for removals, also of other goroutines.
func (c *Core) FollowRemovals(ctx context.Context) {
	c.mu.Lock()
	removed := c.removed
	c.removed = nil
	c.mu.Unlock()
	for _, e := range removed {
		c.Hooks.Removed(ctx, e)
		tell(c.Config.Removed, e)
	}
}

func (c *Core) addUnsure(events ...graspsync.Incoming) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.unsure) > maxUnsure {
		clear(c.unsure)
	}
	for _, in := range events {
		c.unsure[in.Event.ID] = struct{}{}
	}
}

func (c *Core) takeUnsure(id graspsync.EventID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, is := c.unsure[id]
	delete(c.unsure, id)
	return is
}

func tell(whom func(graspsync.Event), e graspsync.Event) {
	if whom != nil {
		whom(e)
	}
}

// Delete removes an event for a hook of the relay.
func (c *Core) Delete(ctx context.Context, e graspsync.Event) error {
	if err := c.Store.Remove(context.WithoutCancel(ctx), e); err != nil {
		return c.failed("removing an event failed", err)
	}
	c.Manager.NotifyRemoved(e)
	tell(c.Config.Removed, e)
	return nil
}

func (c *Core) failed(what string, err error) error {
	c.Log.Error(what, "err", err)
	return errors.New(MsgStore)
}

// Blocked returns why a rule blocks an event, or "".
func (c *Core) Blocked(e graspsync.Event) string {
	if c.Sync.Rules == nil {
		return ""
	}
	reason, _ := c.Sync.Rules.Blocks(e)
	return reason
}

// refusal returns the outcome of an event that a hook refuses, zero for rate limits, which are meant for
// clients, and for "auth-required:" on release.
func (c *Core) refusal(in graspsync.Incoming, msg string) (o graspsync.Outcome) {
	if strings.HasPrefix(msg, "rate-limited:") || in.Source.Kind == graspsync.Direct && strings.HasPrefix(msg, "auth-required:") {
		return o
	}
	if !c.warned.Swap(true) {
		c.Log.Warn("hook refused a synced event, khatruadapter.IsSynced lets it accept such events", "reason", msg)
	}
	o = graspsync.Outcome{Result: graspsync.Refused, Err: fmt.Errorf("%w: %.300q", ErrRejected, msg)}
	if strings.HasPrefix(msg, "error:") {
		o.Result = graspsync.Failed
	}
	return o
}

func (c *Core) admit(ctx context.Context, in graspsync.Incoming) (o graspsync.Outcome) {
	if reason := c.Blocked(in.Event); reason != "" {
		return graspsync.Outcome{Result: graspsync.Refused, Err: fmt.Errorf("%w: %s", ErrRejected, reason)}
	}
	err := Protect(func() {
		for msg := range c.Hooks.Refusals(ctx, in.Event) {
			if o = c.refusal(in, msg); o.Result != 0 {
				return
			}
		}
	})
	if err != nil {
		return graspsync.Outcome{Result: graspsync.Failed, Err: fmt.Errorf("%w: %w", ErrHook, err)}
	}
	return o
}

// Call logs the failure of a hook.
func (c *Core) Call(name string, hook func() error) {
	var err error
	if perr := Protect(func() { err = hook() }); perr != nil {
		err = perr
	}
	if err != nil {
		c.Log.Error("relay hook failed", "hook", name, "err", err)
	}
}

// Protect converts a panic of f into an error.
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

func synced(ctx context.Context) context.Context { return context.WithValue(ctx, syncedKey{}, true) }

// IsSynced reports whether a hook is called for a synced event.
func IsSynced(ctx context.Context) bool { return ctx.Value(syncedKey{}) != nil }

type submissionKey struct{}

// submission marks the context in which a published event is judged after the hooks.
func submission(ctx context.Context) context.Context {
	return context.WithValue(ctx, submissionKey{}, true)
}

func isSubmission(ctx context.Context) bool { return ctx.Value(submissionKey{}) != nil }
