package storetest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/eventtest"
)

// checkCancelled checks that every method returns an error for a canceled context, and that a
// canceled iteration is complete or ends with an error.
func checkCancelled(s *subject) error {
	events := make([]*nostr.Event, 2500)
	for i := range events {
		events[i] = s.event(s.key(), 1, start+nostr.Timestamp(i%5))
	}
	if err := s.fill(events); err != nil {
		return err
	}
	if err := cancelledIteration(s, len(events)); err != nil {
		return err
	}
	gone, cancel := context.WithCancel(s.ctx)
	cancel()
	s.ctx = gone
	_, errSave := s.Save(gone, incoming(s.event(s.key(), 1, start)))
	_, errHas := s.Has(gone, []graspsync.EventID{idOf(events[0])})
	_, errStamps := s.stamps(nostr.Filter{})
	_, errEvents := s.events(nostr.Filter{})
	_, errDeleted := s.Deleted(gone, eventtest.Of(events[0]))
	for name, err := range map[string]error{
		"Save": errSave, "Has": errHas, "Stamps": errStamps, "Events": errEvents, "Deleted": errDeleted,
	} {
		if !errors.Is(err, context.Canceled) {
			return fmt.Errorf("%s with a cancelled context: %v", name, err)
		}
	}
	return nil
}

func cancelledIteration(s *subject, want int) error {
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	n := 0
	var last error
	for _, err := range s.Keys(ctx, nostr.Filter{}) {
		if last != nil {
			return errors.New("Stamps: a pair follows an error")
		}
		if last = err; err == nil {
			n++
		}
		cancel()
	}
	if last == nil && n != want {
		return fmt.Errorf("Stamps, cancelled while read: %d of %d without an error", n, want)
	}
	return nil
}

// checkEarlyBreak checks that breaking out of an iteration leaves no goroutine or lock.
func checkEarlyBreak(s *subject) error {
	events := make([]*nostr.Event, 600)
	for i := range events {
		events[i] = s.event(s.key(), 1, start+nostr.Timestamp(i))
	}
	if err := s.fill(events); err != nil {
		return err
	}
	const rounds = 60
	before := runtime.NumGoroutine()
	for range rounds {
		for range s.Keys(s.ctx, nostr.Filter{Kinds: []int{1}}) {
			break
		}
		for range s.Events(s.ctx, nostr.Filter{}) {
			break
		}
	}
	if err := settles(s.ctx, before+rounds); err != nil {
		return err
	}
	late := s.event(s.key(), 1, start)
	if err := s.save(late, stored); err != nil {
		return err
	}
	return s.finds(nostr.Filter{}, append(events, late))
}

// settles waits until fewer than limit goroutines are left.
func settles(ctx context.Context, limit int) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	deadline := time.NewTimer(3 * time.Second)
	defer deadline.Stop()
	for {
		if runtime.NumGoroutine() < limit {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		case <-deadline.C:
			return fmt.Errorf("%d goroutines are left after iterations that ended early", runtime.NumGoroutine())
		}
	}
}

// checkConcurrent checks that concurrent saves in different orders give the same content as the
// model, while others read.
func checkConcurrent(s *subject) error {
	var events []*nostr.Event
	for range 12 {
		events = append(events, scene(s.gen, false)...)
	}
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	var writers, readers sync.WaitGroup
	errs := make(chan error, 8)
	for n := range 5 {
		writers.Go(func() {
			g := newGen(uint64(40 + n))
			errs <- s.deliver(g, shuffled(g, events))
		})
	}
	for range 2 {
		readers.Go(func() { errs <- s.readUntil(ctx, events) })
	}
	writers.Wait()
	cancel()
	readers.Wait()
	close(errs)
	for err := range errs {
		if err != nil {
			return err
		}
	}
	return s.holds(events, model(events))
}
