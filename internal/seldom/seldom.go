// Package seldom keeps strangers from filling a log: lines about one thing are
// written once in a while, however often there is a reason to, and what strangers wrote
// is quoted and cut in them.
package seldom

import (
	"sync"
	"time"
)

const (
	every = time.Minute
	most  = 10_000 // keys that are remembered; of others nothing is logged
)

// Lines remembers when a line was written about what, such as a host and what
// happened with it. The zero value has written nothing. It is safe for concurrent use.
type Lines[K comparable] struct {
	mu sync.Mutex
	// guarded by mu
	at    map[K]time.Time
	swept time.Time
}

// May reports whether a line about k may be written now, and counts it as written: it
// is false if there was one in the last minute. Where too much is remembered it is
// false as well, until a minute is over for some of that.
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

// sweep forgets what says nothing any more, at most once a second: that it is full
// must not make it slow.
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
