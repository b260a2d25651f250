package khatruadapter

import (
	"context"

	"fiatjaf.com/nostr"
	gonostr "github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/adapter/internal/embedding"
	"github.com/graspsync/graspsync/adapter/nostrlib"
	"github.com/graspsync/graspsync/nip34"
)

func filterOf(id graspsync.EventID) gonostr.Filter { return gonostr.Filter{IDs: []string{id.String()}} }

// tellRemoved calls hooks after an event left the backend. The SyncManager is not called.
func (s *Sync) tellRemoved(ctx context.Context, e graspsync.Event) {
	s.core.Call("DeleteEvent", func() (err error) {
		if s.theirs.deleteEvent != nil {
			err = s.theirs.deleteEvent(ctx, nostr.ID(e.ID))
		}
		return err
	})
	s.core.Call("OnEventDeleted", func() error {
		if s.relay.OnEventDeleted == nil {
			return nil
		}
		theirs, err := nostrlib.ToEvent(e)
		if err == nil {
			s.relay.OnEventDeleted(ctx, theirs)
		}
		return err
	})
	s.tell(s.gone, e)
}

// allowDeleting is the AllowDeleting hook. khatru calls it for each target of a published deletion.
func (s *Sync) allowDeleting(ctx context.Context, target, deletion nostr.Event) bool {
	switch {
	case target.Kind == graspsync.KindDeletion, target.Kind == graspsync.KindVanish: // NIP-09, NIP-62
		return false
	case target.PubKey == deletion.PubKey && !covers(deletion, target):
		return false // khatru compares all d tags; only the first is part of the address
	case s.theirs.allowDeleting != nil:
		return s.theirs.allowDeleting(ctx, target, deletion)
	}
	return target.PubKey == deletion.PubKey
}

// covers reports whether a deletion removes an event by the rules of graspsync.
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

// misread returns why a published deletion must not be stored, or "". khatru executes it after it
// is stored. It would delete other events than NIP-09 names, or report failure after a part was
// deleted.
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
			case deletion.CreatedAt <= 0: // khatru deletes versions up to created_at, or all if it is 0
				return "invalid: a deletion by address needs a time"
			case a.Author != deletion.PubKey && s.theirs.allowDeleting == nil:
				return msgForeign
			}
		}
	}
	return ""
}

const msgForeign = "blocked: you are not the author of this event"

// mayDelete checks a deletion before it is stored. khatru itself checks afterwards.
func (s *Sync) mayDelete(ctx context.Context, target, deletion graspsync.Event) (msg string, err error) {
	theirs, err := nostrlib.ToEvent(deletion)
	if err != nil {
		return "", err
	}
	t, err := nostrlib.ToEvent(target)
	switch {
	case err != nil:
		return "", err
	case target.Kind == graspsync.KindDeletion, target.Kind == graspsync.KindVanish:
		return "blocked: a deletion can't be deleted", nil
	case s.allowDeleting(ctx, t, theirs):
		return "", nil
	case target.PubKey != deletion.PubKey:
		return msgForeign, nil
	default:
		return "blocked: this event can't be deleted", nil
	}
}

// queryElsewhere returns events from the QueryStored hook that the relay had before New.
func (s *Sync) queryElsewhere(ctx context.Context, f gonostr.Filter) (found []graspsync.Event) {
	theirs, ok := nostrlib.ToFilter(f)
	if s.theirs.queryStored == nil || !ok { // no event can match the filter
		return nil
	}
	theirs.Limit = embedding.AnswerAtMost
	s.core.Call("QueryStored", func() error {
		for e := range s.theirs.queryStored(ctx, theirs) {
			if parsed, err := nostrlib.FromEvent(e); err == nil {
				found = append(found, parsed)
			}
		}
		return nil
	})
	return found
}
