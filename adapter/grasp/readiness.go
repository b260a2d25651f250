package grasp

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/graspsync/graspsync/state"
)

// ErrStarting is wrapped by what [Server.Ready] returns until Run has read the store.
var ErrStarting = errors.New("the store is still being read")

const (
	// readyPeriod is how long an answer holds: whoever asks more often costs nothing.
	readyPeriod = 5 * time.Second
	// readyTimeout is how long a disk may take to write a few bytes.
	readyTimeout = 5 * time.Second
	// readyKey is what is written to the records to find out whether that can be done. Nothing
	// reads it.
	readyKey = "ready"
)

// readiness finds out whether a server can do its work. Disks that hang are why it is as it is: one
// question is asked at a time, and nobody waits for it for longer than readyTimeout.
type readiness struct {
	// set by New, read-only
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

// ready returns why a server can't do its work, all that is wrong at once.
func (r *readiness) ready(ctx context.Context) error {
	select {
	case <-r.read:
	default:
		return ErrStarting
	}
	return errors.Join(r.store(), r.written(ctx))
}

// written returns why something could not be written, as of the last readyPeriod.
func (r *readiness) written(ctx context.Context) error {
	if known, err := r.known(); known {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
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
	return !r.at.IsZero() && time.Since(r.at) < readyPeriod, r.err
}

// record writes to the records.
func (r *readiness) record(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	_, version, err := r.records.Get(ctx, readyKey)
	if err == nil || errors.Is(err, state.ErrNotFound) {
		_, err = r.records.CompareAndSwap(ctx, readyKey, version, nil)
	}
	if err != nil {
		return fmt.Errorf("writing a record: %w", err)
	}
	return nil
}

// readyCollector tells readiness as a metric.
type readyCollector struct {
	*readiness
	desc *prometheus.Desc
}

func (r *readiness) collector(namespace string) prometheus.Collector {
	return readyCollector{r, prometheus.NewDesc(prometheus.BuildFQName(namespace, "server", "ready"),
		"1 if the store was read, and store, records and repositories can be written to; else 0.", nil, nil)}
}

// Describe implements [prometheus.Collector].
func (c readyCollector) Describe(ch chan<- *prometheus.Desc) { ch <- c.desc }

// Collect implements [prometheus.Collector].
func (c readyCollector) Collect(ch chan<- prometheus.Metric) {
	value := 0.0
	if c.ready(context.Background()) == nil {
		value = 1
	}
	ch <- prometheus.MustNewConstMetric(c.desc, prometheus.GaugeValue, value)
}
