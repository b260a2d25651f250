package gate

import (
	"context"
	"iter"
	"sync"
	"sync/atomic"
)

// outgoing is a message to a client, or an event for several of its subscriptions.
type outgoing struct {
	text  []byte   // the message, or the event as JSON, shared by connections
	names [][]byte // ids of the subscriptions as JSON
}

// size returns the size in memory in bytes.
func (o outgoing) size() int {
	n := len(o.text)
	for _, name := range o.names {
		n += len(name)
	}
	return n
}

// messages yields the websocket messages.
func (o outgoing) messages() iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		if o.names == nil {
			yield(o.text)
			return
		}
		for _, name := range o.names {
			if !yield(encodeMessage(labelEvent, name, o.text)) {
				return
			}
		}
	}
}

// queue is the messages for a client, so that the relay never waits for it. Bytes are counted until
// they are written, also in the total of all queues.
type queue struct {
	more chan struct{} // a token: items is not empty
	all  *atomic.Int64

	mu sync.Mutex
	// guarded by mu
	items     []outgoing
	waiting   int // bytes of items
	bytes     int // including the item that is being written
	closed    bool
	shrinking chan struct{} // nil: nobody waits
}

func newQueue(all *atomic.Int64) *queue { return &queue{more: make(chan struct{}, 1), all: all} }

// put appends an item and returns the bytes of the queue. It returns false if the queue has more than
// most bytes. A closed queue discards the item.
func (q *queue) put(o outgoing, most int) (size int, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed || q.bytes > most {
		return q.bytes, q.closed
	}
	n := o.size()
	q.items = append(q.items, o)
	q.waiting += n
	q.bytes += n
	q.all.Add(int64(n))
	select {
	case q.more <- struct{}{}:
	default:
	}
	return q.bytes, true
}

// get returns the first item. The caller calls written after it.
func (q *queue) get() (o outgoing, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.items) == 0 {
		return o, false
	}
	o = q.items[0]
	q.items[0] = outgoing{}
	q.items = q.items[1:]
	q.waiting -= o.size()
	return o, true
}

func (q *queue) written(o outgoing) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.subtract(o.size())
}

// close discards the items and refuses more.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.subtract(q.waiting)
	q.items, q.waiting = nil, 0
}

// subtract reduces the byte counts. The caller holds mu.
func (q *queue) subtract(n int) {
	q.bytes -= n
	q.all.Add(-int64(n))
	q.wake()
}

// wake wakes callers that wait on shrunk. The caller holds mu.
func (q *queue) wake() {
	if q.shrinking != nil {
		close(q.shrinking)
		q.shrinking = nil
	}
}

// wakeWaiters makes callers check the room again.
func (q *queue) wakeWaiters() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.wake()
}

// size returns all bytes, and the bytes that close would discard.
func (q *queue) size() (all, waiting int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.bytes, q.waiting
}

// await waits until ready returns true for the bytes of the queue. It checks again when the queue
// shrinks or is closed, and returns the cause of ctx.
func (q *queue) await(ctx context.Context, ready func(size int) bool) error {
	for {
		less := q.shrunk()
		if size, _ := q.size(); ready(size) {
			return nil
		}
		select {
		case <-less:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// shrunk returns a channel that is closed when the queue shrinks.
func (q *queue) shrunk() <-chan struct{} {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.shrinking == nil {
		q.shrinking = make(chan struct{})
	}
	return q.shrinking
}
