package purgatoryadapter

import (
	"context"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	relaysync "github.com/graspsync/graspsync/sync"
)

// Store returns a Store that reports changes of inner to the purgatory, for a relay without hooks.
func (p *Policy) Store(inner relaysync.Store) relaysync.Store { return telling{inner, p} }

type telling struct {
	relaysync.Store
	policy *Policy
}

func (s telling) Save(ctx context.Context, events []graspsync.Incoming) ([]graspsync.Outcome, error) {
	where := s.policy.waits.Load()
	if where == nil {
		return s.Store.Save(ctx, events)
	}
	var named []graspsync.Event
	for _, in := range events {
		if !in.Event.IsZero() {
			named = append(named, s.namedBy(ctx, in.Event)...)
		}
	}
	out, err := s.Store.Save(ctx, events)
	for i := range min(len(out), len(events)) {
		if out[i].Result == graspsync.Stored || out[i].Result == graspsync.Duplicate { // Duplicate: an earlier Save stored it but failed
			where.NotifyStored(events[i].Event)
		}
	}
	for _, ev := range named { // also those that stay, which does no harm
		where.NotifySuperseded(ev)
	}
	return out, err
}

// namedBy returns the stored events that a deletion or a request to vanish may remove. The hourly
// check finds those that cannot be read.
func (s telling) namedBy(ctx context.Context, deletion graspsync.Event) (named []graspsync.Event) {
	var filters []nostr.Filter
	author := []string{deletion.PubKey.String()}
	ids, addresses := nip34.DeletionTargets(deletion)
	if deletion.Kind == graspsync.KindVanish {
		filters = append(filters, nostr.Filter{Authors: author, Kinds: []int{graspsync.KindAnnouncement, graspsync.KindState}})
	}
	if len(addresses) > 0 {
		f := nostr.Filter{Authors: author, Tags: make(nostr.TagMap)}
		for _, a := range addresses {
			f.Kinds, f.Tags["d"] = append(f.Kinds, a.Kind), append(f.Tags["d"], a.Identifier)
		}
		filters = append(filters, f)
	}
	if len(ids) > 0 {
		f := nostr.Filter{Authors: author}
		for _, id := range ids {
			f.IDs = append(f.IDs, id.String())
		}
		filters = append(filters, f)
	}
	for _, f := range filters {
		for ev, err := range s.Store.Events(ctx, f) {
			if err == nil {
				named = append(named, ev)
			}
		}
	}
	return named
}

func (s telling) Remove(ctx context.Context, event graspsync.Event) error {
	err := s.Store.Remove(ctx, event)
	if where := s.policy.waits.Load(); where != nil && err == nil {
		where.NotifySuperseded(event)
	}
	return err
}
