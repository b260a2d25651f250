package embedding

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	relaysync "github.com/graspsync/graspsync/sync"
)

const (
	unfinishedPause = time.Minute    // before deletions are executed again that could not be
	expiryRetry     = time.Minute    // before the store is looked at again after it could not be
	incompleteEvery = 24 * time.Hour // is how often it is said that the store can't be read completely
)

// Upkeep removes what has to go from a relay's backend by itself: what expires (NIP-40), and what a stored deletion
// or request to vanish covers that could not be executed. It is made by [NewUpkeep], and safe for concurrent use.
type Upkeep struct {
	env        *Core
	expiry     *Expiry
	unfinished chan struct{} // one slot: a stored deletion could not be executed

	incompleteAt atomic.Int64 // when it was said that the store can't be read completely, 0: never
}

// NewUpkeep awaits the expiry of so many events in memory.
func NewUpkeep(env *Core, maxExpiring int) *Upkeep {
	return &Upkeep{env: env, expiry: NewExpiry(maxExpiring), unfinished: make(chan struct{}, 1)}
}

// Run removes until ctx ends.
func (u *Upkeep) Run(ctx context.Context) {
	var wg sync.WaitGroup
	wg.Go(func() { u.runDeletions(ctx) })
	wg.Go(func() { u.runExpiry(ctx) })
	wg.Wait()
}

// Track takes note of an event that is stored, if it expires.
func (u *Upkeep) Track(e *nostr.Event) { u.expiry.Track(e) }

// Submitted does what follows once what a client submitted is stored. It returns when a deletion is executed, before
// its client hears that it is stored.
func (u *Upkeep) Submitted(ctx context.Context, e graspsync.Event) {
	u.Track(e.Event)
	u.env.Manager.Stored(e)
	u.Undo(ctx, e)
	if u.deletes(e) {
		if err := u.env.Store.Execute(ctx, e); err != nil {
			u.env.Log.Error("deletion could not be executed; it will be", "err", err)
			u.executeAgain()
		}
	}
	u.env.FollowRemovals(ctx)
}

// Undo removes an event that has just been stored if a deletion of it came meanwhile: it was not there yet for all
// hooks when that was executed. A deletion is stored before it is executed, so one that is not seen here finds the
// event.
func (u *Upkeep) Undo(ctx context.Context, e graspsync.Event) {
	deleted, err := u.env.Store.Deleted(ctx, e)
	if err == nil && deleted {
		err = u.env.Remove(ctx, e)
	}
	if err != nil {
		u.env.Log.Error("an event that may be deleted could not be removed; it will be", "event", e.ID, "err", err)
		u.executeAgain()
	}
}

// deletes reports whether an event has others removed.
func (u *Upkeep) deletes(e graspsync.Event) bool {
	return e.Kind == graspsync.KindDeletion || u.env.Us.Vanishes(e.Event)
}

// executeAgain has all stored deletions executed once more.
func (u *Upkeep) executeAgain() {
	select {
	case u.unfinished <- struct{}{}:
	default:
	}
}

// runDeletions executes the stored deletions and requests to vanish again, at the start
// since we may have ended before one was, and whenever one could not be.
func (u *Upkeep) runDeletions(ctx context.Context) {
	again := time.After(0)
	for {
		select {
		case <-u.unfinished:
		case <-again:
		case <-ctx.Done():
			return
		}
		again = nil
		if err := u.finishDeletions(ctx); err != nil && ctx.Err() == nil {
			u.env.Log.Error("stored deletions could not be executed", "err", err)
			again = time.After(unfinishedPause)
		}
		u.env.FollowRemovals(ctx)
	}
}

func (u *Upkeep) finishDeletions(ctx context.Context) error {
	for e, err := range u.env.Store.Events(ctx, nostr.Filter{Kinds: []int{graspsync.KindDeletion, graspsync.KindVanish}}) {
		if err != nil {
			return u.unread("deletions", err)
		}
		if u.deletes(e) {
			if err := u.env.Store.Execute(ctx, e); err != nil {
				return err
			}
		}
	}
	return nil
}

// runExpiry removes events when they expire.
func (u *Upkeep) runExpiry(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-u.expiry.Wake():
		case <-ctx.Done():
			return
		}
		expired, wait, rescan := u.expiry.Next(nostr.Now())
		left, err := u.removeExpired(ctx, expired)
		unread := false
		if rescan {
			scanned := u.scanExpiry(ctx)
			unread, err = scanned != nil, cmp.Or(err, scanned)
		}
		if ctx.Err() != nil {
			return // that it did not get through is no error of the store's
		}
		if err != nil {
			u.expiry.Again(nostr.Now(), left, unread)
			u.env.Log.Error("expired events could not be removed", "left", len(left), "err", err)
			wait = expiryRetry
		}
		timer.Reset(wait)
	}
}

// scanExpiry reads the store for events that expire.
func (u *Upkeep) scanExpiry(ctx context.Context) error {
	for e, err := range u.env.Store.Events(ctx, nostr.Filter{}) {
		if err != nil {
			return u.unread("events that expire", err)
		}
		u.expiry.Track(e.Event)
	}
	return nil
}

// unread is the error of a store that is to be read again. It can't be brought to give
// what is incomplete, all the rest was read, and the next time would be no other: that
// is no error but said, once a day.
func (u *Upkeep) unread(what string, err error) error {
	if !errors.Is(err, relaysync.ErrIncomplete) {
		return err
	}
	now := time.Now().UnixNano()
	if last := u.incompleteAt.Load(); last != 0 && now-last < int64(incompleteEvery) || !u.incompleteAt.CompareAndSwap(last, now) {
		return nil
	}
	u.env.Log.Warn("the store does not give all of its events", "read", what, "err", err)
	return nil
}

// removeExpired removes events. It returns those that are left, and why the first of them is:
// one that can't be removed keeps no other.
func (u *Upkeep) removeExpired(ctx context.Context, ids []string) (left []string, first error) {
	if len(ids) == 0 {
		return nil, nil
	}
	gone := make(map[string]struct{}, len(ids))
	for e, err := range u.env.Store.Events(ctx, nostr.Filter{IDs: ids}) {
		if err != nil { // which of them it has is not known
			left = slices.DeleteFunc(slices.Clone(ids), func(id string) bool {
				_, is := gone[id]
				return is
			})
			return left, cmp.Or(first, err)
		}
		if err := u.env.Store.Remove(ctx, e); err != nil {
			left, first = append(left, e.Event.ID), cmp.Or(first, err)
			continue
		}
		gone[e.Event.ID] = struct{}{}
		u.env.Manager.Removed(e)
		u.env.Hooks.Removed(ctx, e)
	}
	return left, first
}
