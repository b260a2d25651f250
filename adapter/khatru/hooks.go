package khatruadapter

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync/filters"
	relaysync "github.com/graspsync/graspsync/sync"
)

type contextKey struct{}

// IsSynced reports whether a hook of the relay is called for an event that came by
// sync. There is no client and no connection then.
func IsSynced(ctx context.Context) bool { return ctx.Value(contextKey{}) != nil }

func synced(ctx context.Context) context.Context {
	return context.WithValue(ctx, contextKey{}, true)
}

// wire adds our hooks to the relay's.
func (s *Sync) wire() {
	r := s.relay
	if len(r.StoreEvent) == 0 && len(r.QueryEvents) == 0 {
		b := s.store.Backend()
		r.StoreEvent = append(r.StoreEvent, b.SaveEvent)
		r.ReplaceEvent = append(r.ReplaceEvent, b.ReplaceEvent)
		r.DeleteEvent = append(r.DeleteEvent, b.DeleteEvent)
		r.QueryEvents = append(r.QueryEvents, b.QueryEvents)
	}
	if s.gate && s.holding.on {
		r.StoreEvent = slices.Insert(r.StoreEvent, 0, s.hold)
		r.ReplaceEvent = slices.Insert(r.ReplaceEvent, 0, s.hold)
	}
	r.RejectEvent = append(r.RejectEvent, s.reject)
	r.OnEventSaved = append(r.OnEventSaved, s.saved)
	r.DeleteEvent = append(r.DeleteEvent, func(_ context.Context, e *nostr.Event) error {
		s.manager.Removed(e)
		return nil
	})
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
	if target.Kind == nostr.KindDeletion || target.Kind == filters.KindVanish {
		return false, "a deletion can't be deleted"
	}
	return true, ""
}

const (
	msgBareD   = "invalid: d tag without a value"
	msgDeleted = "blocked: this event has been deleted"
	msgLookup  = "error: could not look up deletions"
	msgJudge   = "error: could not judge the event"
	msgReject  = "blocked: not for this relay"
	msgDepends = "blocked: what it belongs to is not here"
	msgHeld    = "blocked: held back until what it needs is here"
)

// reject is our RejectEvent hook.
func (s *Sync) reject(ctx context.Context, e *nostr.Event) (reject bool, msg string) {
	if IsSynced(ctx) || nostr.IsEphemeralKind(e.Kind) {
		return false, ""
	}
	if bareD(e) {
		return true, msgBareD // khatru would crash
	}
	deleted, err := s.store.Deleted(ctx, e)
	if err != nil {
		s.log.Error("deletions could not be looked up", "err", err)
		return true, msgLookup
	}
	if deleted {
		return true, msgDeleted
	}
	if !s.gate {
		return false, ""
	}
	return s.judge(ctx, e)
}

func (s *Sync) judge(ctx context.Context, e *nostr.Event) (reject bool, msg string) {
	verdict, msg := s.verdict(ctx, e)
	switch {
	case verdict.Decision == relaysync.Accept:
		if s.holding.on {
			s.holding.accept(e.ID)
		}
		return false, ""
	case verdict.Decision == relaysync.Hold && s.holding.on:
		s.holding.take(e.ID)
		return false, "" // the hooks that store know
	}
	return true, msg
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
func (s *Sync) verdict(ctx context.Context, e *nostr.Event) (verdict relaysync.Verdict, msg string) {
	verdict, err := s.manager.Judge(ctx, e)
	if errors.Is(err, relaysync.ErrNotReady) && s.started(ctx) {
		verdict, err = s.manager.Judge(ctx, e)
	}
	if err != nil {
		s.log.Error("event could not be judged", "err", err)
		return relaysync.Verdict{}, msgJudge
	}
	switch verdict.Decision {
	case relaysync.Hold:
		msg = msgHeld
	case relaysync.Depend:
		msg = msgDepends
	default:
		msg = msgReject
	}
	if verdict.Reason != "" {
		msg = verdict.Reason
	}
	return verdict, msg
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

// saved is our OnEventSaved hook. It never blocks.
func (s *Sync) saved(ctx context.Context, e *nostr.Event) {
	if IsSynced(ctx) {
		return
	}
	s.manager.Stored(e)
	s.expiry.track(e)
	if e.Kind == nostr.KindDeletion || s.us.Vanishes(e) {
		select {
		case s.deletions <- e:
		default: // what khatru did itself must do
			s.log.Warn("too many deletions at once; one is only executed in part")
		}
	}
}
