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

// IsSynced reports whether a hook of the relay is called for an event that came by
// sync. There is no client and no connection then.
func IsSynced(ctx context.Context) bool { return embedding.IsSynced(ctx) }

// Sentinels of the outcomes of synced events.
var (
	// ErrRejected is wrapped by the reason of an event that the OnEvent hook of
	// the relay refused.
	ErrRejected = embedding.ErrRejected
	// ErrHook is wrapped where a hook of the relay panicked.
	ErrHook = embedding.ErrHook
	// ErrRoom is wrapped where an event is not stored since too little of the disk is free.
	ErrRoom = embedding.ErrRoom
)

const (
	msgID    = "invalid: the id is not the one that NIP-01 has for control characters"
	msgStore = "error: could not store the event, try again later"
)

// onEvent is the relay's OnEvent, for what clients publish: theirs comes first.
func (s *Sync) onEvent(ctx context.Context, e nostr.Event) (reject bool, msg string) {
	if s.theirs.onEvent != nil {
		if reject, msg = s.theirs.onEvent(ctx, e); reject {
			if parsed, err := nostrlib.FromEvent(e); err == nil { // else it has no name to be remembered by
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

// reject is ours.
func (s *Sync) reject(ctx context.Context, e nostr.Event) (reject bool, msg string) {
	parsed, err := nostrlib.FromEvent(e)
	msg = s.core.Reject(ctx, int(e.Kind), parsed, err, func() string {
		if !new(wire.IDChecker).Check(parsed) { // nostrlib has another id for it than everybody else
			return msgID
		}
		return s.misread(parsed)
	})
	return msg != "", msg
}

// storeEvent is the relay's StoreEvent: a policy that holds events may keep it, then theirs
// is called, and then the backend has it, whether or not theirs has seen to that.
func (s *Sync) storeEvent(ctx context.Context, e nostr.Event) error {
	return s.keep(ctx, e, s.theirs.storeEvent)
}

// replaceEvent is the relay's ReplaceEvent, which khatru calls for all but regular kinds.
func (s *Sync) replaceEvent(ctx context.Context, e nostr.Event) error {
	return s.keep(ctx, e, s.theirs.replaceEvent)
}

func (s *Sync) keep(ctx context.Context, e nostr.Event, theirs func(context.Context, nostr.Event) error) error {
	if s.core.Gate && s.core.Holding {
		if err := s.hold(ctx, e); err != nil {
			return err
		}
	}
	fresh := false // theirs may be the backend, and what it stores is new all the same
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
		fresh = true // nobody was told
	}
	return s.heard(ctx, o, fresh)
}

// heard is what khatru is told of an event that the store was given. A fresh one was not there before
// a hook of the relay's had it, or before it could not be stored.
func (s *Sync) heard(ctx context.Context, o graspsync.Outcome, fresh bool) error {
	switch o.Result {
	case graspsync.Stored:
		return nil
	case graspsync.Duplicate:
		if fresh {
			return nil
		}
		return eventstore.ErrDupEvent
	case graspsync.Superseded: // the client hears OK, and nobody is sent it
		s.core.FollowRemovals(ctx) // no OnEventSaved does
		return eventstore.ErrDupEvent
	case graspsync.Deleted:
		return errors.New(embedding.MsgDeleted)
	case graspsync.Refused:
		return errors.New("invalid: " + o.Err.Error())
	}
	return s.failed(o.Err)
}

// failed logs why an event could not be stored, and returns what its client hears.
func (s *Sync) failed(err error) error {
	s.core.Log.Error("event could not be stored", "err", err)
	return errors.New(msgStore)
}

// hold asks a policy that holds events: khatru has no answer between stored and refused. Here
// no hook of the relay has anything against the event any more, and only now may the policy
// hold it. A held one is said to be a duplicate: the client hears OK, nothing is stored,
// nothing is broadcast, and OnEventSaved is not called.
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
			_ = ws.WriteJSON(nostr.NoticeEnvelope(msg)) // who is gone needs not know
		}
		return eventstore.ErrDupEvent
	}
	return errors.New(msg)
}

