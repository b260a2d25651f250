package khatruadapter

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/fiatjaf/eventstore"
	"github.com/fiatjaf/khatru"
	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	eventstoreadapter "github.com/graspsync/graspsync/adapter/eventstore"
	"github.com/graspsync/graspsync/adapter/internal/embedding"
)

// IsSynced reports whether a hook of the relay is called for a synced or released event. Such calls
// have no client and no connection.
func IsSynced(ctx context.Context) bool { return embedding.IsSynced(ctx) }

// Errors in outcomes of synced events.
var (
	// ErrRejected is wrapped if a RejectEvent hook of the relay refuses an event.
	ErrRejected = embedding.ErrRejected
	// ErrHook is wrapped if a hook of the relay panics.
	ErrHook = embedding.ErrHook
)

type followingKey struct{}

// following marks the context of StoreEvent, ReplaceEvent and DeleteEvent hooks that are called
// after the backend has done the work. Our hooks then do nothing.
func following(ctx context.Context) context.Context {
	return context.WithValue(ctx, followingKey{}, true)
}

func isFollowing(ctx context.Context) bool { return ctx.Value(followingKey{}) != nil }

// isDeleteRequest reports whether khatru executes a published deletion. khatru does so before hooks
// decide about the deletion.
func isDeleteRequest(ctx context.Context) bool {
	return khatru.IsInternalCall(ctx) && khatru.GetConnection(ctx) != nil
}

// isMisspelled reports whether khatru looks up deletions of a submitted event. khatru queries the
// misspelled tags "#e" and "#a", which anybody can use in a deletion to block events of other
// authors. Our RejectEvent hook finds the valid deletions instead.
func isMisspelled(ctx context.Context, f nostr.Filter) bool {
	if _, asked := subscription(ctx); asked || eventstore.IsNegentropySession(ctx) {
		return false // a query of a client
	}
	for name := range f.Tags {
		if strings.HasPrefix(name, "#") {
			return true
		}
	}
	return false
}

// first wraps a hook of ours so that it ignores events that the backend has already processed.
func first(h hook) hook {
	return func(ctx context.Context, e *nostr.Event) error {
		if isFollowing(ctx) {
			return nil
		}
		return h(ctx, e)
	}
}

// sure wraps a SaveEvent hook of the backend. If saving an event failed before and it is a
// duplicate now, sure reports it as new, because no hook was called for it.
func (s *Sync) sure(h hook) hook {
	return func(ctx context.Context, e *nostr.Event) error {
		parsed, err := graspsync.ParseEvent(e)
		if err != nil {
			return errors.New(embedding.MsgMalformed)
		}
		switch err := h(ctx, e); {
		case errors.Is(err, eventstore.ErrDupEvent):
			if s.core.Unsure.Take(parsed.ID) {
				return nil
			}
			s.core.FollowRemovals(ctx) // khatru calls no OnEventSaved for duplicates
			return err
		case err != nil && !errors.Is(err, eventstoreadapter.ErrDeleted) && !errors.Is(err, eventstoreadapter.ErrUnstorable):
			s.core.Unsure.Add(graspsync.Incoming{Event: parsed})
			return err
		default:
			return err
		}
	}
}

// accepted wraps a DeleteEvent hook so that it ignores deletions that hooks have not accepted yet.
func accepted(h hook) hook {
	return func(ctx context.Context, e *nostr.Event) error {
		if isDeleteRequest(ctx) {
			return nil
		}
		return h(ctx, e)
	}
}

type (
	hook  = func(ctx context.Context, e *nostr.Event) error
	judge = func(ctx context.Context, e *nostr.Event) (reject bool, msg string)
	query = func(ctx context.Context, f nostr.Filter) (chan *nostr.Event, error)
)

func (s *Sync) wire() {
	r := s.relay
	s.elsewhere = slices.Clone(r.QueryEvents)
	if len(r.StoreEvent) == 0 && len(r.QueryEvents) == 0 {
		b := s.core.Store.Backend()
		r.StoreEvent = append(r.StoreEvent, first(s.sure(b.SaveEvent)))
		r.ReplaceEvent = append(r.ReplaceEvent, first(s.sure(b.ReplaceEvent)))
		r.DeleteEvent = append(r.DeleteEvent, first(b.DeleteEvent))
		r.QueryEvents = append(r.QueryEvents, b.QueryEvents)
	}
	// khatru must find no targets of a deletion, because it would execute the deletion even if a
	// hook refuses it later. We execute accepted deletions.
	for i, q := range r.QueryEvents {
		q = s.answered(q)
		r.QueryEvents[i] = func(ctx context.Context, f nostr.Filter) (chan *nostr.Event, error) {
			if isDeleteRequest(ctx) || isMisspelled(ctx, f) {
				none := make(chan *nostr.Event)
				close(none)
				return none, nil
			}
			return q(ctx, f)
		}
	}
	for i, del := range r.DeleteEvent {
		r.DeleteEvent[i] = accepted(del)
	}
	if s.core.Gate && s.core.Holding {
		r.StoreEvent = slices.Insert(r.StoreEvent, 0, first(s.hold))
		r.ReplaceEvent = slices.Insert(r.ReplaceEvent, 0, first(s.hold))
	}
	for i, theirs := range r.RejectEvent {
		r.RejectEvent[i] = s.overheard(theirs)
	}
	r.RejectEvent = append(r.RejectEvent, s.reject)
	r.RejectFilter = slices.Insert(r.RejectFilter, 0, s.refuse)
	r.RejectCountFilter = slices.Insert(r.RejectCountFilter, 0, s.refuse)
	r.OnEventSaved = append(r.OnEventSaved, s.saved)
	r.DeleteEvent = append(r.DeleteEvent, accepted(first(func(_ context.Context, e *nostr.Event) error {
		if parsed, err := graspsync.ParseEvent(e); err == nil { // invalid events are unknown to the SyncManager
			s.core.Manager.NotifyRemoved(parsed)
		}
		return nil
	})))
	// The last hook decides, so rules of the embedder override deletable.
	r.OverwriteDeletionOutcome = append(
		[]func(context.Context, *nostr.Event, *nostr.Event) (bool, string){deletable}, r.OverwriteDeletionOutcome...)
}

