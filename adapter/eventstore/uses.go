package eventstoreadapter

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
)

// closeWait bounds how long Close waits for the backend.
const closeWait = 10 * time.Second

// uses are the calls of the backend that are under way. It is safe for concurrent use.
type uses struct {
	lock *os.File // of the backend, or nil; set by newUses

	mu sync.Mutex
	// guarded by mu
	n      int
	closed bool
	idle   chan struct{} // closed once it is closed and none is under way
}

func newUses(lock *os.File) *uses { return &uses{lock: lock, idle: make(chan struct{})} }

// begin has close wait for a call, until end is called; once closed there are no more.
func (u *uses) begin() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.closed {
		return ErrClosed
	}
	u.n++
	return nil
}

func (u *uses) end() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.n--; u.n == 0 && u.closed {
		close(u.idle)
	}
}

// close lets nothing begin any more, and waits for what has.
func (u *uses) close() error {
	u.mu.Lock()
	if !u.closed {
		if u.closed = true; u.n == 0 {
			close(u.idle)
		}
	}
	u.mu.Unlock()
	timer := time.NewTimer(closeWait)
	defer timer.Stop()
	select {
	case <-u.idle:
		if u.lock != nil {
			_ = u.lock.Close() // nothing of use was written; a second time it fails
		}
		return nil
	case <-timer.C:
		return fmt.Errorf("%w: it still answers after %v", ErrBackend, closeWait)
	}
}

// ErrClosed says that [Store.Close] was called.
var ErrClosed = errors.New("event store is closed")
