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

// Undeletable returns why something must stay that a deletion would remove, "" if nothing must. As with khatru one event
// that must stay is enough to refuse the deletion, and a client's is refused if it names somebody else's event.
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
	if !asks { // what is named by its address is of the author's
		named = byID(deletion)
	}
	targets, err := c.Store.Targets(ctx, named)
	if err != nil {
		return "", err
	}
	removed := nip34.NewTombstones(c.Us)
	removed.Add(deletion)
	for _, target := range distinct(append(targets, c.elsewhere(ctx, named)...)) {
		version := !nostr.IsRegularKind(target.Kind) && target.PubKey == deletion.PubKey // it may be too new
		if !removed.Cover(target) && (version || IsSynced(ctx)) {
			continue
		}
		if msg, err = c.Hooks.MayDelete(ctx, target, deletion); msg != "" || err != nil {
			return msg, err
		}
	}
	return "", nil
}

// DeleteElsewhere calls the hooks for what a stored deletion covers that is not in the backend.
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

// AnswerAtMost is how many events many answer at most.
const AnswerAtMost = 100

// elsewhere returns what hooks of the relay that query give of what a deletion names, each event once.
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
		if len(found) >= AnswerAtMost { // others match as well, and may have kept some out
			for i := range some {
				found = append(found, query(versions(deletion, some[i:i+1]))...)
			}
		}
		targets = append(targets, found...)
	}
	return distinct(targets)
}

// addresses are those that an event can have, in parts that one filter asks for. They are in order of kinds, so that
// few others match what asks for several, and those without an identifier come first, in parts of their own.
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

// versions is for what a deletion removes at some addresses, or at others of the same kinds
// and identifiers.
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

// distinct leaves out what is there already: several stores may have an event, and hooks
// are called for it once.
func distinct(events []graspsync.Event) []graspsync.Event {
	seen := make(map[graspsync.EventID]bool, len(events))
	return slices.DeleteFunc(events, func(e graspsync.Event) bool {
		again := seen[e.ID]
		seen[e.ID] = true
		return again
	})
}

// byID is a deletion of what one names by id.
func byID(deletion graspsync.Event) graspsync.Event {
	named := *deletion.Event
	named.Tags = slices.DeleteFunc(slices.Clone(deletion.Tags), func(t nostr.Tag) bool { return len(t) > 0 && t[0] == "a" })
	deletion.Event = &named
	return deletion
}
