package khatruadapter

import (
	"context"
	"errors"
	"iter"
	"strings"
	"time"

	"fiatjaf.com/nostr"
	"fiatjaf.com/nostr/eventstore"
	"fiatjaf.com/nostr/khatru"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/adapter/nostrlib"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/wire"
)

type contextKey struct{}

// IsSynced reports whether a hook of the relay is called for an event that came by
// sync. There is no client and no connection then.
func IsSynced(ctx context.Context) bool { return ctx.Value(contextKey{}) != nil }

func synced(ctx context.Context) context.Context {
	return context.WithValue(ctx, contextKey{}, true)
}

type submissionKey struct{}

// submission marks the context of a policy that is asked about what somebody publishes by
// khatru right now: the OnEvent hook has let it pass.
func submission(ctx context.Context) context.Context {
	return context.WithValue(ctx, submissionKey{}, true)
}

func isSubmission(ctx context.Context) bool { return ctx.Value(submissionKey{}) != nil }

const (
	msgMalformed = "invalid: malformed event"
	msgID        = "invalid: the id is not the one that NIP-01 has for control characters"
	msgDeleted   = "blocked: this event has been deleted"
	msgLookup    = "error: could not look up deletions"
	msgStore     = "error: could not store the event, try again later"
	msgRoom      = "error: no room on the disk, try again later"
	msgJudge     = "error: could not judge the event"
	msgReject    = "blocked: not for this relay"
	msgDepends   = "blocked: what it belongs to is not here"
	msgHeld      = "blocked: held back until what it needs is here"
)

// startGrace is how long a client's event waits for the store being read, after a start.
const startGrace = 10 * time.Second

// onEvent is the relay's OnEvent, for what clients publish: theirs comes first.
func (s *Sync) onEvent(ctx context.Context, e nostr.Event) (reject bool, msg string) {
	if s.theirs.onEvent != nil {
		if reject, msg = s.theirs.onEvent(ctx, e); reject {
			s.overheard(ctx, e, msg)
			return reject, msg
		}
	}
	if IsSynced(ctx) || e.Kind.IsEphemeral() {
		return false, ""
	}
	return s.reject(ctx, e)
}

// overheard remembers what theirs refuses to a client, for who asks why.
func (s *Sync) overheard(ctx context.Context, e nostr.Event, msg string) {
	if IsSynced(ctx) || e.Kind.IsEphemeral() {
		return
	}
	if parsed, err := nostrlib.FromEvent(e); err == nil { // else it has no name to be remembered by
		s.manager.Refused(parsed, normalized(msg))
	}
}

// reject is ours. What it refuses is remembered for who asks why.
func (s *Sync) reject(ctx context.Context, e nostr.Event) (reject bool, msg string) {
	if s.questions.closed.Load() {
		return true, msgEnding
	}
	parsed, err := nostrlib.FromEvent(e)
	if err != nil {
		return true, msgMalformed
	}
	if !new(wire.IDChecker).Check(parsed) { // nostrlib has another id for it than everybody else
		return true, msgID
	}
	if msg := s.refuses(ctx, parsed); msg != "" {
		s.manager.Refused(parsed, msg)
		return true, msg
	}
	if !s.gate || s.holding {
		return false, "" // a policy that holds is asked once no hook has refused the event
	}
	verdict, msg := s.verdict(ctx, parsed)
	return verdict.Decision != graspsync.Accept, msg
}

// refuses says why the relay would not have what a client submits, whatever the policy says; ""
// if it would.
func (s *Sync) refuses(ctx context.Context, e graspsync.Event) (msg string) {
	if msg := s.misread(e); msg != "" {
		return msg
	}
	if s.Room(e) != nil {
		return msgRoom
	}
	deleted, err := s.store.Deleted(ctx, e)
	if err != nil {
		s.log.Error("deletions could not be looked up", "err", err)
		return msgLookup
	}
	if deleted {
		return msgDeleted
	}
	msg, err = s.undeletable(ctx, e)
	if err != nil {
		s.log.Error("what a deletion names could not be looked up", "err", err)
		return msgLookup
	}
	return msg
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
	if s.gate && s.holding {
		if err := s.hold(ctx, e); err != nil {
			return err
		}
	}
	fresh := false // theirs may be the backend, and what it stores is new all the same
	if theirs != nil {
		parsed, err := nostrlib.FromEvent(e)
		if err != nil {
			return errors.New(msgMalformed)
		}
		watched, err := s.watching(ctx, parsed)
		if err != nil {
			return s.failed(err)
		}
		if watched != nil {
			defer s.beside.end(watched)
			defer s.lost(context.WithoutCancel(ctx), watched)
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
	if err != nil {
		return s.failed(err)
	}
	return s.heard(ctx, o, fresh)
}

// heard is what khatru is told of an event that the store was given. A fresh one was not there before
// a hook of the relay's had it.
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
		s.followRemovals(ctx) // no OnEventSaved does
		return eventstore.ErrDupEvent
	case graspsync.Deleted:
		return errors.New(msgDeleted)
	case graspsync.Refused:
		return errors.New("invalid: " + o.Err.Error())
	}
	return s.failed(o.Err)
}

