package khatruadapter

import (
	"cmp"
	"context"
	"slices"

	"fiatjaf.com/nostr"
	gonostr "github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/adapter/nostrlib"
	"github.com/graspsync/graspsync/internal/embedding"
	"github.com/graspsync/graspsync/nip34"
)

func filterOf(id graspsync.EventID) gonostr.Filter { return gonostr.Filter{IDs: []string{id.String()}} }

// deletes reports whether an event has others removed.
func (s *Sync) deletes(e graspsync.Event) bool {
	return e.Kind == graspsync.KindDeletion || s.us.Vanishes(e.Event)
}

// executeAgain has all stored deletions executed once more.
func (s *Sync) executeAgain() {
	select {
	case s.unfinished <- struct{}{}:
	default:
	}
}

// undo removes an event that has just been stored if a deletion of it came meanwhile: it
// was not there yet for all hooks when that was executed. A deletion is stored before it is
// executed, so one that is not seen here finds the event.
func (s *Sync) undo(ctx context.Context, e graspsync.Event) {
	deleted, err := s.store.Deleted(ctx, e)
	if err == nil && deleted {
		if err = s.store.Remove(ctx, e); err == nil {
			s.removed.Add(e)
			s.followRemovals(ctx)
			s.manager.Removed(e)
		}
	}
	if err != nil {
		s.log.Error("an event that may be deleted could not be removed; it will be", "event", e.ID, "err", err)
		s.executeAgain()
	}
}

// followRemovals calls the hooks for what the backend has removed. Whoever comes first does
// so for all.
func (s *Sync) followRemovals(ctx context.Context) {
	for _, e := range s.removed.Take() {
		s.tellRemoved(ctx, e)
	}
}

// tellRemoved tells all but the SyncManager of an event that has left the backend.
func (s *Sync) tellRemoved(ctx context.Context, e graspsync.Event) {
	s.call("DeleteEvent", func() (err error) {
		if s.theirs.deleteEvent != nil {
			err = s.theirs.deleteEvent(ctx, nostr.ID(e.ID))
		}
		return err
	})
	s.call("OnEventDeleted", func() error {
		if s.relay.OnEventDeleted == nil {
			return nil
		}
		theirs, err := nostrlib.ToEvent(e)
		if err == nil {
			s.relay.OnEventDeleted(ctx, theirs)
		}
		return err
	})
	s.gone(e)
}

// allowDeleting is the relay's AllowDeleting: khatru asks it when it executes a client's deletion.
func (s *Sync) allowDeleting(ctx context.Context, target, deletion nostr.Event) bool {
	switch {
	case target.Kind == graspsync.KindDeletion, target.Kind == graspsync.KindVanish: // NIP-09, NIP-62
		return false
	case target.PubKey == deletion.PubKey && !covers(deletion, target):
		return false // khatru looks at all d tags, of which the first is what an event is addressed by
	case s.theirs.allowDeleting != nil:
		return s.theirs.allowDeleting(ctx, target, deletion)
	}
	return target.PubKey == deletion.PubKey
}

// covers reports whether a deletion removes an event, as everywhere else in graspsync.
func covers(deletion, target nostr.Event) bool {
	named, err := nostrlib.FromEvent(deletion)
	if err != nil {
		return false
	}
	event, err := nostrlib.FromEvent(target)
	if err != nil {
		return false
	}
	var removed nip34.Tombstones
	removed.Add(named)
	return removed.Cover(event)
}

// misread returns why a client's deletion must not be stored: khatru executes it once it is, and takes
// it for something else than everybody else does, or tells the client that it has failed
// while the rest of it holds.
func (s *Sync) misread(deletion graspsync.Event) (msg string) {
	if deletion.Kind != graspsync.KindDeletion {
		return ""
	}
	for _, t := range deletion.Tags {
		if len(t) < 2 {
			continue
		}
		switch t[0] {
		case "e":
			if _, err := graspsync.ParseEventID(t[1]); err != nil {
				return "invalid: an e tag of the deletion has no id"
			}
		case "a":
			a, err := graspsync.ParseAddress(t[1])
			switch {
			case err != nil:
				return "invalid: an a tag of the deletion has no address"
			case !gonostr.IsAddressableKind(a.Kind) && !(gonostr.IsReplaceableKind(a.Kind) && a.Identifier == ""):
				return "invalid: an a tag of the deletion has an address that no event can have"
			case deletion.CreatedAt <= 0: // up to when khatru deletes versions, or all of them
				return "invalid: a deletion by address needs a time"
			case a.Author != deletion.PubKey && s.theirs.allowDeleting == nil:
				return msgForeign
			}
		}
	}
	return ""
}

// msgForeign is what khatru says as well.
const msgForeign = "blocked: you are not the author of this event"

