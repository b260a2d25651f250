package khatruadapter

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"fiatjaf.com/nostr"
	"fiatjaf.com/nostr/eventstore"
	"fiatjaf.com/nostr/khatru"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/adapter/internal/embedding"
	"github.com/graspsync/graspsync/adapter/nostrlib"
	"github.com/graspsync/graspsync/sync/wire"
)

// IsSynced reports whether a hook of the relay is called for a synced or released event. Such calls
// have no client and no connection.
func IsSynced(ctx context.Context) bool { return embedding.IsSynced(ctx) }

// Errors in outcomes of synced events.
var (
	// ErrRejected is wrapped if the OnEvent hook of the relay refuses an event.
	ErrRejected = embedding.ErrRejected
	// ErrHook is wrapped if a hook of the relay panics.
	ErrHook = embedding.ErrHook
	// ErrRoom is wrapped if an event is not stored because the disk is full.
	ErrRoom = embedding.ErrRoom
)

const (
	msgID    = "invalid: the id differs from NIP-01 because of control characters"
	msgStore = "error: could not store the event, try again later"
)

// onEvent is the OnEvent hook. It calls the embedder's hook first.
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
		if !new(wire.IDChecker).Check(parsed) { // nostrlib computed another id than NIP-01
			return msgID
		}
		return s.misread(parsed)
	})
	return msg != "", msg
}

// storeEvent is the StoreEvent hook. The policy may hold the event, then the embedder's hook is
// called, and then the backend stores the event unless that hook did.
func (s *Sync) storeEvent(ctx context.Context, e nostr.Event) error {
	return s.keep(ctx, e, s.theirs.storeEvent)
}

// replaceEvent is the ReplaceEvent hook, which khatru calls for all kinds that are not regular.
func (s *Sync) replaceEvent(ctx context.Context, e nostr.Event) error {
	return s.keep(ctx, e, s.theirs.replaceEvent)
}

func (s *Sync) keep(ctx context.Context, e nostr.Event, theirs func(context.Context, nostr.Event) error) error {
	if s.core.Gate && s.core.Holding {
		if err := s.hold(ctx, e); err != nil {
			return err
		}
	}
	fresh := false // the embedder's hook may store in the same backend, and the event is still new
	if theirs != nil {
		parsed, err := nostrlib.FromEvent(e)
		if err != nil {
			return errors.New(embedding.MsgMalformed)
		}
		known, err := s.store.Has(ctx, []graspsync.EventID{parsed.ID})
		if err != nil {
			return s.failed(err)
		}
		fresh = !known[0]
		if err := theirs(ctx, e); err != nil && !errors.Is(err, eventstore.ErrDupEvent) {
			return err
		}
	}
	o, err := s.store.Add(context.WithoutCancel(ctx), e)
	if err != nil || o.Result == graspsync.Failed {
		if parsed, err := nostrlib.FromEvent(e); err == nil {
			s.core.Unsure.Add(graspsync.Incoming{Event: parsed})
		}
	}
	if err != nil {
		return s.failed(err)
	}
	if o.Result == graspsync.Duplicate && s.core.Unsure.Take(graspsync.EventID(e.ID)) {
		fresh = true // the failed attempt called no hooks
	}
	return s.heard(ctx, o, fresh)
}

// heard returns the result of storing an event for khatru. fresh reports that the event was new
// before a hook of the embedder stored it or an earlier attempt failed.
func (s *Sync) heard(ctx context.Context, o graspsync.Outcome, fresh bool) error {
	switch o.Result {
	case graspsync.Stored:
		return nil
	case graspsync.Duplicate:
		if fresh {
			return nil
		}
		return eventstore.ErrDupEvent
	case graspsync.Superseded: // the client receives OK, and nothing is broadcast
		s.core.FollowRemovals(ctx) // khatru calls no OnEventSaved for duplicates
		return eventstore.ErrDupEvent
	case graspsync.Deleted:
		return errors.New(embedding.MsgDeleted)
	case graspsync.Refused:
		return errors.New("invalid: " + o.Err.Error())
	}
	return s.failed(o.Err)
}