// deletable is khatru's rule, and protects deletions (NIP-09) and requests to vanish (NIP-62).
func deletable(_ context.Context, target, deletion *nostr.Event) (accept bool, msg string) {
	if target.PubKey != deletion.PubKey {
		return false, "you are not the author of this event"
	}
	if target.Kind == nostr.KindDeletion || target.Kind == graspsync.KindVanish {
		return false, "a deletion can't be deleted"
	}
	return true, ""
}

// msgBareD is the refusal of an event that would make khatru panic.
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

// mayDelete calls the OverwriteDeletionOutcome hooks. The last one decides.
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

// bareD reports whether the first d tag of a replaceable event has no value.
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

// query returns events from the QueryEvents hooks that the relay had before New.
func (s *Sync) query(ctx context.Context, f nostr.Filter) (found []graspsync.Event) {
	for _, q := range s.elsewhere {
		s.core.Call("QueryEvents", func() error {
			ch, err := q(ctx, f)
			if err != nil {
				return nil //nolint:nilerr // clients receive the error
			}
			for e := range ch {
				if parsed, err := graspsync.ParseEvent(e); err == nil {
					found = append(found, parsed)
				}
			}
			return nil
		})
	}
	return found
}

// saved is our OnEventSaved hook. It returns after a deletion is executed, so that the client
// receives OK later.
func (s *Sync) saved(ctx context.Context, e *nostr.Event) {
	if IsSynced(ctx) {
		return
	}
	parsed, err := graspsync.ParseEvent(e)
	if err != nil {
		return // our store has only valid events
	}
	s.core.Upkeep.Submitted(context.WithoutCancel(ctx), parsed)
	s.core.DeleteElsewhere(context.WithoutCancel(ctx), parsed)
}

func (s *Sync) followRemoved(ctx context.Context, e graspsync.Event) {
	s.call(following(ctx), "DeleteEvent", s.relay.DeleteEvent, e.Event)
}

// followStored calls the StoreEvent or ReplaceEvent hooks for an event that the backend stored.
func (s *Sync) followStored(ctx context.Context, e *nostr.Event) {
	if !nostr.IsRegularKind(e.Kind) && len(s.relay.ReplaceEvent) > 0 {
		s.call(following(ctx), "ReplaceEvent", s.relay.ReplaceEvent, e)
		return
	}
	s.call(following(ctx), "StoreEvent", s.relay.StoreEvent, e)
}

// call calls hooks and logs their errors, except ErrDupEvent, because a hook may be the backend's
// own.
func (s *Sync) call(ctx context.Context, name string, hooks []hook, e *nostr.Event) {
	for _, hook := range hooks {
		s.core.Call(name, func() error {
			if err := hook(ctx, e); !errors.Is(err, eventstore.ErrDupEvent) {
				return err
			}
			return nil
		})
	}
}

func (s *Sync) admit(ctx context.Context, in graspsync.Incoming) (outcome graspsync.Outcome) {
	err := embedding.Protect(func() {
		for _, hook := range s.relay.RejectEvent {
			if reject, msg := hook(ctx, in.Event.Event); reject {
				if outcome = s.core.Refusal(in, msg); outcome.Result != 0 {
					return
				}
			}
		}
	})
	if err != nil {
		return graspsync.Outcome{Result: graspsync.Failed, Err: fmt.Errorf("%w: RejectEvent: %w", ErrHook, err)}
	}
	return outcome
}

// imported calls hooks and broadcasts after an event was newly stored.
func (s *Sync) imported(ctx context.Context, e graspsync.Event) {
	s.followStored(ctx, e.Event)
	s.core.DeleteElsewhere(ctx, e)
	for _, hook := range s.relay.OnEventSaved {
		s.core.Call("OnEventSaved", func() error { hook(ctx, e.Event); return nil })
	}
	s.core.Broadcast(e)
}
