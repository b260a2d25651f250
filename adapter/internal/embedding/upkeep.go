package embedding

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	relaysync "github.com/graspsync/graspsync/sync"
)

const (
	unfinishedPause = time.Minute // until deletions that failed are executed again
	expiryRetry     = time.Minute // until expiry is tried again after a failure
)

const never nostr.Timestamp = math.MaxInt64

// Upkeep removes expired events (NIP-40), and events covered by a stored deletion whose execution
// failed. It is safe for concurrent use.
type Upkeep struct {
	env        *Core
	most       int
	unfinished chan struct{} // one slot: a stored deletion was not executed
	wake       chan struct{} // one slot: an event expires before next

	mu sync.Mutex
	// guarded by mu
	expires map[string]nostr.Timestamp // by id
	next    nostr.Timestamp            // time of the next removal
	// horizon is the earliest expiration time that expires does not contain. At this time the store
	// is read again.
	horizon nostr.Timestamp
}

// NewUpkeep returns an Upkeep that remembers the expiry of at most most events, the earliest ones.
func NewUpkeep(env *Core, most int) *Upkeep {
	return &Upkeep{
		env: env, most: most, unfinished: make(chan struct{}, 1), wake: make(chan struct{}, 1), expires: make(map[string]nostr.Timestamp),
	}
}

// Run works until ctx ends.
func (u *Upkeep) Run(ctx context.Context) {
	var wg sync.WaitGroup
	wg.Go(func() { u.runDeletions(ctx) })
	wg.Go(func() { u.runExpiry(ctx) })
	wg.Wait()
}

// Track records a stored event if it has an expiration.
func (u *Upkeep) Track(e *nostr.Event) {
	at, ok := nip34.Expiration(e)
	u.mu.Lock()
	defer u.mu.Unlock()
	if !ok || at >= u.horizon {
		return
	}
	if u.expires[e.ID] = at; len(u.expires) > u.most {
		ids := slices.SortedFunc(maps.Keys(u.expires), func(a, b string) int { return cmp.Compare(u.expires[a], u.expires[b]) })
		later := ids[(u.most+1)/2:]
		u.horizon = u.expires[later[0]]
		for _, id := range later {
			delete(u.expires, id)
		}
	}
	if at < u.next {
		u.next = at
		signal(u.wake)
	}
}

// due returns the expired ids and the time until the next call. If rescan is true, the caller must
// Track the events of the store.
func (u *Upkeep) due(now nostr.Timestamp) (expired []string, wait time.Duration, rescan bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.next = min(u.horizon, now+3600)
	for id, at := range u.expires {
		if at <= now {
			expired = append(expired, id)
			delete(u.expires, id)
			continue
		}
		u.next = min(u.next, at)
	}
	if u.horizon <= now {
		clear(u.expires)
		u.horizon = never
		return expired, 0, true
	}
	return expired, time.Duration(u.next-now) * time.Second, false
}

func (u *Upkeep) again(ids []string, unread bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, id := range ids {
		u.expires[id] = 0
	}
	if unread {
		u.horizon = 0
	}
}

// Submitted handles an event of a client after it was stored. It returns after the hooks for
// removed events, so that the client receives OK later.
func (u *Upkeep) Submitted(ctx context.Context, e graspsync.Event) {
	ctx = context.WithoutCancel(ctx)
	u.Track(e.Event)
	u.env.Manager.NotifyStored(e)
	tell(u.env.Stored, e)
	u.Undo(ctx, e)
	u.env.FollowRemovals(ctx)
}

// Undo removes a newly stored event if a deletion of it arrived concurrently. A deletion is stored
// before it is executed, so a deletion that Undo misses finds the event itself.
func (u *Upkeep) Undo(ctx context.Context, e graspsync.Event) {
	deleted, err := u.env.Store.Deleted(ctx, e)
	if err == nil && deleted {
		err = Sync{u.env}.Remove(ctx, e)
	}
	if err != nil {
		u.env.Log.Error("removing a deleted event failed, will retry", "event", e.ID, "err", err)
		signal(u.unfinished)
	}
}

func (u *Upkeep) deletes(e graspsync.Event) bool {
	return e.Kind == graspsync.KindDeletion || u.env.Us.Vanishes(e.Event)
}

func signal(slot chan<- struct{}) {
	select {
	case slot <- struct{}{}:
	default:
	}
}

// runDeletions executes stored deletions at the start, because a crash may have interrupted one,
// and after failures.
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
			u.env.Log.Error("applying stored deletions failed", "err", err)
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

func (u *Upkeep) runExpiry(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-u.wake:
		case <-ctx.Done():
			return
		}
		expired, wait, rescan := u.due(nostr.Now())
		left, err := u.removeExpired(ctx, expired)
		unread := false
		if rescan {
			scanned := u.scanExpiry(ctx)
			unread, err = scanned != nil, cmp.Or(err, scanned)
		}
		if ctx.Err() != nil {
			return // canceled, no failure of the store
		}
		if err != nil {
			u.again(left, unread)
			u.env.Log.Error("removing expired events failed", "remaining", len(left), "err", err)
			wait = expiryRetry
		}
		timer.Reset(wait)
	}
}

func (u *Upkeep) scanExpiry(ctx context.Context) error {
	for e, err := range u.env.Store.Events(ctx, nostr.Filter{}) {
		if err != nil {
			return u.unread("events that expire", err)
		}
		u.Track(e.Event)
	}
	return nil
}

// unread returns the error of a read that must be repeated. Another attempt at an incomplete read
// would end the same.
func (u *Upkeep) unread(what string, err error) error {
	if !errors.Is(err, relaysync.ErrIncomplete) {
		return err
	}
	u.env.Log.Warn("store did not return all of its events", "read", what, "err", err)
	return nil
}

// removeExpired returns the ids that are left and the first error.
func (u *Upkeep) removeExpired(ctx context.Context, ids []string) (left []string, first error) {
	if len(ids) == 0 {
		return nil, nil
	}
	gone := make(map[string]struct{}, len(ids))
	for e, err := range u.env.Store.Events(ctx, nostr.Filter{IDs: ids}) {
		if err != nil { // it is unknown which events the store contains
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
		u.env.Manager.NotifyRemoved(e)
		u.env.removedOne(ctx, e)
	}
	return left, first
}
