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
	events := s.notes(2500)
	if err := s.fill(events); err != nil {
		return err
	}
	canceled, cancel := context.WithCancel(s.ctx)
	defer cancel()
	n := 0
	var last error
	for _, err := range s.Keys(canceled, nostr.Filter{}) {
		if last != nil {
			return errors.New("Keys: a pair follows an error")
		}
		if last = err; err == nil {
			n++
		}
		cancel()
	}
	if last == nil && n != len(events) {
		return fmt.Errorf("Keys, canceled while read: %d of %d without an error", n, len(events))
	}
	cancel()
	s.ctx = canceled
	_, err := s.Save(canceled, incoming(s.event(s.key(), 1, start)))
	errs := append(s.read(events[0]), err)
	for i, err := range errs {
		if !errors.Is(err, context.Canceled) {
			return fmt.Errorf("%s with a canceled context: %v", []string{"Keys", "Events", "Has", "Deleted", "Save"}[i], err)
		}
	}
	return nil
}

// read returns the errors of Keys, Events, Has and Deleted.
func (s *subject) read(e *nostr.Event) []error {
	_, keys := s.keysOf(nostr.Filter{Kinds: []int{e.Kind}})
	_, events := s.eventsOf(nostr.Filter{Authors: []string{e.PubKey}})
	_, has := s.Has(s.ctx, []graspsync.EventID{idOf(e)})
	_, deleted := s.Deleted(s.ctx, eventtest.Of(e))
	return []error{keys, events, has, deleted}
}

// checkEarlyBreak checks that breaking out of an iteration leaves no goroutine or lock.
func checkEarlyBreak(s *subject) error {
	events := s.notes(600)
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
	for deadline := time.Now().Add(time.Minute); runtime.NumGoroutine() >= before+rounds; {
		time.Sleep(10 * time.Millisecond)
		if time.Now().After(deadline) {
			return fmt.Errorf("%d goroutines are left after iterations that ended early", runtime.NumGoroutine())
		}
	}
	late := s.event(s.key(), 1, start)
	if err := s.save(late); err != nil {
		return err
	}
	return s.finds(nostr.Filter{}, append(events, late))
}

// checkConcurrent checks that concurrent saves in different orders give the same content as the
// model, while others read.
func checkConcurrent(s *subject) error {
	var events []*nostr.Event
	for range 12 {
		events = append(events, deletions(s)...)
	}
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	var writers, readers sync.WaitGroup
	errs := make(chan error, 8)
	for n := range 5 {
		writers.Go(func() { errs <- s.deliver(newGen(uint64(40 + n)).batches(events)) })
	}
	for range 2 {
		readers.Go(func() {
			var err error
			for i := 0; ctx.Err() == nil && err == nil; i++ {
				err = errors.Join(s.read(events[i%len(events)])...)
			}
			errs <- err
		})
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
	s.model = modelOf(events)
	return s.holds()
}

// deliver saves batches whose outcomes depend on other goroutines.
func (s *subject) deliver(batches [][]*nostr.Event) error {
	for _, events := range batches {
		got, err := s.submit(events)
		if err != nil {
			return err
		}
		for i, o := range got {
			if o.Result == 0 || o.Result == graspsync.Failed {
				return fmt.Errorf("Save of %s: %s (%v)", describe(events[i]), o.Result, o.Err)
			}
		}
	}
	return nil
}
