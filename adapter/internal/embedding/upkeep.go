package embedding

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	relaysync "github.com/graspsync/graspsync/sync"
)

const (
	upkeepPeriod = time.Minute
	// expiryScan is the period in which the store is searched for events that expire.
	expiryScan  = 24 * time.Hour
	maxExpiring = 100_000
)

// Upkeep removes expired events (NIP-40), and events covered by a stored deletion whose execution
// failed. It is safe for concurrent use.
type Upkeep struct {
	env        *Core
	most       int
	unfinished atomic.Bool // a stored deletion was perhaps not executed

	mu      sync.Mutex
	expires map[string]nostr.Timestamp // by id; guarded by mu
}

// NewUpkeep returns an Upkeep that remembers at most most expiring events, and finds other events
// once a day.
func NewUpkeep(env *Core, most int) *Upkeep {
	u := &Upkeep{env: env, most: most, expires: make(map[string]nostr.Timestamp)}
	u.unfinished.Store(true) // a crash may have interrupted a deletion
	return u
}

// Run works until ctx ends.
func (u *Upkeep) Run(ctx context.Context) {
	tick := time.NewTicker(upkeepPeriod)
	defer tick.Stop()
	var scanned time.Time
	for {
		if u.unfinished.Swap(false) {
			if err := u.finishDeletions(ctx); err != nil {
				u.unfinished.Store(true)
				u.failed(ctx, "applying stored deletions failed", err)
			}
			u.env.FollowRemovals(ctx)
		}
		var unread error
		if time.Since(scanned) >= expiryScan {
			if unread = u.each(ctx, nostr.Filter{}, u.Track); unread == nil {
				scanned = time.Now()
			}
		}
		u.failed(ctx, "removing expired events failed", cmp.Or(u.removeExpired(ctx), unread))
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

func (u *Upkeep) failed(ctx context.Context, what string, err error) {
	if err != nil && ctx.Err() == nil {
		u.env.Log.Error(what, "err", err)
	}
}

// Track records a stored event if it has an expiration. It returns nil.
func (u *Upkeep) Track(e graspsync.Event) error {
	at, ok := nip34.Expiration(e.Event)
	u.mu.Lock()
	defer u.mu.Unlock()
	soon := at < nostr.Now()+2*24*60*60 // may exceed most; the daily scan finds the other events in time
	if ok && (len(u.expires) < u.most || soon && len(u.expires) < 4*u.most) {
		u.expires[e.Event.ID] = at
	}
	return nil
}

// Submitted handles a stored event of a client. The client receives OK after it.
func (u *Upkeep) Submitted(ctx context.Context, e graspsync.Event) {
	ctx = context.WithoutCancel(ctx)
	_ = u.Track(e)
	u.env.Manager.NotifyStored(e)
	tell(u.env.Stored, e)
	u.Undo(ctx, e)
	u.env.FollowRemovals(ctx)
}

// Undo removes a newly stored event that a concurrent deletion covers. A deletion is stored before it is
// executed, so one that Undo misses finds the event itself.
func (u *Upkeep) Undo(ctx context.Context, e graspsync.Event) {
	deleted, err := u.env.Store.Deleted(ctx, e)
	if err == nil && deleted {
		err = Sync{u.env}.Remove(ctx, e)
	}
	if err != nil {
		u.env.Log.Error("removing a deleted event failed, will retry", "event", e.ID, "err", err)
		u.unfinished.Store(true)
	}
}

func (u *Upkeep) finishDeletions(ctx context.Context) error {
	return u.each(ctx, nostr.Filter{Kinds: []int{graspsync.KindDeletion, graspsync.KindVanish}}, func(e graspsync.Event) error {
		if e.Kind == graspsync.KindDeletion || u.env.Us.IsVanishRequest(e.Event) {
			return u.env.Store.Execute(ctx, e)
		}
		return nil
	})
}

// each calls do for each stored event, until it fails. An incomplete read is no error, because it would
// end the same again.
func (u *Upkeep) each(ctx context.Context, f nostr.Filter, do func(graspsync.Event) error) error {
	for e, err := range u.env.Store.Events(ctx, f) {
		if errors.Is(err, relaysync.ErrIncomplete) {
			u.env.Log.Warn("store did not return all of its events", "err", err)
			return nil
		}
		if err == nil {
			err = do(e)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (u *Upkeep) removeExpired(ctx context.Context) (first error) {
	now := nostr.Now()
	var ids []string
	u.mu.Lock()
	for id, at := range u.expires {
		if at <= now {
			ids = append(ids, id)
		}
	}
	u.mu.Unlock()
	if len(ids) == 0 {
		return nil
	}
	var kept []graspsync.Event
	for e, err := range u.env.Store.Events(ctx, nostr.Filter{IDs: ids}) {
		if err != nil {
			return cmp.Or(first, err)
		}
		if err := (Sync{u.env}).Remove(ctx, e); err != nil {
			kept, first = append(kept, e), cmp.Or(first, err)
		}
	}
	u.mu.Lock()
	for _, id := range ids {
		delete(u.expires, id)
	}
	u.mu.Unlock()
	for _, e := range kept {
		_ = u.Track(e)
	}
	return first
}
