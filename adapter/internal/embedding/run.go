package embedding

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/egress"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/wstransport"
)

// SyncManager is what is needed of a [relaysync.SyncManager] by an embedding as a whole.
type SyncManager interface {
	Manager
	Run(ctx context.Context) error
	Departed(event graspsync.Event)
	Postponed(event graspsync.Event)
	Held(event graspsync.Event)
	Status() relaysync.Status
	RepoStatus(ctx context.Context, ref graspsync.RepoRef) (relaysync.RepoStatus, error)
	Repositories(ctx context.Context) iter.Seq2[relaysync.RepoStatus, error]
	Collector(namespace string) prometheus.Collector
}

// Dial returns the transport over websockets, by the rules of a dialer.
func Dial(rules egress.Config, log *slog.Logger) (relaysync.Transport, error) {
	dialer, err := egress.NewDialer(rules)
	if err != nil {
		return nil, fmt.Errorf("khatru adapter: %w", err)
	}
	transport, err := wstransport.New(wstransport.Config{Dialer: dialer, Logger: log})
	if err != nil {
		return nil, fmt.Errorf("khatru adapter: %w", err)
	}
	return transport, nil
}

// broadcastGrace is how long Run waits at its end for a client that does not read.
const broadcastGrace = time.Second

// Run runs a manager and what goes with it until ctx ends, and returns what ended the manager. A broadcast that a client
// has been blocking for a second is left behind; it ends with the connection of that client.
func Run[E any](ctx context.Context, m SyncManager, u *Upkeep, b *Broadcasts[E], send func(E) int) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	wg.Go(func() { u.Run(ctx) })
	broadcasting := make(chan struct{})
	go func() {
		defer close(broadcasting)
		b.Run(ctx, func(e E) { send(e) })
	}()
	err := m.Run(ctx)
	cancel()
	wg.Wait()
	grace := time.NewTimer(broadcastGrace)
	defer grace.Stop()
	select {
	case <-broadcasting:
	case <-grace.C:
		u.env.Log.Warn("a client that does not read still blocks a broadcast")
	}
	return err
}
