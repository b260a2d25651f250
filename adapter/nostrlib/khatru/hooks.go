package khatruadapter

import (
	"context"
	"iter"
	"slices"

	"fiatjaf.com/nostr"
	"fiatjaf.com/nostr/eventstore"
	"fiatjaf.com/nostr/khatru"
	gonostr "github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/adapter/internal/embedding"
	"github.com/graspsync/graspsync/adapter/nostrlib"
)

// IsSynced reports whether a hook is called for a synced or released event, which has no client.
func IsSynced(ctx context.Context) bool { return embedding.IsSynced(ctx) }

// ErrRoom is wrapped if an event is not stored because the disk is full.
var ErrRoom = embedding.ErrRoom

const msgID = "invalid: the id differs from NIP-01 because of control characters"

func (s *Sync) onEvent(ctx context.Context, e nostr.Event) (reject bool, msg string) {
	if s.theirs.onEvent != nil {
		if reject, msg = s.theirs.onEvent(ctx, e); reject {
			if parsed, err := nostrlib.FromEvent(e); err == nil { // invalid events have no id to record
				s.core.Overhear(ctx, parsed, msg)
			}
			return reject, msg
		}
	}
	if IsSynced(ctx) {
		return false, ""
	}
	return s.reject(ctx, e)
}

func (s *Sync) reject(ctx context.Context, e nostr.Event) (reject bool, msg string) {
	parsed, err := nostrlib.FromEvent(e)
	msg = s.core.Reject(ctx, int(e.Kind), parsed, err, func() string {
		switch {
		case !parsed.CheckID(): // nostrlib computed another id than NIP-01
			return msgID
		case parsed.Kind == graspsync.KindDeletion && slices.ContainsFunc(parsed.Tags, malformed):
			return "invalid: an e tag of the deletion has no id" // khatru reports that as a failure after it has stored the deletion
		}
		return ""
	})
	return msg != "", msg
}

func malformed(t gonostr.Tag) bool {
	if len(t) < 2 || t[0] != "e" {
		return false
	}
	_, err := graspsync.ParseEventID(t[1])
	return err != nil
}

func (s *Sync) storeEvent(ctx context.Context, e nostr.Event) error {
	parsed, err := nostrlib.FromEvent(e)
	return s.core.Publish(ctx, parsed, err)
}

// deleteEvent is for moderation.
func (s *Sync) deleteEvent(ctx context.Context, id nostr.ID) error {
	stored, err := s.lookUp(ctx, graspsync.EventID(id))
	if err == nil && s.theirs.deleteEvent != nil {
		err = s.theirs.deleteEvent(ctx, id)
	}
	if err != nil || stored.IsZero() {
		return err
	}
	return s.core.Delete(ctx, stored)
}

func (s *Sync) mayDelete(ctx context.Context, target, deletion graspsync.Event) (msg string, err error) {
	allow := s.relay.AllowDeleting
	switch {
	case target.Kind == graspsync.KindDeletion, target.Kind == graspsync.KindVanish: // NIP-09, NIP-62
		return "blocked: a deletion can't be deleted", nil
	case allow == nil && target.PubKey == deletion.PubKey:
		return "", nil
	case allow != nil:
		t, err := nostrlib.ToEvent(target)
		if err != nil {
			return "", err
		}
		d, err := nostrlib.ToEvent(deletion)
		if err != nil || allow(ctx, t, d) {
			return "", err
		}
	}
	if target.PubKey != deletion.PubKey {
		return "blocked: you are not the author of this event", nil
	}
	return "blocked: this event can't be deleted", nil
}

func (s *Sync) onEventSaved(ctx context.Context, e nostr.Event) {
	if s.theirs.onEventSaved != nil {
		s.theirs.onEventSaved(ctx, e)
	}
	if parsed, err := nostrlib.FromEvent(e); err == nil {
		s.core.Upkeep.Submitted(ctx, parsed)
	}
}

func (s *Sync) onRequest(ctx context.Context, f nostr.Filter) (reject bool, msg string) {
	if reject, msg = s.core.Closed(); reject || s.theirs.onRequest == nil {
		return reject, msg
	}
	return s.theirs.onRequest(ctx, f)
}

