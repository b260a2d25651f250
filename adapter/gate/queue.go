package gate

import (
	"sync"
	"sync/atomic"
)

// queue is what is to be written to a client: the relay never waits for it. Its bytes count until
// they are written, for all queues as well.
type queue struct {
	more chan struct{} // holds one: there is something
	all  *atomic.Int64

	mu sync.Mutex
	// guarded by mu
	messages [][]byte
	waiting  int // bytes of messages
	bytes    int // with what is being written
	closed   bool
	less     chan struct{} // nil: nobody waits for it
}

func newQueue(all *atomic.Int64) *queue { return &queue{more: make(chan struct{}, 1), all: all} }

// put appends a message; false: the queue is closed. Then, or now, there is so much in it.
func (q *queue) put(m []byte) (size int, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return q.bytes, false
	}
	q.messages = append(q.messages, m)
	q.waiting += len(m)
	q.bytes += len(m)
	q.all.Add(int64(len(m)))
	select {
	case q.more <- struct{}{}:
	default:
	}
	return q.bytes, true
}

// get returns the first message; written is called when it is.
func (q *queue) get() ([]byte, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.messages) == 0 {
		return nil, false
	}
	m := q.messages[0]
	q.messages[0] = nil
	q.messages = q.messages[1:]
	q.waiting -= len(m)
	return m, true
}

func (q *queue) written(m []byte) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.lose(len(m))
}

// close takes nothing more in, and forgets what waits.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.lose(q.waiting)
	q.messages, q.waiting = nil, 0
}

// lose is called with mu held.
func (q *queue) lose(n int) {
	q.bytes -= n
	q.all.Add(-int64(n))
	q.wake()
}

// wake is called with mu held.
func (q *queue) wake() {
	if q.less != nil {
		close(q.less)
		q.less = nil
	}
}

// changed has whoever waits look again.
func (q *queue) changed() {
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
func (q *queue) shrinks() <-chan struct{} {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.less == nil {
		q.less = make(chan struct{})
	}
	return q.less
}
