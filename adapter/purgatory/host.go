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

// Host is the relay that stores released events. All fields except Postponed are required.
type Host struct {
	Store relaysync.Store
	// Release stores an event durably, broadcasts it, and reports it to the SyncManager, see [Save].
	Release func(ctx context.Context, event graspsync.Event) (graspsync.Outcome, error)
	// Held is [relaysync.SyncManager.NotifyHeld].
	Held func(event graspsync.Event)
	// Removed is [relaysync.SyncManager.NotifyRemoved].
	Removed func(event graspsync.Event)
	// Postponed is [relaysync.SyncManager.NotifyDeferred]. If it is nil, Removed is called.
	Postponed func(event graspsync.Event)
	Lists     func(a *nip34.Announcement) bool
}

// Save returns a Release function that stores an event and then calls tell.
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

// Observe is a callback for [purgatory.Config], which reports to the SyncManager.
func (h Host) Observe(o purgatory.Observation) {
	switch o := o.(type) {
	case purgatory.HoldStarted:
		if !o.Event.IsZero() {
			h.Held(o.Event)
		}
	case purgatory.HoldEnded:
		switch {
		case o.Event.IsZero() || o.Reason == purgatory.Released:
		case h.Postponed != nil && h.comesAgain(o):
			h.Postponed(o.Event)
		default:
			h.Removed(o.Event)
		}
	}
}

// comesAgain reports whether an event was evicted or its author not listed, so that it can be wanted later.
func (h Host) comesAgain(o purgatory.HoldEnded) bool {
	switch o.Reason {
	case purgatory.Displaced, purgatory.Unwanted:
		return true
	case purgatory.Expired:
		a, err := nip34.ParseAnnouncement(o.Event)
		return err == nil && !h.Lists(a)
	}
	return false
}

// Relay returns the Host as a [purgatory.Relay].
func (h Host) Relay() purgatory.Relay { return relay{h} }

type relay struct{ h Host }

func (r relay) Save(ctx context.Context, event graspsync.Event) error {
	o, err := r.h.Release(ctx, event)
	switch {
	case err != nil:
		return err
	case o.Result == graspsync.Stored, o.Result == graspsync.Duplicate:
		return nil
	case o.Result == graspsync.Deleted, o.Result == graspsync.Superseded, o.Result == graspsync.Refused:
		return fmt.Errorf("%w: event %s: %v", purgatory.ErrRefused, event.ID, o.Result)
	case o.Err == nil: // a custom Store without a valid result
		return fmt.Errorf("storing event %s: the outcome is %v, without an error", event.ID, o.Result)
	}
	return fmt.Errorf("storing event %s: %w", event.ID, o.Err)
}

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

func (r relay) Deleted(ctx context.Context, event graspsync.Event) (bool, error) {
	deleted, err := r.h.Store.Deleted(ctx, event)
	if deleted && err == nil { // Save also removes older versions
		_, err = r.h.Store.Save(ctx, []graspsync.Incoming{{Event: event}})
	}
	return deleted, err
}

func (r relay) Lists(a *nip34.Announcement) bool { return r.h.Lists(a) }
