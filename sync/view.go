package sync

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/filters"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/sync/internal/index"
)

// storeView is the [View] of the Policy, from the index and a [Store].
type storeView struct {
	*index.Index
	store Store
}

var _ View = storeView{}

// Revision implements [View].
func (v storeView) Revision(identifier string) Revision {
	return Revision{Stored: v.Version(identifier), Known: true}
}

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

// versions returns a filter that matches the events at the addresses, and possibly others, and the
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
	tagging := func(values []string, names ...string) error {
		for some := range slices.Chunk(values, tagsAtOnce) {
			for _, name := range names {
				if err := ask(nostr.Filter{Tags: nostr.TagMap{name: some}}, undeleting); err != nil {
					return err
				}
			}
		}
		return nil
	}
	if err := tagging(texts(ids), "e", "E", "q"); err != nil {
		return nil, err
	}
	addresses := make([]string, len(at))
	for i, c := range at {
		addresses[i] = c.String()
	}
	if err := tagging(addresses, "a", "A", "q"); err != nil {
		return nil, err
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

func texts(ids []graspsync.EventID) []string {
	out := make([]string, len(ids))
	for i, id := range ids {
		out[i] = id.String()
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

// scanStore reads all events from the Store and calls show with each. Then it calls gone with each id of
// unseen that is not stored. missed is the error of a Store that may have more events.
func (m *SyncManager) scanStore(
	ctx context.Context, show func(graspsync.Event), unseen func() []graspsync.EventID, gone func(graspsync.EventID),
) (missed, err error) {
	defer m.telemetry.recovered(&err, whoseStore)
	for ev, err := range m.store.Events(ctx, nostr.Filter{Kinds: append(filters.Kinds(), graspsync.KindVanish)}) {
		if errors.Is(err, ErrIncomplete) {
			missed = err
			break
		}
		if err != nil {
			return nil, fmt.Errorf("scanning the store: %w", err)
		}
		show(ev)
	}
	for chunk := range slices.Chunk(unseen(), saveBatch) {
		has, err := m.ingest.store.has(ctx, chunk)
		if err != nil {
			return nil, fmt.Errorf("reading the store: %w", err)
		}
		for i, id := range chunk {
			if !has[i] {
				gone(id)
			}
		}
	}
	return missed, nil
}

// findReplies searches the Store for replies in the repositories in of, nil for all, and calls take
// with each.
func (m *SyncManager) findReplies(ctx context.Context, of map[graspsync.RepoRef]struct{}, take func(graspsync.Event)) (err error) {
	defer m.telemetry.recovered(&err, whoseStore)
	var missed error
	ask := func(values []string, names ...string) error {
		for some := range slices.Chunk(values, tagsAtOnce) {
			for _, name := range names {
				for ev, err := range m.store.Events(ctx, nostr.Filter{Tags: nostr.TagMap{name: some}}) {
					if errors.Is(err, ErrIncomplete) {
						missed = err
						break
					}
					if err != nil {
						return fmt.Errorf("looking for descendants: %w", err)
					}
					if index.IsReply(ev) {
						take(ev)
					}
				}
			}
		}
		return nil
	}
	for depth := range uint8(index.MaxDepth) {
		ids, addresses := m.index.AtDepth(depth, of)
		if err := ask(texts(ids), "e", "E", "q"); err != nil {
			return err
		}
		if err := ask(addresses, "a", "A", "q"); err != nil {
			return err
		}
	}
	return missed
}

// lookUp returns the repositories of the events that belong to at least one. It omits events of the
// last ten minutes, because relays may still receive them.
func (m *SyncManager) lookUp(ctx context.Context, ids []graspsync.EventID) (out [][]graspsync.RepoRef, err error) {
	defer m.telemetry.recovered(&err, whoseStore)
	for _, f := range filters.ByID(ids, saveBatch) {
		f.Limit = 0
		for ev, err := range m.store.Events(ctx, f) {
			if err != nil {
				return out, err
			}
			if refs := m.index.ReposOf(ev); len(refs) > 0 && time.Since(ev.CreatedAt.Time()) >= lackingAfter {
				out = append(out, refs)
			}
		}
	}
	return out, nil
}
