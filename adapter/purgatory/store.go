package purgatoryadapter

import (
	"context"

	"github.com/graspsync/graspsync"
	relaysync "github.com/graspsync/graspsync/sync"
)

// Store returns a Store that tells the purgatory what the inner one has stored and removed
// ([purgatory.Purgatory.Arrived], [purgatory.Purgatory.Departed]): for a relay that has no hooks which could. It is
// that of the SyncManager, and of whoever stores what clients submit.
func (p *Policy) Store(inner relaysync.Store) relaysync.Store { return telling{inner, p} }

type telling struct {
	relaysync.Store
	policy *Policy
}

// Save implements [relaysync.Store].
func (s telling) Save(ctx context.Context, events []graspsync.Incoming) ([]graspsync.Outcome, error) {
	out, err := s.Store.Save(ctx, events)
	if where := s.policy.waits.Load(); where != nil {
		for i := range min(len(out), len(events)) {
			if out[i].Result == graspsync.Stored || out[i].Result == graspsync.Duplicate { // by a Save that said it failed
				(*where).Arrived(events[i].Event)
			}
		}
	}
	return out, err
}

// Remove implements [relaysync.Store].
func (s telling) Remove(ctx context.Context, event graspsync.Event) error {
	err := s.Store.Remove(ctx, event)
	if where := s.policy.waits.Load(); where != nil && err == nil {
		(*where).Departed(event)
	}
	return err
}
