package embedding

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
)

// Undeletable returns why a deletion must be refused, or "". As in khatru, a deletion is refused if
// one of its targets must stay, and a published deletion also if it names an event of another
// author.
func (c *Core) Undeletable(ctx context.Context, deletion graspsync.Event) (msg string, err error) {
	if perr := Protect(func() { msg, err = c.askDeletable(ctx, deletion) }); perr != nil {
		return "", fmt.Errorf("%w: deletion: %w", ErrHook, perr)
	}
	return msg, err
}

func (c *Core) askDeletable(ctx context.Context, deletion graspsync.Event) (msg string, err error) {
	asks := c.Hooks.AsksDeletions()
	if deletion.Kind != graspsync.KindDeletion || IsSynced(ctx) && !asks {
		return "", nil
	}
	named := deletion
	if !asks { // targets named by address belong to the author
		named = byID(deletion)
	}
	targets, err := c.Store.Targets(ctx, named)
	if err != nil {
		return "", err
	}
	removed := nip34.NewTombstones(c.Us)
	removed.Add(deletion)
	for _, target := range distinct(append(targets, c.elsewhere(ctx, named)...)) {
		version := !nostr.IsRegularKind(target.Kind) && target.PubKey == deletion.PubKey // it can be newer than the deletion
		if !removed.Cover(target) && (version || IsSynced(ctx)) {
			continue
		}
		if msg, err = c.Hooks.MayDelete(ctx, target, deletion); msg != "" || err != nil {
			return msg, err
		}
	}
	return "", nil
}

// DeleteElsewhere calls hooks for targets of a stored deletion that are outside the backend.
func (c *Core) DeleteElsewhere(ctx context.Context, deletion graspsync.Event) {
	if deletion.Kind != graspsync.KindDeletion {
		return
	}
	removed := nip34.NewTombstones(c.Us)
	removed.Add(deletion)
	for _, target := range c.elsewhere(ctx, deletion) {
		if removed.Cover(target) {
			c.Hooks.Removed(ctx, target)
		}
	}
}

// AnswerAtMost is the number of events that many relays limit an answer to.
const AnswerAtMost = 100

// elsewhere returns the distinct targets of a deletion that query hooks of the relay find.
func (c *Core) elsewhere(ctx context.Context, deletion graspsync.Event) (targets []graspsync.Event) {
	query := func(f nostr.Filter) []graspsync.Event { return c.Hooks.Query(ctx, f) }
	ids, at := nip34.Deletes(deletion)
	for some := range slices.Chunk(ids, AnswerAtMost) {
		f := nostr.Filter{}
		for _, id := range some {
			f.IDs = append(f.IDs, id.String())
		}
		targets = append(targets, query(f)...)
	}
	for _, some := range addresses(at) {
		found := query(versions(deletion, some))
		if len(found) >= AnswerAtMost { // other matches may have displaced targets
			for i := range some {
				found = append(found, query(versions(deletion, some[i:i+1]))...)
			}
		}
		targets = append(targets, found...)
	}
	return distinct(targets)
}

// addresses returns the addresses that an event can have, in parts for one filter each. They are
// sorted by kind, so that a filter with several addresses matches few other events. Addresses
// without identifier come first, in parts of their own.
func addresses(at []graspsync.Address) (parts [][]graspsync.Address) {
	at = slices.DeleteFunc(at, func(c graspsync.Address) bool {
		return !nostr.IsAddressableKind(c.Kind) && !nostr.IsReplaceableKind(c.Kind)
	})
	slices.SortFunc(at, func(a, b graspsync.Address) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Identifier, b.Identifier))
	})
	at = slices.Compact(at)
	tagged := slices.IndexFunc(at, func(c graspsync.Address) bool { return nostr.IsAddressableKind(c.Kind) })
	if tagged < 0 {
		tagged = len(at)
	}
	parts = slices.Collect(slices.Chunk(at[:tagged], AnswerAtMost/2))
	return slices.AppendSeq(parts, slices.Chunk(at[tagged:], AnswerAtMost/2))
}

// versions returns a filter for the versions at addresses that a deletion removes. It also matches
// other combinations of these kinds and identifiers.
func versions(deletion graspsync.Event, at []graspsync.Address) nostr.Filter {
	f := nostr.Filter{Authors: []string{deletion.Event.PubKey}, Until: &deletion.CreatedAt}
	for _, c := range at {
		f.Kinds = append(f.Kinds, c.Kind)
		if nostr.IsAddressableKind(c.Kind) {
			if f.Tags == nil {
				f.Tags = nostr.TagMap{}
			}
			f.Tags["d"] = append(f.Tags["d"], c.Identifier)
		}
	}
	f.Kinds = slices.Compact(f.Kinds)
	return f
}

// distinct removes duplicates, because several stores can contain an event and hooks are called
// once.
func distinct(events []graspsync.Event) []graspsync.Event {
	seen := make(map[graspsync.EventID]bool, len(events))
	return slices.DeleteFunc(events, func(e graspsync.Event) bool {
		again := seen[e.ID]
		seen[e.ID] = true
		return again
	})
}

// byID returns a deletion without its a tags.
func byID(deletion graspsync.Event) graspsync.Event {
	named := *deletion.Event
	named.Tags = slices.DeleteFunc(slices.Clone(deletion.Tags), func(t nostr.Tag) bool { return len(t) > 0 && t[0] == "a" })
	deletion.Event = &named
	return deletion
}
