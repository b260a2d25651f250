package purgatoryadapter

import (
	"context"

	"github.com/graspsync/graspsync"
	relaysync "github.com/graspsync/graspsync/sync"
)

// Store returns a Store that reports changes of inner to the purgatory, for a relay without hooks.
func (p *Policy) Store(inner relaysync.Store) relaysync.Store { return telling{inner, p} }

type telling struct {
	relaysync.Store
	policy *Policy
}

func (s telling) Save(ctx context.Context, events []graspsync.Incoming) ([]graspsync.Outcome, error) {
	out, err := s.Store.Save(ctx, events)
	if where := s.policy.waits.Load(); where != nil {
		for i := range min(len(out), len(events)) {
			if out[i].Result == graspsync.Stored || out[i].Result == graspsync.Duplicate { // Duplicate: an earlier Save stored it but failed
				where.NotifyStored(events[i].Event)
			}
		}
	}
	return out, err
}

func (s telling) Remove(ctx context.Context, event graspsync.Event) error {
	err := s.Store.Remove(ctx, event)
	if where := s.policy.waits.Load(); where != nil && err == nil {
		where.NotifySuperseded(event)
	}
	return err
}
