package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/graspsync/graspsync/internal/cputime"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/memstore"
)

type attempt struct {
	client client
	data   *dataset
	store  *store        // destination; nil for an empty memstore
	limit  time.Duration // after this time it counts as hung
	work   string        // name of its profiles; "" for none
	resync bool          // our client compares everything again when it is in sync

	// set by run
	url    string
	status relaysync.Status // our last one
	read   time.Duration    // our CPU time before the first dial
	pass   time.Duration    // our CPU time for comparing everything again
}

type sample struct {
	saved time.Duration // until the last event was saved
	last  time.Duration // until the last answer of a canned relay
	done  time.Duration // until the client reports the end
	cpu   time.Duration // of this process, user and system
	read  time.Duration // part of cpu: reading our Store before the first dial
	pass  time.Duration // part of cpu: comparing everything again
	usage usage         // of the relay
	state relaysync.Status
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
func (a *attempt) run(r *run, relays *remote) (m sample, err error) {
	if a.url, err = relays.be(a.client.relay); err != nil {
		return m, err
	}
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

	stop := func() error { return nil }
	if a.work != "" {
		if stop, err = r.profiles.start(a.work); err != nil {
			return m, err
		}
	}
	start, used := time.Now(), cputime.Used()
	go func() { result <- a.client.run(ctx, a) }()
	select {
	case err = <-result:
	case <-timer.C:
		err = errHung
	}
	m.done, m.cpu = time.Since(start), cputime.Used()-used
	if err = errors.Join(err, stop()); err != nil {
		return m, err
	}
	if m.usage, err = relays.usage(); err != nil {
		return m, err
	}
	m.last = m.usage.Last.Sub(start)
	cancel()
	m.state, m.read, m.pass = a.status, a.read, a.pass
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

type series struct {
	samples          []sample
	hung, incomplete int
}

// add runs one more catch-up. It repeats a failed catch-up of go-nostr a few times.
func (s *series) add(r *run, relays *remote, a attempt) error {
	for range attempts {
		again := a
		m, err := again.run(r, relays)
		switch {
		case err == nil:
			s.samples = append(s.samples, m)
			return nil
		case a.client.theirs && errors.Is(err, errHung):
			s.hung++
		case a.client.theirs && errors.Is(err, errIncomplete):
			s.incomplete++
		default:
			return fmt.Errorf("%s: %w", a.client.name, err)
		}
	}
	return fmt.Errorf("%s: %d attempts hung, %d ended without some event", a.client.name, s.hung, s.incomplete)
}

// measureAll runs several catch-ups in turn, r.count times, and returns the medians. In turn,
// because other load on the machine then affects all of them.
func measureAll(r *run, relays *remote, all ...attempt) ([]sample, error) {
	taken := make([]series, len(all))
	for range max(1, r.count) {
		for i := range all {
			if err := taken[i].add(r, relays, all[i]); err != nil {
				return nil, err
			}
		}
	}
	medians := make([]sample, len(all))
	for i, s := range taken {
		medians[i] = medianOf(s.samples)
		if bad := s.hung + s.incomplete; bad > 0 {
			r.figure(all[i].client.name+": attempts that hung, or ended without some event, and were made again", float64(bad), "")
		}
	}
	return medians, nil
}

// medianOf returns the median of each quantity, and the status and traffic of the first sample.
func medianOf(samples []sample) sample {
	m := sample{
		saved: median(samples, func(s sample) time.Duration { return s.saved }),
		last:  median(samples, func(s sample) time.Duration { return s.last }),
		done:  median(samples, func(s sample) time.Duration { return s.done }),
		cpu:   median(samples, func(s sample) time.Duration { return s.cpu }),
		read:  median(samples, func(s sample) time.Duration { return s.read }),
		pass:  median(samples, func(s sample) time.Duration { return s.pass }),
		state: samples[0].state, usage: samples[0].usage,
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
