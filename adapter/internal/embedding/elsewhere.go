package embedding

import (
	"cmp"
	"slices"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
)

// AnswerAtMost is how many events many answer at most.
const AnswerAtMost = 100

// Elsewhere returns what hooks of the relay that query give of what a deletion names, each event once: not all they
// have need be in the backend. query is one of them.
func Elsewhere(deletion graspsync.Event, query func(f nostr.Filter) []graspsync.Event) (targets []graspsync.Event) {
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
	return Distinct(targets)
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

// Distinct leaves out what is there already: several stores may have an event, and hooks
// are called for it once.
func Distinct(events []graspsync.Event) []graspsync.Event {
	seen := make(map[graspsync.EventID]bool, len(events))
	return slices.DeleteFunc(events, func(e graspsync.Event) bool {
		again := seen[e.ID]
		seen[e.ID] = true
		return again
	})
}

// ByID is a deletion of what one names by id.
func ByID(deletion graspsync.Event) graspsync.Event {
	named := *deletion.Event
	named.Tags = slices.DeleteFunc(slices.Clone(deletion.Tags), func(t nostr.Tag) bool { return len(t) > 0 && t[0] == "a" })
	deletion.Event = &named
	return deletion
}
