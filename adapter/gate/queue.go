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

func (o outgoing) size() int {
	n := len(o.text)
	for _, name := range o.names {
		n += len(name)
	}
	return n
}

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
// they are written.
type queue struct {
	all *atomic.Int64 // bytes of all queues

	mu sync.Mutex
	// guarded by mu
	items   []outgoing
	bytes   int // including the item that is being written
	closed  bool
	changed chan struct{} // nil: nobody waits
}

// put returns the bytes of the queue, and false if they are more than most. A closed queue discards.
func (q *queue) put(o outgoing, most int) (size int, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed || q.bytes > most {
		return q.bytes, q.closed
	}
	q.items = append(q.items, o)
	q.add(o.size())
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
	return o, true
}

func (q *queue) written(o outgoing) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.add(-o.size())
}

func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	n := 0
	for _, o := range q.items {
		n += o.size()
	}
	q.items = nil
	q.add(-n)
}

// add changes the byte counts and wakes await. The caller holds mu.
func (q *queue) add(n int) {
	q.bytes += n
	q.all.Add(int64(n))
	if q.changed != nil {
		close(q.changed)
		q.changed = nil
	}
}

func (q *queue) wake() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.add(0)
}

func (q *queue) size() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.bytes
}

// await calls ready after each change until it returns true, or returns the cause of ctx.
func (q *queue) await(ctx context.Context, ready func() bool) error {
	for {
		changed := q.nextChange()
		if ready() {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (q *queue) nextChange() <-chan struct{} {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.changed == nil {
		q.changed = make(chan struct{})
	}
	return q.changed
}
