package storetest

import (
	"context"
	"errors"
	"fmt"
	"testing"

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
	events := append(vanishing(s), s.deletions(true)...)
	for n, visit := range []func() error{
		func() error { return s.save(events...) },
		func() (err error) {
			for i, e := range events {
				if i%5 == 0 {
					err = errors.Join(err, s.remove(e))
				}
			}
			return err
		},
		func() error { return s.save(events...) },
		func() error { return nil },
	} {
		err := opened(func(store relaysync.Store) error {
			s.Store = store
			return errors.Join(s.holds(), visit())
		})
		if err != nil {
			return fmt.Errorf("opened for the %d. time: %w", n+1, err)
		}
	}
	return nil
}
