// Package seldom limits log lines that clients can cause.
package seldom

import (
	"sync"
	"time"
)

const (
	every = time.Minute
	most  = 10_000 // maximum number of remembered keys; other keys are not logged
)

// Lines records the time of the last log line per key, such as a host and a cause. It is safe for
// concurrent use.
type Lines[K comparable] struct {
	mu sync.Mutex
	// guarded by mu
	at    map[K]time.Time
	swept time.Time
}

// May reports whether a line about k may be written now, once per minute. New keys wait while
// 10,000 keys were logged within a minute.
func (l *Lines[K]) May(k K, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if at, ok := l.at[k]; ok && now.Sub(at) < every {
		return false
	}
	if len(l.at) >= most {
		l.sweep(now)
		if len(l.at) >= most {
			return false
		}
	}
	if l.at == nil {
		l.at = make(map[K]time.Time)
	}
	l.at[k] = now
	return true
}

// sweep removes expired keys, at most once per second for speed.
func (l *Lines[K]) sweep(now time.Time) {
	if now.Sub(l.swept) < time.Second {
		return
	}
	l.swept = now
	for k, at := range l.at {
		if now.Sub(at) >= every {
			delete(l.at, k)
		}
	}
}