// undeletable asks about what a deletion would remove, and returns why it must not. As with khatru
// one event that must stay is enough to refuse the deletion, and a client's is refused if
// it names somebody else's event: khatru says so when it has stored the deletion already.
func (s *Sync) undeletable(ctx context.Context, deletion graspsync.Event) (msg string, err error) {
	asks := s.theirs.allowDeleting != nil
	if deletion.Kind != graspsync.KindDeletion || (IsSynced(ctx) && !asks) {
		return "", nil
	}
	named := deletion
	if !asks { // what is named by its address is of the author's
		named = byID(deletion)
	}
	targets, err := s.store.Targets(ctx, named)
	if err != nil {
		return "", err
	}
	theirs, err := nostrlib.ToEvent(deletion)
	if err != nil {
		return "", err
	}
	removed := nip34.NewTombstones(s.us)
	removed.Add(deletion)
	for _, target := range append(targets, s.targetsElsewhere(ctx, named)...) {
		version := !gonostr.IsRegularKind(target.Kind) && target.PubKey == deletion.PubKey // it may be too new
		if !removed.Cover(target) && (version || IsSynced(ctx)) {
			continue
		}
		t, err := nostrlib.ToEvent(target)
		switch {
		case err != nil:
			return "", err
		case target.Kind == graspsync.KindDeletion, target.Kind == graspsync.KindVanish:
			return "blocked: a deletion can't be deleted", nil
		case s.allowDeleting(ctx, t, theirs):
		case target.PubKey != deletion.PubKey:
			return msgForeign, nil
		default:
			return "blocked: this event can't be deleted", nil
		}
	}
	return "", nil
}

// byID is a deletion of what one names by id.
func byID(deletion graspsync.Event) graspsync.Event {
	named := *deletion.Event
	named.Tags = slices.DeleteFunc(slices.Clone(deletion.Tags), func(t gonostr.Tag) bool { return len(t) > 0 && t[0] == "a" })
	deletion.Event = &named
	return deletion
}

// answerAtMost is how many events many answer at most.
const answerAtMost = 100

// targetsElsewhere returns what the relay's own QueryStored gives of what a deletion names: not all
// it has need be in the backend.
func (s *Sync) targetsElsewhere(ctx context.Context, deletion graspsync.Event) (targets []graspsync.Event) {
	if s.theirs.queryStored == nil {
		return nil
	}
	ids, at := nip34.Deletes(deletion)
	for some := range slices.Chunk(ids, answerAtMost) {
		f := nostr.Filter{IDs: make([]nostr.ID, len(some))}
		for i, id := range some {
			f.IDs[i] = nostr.ID(id)
		}
		targets = append(targets, s.elsewhere(ctx, f)...)
	}
	at = slices.DeleteFunc(at, func(c graspsync.Address) bool {
		return !gonostr.IsAddressableKind(c.Kind) && !gonostr.IsReplaceableKind(c.Kind) // no event has such an address
	})
	// In order of kinds, so that few others match what asks for several. Those without an
	// identifier come first.
	slices.SortFunc(at, func(a, b graspsync.Address) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Identifier, b.Identifier))
	})
	at = slices.Compact(at)
	tagged := slices.IndexFunc(at, func(c graspsync.Address) bool { return gonostr.IsAddressableKind(c.Kind) })
	if tagged < 0 {
		tagged = len(at)
	}
	parts := slices.Collect(slices.Chunk(at[:tagged], answerAtMost/2))
	for _, some := range slices.AppendSeq(parts, slices.Chunk(at[tagged:], answerAtMost/2)) {
		found := s.elsewhere(ctx, versions(deletion, some))
		if len(found) >= answerAtMost { // others match as well, and may have kept some out
			for i := range some {
				found = append(found, s.elsewhere(ctx, versions(deletion, some[i:i+1]))...)
			}
		}
		targets = append(targets, found...)
	}
	seen := make(map[graspsync.EventID]bool, len(targets))
	return slices.DeleteFunc(targets, func(e graspsync.Event) bool {
		again := seen[e.ID]
		seen[e.ID] = true
		return again
	})
}

// versions is for what a deletion removes at some addresses, or at others of the same kinds
// and identifiers.
func versions(deletion graspsync.Event, at []graspsync.Address) nostr.Filter {
	f := nostr.Filter{Authors: []nostr.PubKey{nostr.PubKey(deletion.PubKey)}, Until: nostr.Timestamp(deletion.CreatedAt)}
	for _, c := range at {
		f.Kinds = append(f.Kinds, nostr.Kind(c.Kind))
		if gonostr.IsAddressableKind(c.Kind) {
			if f.Tags == nil {
				f.Tags = nostr.TagMap{}
			}
			f.Tags["d"] = append(f.Tags["d"], c.Identifier)
		}
	}
	f.Kinds = slices.Compact(f.Kinds)
	return f
}

// elsewhere is what the relay's own QueryStored gives.
func (s *Sync) elsewhere(ctx context.Context, f nostr.Filter) (found []graspsync.Event) {
	f.Limit = answerAtMost
	s.call("QueryStored", func() error {
		for e := range s.theirs.queryStored(ctx, f) {
			if parsed, err := nostrlib.FromEvent(e); err == nil {
				found = append(found, parsed)
			}
		}
		return nil
	})
	return found
}

// deleteElsewhere calls the hooks for what a stored deletion covers that is not in the backend.
// khatru does so for those of clients.
func (s *Sync) deleteElsewhere(ctx context.Context, deletion graspsync.Event) {
	if deletion.Kind != graspsync.KindDeletion {
		return
	}
	removed := nip34.NewTombstones(s.us)
	removed.Add(deletion)
	for _, target := range s.targetsElsewhere(ctx, deletion) {
		if removed.Cover(target) {
			s.tellRemoved(ctx, target)
		}
	}
}

// call calls a hook of the relay's whose failure changes nothing.
func (s *Sync) call(name string, hook func() error) {
	var err error
	if perr := embedding.Protect(func() { err = hook() }); perr != nil {
		err = perr
	}
	if err != nil {
		s.log.Error("hook of the relay failed", "hook", name, "err", err)
	}
}
