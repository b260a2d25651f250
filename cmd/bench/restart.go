package main

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/cputime"
	relaysync "github.com/graspsync/graspsync/sync"
)

func measureRestart(r *run) error {
	w := world{repos: r.pick(20_000, 1000), issues: 24, relays: r.pick(100, 10), listed: 5}
	c, store, identity, err := w.start(r.ctx)
	if err != nil {
		return err
	}
	defer c.close()
	news := make([]graspsync.Event, 1000) // submitted by clients at the same time, one after the other
	for i := range news {
		if news[i], err = graspsync.ParseEvent(w.issue(i%w.repos, w.issues+i/w.repos)); err != nil {
			return err
		}
	}
	used, began := cputime.Used(), time.Now()
	f, err := startFollower(r.ctx, store, identity, relaysync.Config{})
	if err != nil {
		return err
	}
	defer f.stop()
	clients, gone := context.WithCancel(r.ctx)
	defer gone()
	var submitting sync.WaitGroup
	var stored []time.Duration
	submitting.Go(func() { stored = submit(clients, f.manager, news) })
	select {
	case <-f.manager.Ready():
	case <-r.ctx.Done():
		return r.ctx.Err()
	}
	ready := time.Since(began)
	first, err := f.following(r.ctx, 1, time.Minute)
	if err != nil {
		return err
	}
	ten, err := f.following(r.ctx, 10, 2*time.Minute)
	if err != nil {
		return err
	}
	took := cputime.Used() - used
	gone()
	submitting.Wait()
	r.figure("until what clients submit is judged", ready.Seconds(), "s")
	r.atMost("until a first relay is followed", first.Sub(began).Seconds(), "s", 5)
	r.figure("until ten relays are", ten.Sub(began).Seconds(), "s")
	r.figure("CPU until then", took.Seconds(), "s")
	ms := func(d time.Duration) float64 { return d.Seconds() * 1e3 }
	r.atMost("Stored blocks, 999 of 1,000 calls", ms(stored[len(stored)*999/1000]), "ms", 1)
	r.atMost("Stored blocks, at most", ms(stored[len(stored)-1]), "ms", 1)
	return nil
}

// submit reports a stored event about every millisecond until ctx ends, and returns the sorted
// durations of the calls.
func submit(ctx context.Context, m *relaysync.SyncManager, events []graspsync.Event) (stored []time.Duration) {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for i := 0; ; i++ {
		began := time.Now()
		m.NotifyStored(events[i%len(events)])
		stored = append(stored, time.Since(began))
		select {
		case <-tick.C:
		case <-ctx.Done():
			slices.Sort(stored)
			return stored
		}
	}
}

// following waits until n relays are followed, and returns the time.
func (f *follower) following(ctx context.Context, n int, limit time.Duration) (time.Time, error) {
	deadline := time.After(limit)
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for {
		select {
		case <-look.C:
			followed := 0
			for _, r := range f.manager.Status().Relays {
				if r.LiveFilters > 1 { // not only the filters that every relay gets
					followed++
				}
			}
			if followed >= n {
				return time.Now(), nil
			}
		case <-deadline:
			return time.Time{}, errNotSynced
		case <-ctx.Done():
			return time.Time{}, ctx.Err()
		}
	}
}
