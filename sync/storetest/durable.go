package storetest

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync/internal/eventtest"
	relaysync "github.com/graspsync/graspsync/sync"
)

// RunDurable checks that a Store on disk keeps its reports after it was reopened: stored events,
// deletions, requests to vanish, and removals. open opens the Store in a folder, which may be empty
// or used before, and returns a function that closes it. RunDurable cannot check that data was
// written to disk with fsync.
func RunDurable(t *testing.T, open func(t *testing.T, folder string) (store relaysync.Store, end func())) {
	t.Helper()
	t.Run("durable", func(t *testing.T) {
		folder := t.TempDir()
		err := durable(t.Context(), func(visit func(relaysync.Store) error) error {
			store, end := open(t, folder)
			defer end()
			return visit(store)
		})
		if err != nil {
			t.Error(err)
		}
	})
}

// durable opens a Store several times and checks the content that earlier times left.
func durable(ctx context.Context, opened func(visit func(relaysync.Store) error) error) error {
	g := newGen(91)
	a, b, d := g.key(), g.key(), nostr.Tag{"d", "repo"}
	first, second := g.event(a, kindAnnouncement, start, d), g.event(a, kindAnnouncement, start+1, d)
	issue, gone, back := g.event(a, kindIssue, start), g.event(a, kindIssue, start), g.event(a, kindIssue, start)
	early, other := g.event(b, kindIssue, start), g.event(b, kindIssue, start+9)
	removed := g.event(a, kindComment, start)
	deletion, lifted, vanish := g.deletion(a, start+5, gone.ID), g.deletion(a, start+5, back.ID), g.vanish(b, start+5)
	all := []*nostr.Event{first, second, issue, gone, back, early, other, removed, deletion, lifted, vanish}
	before, newest := g.event(a, 30618, start, d), g.event(a, 30618, start+1, d) // newest is deleted by its id
	removes := true
	if err := opened(func(store relaysync.Store) error {
		return newSubject(ctx, store).saveAll(append(all[:8:8], newest), stored)
	}); err != nil {
		return err
	}
	if err := opened(func(store relaysync.Store) error {
		s := newSubject(ctx, store)
		if err := s.holds(all[:8], all[1:8]); err != nil {
			return err
		}
		if err := s.saveAll(append(all[8:len(all):len(all)], g.deletion(a, start+5, newest.ID)), stored); err != nil {
			return err
		}
		for _, e := range []*nostr.Event{lifted, removed} {
			if err := s.Remove(ctx, eventtest.Of(e)); errors.Is(err, relaysync.ErrCannotRemove) {
				removes = false
			} else if err != nil {
				return fmt.Errorf("Remove of %s: %w", describe(e), err)
			}
		}
		return nil
	}); err != nil {
		return fmt.Errorf("opened a second time: %w", err)
	}
	err := opened(func(store relaysync.Store) error {
		s := newSubject(ctx, store)
		if err := s.saveAll([]*nostr.Event{before, newest}, deleted); err != nil {
			return err
		}
		if !removes {
			return s.holds(all, []*nostr.Event{second, issue, other, removed, deletion, lifted, vanish})
		}
		all = append(all[:9:9], vanish) // the removed deletion must have no effect
		if err := s.holds(all, []*nostr.Event{second, issue, other, deletion, vanish}); err != nil {
			return err
		}
		return s.saveAll([]*nostr.Event{first, gone, back, early, removed}, superseded, deleted, stored, deleted, stored)
	})
	if err != nil {
		return fmt.Errorf("opened a third time: %w", err)
	}
	return nil
}
