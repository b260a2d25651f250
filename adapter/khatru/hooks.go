package khatruadapter

import (
	"context"
	"iter"
	"slices"
	"strings"

	"github.com/fiatjaf/eventstore"
	"github.com/fiatjaf/khatru"
	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/adapter/internal/embedding"
)

// IsSynced reports whether a hook is called for a synced or released event, which has no client.
func IsSynced(ctx context.Context) bool { return embedding.IsSynced(ctx) }

type followingKey struct{}

// following marks the context of DeleteEvent hooks for an event that has left the backend.
func following(ctx context.Context) context.Context {
	return context.WithValue(ctx, followingKey{}, true)
}

// isDeleteRequest reports whether khatru executes a published deletion, before hooks decide about it.
func isDeleteRequest(ctx context.Context) bool {
	return khatru.IsInternalCall(ctx) && khatru.GetConnection(ctx) != nil
}

// isMisspelled reports whether khatru looks up deletions of a submitted event, by the tags "#e" and
// "#a", which any key can use to block events of other keys.
func (s *Sync) isMisspelled(ctx context.Context, f nostr.Filter) bool {
	if s.core.Subscription(ctx) != "" || eventstore.IsNegentropySession(ctx) {
		return false // a query of a client
	}
	for name := range f.Tags {
		if strings.HasPrefix(name, "#") {
			return true
		}
	}
	return false
}

type (
	hook  = func(ctx context.Context, e *nostr.Event) error
	judge = func(ctx context.Context, e *nostr.Event) (reject bool, msg string)
	query = func(ctx context.Context, f nostr.Filter) (chan *nostr.Event, error)
)

// Embed adds the hooks to the relay. Call it once, before the relay serves.
func (s *Sync) Embed() {
	r := s.relay
	if r.ServiceURL == "" {
		r.ServiceURL = s.core.Us.CloneBase() // else khatru derives it from the Host header
	}
	r.StoreEvent, r.ReplaceEvent, r.QueryEvents = []hook{s.store}, []hook{s.store}, []query{s.query}
	r.DeleteEvent = slices.Insert(r.DeleteEvent, 0, s.remove)
	for i, theirs := range r.RejectEvent {
		r.RejectEvent[i] = s.overheard(theirs)
	}
	r.RejectEvent = append(r.RejectEvent, s.reject)
	r.RejectFilter = slices.Insert(r.RejectFilter, 0, s.refuse)
	r.RejectCountFilter = slices.Insert(r.RejectCountFilter, 0, s.refuse)
	r.OnEventSaved = append(r.OnEventSaved, s.saved)
	if s.hides != nil {
		r.PreventBroadcast = append(r.PreventBroadcast, s.preventBroadcast)
	}
	// The last hook decides, so rules of the embedder override deletable.
	r.OverwriteDeletionOutcome = append(
		[]func(context.Context, *nostr.Event, *nostr.Event) (bool, string){deletable}, r.OverwriteDeletionOutcome...)
}

// store is the only StoreEvent and ReplaceEvent hook. It runs after all RejectEvent hooks.
func (s *Sync) store(ctx context.Context, e *nostr.Event) error {
	parsed, err := graspsync.ParseEvent(e)
	return s.core.Publish(ctx, parsed, err)
}

// remove is a DeleteEvent hook, for moderation. It ignores a deletion that hooks may still refuse.
func (s *Sync) remove(ctx context.Context, e *nostr.Event) error {
	parsed, err := graspsync.ParseEvent(e)
	if err != nil || isDeleteRequest(ctx) || ctx.Value(followingKey{}) != nil {
		return nil //nolint:nilerr // the store has only valid events
	}
	return s.core.Delete(ctx, parsed)
}

// query is the QueryEvents hook. It finds no targets of a deletion, because khatru would execute it
// before hooks refuse it. After an error khatru would send EOSE or reconcile with an empty set.
func (s *Sync) query(ctx context.Context, f nostr.Filter) (chan *nostr.Event, error) {
	none := make(chan *nostr.Event)
	close(none)
	if isDeleteRequest(ctx) || s.isMisspelled(ctx, f) {
		return none, nil
	}
	found, err := s.core.Store.Query(ctx, f)
	if s.core.Unanswered(ctx, err) {
		return none, nil
	}
	return found, err
}

