package khatruadapter

import (
	"cmp"
	"container/heap"
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/nbd-wtf/go-nostr"

	eventstoreadapter "github.com/graspsync/graspsync/adapter/eventstore"
	"github.com/graspsync/graspsync/nip34"
)

// expiryRetry is how long a failed look at the store waits for the next one.
const expiryRetry = time.Minute

// incompleteEvery is how often it is said that the store can't be read completely.
const incompleteEvery = 24 * time.Hour

// never is later than any deadline.
const never nostr.Timestamp = math.MaxInt64

// expiry knows which stored events expire next.
type expiry struct {
	most int
	wake chan struct{} // one slot

	mu sync.Mutex
	// guarded by mu
	queue deadlines
	// horizon is the time from which on events are not in the queue: when it comes,
	// the store is read again.
	horizon nostr.Timestamp
}

type deadline struct {
	at nostr.Timestamp
	id string
}

// deadlines is a heap, the next one first.
type deadlines []deadline

func (d deadlines) Len() int           { return len(d) }
func (d deadlines) Less(i, j int) bool { return d[i].at < d[j].at }
func (d deadlines) Swap(i, j int)      { d[i], d[j] = d[j], d[i] }

// Push implements [heap.Interface].
func (d *deadlines) Push(x any) {
	if v, ok := x.(deadline); ok {
		*d = append(*d, v)
	}
}

// Pop implements [heap.Interface].
func (d *deadlines) Pop() any {
	last := len(*d) - 1
	v := (*d)[last]
	*d = (*d)[:last]
	return v
}

// newExpiry starts with the store unread.
func newExpiry(most int) *expiry {
	return &expiry{most: most, wake: make(chan struct{}, 1)}
}

func (x *expiry) track(e *nostr.Event) {
	at, ok := nip34.Expiration(e)
	if !ok || !x.add(deadline{at, e.ID}) {
		return
	}
	select {
	case x.wake <- struct{}{}:
	default:
	}
}

func (x *expiry) add(d deadline) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if d.at >= x.horizon {
		return false
	}
	heap.Push(&x.queue, d)
	if len(x.queue) > x.most {
		slices.SortFunc(x.queue, func(a, b deadline) int { return cmp.Compare(a.at, b.at) })
		keep := (x.most + 1) / 2
		x.horizon = x.queue[keep].at
		x.queue = slices.Clip(x.queue[:keep]) // sorted, so still a heap
	}
	return true
}

// next returns the ids that have expired, and how long it is until there is more to
// do. It may ask for the store to be read, into an empty queue.
func (x *expiry) next(now nostr.Timestamp) (expired []string, wait time.Duration, rescan bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for len(x.queue) > 0 && x.queue[0].at <= now {
		if d, ok := heap.Pop(&x.queue).(deadline); ok {
			expired = append(expired, d.id)
		}
	}
	if x.horizon <= now {
		x.queue, x.horizon = nil, never
		return expired, 0, true
	}
	next := min(x.horizon-now, 3600) // far-off times would overflow
	if len(x.queue) > 0 {
		next = min(next, x.queue[0].at-now)
	}
	return expired, time.Duration(next) * time.Second, false
}

// again has ids that could not be removed come back at once, or the store be read
// again.
func (x *expiry) again(now nostr.Timestamp, ids []string, unread bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, id := range ids {
		heap.Push(&x.queue, deadline{now, id})
	}
	if unread {
		x.horizon = now
	}
}

// runExpiry removes events when they expire (NIP-40).
func (s *Sync) runExpiry(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-s.expiry.wake:
		case <-ctx.Done():
			return
		}
		expired, wait, rescan := s.expiry.next(nostr.Now())
		left, err := s.removeExpired(ctx, expired)
		unread := false
		if rescan {
			scanned := s.scanExpiry(ctx)
			unread, err = scanned != nil, cmp.Or(err, scanned)
		}
		if ctx.Err() != nil {
			return // that it did not get through is no error of the store's
		}
		if err != nil {
			s.expiry.again(nostr.Now(), left, unread)
			s.log.Error("expired events could not be removed", "left", len(left), "err", err)
			wait = expiryRetry
		}
		timer.Reset(wait)
	}
}

// scanExpiry reads the store for events that expire.
func (s *Sync) scanExpiry(ctx context.Context) error {
	for e, err := range s.store.Events(ctx, nostr.Filter{}) {
		if err != nil {
			return s.unread("events that expire", err)
		}
		s.expiry.track(e)
	}
	return nil
}

// unread is the error of a store that is to be read again. It can't be brought to give
// what is incomplete, all the rest was read, and the next time would be no other: that
// is no error but said, once a day.
func (s *Sync) unread(what string, err error) error {
	if !errors.Is(err, eventstoreadapter.ErrIncomplete) {
		return err
	}
	now := time.Now().UnixNano()
	if last := s.incompleteAt.Load(); last != 0 && now-last < int64(incompleteEvery) || !s.incompleteAt.CompareAndSwap(last, now) {
		return nil
	}
	s.log.Warn("the store does not give all of its events", "read", what, "err", err)
	return nil
}

// removeExpired removes events. It returns those that are left, and why the first of them is:
// one that can't be removed keeps no other.
func (s *Sync) removeExpired(ctx context.Context, ids []string) (left []string, first error) {
	if len(ids) == 0 {
		return nil, nil
	}
	gone := make(map[string]struct{}, len(ids))
	for e, err := range s.store.Events(ctx, nostr.Filter{IDs: ids}) {
		if err != nil { // which of them it has is not known
			left = slices.DeleteFunc(slices.Clone(ids), func(id string) bool {
				_, is := gone[id]
				return is
			})
			return left, cmp.Or(first, err)
		}
		if err := s.store.Remove(ctx, e); err != nil {
			left, first = append(left, e.ID), cmp.Or(first, err)
			continue
		}
		gone[e.ID] = struct{}{}
		for _, hook := range s.relay.DeleteEvent {
			perr := protect(func() {
				if err := hook(ctx, e); err != nil {
					s.log.Error("hook of the relay failed", "hook", "DeleteEvent", "err", err)
				}
			})
			if perr != nil {
				s.log.Error("hook of the relay failed", "hook", "DeleteEvent", "err", perr)
			}
		}
	}
	return left, first
}
