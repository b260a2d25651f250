package purgatory

import (
	"sync"
	"time"

	"github.com/graspsync/graspsync"
)

// longTakes remembers the data of which events took long to walk.
type longTakes struct {
	waiting *waiting

	mu sync.Mutex
	at map[graspsync.EventID]time.Time // guarded by mu
}

func newLongTakes(waiting *waiting) *longTakes {
	return &longTakes{waiting: waiting, at: make(map[graspsync.EventID]time.Time)}
}

// took reports whether data of an event took long to walk a short time ago.
func (l *longTakes) took(id graspsync.EventID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Since(l.at[id]) < longAgain
}

// note is for an event whose data has taken long, if it still waits.
func (l *longTakes) note(id graspsync.EventID) {
	l.mu.Lock()
	l.at[id] = time.Now()
	l.mu.Unlock()
	if _, waits := l.waiting.get(id); !waits { // or it is forgotten by whoever ends its waiting
		l.forget(id)
	}
}

func (l *longTakes) forget(id graspsync.EventID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.at, id)
}
