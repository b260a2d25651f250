package khatruadapter

import (
	"context"
	"fmt"

	"fiatjaf.com/nostr"
	gonostr "github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/adapter/internal/embedding"
	"github.com/graspsync/graspsync/adapter/nostrlib"
	"github.com/graspsync/graspsync/nip34"
)

func filterOf(id graspsync.EventID) gonostr.Filter { return gonostr.Filter{IDs: []string{id.String()}} }

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
	if perr := embedding.Protect(func() { msg, err = s.askDeletable(ctx, deletion) }); perr != nil {
		return "", fmt.Errorf("%w: AllowDeleting: %w", ErrHook, perr)
	}
	return msg, err
}

func (s *Sync) askDeletable(ctx context.Context, deletion graspsync.Event) (msg string, err error) {
	asks := s.theirs.allowDeleting != nil
	if deletion.Kind != graspsync.KindDeletion || (IsSynced(ctx) && !asks) {
		return "", nil
	}
	named := deletion
	if !asks { // what is named by its address is of the author's
		named = embedding.ByID(deletion)
	}
	targets, err := s.store.Targets(ctx, named)
	if err != nil {
		return "", err
	}
	theirs, err := nostrlib.ToEvent(deletion)
	if err != nil {
		return "", err
	}
	removed := nip34.NewTombstones(s.env.Us)
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

// targetsElsewhere returns what the relay's own QueryStored gives of what a deletion names: not all
// it has need be in the backend.
func (s *Sync) targetsElsewhere(ctx context.Context, deletion graspsync.Event) []graspsync.Event {
	if s.theirs.queryStored == nil {
		return nil
	}
	return embedding.Elsewhere(deletion, func(f gonostr.Filter) (found []graspsync.Event) {
		s.call("QueryStored", func() error {
			theirs, ok := nostrlib.ToFilter(f)
			if !ok { // nothing that they have matches it
				return nil
			}
			theirs.Limit = embedding.AnswerAtMost
			for e := range s.theirs.queryStored(ctx, theirs) {
				if parsed, err := nostrlib.FromEvent(e); err == nil {
					found = append(found, parsed)
				}
			}
			return nil
		})
		return found
	})
}

// deleteElsewhere calls the hooks for what a stored deletion covers that is not in the backend.
// khatru does so for those of clients.
func (s *Sync) deleteElsewhere(ctx context.Context, deletion graspsync.Event) {
	if deletion.Kind != graspsync.KindDeletion {
		return
	}
	removed := nip34.NewTombstones(s.env.Us)
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
