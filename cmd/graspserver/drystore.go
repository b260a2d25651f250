package main

import (
	"context"
	"iter"
	"slices"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/memstore"
)

// dryStore is a Store that is read, with what would have been stored over it, in memory.
type dryStore struct {
	base relaysync.Store
	over *memstore.Store
}

var _ relaysync.Store = (*dryStore)(nil)

// Save implements [relaysync.Store].
func (s *dryStore) Save(ctx context.Context, events []graspsync.Incoming) ([]graspsync.Outcome, error) {
	out := make([]graspsync.Outcome, len(events))
	for i, in := range events {
		result, err := s.known(ctx, in.Event)
		if err != nil {
			return nil, err
		}
		if result != 0 {
			out[i].Result = result
			continue
		}
		saved, err := s.over.Save(ctx, []graspsync.Incoming{in})
		if err != nil {
			return nil, err
		}
		out[i] = saved[0]
	}
	return out, nil
}

// known returns what would become of an event for what is stored; 0: nothing is against it.
func (s *dryStore) known(ctx context.Context, ev graspsync.Event) (graspsync.Result, error) {
	if ev.IsZero() {
		return 0, nil
	}
	has, err := s.base.Has(ctx, []graspsync.EventID{ev.ID})
	if err != nil || has[0] {
		return graspsync.Duplicate, err
	}
	if deleted, err := s.base.Deleted(ctx, ev); err != nil || deleted {
		return graspsync.Deleted, err
	}
	versions, err := s.versions(ctx, ev)
	for _, other := range versions {
		if other.Stamp().Newer(ev.Stamp()) {
			return graspsync.Superseded, err
		}
	}
	return 0, err
}

// versions returns the stored versions of a replaceable or addressable event.
func (s *dryStore) versions(ctx context.Context, ev graspsync.Event) (out []graspsync.Event, err error) {
	a, ok := ev.Address()
	if !ok {
		return nil, nil
	}
	f := nostr.Filter{Kinds: []int{a.Kind}, Authors: []string{a.Author.String()}}
	if nostr.IsAddressableKind(a.Kind) {
		f.Tags = nostr.TagMap{"d": {a.Identifier}}
	}
	for other, err := range s.base.Events(ctx, f) {
		if err != nil {
			return nil, err
		}
		out = append(out, other)
	}
	return out, nil
}

// Has implements [relaysync.Store].
func (s *dryStore) Has(ctx context.Context, ids []graspsync.EventID) ([]bool, error) {
	below, err := s.base.Has(ctx, ids)
	if err != nil {
		return nil, err
	}
	above, err := s.over.Has(ctx, ids)
	for i := range above {
		above[i] = above[i] || below[i]
	}
	return above, err
}

// Stamps implements [relaysync.Store].
func (s *dryStore) Stamps(ctx context.Context, f nostr.Filter) iter.Seq2[graspsync.Stamp, error] {
	return func(yield func(graspsync.Stamp, error) bool) {
		for ev, err := range s.Events(ctx, f) {
			if err != nil {
				yield(graspsync.Stamp{}, err)
				return
			}
			if !yield(ev.Stamp(), nil) {
				return
			}
		}
	}
}

// Events implements [relaysync.Store]: what is stored, but for what would be replaced or deleted by
// now, and what would be stored.
func (s *dryStore) Events(ctx context.Context, f nostr.Filter) iter.Seq2[graspsync.Event, error] {
	return func(yield func(graspsync.Event, error) bool) {
		for ev, err := range s.base.Events(ctx, f) {
			if err == nil {
				var gone bool
				if gone, err = s.replaced(ctx, ev); gone {
					continue
				}
			}
			if !yield(ev, err) || err != nil {
				return
			}
		}
		for ev, err := range s.over.Events(ctx, f) {
			if !yield(ev, err) || err != nil {
				return
			}
		}
	}
}

func (s *dryStore) replaced(ctx context.Context, ev graspsync.Event) (bool, error) {
	if deleted, err := s.over.Deleted(ctx, ev); err != nil || deleted {
		return deleted, err
	}
	versions, err := (&dryStore{base: s.over}).versions(ctx, ev)
	return slices.ContainsFunc(versions, func(o graspsync.Event) bool { return o.Stamp().Newer(ev.Stamp()) }), err
}

// Deleted implements [relaysync.Store].
func (s *dryStore) Deleted(ctx context.Context, ev graspsync.Event) (bool, error) {
	if deleted, err := s.base.Deleted(ctx, ev); err != nil || deleted {
		return deleted, err
	}
	return s.over.Deleted(ctx, ev)
}

// Remove implements [relaysync.Store].
func (s *dryStore) Remove(ctx context.Context, ev graspsync.Event) error {
	has, err := s.over.Has(ctx, []graspsync.EventID{ev.ID})
	if err != nil || has[0] {
		return s.over.Remove(ctx, ev)
	}
	return relaysync.ErrCannotRemove
}
