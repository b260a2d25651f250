package embedding

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/adapter/internal/settings"
	relaysync "github.com/graspsync/graspsync/sync"
)

// Sync has the methods that do not depend on the library of the relay.
type Sync struct{ core *Core }

// Methods returns the methods for the embedder.
func (c *Core) Methods() Sync { return Sync{c} }

// Run blocks until ctx ends and returns the error that ended it, a second time
// [relaysync.ErrRunning]. If a client blocks a broadcast for a second, Run returns without its
// goroutine.
func (s Sync) Run(ctx context.Context) error {
	if s.core.ran.Swap(true) {
		return relaysync.ErrRunning
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	wg.Go(func() { s.core.Upkeep.Run(ctx) })
	broadcasting := make(chan struct{})
	go func() {
		defer close(broadcasting)
		s.core.broadcast(ctx)
	}()
	err := s.core.Manager.Run(ctx)
	cancel()
	wg.Wait()
	grace := time.NewTimer(broadcastGrace)
	defer grace.Stop()
	select {
	case <-broadcasting:
	case <-grace.C:
		s.core.Log.Warn("broadcast blocked by a client that does not read")
	}
	return err
}

// Close refuses further reads and writes and waits up to 10 s for current ones. Call it after Run,
// before closing the backend. It is idempotent.
func (s Sync) Close() error {
	s.core.closed.Store(true)
	err := s.core.Store.Close()
	if s.core.Records != nil {
		err = errors.Join(err, s.core.Records.Close())
	}
	return err
}

// Writable returns nil if events can be stored, else the error of Room or of Store.Writable.
func (s Sync) Writable() error {
	if err := s.core.Room.Of(&nostr.Event{Kind: nostr.KindTextNote}); err != nil {
		return err
	}
	return s.core.Store.Writable()
}

// Collector returns the metrics, after Open also of the records.
func (s Sync) Collector(namespace string) prometheus.Collector {
	dropped := prometheus.NewCounterFunc(prometheus.CounterOpts{
		Namespace: namespace, Subsystem: "sync", Name: "broadcasts_dropped_total",
		Help: "Total number of stored events that were not sent to subscribers because clients read too slowly.",
	}, func() float64 { return float64(s.core.dropped.Load()) })
	all := settings.Collectors{s.core.Manager.Collector(namespace), dropped}
	if s.core.Records != nil {
		all = append(all, s.core.Records.Collector(namespace))
	}
	return all
}

// Manager returns the SyncManager, to which a policy reports held events.
func (s Sync) Manager() *relaysync.SyncManager {
	m, _ := s.core.Manager.(*relaysync.SyncManager)
	return m
}

// Remove removes an event as moderation and calls the hooks of the relay. Sync does not fetch it
// while its id is remembered. Clients can submit it again.
func (s Sync) Remove(ctx context.Context, e graspsync.Event) error {
	if err := s.core.Store.Remove(ctx, e); err != nil {
		return err
	}
	s.core.AddRemoved(e)
	s.core.FollowRemovals(context.WithoutCancel(ctx))
	s.core.Manager.NotifyRemoved(e)
	return nil
}

// BroadcastsDropped returns the number of synced events that were not broadcast.
func (s Sync) BroadcastsDropped() uint64 { return s.core.dropped.Load() }

// Room returns an error that wraps ErrRoom if the disk has no room for an event. A policy must call it
// before it holds an event.
func (s Sync) Room(e graspsync.Event) error { return s.core.Room.Of(e.Event) }

// Release stores a held event unless a hook refuses it, broadcasts it and reports it to the
// SyncManager. The result Refused is final.
func (s Sync) Release(ctx context.Context, e graspsync.Event) (graspsync.Outcome, error) {
	return s.core.Imports.Release(ctx, e)
}
