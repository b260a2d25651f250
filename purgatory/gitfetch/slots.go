package gitfetch

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/purgatory/internal/stopwatch"
)

// slots are the right to run git: so many processes at once, in turns by owner. Who
// made the objects of a repository says how long a walk over them takes, so that walks
// leave a place to what is read in a moment, and those that may take long three quarters
// of the places to all others.
type slots struct {
	most int

	mu sync.Mutex
	// guarded by mu
	running int
	walks   int // those that may take long included
	long    int
	busy    map[string]int // by owner
	waiting []*waiter      // in the order they came
}

// waiter waits for a place.
type waiter struct {
	owner string
	walk  bool
	long  bool
	given chan struct{} // closed when it has it
}

// longAfter is what may take long: what may take longer.
const longAfter = 10 * time.Second

func newSlots(most int) *slots { return &slots{most: most, busy: make(map[string]int)} }

// acquire waits for the right to run a child in a repository. A walk may take long
// unless its context ends soon. The time of waiting is not that of a look.
func (c *slots) acquire(ctx context.Context, dir string, walk bool) (release func(), err error) {
	long := walk
	if left, limited := stopwatch.Left(ctx); limited {
		long = walk && left > longAfter
	} else if end, ok := ctx.Deadline(); ok && time.Until(end) <= longAfter {
		long = false
	}
	defer stopwatch.Waits(ctx)()
	// The repositories of an owner are in one folder, as package gitserve has them.
	w := &waiter{owner: filepath.Dir(dir), walk: walk, long: long, given: make(chan struct{})}
	c.mu.Lock()
	c.waiting = append(c.waiting, w)
	c.next()
	c.mu.Unlock()
	select {
	case <-w.given:
		return func() { c.release(w) }, nil
	case <-ctx.Done():
	}
	c.mu.Lock()
	i := slices.Index(c.waiting, w)
	if i >= 0 {
		c.waiting = slices.Delete(c.waiting, i, i+1)
	}
	c.mu.Unlock()
	if i < 0 { // it was given the place at this moment
		c.release(w)
	}
	return nil, fmt.Errorf("waiting to run git: %w: %w", purgatory.ErrCrowded, context.Cause(ctx))
}

func (c *slots) release(w *waiter) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running--
	if w.walk {
		c.walks--
	}
	if w.long {
		c.long--
	}
	if c.busy[w.owner]--; c.busy[w.owner] == 0 {
		delete(c.busy, w.owner)
	}
	c.next()
}

// next gives free places to those whose owners have the fewest. mu is held.
func (c *slots) next() {
	for c.running < c.most {
		best := -1
		for i, w := range c.waiting {
			if w.walk && c.walks >= max(1, c.most-1) || w.long && c.long >= max(1, c.most/4) {
				continue
			}
			if best < 0 || c.busy[w.owner] < c.busy[c.waiting[best].owner] {
				best = i
			}
		}
		if best < 0 {
			return
		}
		w := c.waiting[best]
		c.waiting = slices.Delete(c.waiting, best, best+1)
		c.running++
		c.busy[w.owner]++
		if w.walk {
			c.walks++
		}
		if w.long {
			c.long++
		}
		close(w.given)
	}
}

// len is how many places are taken.
func (c *slots) len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.running
}

// acquire waits for a slot.
func acquire(ctx context.Context, slots chan struct{}) (release func(), err error) {
	select {
	case slots <- struct{}{}:
		return func() { <-slots }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("waiting to run git: %w", context.Cause(ctx))
	}
}
