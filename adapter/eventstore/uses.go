package eventstoreadapter

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
)

const closeWait = 10 * time.Second

type uses struct {
	lock *os.File // of the backend, or nil

	mu sync.Mutex
	// guarded by mu
	n      int
	closed bool
	idle   chan struct{} // closed after close when no call runs
}

func newUses(lock *os.File) *uses { return &uses{lock: lock, idle: make(chan struct{})} }

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
			_ = u.lock.Close() // a second call fails, which is ignored
		}
		return nil
	case <-timer.C:
		return fmt.Errorf("%w: it still answers after %v", ErrBackend, closeWait)
	}
}

// ErrClosed means that [Store.Close] was called.
var ErrClosed = errors.New("event store is closed")
