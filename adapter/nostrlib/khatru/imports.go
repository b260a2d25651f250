package khatruadapter

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"fiatjaf.com/nostr/eventstore"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/adapter/nostrlib"
	"github.com/graspsync/graspsync/internal/embedding"
	relaysync "github.com/graspsync/graspsync/sync"
)

// Sentinels of the outcomes of synced events.
var (
	// ErrRejected is wrapped by the reason of an event that the OnEvent hook of
	// the relay refused.
	ErrRejected = errors.New("rejected by the relay")
	// ErrHook is wrapped where a hook of the relay panicked.
	ErrHook = errors.New("hook of the relay failed")
	// ErrRoom is wrapped where an event is not stored since too little of the disk is free.
	ErrRoom = embedding.ErrRoom
)

// imports is the Store that synced events go into: what the relay would do with an
// event that a client publishes, without the client.
type imports struct {
	*nostrlib.Store
	sync *Sync
}

var _ relaysync.Store = (*imports)(nil)

// Remove implements [relaysync.Store]: the hooks are told.
func (s *imports) Remove(ctx context.Context, e graspsync.Event) error {
	if err := s.Store.Remove(ctx, e); err != nil {
		return err
	}
	s.sync.removed.Add(e)
	s.sync.followRemovals(synced(ctx))
	return nil
}

// Save implements [relaysync.Store].
func (s *imports) Save(ctx context.Context, events []graspsync.Incoming) ([]graspsync.Outcome, error) {
	ctx = synced(ctx)
	outcomes := make([]graspsync.Outcome, len(events))
	passed := make([]graspsync.Incoming, 0, len(events))
	places := make([]int, 0, len(events))
	for i, in := range events {
		if outcomes[i] = s.sync.acceptable(ctx, in); outcomes[i].Result == 0 {
			passed, places = append(passed, in), append(places, i)
		}
	}
	saved, err := s.sync.save(ctx, s.Store, passed)
	if err != nil {
		return nil, err
	}
	for i, o := range saved {
		outcomes[places[i]] = o
	}
	return outcomes, nil
}

// save stores events and does what follows for those that are new.
func (s *Sync) save(
	ctx context.Context, store relaysync.Store, events []graspsync.Incoming,
) (outcomes []graspsync.Outcome, err error) {
	removed := s.removed.Count()
	outcomes, err = store.Save(ctx, events)
	s.followRemovals(ctx)
	if err != nil {
		s.unsure.Add(events...)
		return nil, err
	}
	if len(outcomes) != len(events) {
		return nil, fmt.Errorf("%d outcomes of %d events", len(outcomes), len(events))
	}
	for i, in := range events {
		o := &outcomes[i]
		if o.Result == graspsync.Failed {
			s.unsure.Add(in)
			continue
		}
		if in.Event.IsZero() {
			continue
		}
		if tried := s.unsure.Take(in.Event.ID); tried && o.Result == graspsync.Duplicate {
			o.Result = graspsync.Stored // by the attempt that failed, which nothing followed
		}
		switch o.Result {
		case graspsync.Stored:
			s.imported(ctx, in.Event)
			if s.removed.Count() != removed { // maybe this one, before all hooks had it
				s.undo(ctx, in.Event)
			}
		case graspsync.Duplicate:
			s.expiry.Track(in.Event.Event) // an earlier process may have ended before that
		}
	}
	return outcomes, nil
}

// acceptable asks the relay's hooks about an event that is about to be stored. The zero
// Outcome means that they let it pass.
func (s *Sync) acceptable(ctx context.Context, in graspsync.Incoming) (outcome graspsync.Outcome) {
	if in.Event.IsZero() {
		return outcome // the store knows what to say
	}
	if !s.holding { // else they were asked before the policy was
		if outcome = s.admit(ctx, in); outcome.Result != 0 {
			return outcome
		}
	}
	if err := s.Room(in.Event); err != nil {
		return graspsync.Outcome{Result: graspsync.Failed, Err: err}
	}
	var msg string
	var err error
	if perr := embedding.Protect(func() { msg, err = s.undeletable(ctx, in.Event) }); perr != nil {
		err = fmt.Errorf("%w: AllowDeleting: %w", ErrHook, perr)
	}
	switch {
	case err != nil:
		return graspsync.Outcome{Result: graspsync.Failed, Err: err}
	case msg != "":
		return graspsync.Outcome{Result: graspsync.Refused, Err: fmt.Errorf("%w: %.300q", ErrRejected, msg)}
	}
	return outcome
}

// admit asks the OnEvent hook. The zero Outcome means that it lets it pass. What a client was
// allowed to submit needs no authentication when it is released.
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
	if !reject || strings.HasPrefix(msg, "rate-limited:") ||
		(in.Source.Kind == graspsync.Direct && strings.HasPrefix(msg, "auth-required:")) {
		return outcome
	}
	if !s.told.Swap(true) {
		s.log.Warn("the OnEvent hook refuses what comes by sync; khatruadapter.IsSynced tells it", "reason", normalized(msg))
	}
	outcome = graspsync.Outcome{Result: graspsync.Refused, Err: fmt.Errorf("%w: %.300q", ErrRejected, normalized(msg))}
	if strings.HasPrefix(msg, "error:") {
		outcome.Result = graspsync.Failed
	}
	return outcome
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
		s.call(name, func() error { return unlessKnown(store(ctx, theirs)) })
	}
	s.deleteElsewhere(ctx, e)
	if s.theirs.onEventSaved != nil {
		s.call("OnEventSaved", func() error { s.theirs.onEventSaved(ctx, theirs); return nil })
	}
	s.stored(e)
	s.expiry.Track(e.Event)
	s.broadcast(theirs)
}

// unlessKnown leaves out that an event is there already: the relay's hook may be the backend's.
func unlessKnown(err error) error {
	if errors.Is(err, eventstore.ErrDupEvent) {
		return nil
	}
	return err
}

// hooked is a policy that holds events, behind the OnEvent hook of the relay: what it refuses
// is not held, so that no git data is fetched for it and no repository made. What a client
// submits has just passed it. When it is judged again, since it gave way or could not be
// saved, the hook is asked as it is for what came by sync: it may have come to refuse it.
type hooked struct {
	relaysync.Policy
	sync *Sync
}

// reasonHook is why events are rejected that a hook refuses. What the hook says is a detail,
// since reasons are counted.
const reasonHook = "blocked: refused by a hook of the relay"

// Judge implements [relaysync.Policy].
func (h *hooked) Judge(
	ctx context.Context, e graspsync.Event, src graspsync.Source, view relaysync.View,
) (graspsync.Verdict, error) {
	if !isSubmission(ctx) {
		switch o := h.sync.admit(synced(ctx), graspsync.Incoming{Event: e, Source: src}); o.Result {
		case graspsync.Refused:
			detail := strings.TrimPrefix(o.Err.Error(), ErrRejected.Error()+": ")
			return graspsync.Verdict{Decision: graspsync.Reject, Reason: reasonHook, Detail: detail}, nil
		case graspsync.Failed:
			return graspsync.Verdict{}, o.Err
		}
	}
	return h.Policy.Judge(ctx, e, src, view)
}