// failed logs why an event could not be stored, and returns what its client hears.
func (s *Sync) failed(err error) error {
	s.log.Error("event could not be stored", "err", err)
	return errors.New(msgStore)
}

// hold asks a policy that holds events: khatru has no answer between stored and refused. Here
// no hook of the relay has anything against the event any more, and only now may the policy
// hold it. A held one is said to be a duplicate: the client hears OK, nothing is stored,
// nothing is broadcast, and OnEventSaved is not called.
func (s *Sync) hold(ctx context.Context, e nostr.Event) error {
	parsed, err := nostrlib.FromEvent(e)
	if err != nil {
		return errors.New(msgMalformed)
	}
	verdict, msg := s.verdict(ctx, parsed)
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

// started waits for a while until the store has been read. It reports whether it was.
func (s *Sync) started(ctx context.Context) bool {
	patience := time.NewTimer(startGrace)
	defer patience.Stop()
	select {
	case <-s.manager.Ready():
		return true
	case <-patience.C:
	case <-ctx.Done():
	}
	return false
}

// verdict asks the policy, and says what a client is to hear.
func (s *Sync) verdict(ctx context.Context, e graspsync.Event) (verdict graspsync.Verdict, msg string) {
	ctx = submission(ctx)
	verdict, err := s.manager.Judge(ctx, e)
	if errors.Is(err, relaysync.ErrNotReady) && s.started(ctx) {
		verdict, err = s.manager.Judge(ctx, e)
	}
	if errors.Is(err, ErrRoom) { // since the hooks were asked
		return graspsync.Verdict{}, msgRoom
	}
	if err != nil {
		s.log.Error("event could not be judged", "err", err)
		s.manager.Refused(e, msgJudge)
		return graspsync.Verdict{}, msgJudge
	}
	if verdict.Decision == graspsync.Reject || verdict.Decision == graspsync.Depend {
		// What is stored is a duplicate, whatever would be said of it now: a deletion
		// deletes nothing any more that was here when it came.
		if has, err := s.store.Has(ctx, []graspsync.EventID{e.ID}); err == nil && has[0] {
			return graspsync.Verdict{Decision: graspsync.Accept}, ""
		}
	}
	switch verdict.Decision {
	case graspsync.Hold:
		msg = msgHeld
	case graspsync.Depend:
		msg = msgDepends
	default:
		msg = msgReject
	}
	if verdict.Reason != "" {
		msg = verdict.Reason
	}
	return verdict, msg
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
	s.manager.Removed(stored)
	s.gone(stored)
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
	s.expiry.Track(parsed.Event)
	s.manager.Stored(parsed)
	s.stored(parsed)
	ctx = context.WithoutCancel(ctx)
	s.undo(ctx, parsed)
	if s.deletes(parsed) {
		if err := s.store.Execute(ctx, parsed); err != nil {
			s.log.Error("deletion could not be executed; it will be", "err", err)
			s.executeAgain()
		}
	}
	s.followRemovals(ctx)
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
	if s.questions.closed.Load() { // an answer without what can't be read would look like all there is
		return true, msgEnding
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
		events, err := s.store.Query(ctx, f, s.maxQuery)
		if err != nil {
			s.questions.unanswered(ctx, err)
			return
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
	stamps, err := s.store.Reconciled(ctx, f)
	if err != nil {
		s.questions.unanswered(ctx, err)
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
		s.questions.say(err)
		return 0, errors.New(msgUnread)
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

// normalized is a reason that a hook gave, as an OK message has it.
func normalized(msg string) string {
	if msg = strings.TrimSpace(msg); msg == "" {
		msg = "no reason"
	}
	return nostr.NormalizeOKMessage(msg, "blocked")
}
