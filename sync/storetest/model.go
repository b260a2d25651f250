package storetest

import (
	"slices"
	"strings"

	"github.com/nbd-wtf/go-nostr"
)

// model returns the correct content of a Store for events in any order: no deleted event, and the
// newest version of each address unless a deletion names that version or a newer one by id.
func model(events []*nostr.Event) []*nostr.Event {
	best := make(map[string]*nostr.Event)
	for _, e := range events {
		if nostr.IsEphemeralKind(e.Kind) || covered(e, events) || outdated(e, events) {
			continue
		}
		key := modelKey(e)
		if old := best[key]; old == nil || newer(e, old) {
			best[key] = e
		}
	}
	kept := make([]*nostr.Event, 0, len(best))
	for _, e := range best {
		kept = append(kept, e)
	}
	return kept
}

func covered(e *nostr.Event, events []*nostr.Event) bool {
	if vanished(e, events) {
		return true
	}
	return e.Kind != nostr.KindDeletion && e.Kind != kindVanish && slices.ContainsFunc(events, func(d *nostr.Event) bool {
		return d.Kind == nostr.KindDeletion && d.PubKey == e.PubKey && names(d, e) && !vanished(d, events)
	})
}

// outdated reports whether a deletion names a newer version of e's address by id.
func outdated(e *nostr.Event, events []*nostr.Event) bool {
	return !nostr.IsRegularKind(e.Kind) && slices.ContainsFunc(events, func(v *nostr.Event) bool {
		return modelKey(v) == modelKey(e) && newer(v, e) && covered(v, events)
	})
}

func vanished(e *nostr.Event, events []*nostr.Event) bool {
	return e.Kind != kindVanish && slices.ContainsFunc(events, func(v *nostr.Event) bool {
		return v.Kind == kindVanish && v.PubKey == e.PubKey && e.CreatedAt <= v.CreatedAt &&
			slices.ContainsFunc(v.Tags, func(t nostr.Tag) bool { return len(t) > 1 && t[0] == "relay" && t[1] == "ALL_RELAYS" })
	})
}

func names(d, e *nostr.Event) bool {
	return slices.ContainsFunc(d.Tags, func(t nostr.Tag) bool {
		return t[0] == "e" && t[1] == e.ID ||
			t[0] == "a" && t[1] == modelKey(e) && e.CreatedAt <= d.CreatedAt
	})
}

// modelKey returns the address of an event, else its id.
func modelKey(e *nostr.Event) string {
	switch {
	case nostr.IsAddressableKind(e.Kind):
		return address(e.Kind, e.PubKey, e.Tags.GetD())
	case nostr.IsReplaceableKind(e.Kind):
		return address(e.Kind, e.PubKey, "")
	}
	return e.ID
}

func newer(a, b *nostr.Event) bool {
	return a.CreatedAt > b.CreatedAt || a.CreatedAt == b.CreatedAt && a.ID < b.ID
}

func sortByID(events []*nostr.Event) {
	slices.SortFunc(events, func(a, b *nostr.Event) int { return strings.Compare(a.ID, b.ID) })
}
