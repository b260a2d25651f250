package server

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/graspsync/graspsync/state"
)

// ErrStarting is returned by Ready until the store was read.
var ErrStarting = errors.New("the store is still being read")

const (
	period  = 5 * time.Second
	timeout = 5 * time.Second
	key     = "ready"
)

// readiness checks whether a server can work. One check runs at a time, and callers wait at most timeout,
// because a disk can hang. It is safe for concurrent use.
type readiness struct {
	// set by newReadiness, read-only
	read    <-chan struct{} // closed after the store was read
	store   func() error    // last known write error of the store
	records state.Store
	git     func() error  // write error of the folder of repositories
	slot    chan struct{} // held by the caller that checks, or reads at and err

	// guarded by slot
	at  time.Time // time of the last answer
	err error     // the last answer
}

func newReadiness(read <-chan struct{}, store func() error, records state.Store, git func() error) *readiness {
	return &readiness{read: read, store: store, records: records, git: git, slot: make(chan struct{}, 1)}
}

func (r *readiness) Ready(ctx context.Context) error {
	select {
	case <-r.read:
	default:
		return ErrStarting
	}
	return errors.Join(r.store(), r.written(ctx))
}

// written returns the write errors of records and repositories, at most period old.
func (r *readiness) written(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	answer := make(chan error, 1)
	select {
	case r.slot <- struct{}{}:
		go func() { // a goroutine, because a write to a disk that hangs cannot be canceled
			if time.Since(r.at) >= period {
				r.err = errors.Join(r.record(context.WithoutCancel(ctx)), r.git())
				r.at = time.Now()
			}
			answer <- r.err
			<-r.slot
		}()
	case <-ctx.Done():
	}
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return fmt.Errorf("writing a few bytes takes too long: %w", context.Cause(ctx))
	}
}

func (r *readiness) record(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if err := r.records.Put(ctx, state.Record{Key: key}); err != nil {
		return fmt.Errorf("writing a record: %w", err)
	}
	return nil
}

func (r *readiness) Collector(namespace string) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: namespace, Subsystem: "server", Name: "ready",
		Help: "1 if the stored events were read, and events, records and repositories can be written, otherwise 0.",
	}, func() float64 {
		if r.Ready(context.Background()) == nil {
			return 1
		}
		return 0
	})
}
