package purgatoryadapter

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	relaysync "github.com/graspsync/graspsync/sync"
)

// Host is the relay whose events wait. All fields but Postponed must be set before it is
// used, and none be changed afterwards.
type Host struct {
	Store relaysync.Store
	// Release stores an event, sends it to subscribers, and tells the SyncManager
	// that it is stored. It returns when the event is durable, with the outcomes of
	// [relaysync.Store]. [Save] is one for those who have only a Store.
	Release func(ctx context.Context, event graspsync.Event) (graspsync.Outcome, error)
	// Held tells the SyncManager that an event waits, which may have waited before:
	// [relaysync.SyncManager.Held].
	Held func(event graspsync.Event)
	// Removed tells the SyncManager that an event will not be served:
	// [relaysync.SyncManager.Removed].
	Removed func(event graspsync.Event)
	// Postponed tells the SyncManager that an event waits no longer for want of room, or since
	// nobody wants it who waits, and is to be judged again: [relaysync.SyncManager.Postponed].
	// Without it Removed is told that.
	Postponed func(event graspsync.Event)
	// Lists reports whether an announcement makes its repository ours:
	// [relaysync.Policy].
	Lists func(a *nip34.Announcement) bool
}

// Save returns a Release for a Host: events go into the store, then what is stored is
// told to each of tell, as [relaysync.SyncManager.Stored] and what sends it to
// subscribers.
func Save(store relaysync.Store, tell ...func(event graspsync.Event)) func(context.Context, graspsync.Event) (graspsync.Outcome, error) {
	return func(ctx context.Context, event graspsync.Event) (graspsync.Outcome, error) {
		outcomes, err := store.Save(ctx, []graspsync.Incoming{{Event: event}})
		if err != nil {
			return graspsync.Outcome{}, err
		}
		if len(outcomes) != 1 {
			return graspsync.Outcome{}, fmt.Errorf("%d outcomes of one event", len(outcomes))
		}
		if r := outcomes[0].Result; r == graspsync.Stored || r == graspsync.Duplicate {
			for _, f := range tell {
				f(event)
			}
		}
		return outcomes[0], nil
	}
}

// Observe is for [purgatory.Config]: the SyncManager must know what waits no longer,
// and what does again without anybody having submitted it.
func (h Host) Observe(o purgatory.Observation) {
	switch o := o.(type) {
	case purgatory.Began:
		if !o.Event.IsZero() {
			h.Held(o.Event)
		}
	case purgatory.Lapsed:
		h.Removed(o.Event)
	case purgatory.Ended:
		switch {
		case o.Event.IsZero() || o.Fate == purgatory.Released:
		case h.Postponed != nil && h.comesAgain(o):
			h.Postponed(o.Event)
		default:
			h.Removed(o.Event)
		}
	}
}

// comesAgain reports whether what has ended may be wanted later: it gave way, or is an
// announcement that waits for nothing but somebody who lists its author.
func (h Host) comesAgain(o purgatory.Ended) bool {
	switch o.Fate {
	case purgatory.Displaced, purgatory.Unwanted:
		return true
	case purgatory.Expired:
		a, err := nip34.ParseAnnouncement(o.Event)
		return err == nil && !h.Lists(a)
	}
	return false
}

// Relay is the Host as purgatory wants it.
func (h Host) Relay() purgatory.Relay { return relay{h} }

type relay struct{ h Host }

// Save implements [purgatory.Relay].
func (r relay) Save(ctx context.Context, event graspsync.Event) error {
	o, err := r.h.Release(ctx, event)
	switch {
	case err != nil:
		return err
	case o.Result == graspsync.Stored, o.Result == graspsync.Duplicate:
		return nil
	case o.Result == graspsync.Deleted, o.Result == graspsync.Superseded, o.Result == graspsync.Refused:
		return fmt.Errorf("%w: event %s: %v", purgatory.ErrRefused, event.ID, o.Result)
	case o.Err == nil: // a Store of somebody's own, that does not say what became of it
		return fmt.Errorf("storing event %s: the outcome is %v, without an error", event.ID, o.Result)
	}
	return fmt.Errorf("storing event %s: %w", event.ID, o.Err)
}

// Events implements [purgatory.Relay].
func (r relay) Events(ctx context.Context, filter nostr.Filter) iter.Seq2[graspsync.Event, error] {
	return func(yield func(graspsync.Event, error) bool) {
		for ev, err := range r.h.Store.Events(ctx, filter) {
			if errors.Is(err, relaysync.ErrIncomplete) {
				err = fmt.Errorf("%w: %w", purgatory.ErrIncomplete, err)
			}
			if !yield(ev, err) || err != nil {
				return
			}
		}
	}
}

// Deleted implements [purgatory.Relay].
func (r relay) Deleted(ctx context.Context, event graspsync.Event) (bool, error) {
	deleted, err := r.h.Store.Deleted(ctx, event)
	if deleted && err == nil { // older versions go with it
		_, err = r.h.Store.Save(ctx, []graspsync.Incoming{{Event: event}})
	}
	return deleted, err
}

// Lists implements [purgatory.Relay].
func (r relay) Lists(a *nip34.Announcement) bool { return r.h.Lists(a) }
