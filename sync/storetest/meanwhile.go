package storetest

import (
	"errors"
	"fmt"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
)

// patience is the maximum time for about 20 calls during an iteration, each of which reads at most
// a thousand events.
const patience = 30 * time.Second

// checkMeanwhile checks that a Store can be called during an iteration, and that events stored the
// whole time are yielded once.
func checkMeanwhile(s *subject) error { return meanwhile(s, patience) }

func meanwhile(s *subject, patience time.Duration) error {
	events := s.notes(700)
	if err := s.fill(events); err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() {
		f := nostr.Filter{Kinds: []int{1}}
		seen := make(map[graspsync.EventID]int)
		visit := func(id graspsync.EventID, err error) error {
			seen[id]++
			if n := len(seen); err == nil && (n == 1 || n == len(events)/2) {
				err = s.callAll()
			}
			return err
		}
		var err error
		for key, rerr := range s.Keys(s.ctx, f) {
			err = errors.Join(err, visit(key.ID, rerr))
		}
		err = errors.Join(err, once("Keys", events, seen))
		clear(seen)
		for e, rerr := range s.Events(s.ctx, f) {
			err = errors.Join(err, visit(e.ID, rerr))
		}
		done <- errors.Join(err, once("Events", events, seen))
	}()
	select {
	case err := <-done:
		return err
	case <-time.After(patience): // its goroutine leaks, because nothing can stop it
		return errors.New("a call during an iteration does not return: is a lock held while it yields?")
	}
}

// once checks that an iterator gave each event once.
func once(name string, events []*nostr.Event, seen map[graspsync.EventID]int) error {
	for _, e := range events {
		if n := seen[idOf(e)]; n != 1 {
			return fmt.Errorf("%s gave %s %d times, while others came and went", name, describe(e), n)
		}
	}
	return nil
}

// callAll calls each method.
func (s *subject) callAll() error {
	e := s.event(s.key(), kindIssue, start+5)
	if err := errors.Join(append(s.read(e), s.save(e), s.finds(nostr.Filter{IDs: []string{e.ID}}, []*nostr.Event{e}), s.remove(e))...); err != nil {
		return fmt.Errorf("during an iteration: %w", err)
	}
	return nil
}
