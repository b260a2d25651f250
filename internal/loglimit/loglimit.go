// Package loglimit limits log lines that clients can cause.
package loglimit

import (
	"sync"
	"time"
)

const (
	every   = time.Minute
	maxKeys = 10_000 // maximum number of remembered keys; other keys are not logged
)

// Limiter records the time of the last log line per key, such as a host and a cause. It is safe for
// concurrent use.
type Limiter[K comparable] struct {
	mu sync.Mutex
	// guarded by mu
	at    map[K]time.Time
	swept time.Time
}

// Allow reports whether a line about k may be written now, once per minute. Lines of new keys are
// dropped while 10,000 keys were logged within a minute.
func (l *Limiter[K]) Allow(k K, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if at, ok := l.at[k]; ok && now.Sub(at) < every {
		return false
	}
	if len(l.at) >= maxKeys {
		l.sweep(now)
		if len(l.at) >= maxKeys {
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
func (l *Limiter[K]) sweep(now time.Time) {
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
