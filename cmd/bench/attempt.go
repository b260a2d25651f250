package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"time"

	"github.com/graspsync/graspsync/internal/cputime"
	"github.com/graspsync/graspsync/sync/memstore"
)

type attempt struct {
	client client
	data   *dataset
	store  *store        // destination; nil for an empty memstore
	limit  time.Duration // after this time it counts as hung
	resync bool          // our client compares everything again when it is in sync

	// set by run
	url  string
	read time.Duration // our CPU time before the first dial
	pass time.Duration // our CPU time for comparing everything again
}

type sample struct {
	saved time.Duration // until the last event was saved
	done  time.Duration // until the client reports the end
	cpu   time.Duration // of this process, user and system
	read  time.Duration // part of cpu: reading our Store before the first dial
	pass  time.Duration // part of cpu: comparing everything again
	usage usage         // of the relay
}

var (
	errHung       = errors.New("hung")
	errIncomplete = errors.New("ended without some event")
)

// A catch-up counts as hung after leastLimit plus eventLimit for each event.
const (
	leastLimit = time.Minute
	eventLimit = 5 * time.Millisecond
)

// first returns the first catch-up of a client with all events of one relay.
func first(c client, d *dataset) attempt {
	return attempt{client: c, data: d, limit: leastLimit + time.Duration(len(d.ids))*eventLimit}
}

// run runs the catch-up. The error wraps errHung or errIncomplete if it must be repeated.
func (a *attempt) run(r *run) (m sample, err error) {
	relay, err := startChild(r.ctx, relayProcess, a.client.relay+" "+a.data.path)
	if err != nil {
		return m, err
	}
	defer relay.close()
	address, err := relay.line()
	if err != nil {
		return m, err
	}
	a.url = "ws://" + address
	if a.store == nil {
		a.store = newStore(memstore.New(), len(a.data.ids))
	}
	ctx, cancel := context.WithCancel(r.ctx)
	defer cancel()
	result := make(chan error, 1)
	timer := time.NewTimer(a.limit)
	defer timer.Stop()
	missing := a.store.left.Load() > 0
	runtime.GC()
	start, used := time.Now(), cputime.Used()
	go func() { result <- a.client.run(ctx, a) }()
	select {
	case err = <-result:
	case <-timer.C:
		err = errHung
	}
	m.done, m.cpu = time.Since(start), cputime.Used()-used
	if err != nil {
		return m, err
	}
	if m.usage, err = relay.usage(); err != nil {
		return m, err
	}
	cancel()
	m.read, m.pass = a.read, a.pass
	if err := check(r.ctx, a.store, a.data); err != nil {
		return m, err
	}
	if missing {
		m.saved = (<-a.store.full).Sub(start)
	}
	return m, nil
}

// attempts is the maximum number of attempts for a catch-up of go-nostr that hangs or is
// incomplete.
const attempts = 3

// measured runs a catch-up, and repeats a failed one of go-nostr.
func (a attempt) measured(r *run) (m sample, err error) {
	for range attempts {
		again := a
		m, err = again.run(r)
		if err == nil || !a.client.theirs || !errors.Is(err, errHung) && !errors.Is(err, errIncomplete) {
			break
		}
		fmt.Fprintf(os.Stderr, "bench: %s: %v\n", a.client.name, err)
	}
	return m, err
}

// measureAll runs several catch-ups in turn, r.count times, and returns the medians. In turn,
// because other load on the machine then affects all of them.
func measureAll(r *run, all ...attempt) ([]sample, error) {
	taken := make([][]sample, len(all))
	for range max(1, r.count) {
		for i, a := range all {
			m, err := a.measured(r)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", a.client.name, err)
			}
			taken[i] = append(taken[i], m)
		}
	}
	medians := make([]sample, len(all))
	for i, samples := range taken {
		medians[i] = medianOf(samples)
	}
	return medians, nil
}

// medianOf returns the median of each quantity.
func medianOf(samples []sample) sample {
	m := sample{
		saved: median(samples, func(s sample) time.Duration { return s.saved }),
		done:  median(samples, func(s sample) time.Duration { return s.done }),
		cpu:   median(samples, func(s sample) time.Duration { return s.cpu }),
		read:  median(samples, func(s sample) time.Duration { return s.read }),
		pass:  median(samples, func(s sample) time.Duration { return s.pass }),
	}
	m.usage.CPU = median(samples, func(s sample) time.Duration { return s.usage.CPU })
	m.usage.In = median(samples, func(s sample) int64 { return s.usage.In })
	m.usage.Out = median(samples, func(s sample) int64 { return s.usage.Out })
	return m
}

func median[T cmp.Ordered](samples []sample, of func(sample) T) T {
	values := make([]T, len(samples))
	for i, s := range samples {
		values[i] = of(s)
	}
	slices.Sort(values)
	return values[len(values)/2]
}

// ratio returns a/b, or 0 if b is 0, as CPU time is on some systems.
func ratio[T ~int64](a, b T) float64 {
	if b == 0 {
		return 0
	}
	return float64(a) / float64(b)
}

func (r *run) explain(what string, m sample) {
	r.figure(what+": until all is saved", m.saved.Seconds(), "s")
	r.figure(what+": until it says so", m.done.Seconds(), "s")
	r.figure(what+": CPU", m.cpu.Seconds(), "s")
	r.figure(what+": CPU of the relays", m.usage.CPU.Seconds(), "s")
	r.figure(what+": from the relays", float64(m.usage.In)/1e6, "MB")
	r.figure(what+": to the relays", float64(m.usage.Out)/1e6, "MB")
}
