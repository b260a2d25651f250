package storetest

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/nbd-wtf/go-nostr"

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
	s := newSubject(ctx, nil)
	a, b, d := s.key(), s.key(), nostr.Tag{"d", "repo"}
	first, second := s.event(a, kindAnnouncement, start, d), s.event(a, kindAnnouncement, start+1, d)
	issue, gone, back, removed := s.event(a, kindIssue, start), s.event(a, kindIssue, start), s.event(a, kindIssue, start), s.event(a, kindComment, start)
	early, other := s.event(b, kindIssue, start), s.event(b, kindIssue, start+9)
	before, newest := s.event(a, 30618, start, d), s.event(a, 30618, start+1, d)
	lifted := s.deletion(a, start+5, back.ID)
	for n, visit := range []func() error{
		func() error { return s.save(first, second, issue, gone, back, early, other, removed, newest) },
		func() error {
			return errors.Join(s.holds(before),
				s.save(s.deletion(a, start+5, gone.ID), lifted, s.vanish(b, start+5, allRelays), s.deletion(a, start+5, newest.ID)),
				s.remove(lifted), s.remove(removed))
		},
		func() error {
			return errors.Join(s.holds(before), s.save(before, newest, first, gone, back, early, removed))
		},
	} {
		err := opened(func(store relaysync.Store) error {
			s.Store = store
			return visit()
		})
		if err != nil {
			return fmt.Errorf("opened for the %d. time: %w", n+1, err)
		}
	}
	return nil
}
