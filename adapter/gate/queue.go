package gate

import (
	"iter"
	"sync"
	"sync/atomic"
)

// outgoing is a message to a client, or an event for several of its subscriptions.
type outgoing struct {
	text  []byte   // the message, or the JSON of the event, which other connections share
	names [][]byte // the subscriptions that get the event, as they are written
}

// size returns the bytes that an outgoing holds in memory.
func (o outgoing) size() int {
	n := len(o.text)
	for _, name := range o.names {
		n += len(name)
	}
	return n
}

// messages yields what is written to the websocket.
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

// queue is what is to be written to a client: the relay never waits for it. Its bytes count until
// they are written, for all queues as well.
type queue struct {
	more chan struct{} // holds one: there is something
	all  *atomic.Int64

	mu sync.Mutex
	// guarded by mu
	items     []outgoing
	waiting   int // bytes of items
	bytes     int // with what is being written
	closed    bool
	shrinking chan struct{} // nil: nobody waits for it
}

func newQueue(all *atomic.Int64) *queue { return &queue{more: make(chan struct{}, 1), all: all} }

// put appends an item; false: the queue is closed. Then, or now, there is so much in it.
func (q *queue) put(o outgoing) (size int, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return q.bytes, false
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

// get returns the first item; written is called when it is.
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

// close takes nothing more in, and forgets what waits.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.subtract(q.waiting)
	q.items, q.waiting = nil, 0
}

// lose is called with mu held.
func (q *queue) subtract(n int) {
	q.bytes -= n
	q.all.Add(-int64(n))
	q.wake()
}

// wake is called with mu held.
func (q *queue) wake() {
	if q.shrinking != nil {
		close(q.shrinking)
		q.shrinking = nil
	}
}

// changed has whoever waits look again.
func (q *queue) wakeWaiters() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.wake()
}

// size is how many bytes there are, and how many of them close would forget.
func (q *queue) size() (all, waiting int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.bytes, q.waiting
}

// shrinks is closed when there is less.
func (q *queue) shrunk() <-chan struct{} {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.shrinking == nil {
		q.shrinking = make(chan struct{})
	}
	return q.shrinking
}