// failed logs why storing an event failed and returns the message for the client.
func (s *Sync) failed(err error) error {
	s.core.Log.Error("storing an event failed", "err", err)
	return errors.New(msgStore)
}

// hold lets the policy hold an event. It runs after the OnEvent hooks, so that the policy holds
// only events that no hook refuses. For a held event it returns ErrDupEvent, because khatru knows
// only stored or refused. The client receives OK, and the event is not stored, broadcast or passed
// to OnEventSaved.
func (s *Sync) hold(ctx context.Context, e nostr.Event) error {
	parsed, err := nostrlib.FromEvent(e)
	if err != nil {
		return errors.New(embedding.MsgMalformed)
	}
	verdict, msg := s.core.Verdict(ctx, parsed)
	switch verdict.Decision {
	case graspsync.Accept:
		return nil
	case graspsync.Hold:
		if ws := khatru.GetConnection(ctx); ws != nil {
			_ = ws.WriteJSON(nostr.NoticeEnvelope(msg)) // fails only if the client has disconnected
		}
		return eventstore.ErrDupEvent
	}
	return errors.New(msg)
}

// deleteEvent is the DeleteEvent hook. It is called for the targets of stored deletions, for expiry
// and for moderation.
func (s *Sync) deleteEvent(ctx context.Context, id nostr.ID) error {
	stored, err := s.lookUp(ctx, graspsync.EventID(id))
	if err != nil {
		return s.failed(err)
	}
	if s.theirs.deleteEvent != nil {
		if err := s.theirs.deleteEvent(ctx, id); err != nil {
			return err
		}
	}
	if stored.IsZero() {
		return nil
	}
	if err := s.store.Remove(context.WithoutCancel(ctx), stored); err != nil {
		return s.failed(err)
	}
	s.core.Manager.NotifyRemoved(stored)
	s.tell(s.gone, stored)
	return nil
}

// onEventSaved is the OnEventSaved hook. It returns after a deletion is executed, so that the
// client receives OK later.
func (s *Sync) onEventSaved(ctx context.Context, e nostr.Event) {
	if s.theirs.onEventSaved != nil {
		s.theirs.onEventSaved(ctx, e)
	}
	if IsSynced(ctx) {
		return
	}
	parsed, err := nostrlib.FromEvent(e)
	if err != nil {
		return // our store has only valid events
	}
	s.tell(s.stored, parsed)
	s.core.Upkeep.Submitted(context.WithoutCancel(ctx), parsed)
}

func (*Sync) tell(whom func(graspsync.Event), e graspsync.Event) {
	if whom != nil {
		whom(e)
	}
}

func (s *Sync) send(e graspsync.Event) {
	if theirs, err := nostrlib.ToEvent(e); err == nil { // cannot fail for a stored event
		s.relay.BroadcastEvent(theirs)
	}
}

func (s *Sync) onRequest(ctx context.Context, f nostr.Filter) (reject bool, msg string) {
	return s.asked(ctx, f, s.theirs.onRequest)
}

func (s *Sync) onCount(ctx context.Context, f nostr.Filter) (reject bool, msg string) {
	return s.asked(ctx, f, s.theirs.onCount)
}

func (s *Sync) asked(
	ctx context.Context, f nostr.Filter, theirs func(context.Context, nostr.Filter) (bool, string),
) (reject bool, msg string) {
	if s.core.Questions.Closed() { // the store is closed, and an incomplete answer would look complete
		return true, embedding.MsgEnding
	}
	if theirs == nil {
		return false, ""
	}
	return theirs(ctx, f)
}

// queryStored is the QueryStored hook unless the relay has one. It reads the whole answer first, so
// that a slow client blocks neither a transaction of the backend nor other queries.
func (s *Sync) queryStored(ctx context.Context, f nostr.Filter) iter.Seq[nostr.Event] {
	return func(yield func(nostr.Event) bool) {
		if khatru.IsNegentropySession(ctx) {
			s.reconciled(ctx, f, yield)
			return
		}
		events, err := s.store.Query(s.withheld.context(ctx, f), f, s.maxQuery)
		if err != nil {
			s.unanswered(ctx, err)
			return
		}
		if d, is := f.Tags["d"]; is && khatru.IsInternalCall(ctx) { // targets of a deletion by address
			events = slices.DeleteFunc(events, func(e nostr.Event) bool { return !slices.Contains(d, e.Tags.GetD()) })
		}
		for _, e := range events {
			s.paced(ctx, e)
			if !yield(e) {
				return
			}
		}
	}
}

