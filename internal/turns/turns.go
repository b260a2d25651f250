// Package turns shares few places among clients.
package turns

import (
	"context"
	"sync"
)

// Turns shares places among clients: who waits has its turn by client, not by when it came, and
// whatever a client has, half of what others have left stays for them. It is safe for concurrent use.
type Turns struct {
	mu sync.Mutex
	// guarded by mu
	free  int
	taken map[string]int // by client
	queue []string       // clients of which somebody waits, the next one first
	kept  bool           // what is free is kept for the first one
	wait  map[string][]*turn
}

type turn struct {
	n    int
	come chan struct{}
}

// New returns so many places.
func New(places int) *Turns {
	return &Turns{free: places, taken: make(map[string]int), wait: make(map[string][]*turn)}
}

// fits reports whether a client may have n more places. It is called with mu held.
func (t *Turns) fits(client string, n int) bool {
	return n <= t.free && (t.taken[client] == 0 || t.taken[client]+n <= t.free-n)
}

// Try takes n places if there are so many for a client.
func (t *Turns) Try(client string, n int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.fits(client, n) {
		return false
	}
	t.take(client, n)
	return true
}

func (t *Turns) take(client string, n int) {
	t.free -= n
	t.taken[client] += n
}

// Enter waits for n places, which are no more than there are in all.
func (t *Turns) Enter(ctx context.Context, client string, n int) error {
	t.mu.Lock()
	if len(t.wait[client]) == 0 && !t.kept && t.fits(client, n) {
		t.take(client, n)
		t.mu.Unlock()
		return nil
	}
	if len(t.wait[client]) == 0 {
		t.queue = append(t.queue, client)
	}
	mine := &turn{n, make(chan struct{})}
	t.wait[client] = append(t.wait[client], mine)
	t.mu.Unlock()
	select {
	case <-mine.come:
		return nil
	case <-ctx.Done():
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	select {
	case <-mine.come: // both at once
		t.release(client, n)
	default:
		t.remove(client, mine)
		t.admit() // what was kept for it is for others
	}
	return context.Cause(ctx)
}

// Leave gives places back.
func (t *Turns) Leave(client string, n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.release(client, n)
}

func (t *Turns) release(client string, n int) {
	t.free += n
	if t.taken[client] -= n; t.taken[client] <= 0 {
		delete(t.taken, client)
	}
	t.admit()
}

// admit lets in who waits and fits, a client after the other. It is called with mu held.
func (t *Turns) admit() {
	t.kept = false
	for tried := 0; tried < len(t.queue); {
		client := t.queue[0]
		first := t.wait[client][0]
		if t.taken[client] == 0 && first.n > t.free {
			t.kept = true // or who needs few would have it wait for ever
			return
		}
		if !t.fits(client, first.n) {
			t.queue = append(t.queue[1:], client)
			tried++
			continue
		}
		tried = 0
		t.take(client, first.n)
		close(first.come)
		t.remove(client, first)
	}
}

// remove takes somebody out of the queue; its client goes to the end of it.
func (t *Turns) remove(client string, gone *turn) {
	t.kept = false
	left := t.wait[client][:0]
	for _, w := range t.wait[client] {
		if w != gone {
			left = append(left, w)
		}
	}
	for i, c := range t.queue {
		if c == client {
			t.queue = append(t.queue[:i:i], t.queue[i+1:]...)
			break
		}
	}
	if len(left) == 0 {
		delete(t.wait, client)
		return
	}
	t.wait[client] = left
	t.queue = append(t.queue, client)
}

// Stats says how many places are taken, and how many wait for some.
func (t *Turns) Stats() (taken, waiting int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, n := range t.taken {
		taken += n
	}
	for _, w := range t.wait {
		waiting += len(w)
	}
	return taken, waiting
}

// asking is the key of who asks, in a context.
type asking struct{}

// For says in a context for whom something is done.
func For(ctx context.Context, client string) context.Context {
	return context.WithValue(ctx, asking{}, client)
}

// Client returns for whom something is done, empty if nobody said so.
func Client(ctx context.Context) string {
	client, _ := ctx.Value(asking{}).(string)
	return client
}
