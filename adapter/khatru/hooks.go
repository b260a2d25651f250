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

// IsSynced reports whether a hook of the relay is called for an event that came by
// sync. There is no client and no connection then.
func IsSynced(ctx context.Context) bool { return embedding.IsSynced(ctx) }

// Sentinels of the outcomes of synced events.
var (
	// ErrRejected is wrapped by the reason of an event that a RejectEvent hook of
	// the relay refused.
	ErrRejected = embedding.ErrRejected
	// ErrHook is wrapped where a hook of the relay panicked.
	ErrHook = embedding.ErrHook
)

type followingKey struct{}

// following marks the context of hooks that store or delete which are called for what
// the backend has done already: ours do nothing then.
func following(ctx context.Context) context.Context {
	return context.WithValue(ctx, followingKey{}, true)
}

func isFollowing(ctx context.Context) bool { return ctx.Value(followingKey{}) != nil }

// isDeleteRequest reports whether khatru is executing a client's deletion. It does so
// before any hook has said whether the deletion is accepted.
func isDeleteRequest(ctx context.Context) bool {
	return khatru.IsInternalCall(ctx) && khatru.GetConnection(ctx) != nil
}

// isMisspelled reports whether khatru itself asks which deletions name an event that a client submits. It asks for tags
// named "#e" and "#a", which anybody may put into a deletion of their own to have others' events refused. Which
// deletions count our RejectEvent hook looks up.
func isMisspelled(ctx context.Context, f nostr.Filter) bool {
	if _, asked := subscription(ctx); asked || eventstore.IsNegentropySession(ctx) {
		return false // a client asks, and gets what it asks for
	}
	for name := range f.Tags {
		if strings.HasPrefix(name, "#") {
			return true
		}
	}
	return false
}

// first is a hook of ours, for what the backend has not done yet.
func first(h hook) hook {
	return func(ctx context.Context, e *nostr.Event) error {
		if isFollowing(ctx) {
			return nil
		}
		return h(ctx, e)
	}
}

// sure is a hook of the backend's. What it could not store, and is there all the same when it is submitted again, is new:
// nobody was told of it.
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
			s.core.FollowRemovals(ctx) // no OnEventSaved does
			return err
		case err != nil && !errors.Is(err, eventstoreadapter.ErrDeleted) && !errors.Is(err, eventstoreadapter.ErrUnstorable):
			s.core.Unsure.Add(graspsync.Incoming{Event: parsed})
			return err
		default:
			return err
		}
	}
}

// accepted is a hook that deletes nothing before it is accepted.
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

// wire adds our hooks to the relay's.
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
	// A deletion that is refused in the end must not have been executed: khatru is to
	// find nothing to delete, and we execute what was accepted.
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
		if parsed, err := graspsync.ParseEvent(e); err == nil { // else sync has never heard of it
			s.core.Manager.Removed(parsed)
		}
		return nil
	})))
	// the last hook decides, so that an embedder's rule overrides this one
	r.OverwriteDeletionOutcome = append(
		[]func(context.Context, *nostr.Event, *nostr.Event) (bool, string){deletable}, r.OverwriteDeletionOutcome...)
}

// deletable is khatru's own rule, and that a deletion can't be deleted (NIP-09), nor
// a request to vanish (NIP-62).
func deletable(_ context.Context, target, deletion *nostr.Event) (accept bool, msg string) {
	if target.PubKey != deletion.PubKey {
		return false, "you are not the author of this event"
	}
	if target.Kind == nostr.KindDeletion || target.Kind == graspsync.KindVanish {
		return false, "a deletion can't be deleted"
	}
	return true, ""
}

// msgBareD is for what khatru would crash of.
const msgBareD = "invalid: d tag without a value"

// overheard records what a hook of the relay refuses to a client.
func (s *Sync) overheard(theirs judge) judge {
	return func(ctx context.Context, e *nostr.Event) (reject bool, msg string) {
		if reject, msg = theirs(ctx, e); reject {
			if parsed, err := graspsync.ParseEvent(e); err == nil { // else it has no name to be remembered by
				s.core.Overhear(ctx, parsed, msg)
			}
		}
		return reject, msg
	}
}

// reject is our RejectEvent hook.
func (s *Sync) reject(ctx context.Context, e *nostr.Event) (reject bool, msg string) {
	if IsSynced(ctx) {
		return false, ""
	}
	parsed, err := graspsync.ParseEvent(e)
	msg = s.core.Reject(ctx, e.Kind, parsed, err, func() string {
		switch {
		case bareD(e):
			return msgBareD
		case strings.ToLower(e.Sig) != e.Sig: // khatru takes it, and other relays do not
			return "invalid: the sig is not lower-case hex"
		}
		return ""
	})
	return msg != "", msg
}

// mayDelete asks the OverwriteDeletionOutcome hooks, of which the last one decides.
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

// bareD reports whether the d tag that khatru takes for the identifier has no
// value.
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

// query returns what the relay's own hooks that query give.
func (s *Sync) query(ctx context.Context, f nostr.Filter) (found []graspsync.Event) {
	for _, q := range s.elsewhere {
		s.core.Call("QueryEvents", func() error {
			ch, err := q(ctx, f)
			if err != nil {
				return nil //nolint:nilerr // it says so to clients
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

// saved is our OnEventSaved hook. It returns when a deletion is executed, before its
// client hears that it is stored.
func (s *Sync) saved(ctx context.Context, e *nostr.Event) {
	if IsSynced(ctx) {
		return
	}
	parsed, err := graspsync.ParseEvent(e)
	if err != nil {
		return // our own store has none such
	}
	s.core.Upkeep.Submitted(context.WithoutCancel(ctx), parsed)
	s.core.DeleteElsewhere(context.WithoutCancel(ctx), parsed)
}

// followRemoved calls the DeleteEvent hooks for what has left the backend.
func (s *Sync) followRemoved(ctx context.Context, e graspsync.Event) {
	s.call(following(ctx), "DeleteEvent", s.relay.DeleteEvent, e.Event)
}

// followStored calls the hooks that store for what the backend has stored.
func (s *Sync) followStored(ctx context.Context, e *nostr.Event) {
	if !nostr.IsRegularKind(e.Kind) && len(s.relay.ReplaceEvent) > 0 {
		s.call(following(ctx), "ReplaceEvent", s.relay.ReplaceEvent, e)
		return
	}
	s.call(following(ctx), "StoreEvent", s.relay.StoreEvent, e)
}

// call calls hooks. That an event is there already is what the backend's own says, if
// it is among them.
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

// admit asks the RejectEvent hooks.
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

// imported does what follows for an event that is newly stored.
func (s *Sync) imported(ctx context.Context, e graspsync.Event) {
	s.followStored(ctx, e.Event)
	s.core.DeleteElsewhere(ctx, e)
	for _, hook := range s.relay.OnEventSaved {
		s.core.Call("OnEventSaved", func() error { hook(ctx, e.Event); return nil })
	}
	s.core.Broadcast(e)
}