func (s *Sync) refuse(context.Context, nostr.Filter) (reject bool, msg string) {
	return s.core.Closed()
}

func (s *Sync) preventBroadcast(_ *khatru.WebSocket, e *nostr.Event) bool {
	if e.Kind != graspsync.KindDeletion && e.Kind != graspsync.KindVanish {
		return false
	}
	parsed, err := graspsync.ParseEvent(e)
	return err == nil && s.hides(parsed)
}

// deletable is khatru's rule, and protects deletions and requests to vanish (NIP-62).
func deletable(_ context.Context, target, deletion *nostr.Event) (accept bool, msg string) {
	if target.PubKey != deletion.PubKey {
		return false, "you are not the author of this event"
	}
	if target.Kind == nostr.KindDeletion || target.Kind == graspsync.KindVanish {
		return false, "a deletion can't be deleted"
	}
	return true, ""
}

const msgBareD = "invalid: d tag without a value"

// overheard wraps a RejectEvent hook so that its refusals are recorded for EventState.
func (s *Sync) overheard(theirs judge) judge {
	return func(ctx context.Context, e *nostr.Event) (reject bool, msg string) {
		if reject, msg = theirs(ctx, e); reject {
			if parsed, err := graspsync.ParseEvent(e); err == nil { // invalid events have no id to record
				s.core.Overhear(ctx, parsed, msg)
			}
		}
		return reject, msg
	}
}

func (s *Sync) reject(ctx context.Context, e *nostr.Event) (reject bool, msg string) {
	if IsSynced(ctx) {
		return false, ""
	}
	parsed, err := graspsync.ParseEvent(e)
	msg = s.core.Reject(ctx, e.Kind, parsed, err, func() string {
		switch {
		case bareD(e):
			return msgBareD
		case strings.ToLower(e.Sig) != e.Sig: // khatru accepts it, other relays do not
			return "invalid: the sig is not lower-case hex"
		}
		return ""
	})
	return msg != "", msg
}

func (s *Sync) mayDelete(ctx context.Context, target, deletion graspsync.Event) (msg string, err error) {
	ok, why := false, ""
	for _, hook := range s.relay.OverwriteDeletionOutcome {
		ok, why = hook(ctx, target.Event, deletion.Event)
	}
	if ok {
		return "", nil
	}
	return nostr.NormalizeOKMessage(why, "blocked"), nil
}

// bareD looks at the first d tag of a replaceable event.
func bareD(e *nostr.Event) bool {
	if nostr.IsRegularKind(e.Kind) {
		return false
	}
	for _, t := range e.Tags {
		if len(t) > 0 && t[0] == "d" {
			return len(t) < 2
		}
	}
	return false
}

func (s *Sync) saved(ctx context.Context, e *nostr.Event) {
	if parsed, err := graspsync.ParseEvent(e); err == nil && !IsSynced(ctx) {
		s.core.Upkeep.Submitted(ctx, parsed)
	}
}

func (s *Sync) hooks() embedding.Hooks {
	r := s.relay
	return embedding.Hooks{
		Refusals: func(ctx context.Context, e graspsync.Event) iter.Seq[string] {
			return func(yield func(string) bool) {
				for _, hook := range r.RejectEvent {
					if reject, msg := hook(ctx, e.Event); reject && !yield(msg) {
						return
					}
				}
			}
		},
		AsksDeletions: func() bool { return len(r.OverwriteDeletionOutcome) > 1 }, // the first hook is ours
		MayDelete:     s.mayDelete,
		Stored: func(ctx context.Context, e graspsync.Event) {
			for _, hook := range r.OnEventSaved {
				s.core.Call("OnEventSaved", func() error { hook(ctx, e.Event); return nil })
			}
		},
		Removed: func(ctx context.Context, e graspsync.Event) {
			for _, hook := range r.DeleteEvent {
				s.core.Call("DeleteEvent", func() error { return hook(following(ctx), e.Event) })
			}
		},
		Send:      func(e graspsync.Event) { r.BroadcastEvent(e.Event) },
		Duplicate: eventstore.ErrDupEvent, Subscription: khatru.GetSubscriptionID,
		Client: func(ctx context.Context) embedding.Client {
			if ws := khatru.GetConnection(ctx); ws != nil {
				return ws
			}
			return nil
		},
	}
}
