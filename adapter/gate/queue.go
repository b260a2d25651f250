package gate

import "sync"

// queue is what is to be written to a client: the relay never waits for it.
type queue struct {
	more chan struct{} // holds one: there is something, or it is closed

	mu sync.Mutex
	// guarded by mu
	messages [][]byte
	bytes    int
	closed   bool
}

func newQueue() *queue { return &queue{more: make(chan struct{}, 1)} }

// put appends a message; false: the queue is closed.
func (q *queue) put(m []byte) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return false
	}
	q.messages = append(q.messages, m)
	q.bytes += len(m)
	q.signal()
	return true
}

// get returns the first message; its bytes count until written.
func (q *queue) get() ([]byte, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.messages) == 0 {
		return nil, false
	}
	m := q.messages[0]
	q.messages[0] = nil
	q.messages = q.messages[1:]
	return m, true
}

func (q *queue) written(m []byte) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.bytes -= len(m)
}

func (q *queue) size() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.bytes
}

// close has nothing more taken in; what is there can still be read.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.signal()
}

func (q *queue) signal() {
	select {
	case q.more <- struct{}{}:
	default:
	}
}