// reconciled yields events with only id and created_at, which is all that khatru reads in a
// reconciliation.
func (s *Sync) reconciled(ctx context.Context, f nostr.Filter, yield func(nostr.Event) bool) {
	stamps, err := s.withheld.reconciled(ctx, f)
	if err != nil {
		s.unanswered(ctx, err)
		return
	}
	for _, stamp := range stamps {
		if !yield(nostr.Event{ID: nostr.ID(stamp.ID), CreatedAt: nostr.Timestamp(stamp.CreatedAt)}) {
			return
		}
	}
}

// paced waits until a client may be sent another event.
func (s *Sync) paced(ctx context.Context, e nostr.Event) {
	ws := khatru.GetConnection(ctx)
	if s.pace == nil || ws == nil || khatru.IsInternalCall(ctx) || khatru.IsNegentropySession(ctx) {
		return
	}
	if id, ok := subscription(ctx); ok {
		size := 400 + len(e.Content)
		for _, tag := range e.Tags {
			for _, v := range tag {
				size += len(v) + 3
			}
		}
		s.pace(ctx, ws.Request, id, size)
	}
}

// count is the Count hook unless the relay has one.
func (s *Sync) count(ctx context.Context, f nostr.Filter) (uint32, error) {
	n, err := s.store.Count(ctx, f)
	if err != nil {
		return 0, errors.New(s.core.Questions.Unanswered(err))
	}
	return n, nil
}

func (s *Sync) lookUp(ctx context.Context, id graspsync.EventID) (found graspsync.Event, err error) {
	for e, err := range s.store.Events(ctx, filterOf(id)) {
		if err != nil {
			return graspsync.Event{}, err
		}
		found = e
	}
	return found, nil
}

func (s *Sync) admit(ctx context.Context, in graspsync.Incoming) (outcome graspsync.Outcome) {
	theirs, err := nostrlib.ToEvent(in.Event)
	switch {
	case err != nil:
		return graspsync.Outcome{Result: graspsync.Refused, Err: err}
	case s.theirs.onEvent == nil:
		return outcome
	}
	var reject bool
	var msg string
	if err := embedding.Protect(func() { reject, msg = s.theirs.onEvent(ctx, theirs) }); err != nil {
		return graspsync.Outcome{Result: graspsync.Failed, Err: fmt.Errorf("%w: OnEvent: %w", ErrHook, err)}
	}
	if !reject {
		return outcome
	}
	return s.core.Refusal(in, embedding.Reason(msg))
}

// imported calls hooks and broadcasts after an event was newly stored.
func (s *Sync) imported(ctx context.Context, e graspsync.Event) {
	theirs, err := nostrlib.ToEvent(e)
	if err != nil {
		return // our store has only valid events
	}
	store, name := s.theirs.storeEvent, "StoreEvent"
	if !theirs.Kind.IsRegular() {
		store, name = s.theirs.replaceEvent, "ReplaceEvent"
	}
	if store != nil {
		s.core.Call(name, func() error { return unlessKnown(store(ctx, theirs)) })
	}
	s.core.DeleteElsewhere(ctx, e) // khatru does the same for published deletions
	if s.theirs.onEventSaved != nil {
		s.core.Call("OnEventSaved", func() error { s.theirs.onEventSaved(ctx, theirs); return nil })
	}
	s.tell(s.stored, e)
	s.core.Broadcast(e)
}

// unlessKnown removes ErrDupEvent, because the embedder's hook may use the same backend.
func unlessKnown(err error) error {
	if errors.Is(err, eventstore.ErrDupEvent) {
		return nil
	}
	return err
}
