package server

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/graspsync/graspsync/state"
)

// ErrStarting is what Ready returns until the store was read.
var ErrStarting = errors.New("the store is still being read")

const (
	// period is how long an answer holds: whoever asks more often costs nothing.
	period = 5 * time.Second
	// timeout is how long a disk may take to write a few bytes.
	timeout = 5 * time.Second
	// key is what is written to the records to find out whether that can be done. Nothing
	// reads it.
	key = "ready"
)

// readiness finds out whether a server can do its work. Disks that hang are why it is as it is: one
// question is asked at a time, and nobody waits for it for longer than timeout. It is safe for concurrent use.
type readiness struct {
	// set by newReadiness, read-only
	read    <-chan struct{} // closed once the store was read
	store   func() error    // why it can't be written to, by what is known
	records state.Store
	git     func() error  // why the folder of repositories can't be written to
	asking  chan struct{} // one token: who asks the disk

	mu sync.Mutex
	// guarded by mu
	at  time.Time // of the last answer
	err error     // that answer
}

// newReadiness returns the readiness of a server: once read is closed, store and git say why store and folder of repositories
// can't be written to, and records are written to.
func newReadiness(read <-chan struct{}, store func() error, records state.Store, git func() error) *readiness {
	return &readiness{read: read, store: store, records: records, git: git, asking: make(chan struct{}, 1)}
}

// Ready returns why a server can't do its work, all that is wrong at once.
func (r *readiness) Ready(ctx context.Context) error {
	select {
	case <-r.read:
	default:
		return ErrStarting
	}
	return errors.Join(r.store(), r.written(ctx))
}

// written returns why something could not be written, as of the last period.
func (r *readiness) written(ctx context.Context) error {
	if known, err := r.known(); known {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	select {
	case r.asking <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("writing a few bytes takes too long: %w", context.Cause(ctx))
	}
	if known, err := r.known(); known { // somebody else has asked meanwhile
		<-r.asking
		return err
	}
	answer := make(chan error, 1)
	go func() { // a write to a disk that hangs can't be given up
		defer func() { <-r.asking }()
		err := errors.Join(r.record(context.WithoutCancel(ctx)), r.git())
		r.mu.Lock()
		r.at, r.err = time.Now(), err
		r.mu.Unlock()
		answer <- err
	}()
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return fmt.Errorf("writing a few bytes takes too long: %w", context.Cause(ctx))
	}
}

// known returns the last answer if it still holds.
func (r *readiness) known() (ok bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.at.IsZero() && time.Since(r.at) < period, r.err
}

// record writes to the records.
func (r *readiness) record(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if err := r.records.Put(ctx, state.Record{Key: key}); err != nil {
		return fmt.Errorf("writing a record: %w", err)
	}
	return nil
}

// readyCollector has readiness as a metric.
type readyCollector struct {
	*readiness
	desc *prometheus.Desc
}

// Collector returns that as a metric.
func (r *readiness) Collector(namespace string) prometheus.Collector {
	return readyCollector{r, prometheus.NewDesc(prometheus.BuildFQName(namespace, "server", "ready"),
		"1 if the stored events were read, and events, records and repositories can be written, otherwise 0.", nil, nil)}
}

// Describe implements [prometheus.Collector].
func (c readyCollector) Describe(ch chan<- *prometheus.Desc) { ch <- c.desc }

// Collect implements [prometheus.Collector].
func (c readyCollector) Collect(ch chan<- prometheus.Metric) {
	value := 0.0
	if c.Ready(context.Background()) == nil {
		value = 1
	}
	ch <- prometheus.MustNewConstMetric(c.desc, prometheus.GaugeValue, value)
}
