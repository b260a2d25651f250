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
	"github.com/graspsync/graspsync/nip34"
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
			if s.unsure.Take(parsed.ID) {
				return nil
			}
			s.env.FollowRemovals(ctx) // no OnEventSaved does
			return err
		case err != nil && !errors.Is(err, eventstoreadapter.ErrDeleted) && !errors.Is(err, eventstoreadapter.ErrUnstorable):
			s.unsure.Add(graspsync.Incoming{Event: parsed})
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
		b := s.store.Backend()
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
	if s.gate && s.env.Holding {
		r.StoreEvent = slices.Insert(r.StoreEvent, 0, first(s.hold))
		r.ReplaceEvent = slices.Insert(r.ReplaceEvent, 0, first(s.hold))
	}
	for i, theirs := range r.RejectEvent {
		r.RejectEvent[i] = s.overheard(theirs)
	}
	r.RejectEvent = append(r.RejectEvent, s.reject)
	for _, hooks := range [][]hook{r.StoreEvent, r.ReplaceEvent} {
		if len(hooks) > 0 {
			hooks[0] = s.arriving(hooks[0])
		}
	}
	r.RejectFilter = slices.Insert(r.RejectFilter, 0, s.refuse)
	r.RejectCountFilter = slices.Insert(r.RejectCountFilter, 0, s.refuse)
	r.OnEventSaved = append(r.OnEventSaved, s.saved)
	r.DeleteEvent = append(r.DeleteEvent, accepted(first(func(_ context.Context, e *nostr.Event) error {
		if parsed, err := graspsync.ParseEvent(e); err == nil { // else sync has never heard of it
			s.manager.Removed(parsed)
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

// reject is our RejectEvent hook. What it refuses is remembered for who asks why.
func (s *Sync) reject(ctx context.Context, e *nostr.Event) (reject bool, msg string) {
	if IsSynced(ctx) {
		return false, ""
	}
	parsed, err := graspsync.ParseEvent(e)
	if err == nil {
		if reason := s.env.Blocked(parsed); reason != "" {
			if !nostr.IsEphemeralKind(e.Kind) {
				s.manager.Refused(parsed, reason)
			}
			return true, reason
		}
	}
	if nostr.IsEphemeralKind(e.Kind) {
		return false, ""
	}
	switch {
	case s.questions.Closed():
		msg = embedding.MsgEnding
	case bareD(e):
		msg = msgBareD
	case err != nil:
		msg = "invalid: " + err.Error()
	case strings.ToLower(e.Sig) != e.Sig: // khatru takes it, and other relays do not
		msg = "invalid: the sig is not lower-case hex"
	}
	if msg != "" { // what is no event has no name to be remembered by
		s.log.Debug("event refused", "event", graspsync.Printable(e.ID), "kind", e.Kind, "source", graspsync.Direct.String(), "reason", msg)
		return true, msg
	}
	if msg = s.env.Refuses(ctx, parsed); msg != "" {
		s.manager.Refused(parsed, msg)
		return true, msg
	}
	if s.gate && !s.env.Holding { // a policy that holds is asked once no hook has refused the event
		if verdict, msg := s.env.Verdict(ctx, parsed); verdict.Decision != graspsync.Accept {
			return true, msg
		}
	}
	s.passing.add(parsed)
	return false, ""
}

// undeletable asks the OverwriteDeletionOutcome hooks about what a deletion would
// remove, and returns why it must not. As with khatru one event that must stay is enough
// to refuse the deletion, and a client's is refused if it names somebody else's event.
func (s *Sync) undeletable(ctx context.Context, deletion graspsync.Event) (msg string, err error) {
	if perr := embedding.Protect(func() { msg, err = s.askDeletable(ctx, deletion) }); perr != nil {
		return "", fmt.Errorf("%w: OverwriteDeletionOutcome: %w", ErrHook, perr)
	}
	return msg, err
}

func (s *Sync) askDeletable(ctx context.Context, deletion graspsync.Event) (msg string, err error) {
	hooks := s.relay.OverwriteDeletionOutcome
	if deletion.Kind != nostr.KindDeletion || (IsSynced(ctx) && len(hooks) == 1) { // that one is ours
		return "", nil
	}
	named := deletion
	if len(hooks) == 1 { // ours has nothing against what is named by its address: it is of the author's
		named = embedding.ByID(deletion)
	}
	targets, err := s.store.Targets(ctx, named)
	if err != nil {
		return "", err
	}
	targets = embedding.Distinct(append(targets, s.targetsElsewhere(ctx, named)...))
	removed := nip34.NewTombstones(s.env.Us)
	removed.Add(deletion)
	for _, target := range targets {
		version := !nostr.IsRegularKind(target.Kind) && target.PubKey == deletion.PubKey // it may be too new
		if !removed.Cover(target) && (version || IsSynced(ctx)) {
			continue
		}
		ok, why := false, ""
		for _, hook := range hooks {
			ok, why = hook(ctx, target.Event, deletion.Event)
		}
		if !ok {
			return nostr.NormalizeOKMessage(why, "blocked"), nil
		}
	}
	return "", nil
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

// targetsElsewhere returns what hooks of the relay that query give of what a deletion
// names: not all they have need be in the backend.
func (s *Sync) targetsElsewhere(ctx context.Context, deletion graspsync.Event) (targets []graspsync.Event) {
	for _, q := range s.elsewhere {
		targets = append(targets, embedding.Elsewhere(deletion, func(f nostr.Filter) []graspsync.Event { return s.queried(ctx, q, f) })...)
	}
	return embedding.Distinct(targets)
}

// queried is what a hook of the relay's that queries gives.
func (s *Sync) queried(ctx context.Context, q query, f nostr.Filter) (found []graspsync.Event) {
	err := embedding.Protect(func() {
		if ch, err := q(ctx, f); err == nil {
			for e := range ch {
				if parsed, err := graspsync.ParseEvent(e); err == nil {
					found = append(found, parsed)
				}
			}
		}
	})
	if err != nil {
		s.log.Error("hook of the relay failed", "hook", "QueryEvents", "err", err)
	}
	return found
}

// deleteElsewhere calls the DeleteEvent hooks for what a stored deletion covers that is
// not in the backend.
func (s *Sync) deleteElsewhere(ctx context.Context, deletion graspsync.Event) {
	if deletion.Kind != nostr.KindDeletion {
		return
	}
	removed := nip34.NewTombstones(s.env.Us)
	removed.Add(deletion)
	for _, target := range s.targetsElsewhere(ctx, deletion) {
		if removed.Cover(target) {
			s.followRemoved(ctx, target)
		}
	}
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
	s.passing.arrived(parsed.ID) // no hook stores it if khatru is to store versions by itself, and has a newer one
	s.upkeep.Submitted(context.WithoutCancel(ctx), parsed)
	s.deleteElsewhere(context.WithoutCancel(ctx), parsed)
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
		var err error
		if perr := embedding.Protect(func() { err = hook(ctx, e) }); perr != nil {
			err = perr
		}
		if err != nil && !errors.Is(err, eventstore.ErrDupEvent) {
			s.log.Error("hook of the relay failed", "hook", name, "err", err)
		}
	}
}

// admit asks the RejectEvent hooks. What a client was allowed to submit needs no authentication when it is released.
func (s *Sync) admit(ctx context.Context, in graspsync.Incoming) (outcome graspsync.Outcome) {
	e := in.Event.Event
	err := embedding.Protect(func() {
		for _, hook := range s.relay.RejectEvent {
			reject, msg := hook(ctx, e)
			if !reject || strings.HasPrefix(msg, "rate-limited:") ||
				(in.Source.Kind == graspsync.Direct && strings.HasPrefix(msg, "auth-required:")) {
				continue
			}
			if !s.told.Swap(true) {
				s.log.Warn("a RejectEvent hook refuses what comes by sync; khatruadapter.IsSynced tells it", "reason", msg)
			}
			outcome = graspsync.Outcome{Result: graspsync.Refused, Err: fmt.Errorf("%w: %.300q", ErrRejected, msg)}
			if strings.HasPrefix(msg, "error:") {
				outcome.Result = graspsync.Failed
			}
			return
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
	s.deleteElsewhere(ctx, e)
	for _, hook := range s.relay.OnEventSaved {
		if err := embedding.Protect(func() { hook(ctx, e.Event) }); err != nil {
			s.log.Error("hook of the relay failed", "hook", "OnEventSaved", "err", err)
		}
	}
	s.broadcasts.Add(e.Event)
}
