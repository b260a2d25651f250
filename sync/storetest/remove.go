package storetest

import (
	"context"
	"errors"
	"fmt"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/eventtest"
	relaysync "github.com/graspsync/graspsync/sync"
)

// checkRemove takes a Store at its word that says that it can't remove: then all stays.
func checkRemove(ctx context.Context, store relaysync.Store) error {
	s, g := subject{store, ctx}, newGen(77)
	a, d := g.key(), nostr.Tag{"d", "repo"}
	before, ann := g.event(a, kindAnnouncement, start, d), g.event(a, kindAnnouncement, start+1, d)
	issue, other := g.event(a, kindIssue, start), g.event(a, kindAnnouncement, start, nostr.Tag{"d", "other"})
	all := []*nostr.Event{before, ann, issue, other}
	if err := s.saveAll(all[1:], graspsync.Stored); err != nil {
		return err
	}
	if errors.Is(store.Remove(ctx, eventtest.Of(ann)), relaysync.ErrCannotRemove) {
		return s.stays(all[1:])
	}
	for range 2 { // the second time they are not there
		for _, e := range []*nostr.Event{before, ann, issue} {
			if err := store.Remove(ctx, eventtest.Of(e)); err != nil {
				return fmt.Errorf("Remove of %s: %w", describe(e), err)
			}
		}
	}
	if err := s.holds(all, []*nostr.Event{other}); err != nil {
		return fmt.Errorf("after Remove: %w", err)
	}
	for _, e := range all[:3] { // nothing is remembered of them
		if err := s.save(e, graspsync.Stored); err != nil {
			return fmt.Errorf("after Remove: %w", err)
		}
	}
	if err := store.Remove(ctx, eventtest.Of(before)); err != nil {
		return fmt.Errorf("Remove of a version that is replaced: %w", err)
	}
	if err := s.holds(all, all[1:]); err != nil {
		return fmt.Errorf("after Remove of a version that is replaced: %w", err)
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if store.Remove(ended, eventtest.Of(ann)) == nil {
		return errors.New("Remove with a context that has ended: no error")
	}
	return nil
}