// deleteEvent is the relay's DeleteEvent: a client's deletion, after it was stored, expiry, and
// whoever moderates call it.
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
	s.core.Manager.Removed(stored)
	s.tell(s.gone, stored)
	return nil
}

// onEventSaved is the relay's OnEventSaved. It returns when a deletion is executed, before its
// client hears that it is stored.
func (s *Sync) onEventSaved(ctx context.Context, e nostr.Event) {
	if s.theirs.onEventSaved != nil {
		s.theirs.onEventSaved(ctx, e)
	}
	if IsSynced(ctx) {
		return
	}
	parsed, err := nostrlib.FromEvent(e)
	if err != nil {
		return // our own store has none such
	}
	s.tell(s.stored, parsed)
	s.core.Upkeep.Submitted(context.WithoutCancel(ctx), parsed)
}

// tell tells the embedder of an event.
func (*Sync) tell(whom func(graspsync.Event), e graspsync.Event) {
	if whom != nil {
		whom(e)
	}
}

// send sends an event to subscribers.
func (s *Sync) send(e graspsync.Event) {
	if theirs, err := nostrlib.ToEvent(e); err == nil { // the backend has stored none other
		s.relay.BroadcastEvent(theirs)
	}
}

// onRequest is the relay's OnRequest.
func (s *Sync) onRequest(ctx context.Context, f nostr.Filter) (reject bool, msg string) {
	return s.asked(ctx, f, s.theirs.onRequest)
}

// onCount is the relay's OnCount.
func (s *Sync) onCount(ctx context.Context, f nostr.Filter) (reject bool, msg string) {
	return s.asked(ctx, f, s.theirs.onCount)
}

func (s *Sync) asked(
	ctx context.Context, f nostr.Filter, theirs func(context.Context, nostr.Filter) (bool, string),
) (reject bool, msg string) {
	if s.core.Questions.Closed() { // an answer without what can't be read would look like all there is
		return true, embedding.MsgEnding
	}
	if theirs == nil {
		return false, ""
	}
	return theirs(ctx, f)
}

// queryStored is the relay's QueryStored where it has none. The whole answer is read first, so that
// a slow client holds neither a transaction of the backend's nor the turn of others.
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
		if d, is := f.Tags["d"]; is && khatru.IsInternalCall(ctx) { // for what a deletion names by its address
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

// reconciled yields times and ids of what a reconciliation is about: khatru looks at nothing else.
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

// paced waits until a client may be sent one more event.
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

// count is the relay's Count where it has none.
func (s *Sync) count(ctx context.Context, f nostr.Filter) (uint32, error) {
	n, err := s.store.Count(ctx, f)
	if err != nil {
		return 0, errors.New(s.core.Questions.Unanswered(err))
	}
	return n, nil
}

// lookUp returns a stored event, or none.
func (s *Sync) lookUp(ctx context.Context, id graspsync.EventID) (found graspsync.Event, err error) {
	for e, err := range s.store.Events(ctx, filterOf(id)) {
		if err != nil {
			return graspsync.Event{}, err
		}
		found = e
	}
	return found, nil
}

// admit asks the OnEvent hook.
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

// imported does what follows for an event that is newly stored.
func (s *Sync) imported(ctx context.Context, e graspsync.Event) {
	theirs, err := nostrlib.ToEvent(e)
	if err != nil {
		return // the backend has stored none such
	}
	store, name := s.theirs.storeEvent, "StoreEvent"
	if !theirs.Kind.IsRegular() {
		store, name = s.theirs.replaceEvent, "ReplaceEvent"
	}
	if store != nil {
		s.core.Call(name, func() error { return unlessKnown(store(ctx, theirs)) })
	}
	s.core.DeleteElsewhere(ctx, e) // khatru does so for those of clients
	if s.theirs.onEventSaved != nil {
		s.core.Call("OnEventSaved", func() error { s.theirs.onEventSaved(ctx, theirs); return nil })
	}
	s.tell(s.stored, e)
	s.core.Broadcast(e)
}

// unlessKnown leaves out that an event is there already: the relay's hook may be the backend's.
func unlessKnown(err error) error {
	if errors.Is(err, eventstore.ErrDupEvent) {
		return nil
	}
	return err
}
