package sync

import (
	"container/list"
	"context"
	"sync"
)

// reserved is the part of a room that is kept for who has nothing in it.
const reserved = 4

// room is how many bytes of events may be in the pipeline, of all relays together. They
// wait in the order in which they came, but a part is kept for relays of which nothing is
// inside: events that can't be saved stay there, and what is to show that others can be
// has to get in. It may be used by any goroutine.
type room struct {
	most int64

	mu sync.Mutex
	// guarded by mu
	free   int64
	inside map[*relayStats]int // events, by the relay that had them
	waits  list.List           // of *guest, the first to come in front
}

// guest waits to be let in.
type guest struct {
	of   *relayStats
	size int64
	in   chan struct{} // closed then
}

func newRoom(most int64) *room {
	return &room{most: most, free: most, inside: make(map[*relayStats]int)}
}

// enter waits until there is room for an event of a relay, of at most all of the room. The
// error is that of ctx.
func (r *room) enter(ctx context.Context, of *relayStats, size int64) error {
	g := &guest{of: of, size: size, in: make(chan struct{})}
	r.mu.Lock()
	place := r.waits.PushBack(g)
	r.letIn()
	r.mu.Unlock()
	select {
	case <-g.in:
		return nil
	case <-ctx.Done():
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case <-g.in:
		r.left(of, size)
	default:
		r.waits.Remove(place)
	}
	r.letIn()
	return context.Cause(ctx)
}

// leave makes room for others.
func (r *room) leave(of *relayStats, size int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.left(of, size)
	r.letIn()
}

// left takes note that an event is out. r.mu is held.
func (r *room) left(of *relayStats, size int64) {
	r.free += size
	if r.inside[of]--; r.inside[of] == 0 {
		delete(r.inside, of)
	}
}

// letIn lets in whom there is room for. Whoever finds none keeps those that came later
// from what it waits for, so that it is not passed for ever. r.mu is held.
func (r *room) letIn() {
	common, kept := true, true
	for e := r.waits.Front(); e != nil && (common || kept); {
		g, next := e.Value.(*guest), e.Next()
		first := r.inside[g.of] == 0
		switch {
		case common && (r.free-g.size >= r.most/reserved || r.free == r.most):
		case kept && first && r.free >= g.size:
		default:
			common = false
			kept = kept && !first
			e = next
			continue
		}
		r.waits.Remove(e)
		r.free -= g.size
		r.inside[g.of]++
		close(g.in)
		e = next
	}
}
