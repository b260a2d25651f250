package embedding

import (
	"cmp"
	"container/heap"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync/nip34"
)

// never is later than any deadline.
const never nostr.Timestamp = math.MaxInt64

// Expiry is a queue of stored events by expiration time (NIP-40). It is safe for concurrent use.
type Expiry struct {
	most int
	wake chan struct{} // one slot

	mu sync.Mutex
	// guarded by mu
	queue deadlines
	// horizon is the earliest expiration time that the queue does not contain. At this time the
	// store is read again.
	horizon nostr.Timestamp
}

type deadline struct {
	at nostr.Timestamp
	id string
}

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

// NewExpiry returns an Expiry that first asks for a read of the store. It holds at most most
// events, the earliest ones.
func NewExpiry(most int) *Expiry {
	return &Expiry{most: most, wake: make(chan struct{}, 1)}
}

// Wake returns a channel that is ready when Next must be called earlier than it announced.
func (x *Expiry) Wake() <-chan struct{} { return x.wake }

// Track records a stored event if it has an expiration.
func (x *Expiry) Track(e *nostr.Event) {
	at, ok := nip34.Expiration(e)
	if !ok || !x.add(deadline{at, e.ID}) {
		return
	}
	select {
	case x.wake <- struct{}{}:
	default:
	}
}

func (x *Expiry) add(d deadline) bool {
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
		x.queue = slices.Clip(x.queue[:keep]) // a sorted slice is a heap
	}
	return true
}

// Next returns the ids that have expired and the time until the next call. If rescan is true, the
// caller must read the store and Track its events.
func (x *Expiry) Next(now nostr.Timestamp) (expired []string, wait time.Duration, rescan bool) {
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
	next := min(x.horizon-now, 3600) // in seconds; larger durations could overflow
	if len(x.queue) > 0 {
		next = min(next, x.queue[0].at-now)
	}
	return expired, time.Duration(next) * time.Second, false
}

// Again returns ids whose removal failed to the queue. If unread is true, reading the store failed
// and Next asks for it again.
func (x *Expiry) Again(now nostr.Timestamp, ids []string, unread bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, id := range ids {
		heap.Push(&x.queue, deadline{now, id})
	}
	if unread {
		x.horizon = now
	}
}
