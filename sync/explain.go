package sync

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/sync/internal/pending"
)

// EventState returns the state of an event with reasons. It reads the Store and the Holder and
// works before and after Run. Reasons are kept for the last 20,000 events since the start that were
// not stored. The arrival of an event is remembered for a week. The error is that of ctx or the
// Store.
func (m *SyncManager) EventState(ctx context.Context, id graspsync.EventID) (EventState, error) {
	x := EventState{Now: time.Now(), ID: id}
	if why := m.unreadable(); why != "" {
		x.Is, x.Reason = IsUnknown, why
		return x, nil
	}
	_, held := m.ingest.policy.heldForUser(id) // before the Store, because a released event is briefly in both
	ev, err := m.readOne(ctx, nostr.Filter{IDs: []string{id.String()}})
	if err != nil {
		return EventState{}, fmt.Errorf("explaining event %s: %w", id, err)
	}
	if !ev.IsZero() {
		x.Is, x.Event = IsStored, headOf(ev)
		return x, nil
	}
	if last, known := m.telemetry.states.get(id); known {
		last.Now = x.Now
		x = last
	}
	if e, remembered := m.ingest.rejected.Look(id); remembered {
		x.remembered(e)
	}
	switch {
	case held:
		// The record may be of an earlier state, or of a later state if the hold has just ended.
		x = EventState{Now: x.Now, ID: id, Is: IsHeld, Event: x.Event}
		if h, is := m.ingest.sources.get(id, false); is {
			x.Source, x.Relay = h.source.Kind.String(), h.source.Relay
		}
		return x, nil
	case m.ingest.inflight.has(id):
		x.Is = IsInFlight
		return x, nil
	case x.Is == "" && m.ingest.known.Has(id):
		x.Is = IsGone
	case x.Is == "":
		x.Is, x.Since = IsUnknown, m.telemetry.states.complete()
	}
	if err := m.replaced(ctx, &x); err != nil {
		return EventState{}, fmt.Errorf("explaining event %s: %w", id, err)
	}
	return x, nil
}

// remembered adds the record of a pending or rejected event, which survives a restart.
func (s *EventState) remembered(e pending.State) {
	s.Again, s.awaits = len(e.Deps) > 0 || e.Tries > 0 || e.Wanted, e.Deps
	if s.Event == nil && e.CreatedAt >= 0 {
		s.Event, s.Relay = &EventHead{Kind: e.Kind, CreatedAt: e.CreatedAt.Time()}, e.Relay
		if e.Whole != nil {
			s.Event = headOf(e.Whole.Incoming.Event)
		}
	}
	switch {
	case e.Unsaved:
		s.Is = IsFailing
	case s.Is != "":
		return
	case e.Tries > 0:
		s.Is = IsPostponed
	case e.Accepted:
		s.Is = IsGone
	default:
		s.Is = IsRejected
	}
	s.At = e.Seen
}

// replaced sets the state if a stored event deletes or supersedes the event.
func (m *SyncManager) replaced(ctx context.Context, x *EventState) error {
	about, known := x.Event.event(x.ID)
	if !known {
		return nil
	}
	ev, err := m.readOne(ctx, nostr.Filter{
		Kinds: []int{graspsync.KindDeletion}, Authors: []string{about.PubKey.String()}, Tags: nostr.TagMap{"e": {x.ID.String()}},
	})
	if err != nil {
		return err
	}
	if !ev.IsZero() {
		x.Is, x.DeletedBy = IsDeleted, ev.ID
		return nil
	}
	deleted, err := m.isDeleted(ctx, about)
	if deleted {
		x.Is = IsDeleted
	}
	at, ok := about.Address()
	if err != nil || x.Is != IsGone || !ok {
		return err
	}
	f := nostr.Filter{Kinds: []int{at.Kind}, Authors: []string{at.Author.String()}}
	if nostr.IsAddressableKind(at.Kind) {
		f.Tags = nostr.TagMap{"d": {at.Identifier}}
	}
	newest, err := m.readOne(ctx, f)
	if !newest.IsZero() && newest.Key().Newer(about.Key()) {
		x.Is = IsSuperseded
	}
	return err
}

func (m *SyncManager) isDeleted(ctx context.Context, ev graspsync.Event) (deleted bool, err error) {
	defer m.telemetry.recovered(&err, whoseStore)
	ctx, cancel := context.WithTimeout(ctx, m.cfg.constants.StoreTimeout)
	defer cancel()
	return m.store.Deleted(ctx, ev)
}

func (m *SyncManager) readOne(ctx context.Context, f nostr.Filter) (found graspsync.Event, err error) {
	defer m.telemetry.recovered(&err, whoseStore)
	ctx, cancel := context.WithTimeout(ctx, m.cfg.constants.StoreTimeout)
	defer cancel()
	for ev, err := range m.store.Events(ctx, f) {
		if errors.Is(err, ErrIncomplete) {
			break
		}
		if err != nil {
			return graspsync.Event{}, err
		}
		if found.IsZero() || ev.Key().Newer(found.Key()) {
			found = ev
		}
	}
	return found, nil
}

// unreadable returns the error of reading the Store, or "" if the Store was read once.
func (m *SyncManager) unreadable() string {
	if m.isReady() {
		return ""
	}
	return m.Status().StoreError
}
