package sync

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/sync/internal/index"
)

// storeView is the [View] of the Policy, from the index and a [Store].
type storeView struct {
	*index.Index
	store Store
}

var _ View = storeView{}

// Waiting implements [View]. Only a Policy that holds events has any.
func (v storeView) Waiting(string) []*nip34.Announcement { return nil }

const (
	idsAtOnce  = 500 // ids per query: half of what a relay accepts in a message
	tagsAtOnce = 100 // tag values per query, because backends and relays limit them
)

// Addressed implements [View].
func (v storeView) Addressed(ctx context.Context, at []graspsync.Address) (bool, error) {
	// Sort by kind and omit invalid addresses.
	at = slices.DeleteFunc(slices.Clone(at), func(c graspsync.Address) bool {
		return !nostr.IsAddressableKind(c.Kind) && (!nostr.IsReplaceableKind(c.Kind) || c.Identifier != "")
	})
	slices.SortFunc(at, func(a, b graspsync.Address) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Identifier, b.Identifier), a.Author.Compare(b.Author))
	})
	for some := range slices.Chunk(slices.Compact(at), tagsAtOnce) {
		f, wanted := versions(some)
		for ev, err := range v.store.Events(ctx, f) {
			if err != nil {
				return false, fmt.Errorf("looking up addresses: %w", err)
			}
			if c, ok := ev.Address(); ok && wanted[c] {
				return true, nil
			}
		}
	}
	return false, nil
}

// versions returns a filter that matches the events at the addresses, and possibly more, and the
// set of addresses.
func versions(some []graspsync.Address) (f nostr.Filter, wanted map[graspsync.Address]bool) {
	wanted = make(map[graspsync.Address]bool, len(some))
	for _, c := range some {
		wanted[c] = true
		f.Kinds, f.Authors = append(f.Kinds, c.Kind), append(f.Authors, c.Author.String())
	}
	slices.Sort(f.Kinds)
	slices.Sort(f.Authors)
	f.Kinds, f.Authors = slices.Compact(f.Kinds), slices.Compact(f.Authors)
	if !slices.ContainsFunc(some, func(c graspsync.Address) bool { return c.Identifier == "" }) {
		f.Tags = nostr.TagMap{"d": nil}
		for _, c := range some {
			f.Tags["d"] = append(f.Tags["d"], c.Identifier)
		}
	}
	return f, wanted
}

// nearAtOnce is the maximum number of events per query of Near.
const nearAtOnce = 100

// Near implements [View].
func (v storeView) Near(ctx context.Context, ids []graspsync.EventID, at []graspsync.Address) (near []graspsync.Event, err error) {
	ask := func(f nostr.Filter, fits func(graspsync.Event) bool) error {
		n := 0
		for ev, err := range v.store.Events(ctx, f) {
			if err != nil {
				return fmt.Errorf("looking for what is near others: %w", err)
			}
			if fits(ev) {
				near = append(near, ev)
			}
			if n++; n == nearAtOnce { // the filter has no limit
				break
			}
		}
		return nil
	}
	undeleting := func(ev graspsync.Event) bool { return ev.Kind != graspsync.KindDeletion }
	for _, f := range append(tagFilters(texts(ids), "e", "E", "q"), tagFilters(texts(at), "a", "A", "q")...) {
		if err := ask(f, undeleting); err != nil {
			return nil, err
		}
	}
	for some := range slices.Chunk(at, tagsAtOnce) {
		f, wanted := versions(some)
		if err := ask(f, func(ev graspsync.Event) bool {
			c, ok := ev.Address()
			return ok && wanted[c]
		}); err != nil {
			return nil, err
		}
	}
	return near, nil
}

func tagFilters(values []string, names ...string) (all []nostr.Filter) {
	for some := range slices.Chunk(values, tagsAtOnce) {
		for _, name := range names {
			all = append(all, nostr.Filter{Tags: nostr.TagMap{name: some}})
		}
	}
	return all
}

func texts[T fmt.Stringer](all []T) []string {
	out := make([]string, len(all))
	for i, v := range all {
		out[i] = v.String()
	}
	return out
}

// Wrote implements [View].
func (v storeView) Wrote(ctx context.Context, author graspsync.PubKey) (bool, error) {
	for ev, err := range v.store.Events(ctx, nostr.Filter{Authors: []string{author.String()}}) {
		if err != nil {
			return false, fmt.Errorf("looking for events of %s: %w", author, err)
		}
		if ev.Kind != graspsync.KindVanish {
			return true, nil
		}
	}
	return false, nil
}

// Event implements [View].
func (v storeView) Event(ctx context.Context, id graspsync.EventID) (graspsync.Event, error) {
	found, err := v.Events(ctx, []graspsync.EventID{id})
	return found[id], err
}

// Events implements [View].
func (v storeView) Events(ctx context.Context, ids []graspsync.EventID) (map[graspsync.EventID]graspsync.Event, error) {
	found := make(map[graspsync.EventID]graspsync.Event)
	for some := range slices.Chunk(ids, idsAtOnce) {
		for ev, err := range v.store.Events(ctx, nostr.Filter{IDs: texts(some)}) {
			if err != nil {
				return nil, fmt.Errorf("looking up %d events: %w", len(ids), err)
			}
			found[ev.ID] = ev
		}
	}
	return found, nil
}