// queryStored reads the whole answer first, so that a slow client blocks no transaction. It finds no
// targets of a deletion, because we execute deletions.
func (s *Sync) queryStored(ctx context.Context, f nostr.Filter) iter.Seq[nostr.Event] {
	return func(yield func(nostr.Event) bool) {
		switch {
		case khatru.IsNegentropySession(ctx):
			keys, err := s.store.Reconciled(ctx, f)
			s.core.Unanswered(ctx, err)
			for _, key := range keys {
				if !yield(nostr.Event{ID: nostr.ID(key.ID), CreatedAt: nostr.Timestamp(key.CreatedAt)}) {
					return
				}
			}
		case !khatru.IsInternalCall(ctx):
			events, err := s.store.Query(ctx, f, s.maxQuery)
			s.core.Unanswered(ctx, err)
			for _, e := range events {
				s.paced(ctx)
				if !yield(e) {
					return
				}
			}
		}
	}
}

func (s *Sync) preventBroadcast(ws *khatru.WebSocket, f nostr.Filter, e nostr.Event) bool {
	if e.Kind == graspsync.KindDeletion || e.Kind == graspsync.KindVanish {
		if ours, err := nostrlib.FromEvent(e); err == nil && s.hides(ours) {
			return true
		}
	}
	return s.theirs.preventBroadcast != nil && s.theirs.preventBroadcast(ws, f, e)
}

func (s *Sync) paced(ctx context.Context) {
	if ws := khatru.GetConnection(ctx); s.pace != nil && ws != nil {
		s.pace(ctx, ws.Request, s.core.Subscription(ctx))
	}
}

func (s *Sync) lookUp(ctx context.Context, id graspsync.EventID) (found graspsync.Event, err error) {
	for e, err := range s.store.Events(ctx, gonostr.Filter{IDs: []string{id.String()}}) {
		if err != nil {
			return graspsync.Event{}, err
		}
		found = e
	}
	return found, nil
}

func (s *Sync) hooks() embedding.Hooks {
	r := s.relay
	with := func(name string, e graspsync.Event, hook func(nostr.Event)) {
		s.core.Call(name, func() error {
			theirs, err := nostrlib.ToEvent(e)
			if err == nil {
				hook(theirs)
			}
			return err
		})
	}
	return embedding.Hooks{
		Refusals: func(ctx context.Context, e graspsync.Event) iter.Seq[string] {
			return func(yield func(string) bool) {
				theirs, err := nostrlib.ToEvent(e)
				if err != nil {
					yield("invalid: " + err.Error())
				} else if s.theirs.onEvent != nil {
					if reject, msg := s.theirs.onEvent(ctx, theirs); reject {
						yield(embedding.Reason(msg))
					}
				}
			}
		},
		AsksDeletions: func() bool { return r.AllowDeleting != nil }, MayDelete: s.mayDelete,
		Stored: func(ctx context.Context, e graspsync.Event) {
			if s.theirs.onEventSaved != nil {
				with("OnEventSaved", e, func(e nostr.Event) { s.theirs.onEventSaved(ctx, e) })
			}
		},
		Removed: func(ctx context.Context, e graspsync.Event) {
			if s.theirs.deleteEvent != nil {
				s.core.Call("DeleteEvent", func() error { return s.theirs.deleteEvent(ctx, nostr.ID(e.ID)) })
			}
			if r.OnEventDeleted != nil {
				with("OnEventDeleted", e, func(e nostr.Event) { r.OnEventDeleted(ctx, e) })
			}
		},
		Send:      func(e graspsync.Event) { with("BroadcastEvent", e, func(e nostr.Event) { r.BroadcastEvent(e) }) },
		Duplicate: eventstore.ErrDupEvent,
		Client: func(ctx context.Context) embedding.Client {
			if ws := khatru.GetConnection(ctx); ws != nil {
				return ws
			}
			return nil
		},
		Subscription: func(ctx context.Context) string {
			if khatru.IsNegentropySession(ctx) {
				return ""
			}
			return khatru.GetSubscriptionID(ctx)
		},
	}
}
