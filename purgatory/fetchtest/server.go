package fetchtest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
)

// Server is what one clone URL does.
type Server struct {
	Objects []nip34.ObjectID // that it serves
	Err     error            // what every fetch fails with
	Delay   time.Duration    // how long a fetch takes
	Bytes   int64            // that a fetch brings; 100 for each object if 0
	Junk    bool             // it sends Bytes of what nobody asked for if it has nothing
	Most    int              // objects that it may be asked for at once, or a limit is met; 0: any number
}

// Call is a fetch that was made.
type Call struct {
	At   time.Time
	URL  graspsync.CloneURL
	Want []nip34.ObjectID
}

// Serve makes s what is at a clone URL.
func (f *Fake) Serve(u graspsync.CloneURL, s Server) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.servers[u] = &s
}

// Needs makes others what an object needs to be complete.
func (f *Fake) Needs(id nip34.ObjectID, others ...nip34.ObjectID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.needs[id] = others
}

// Calls returns the fetches so far.
func (f *Fake) Calls() []Call {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.calls)
}

// Quarantine implements [purgatory.GitFetcher].
func (f *Fake) Quarantine(_ context.Context, dir string) (purgatory.Quarantine, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.failure("quarantine"); err != nil {
		return nil, err
	}
	q := &quarantine{f: f, dir: dir, objects: make(map[nip34.ObjectID]struct{})}
	f.open[q] = struct{}{}
	return q, nil
}

// Quarantines counts the quarantines that were neither promoted nor discarded.
func (f *Fake) Quarantines() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.open)
}

type quarantine struct {
	f       *Fake
	dir     string
	comes   atomic.Pointer[coming]
	objects map[nip34.ObjectID]struct{} // guarded by f.mu
}

// Fetch implements [purgatory.Quarantine].
func (q *quarantine) Fetch(ctx context.Context, from graspsync.CloneURL, ids []nip34.ObjectID) (int64, error) {
	f := q.f
	f.mu.Lock()
	f.calls = append(f.calls, Call{At: time.Now(), URL: from, Want: slices.Clone(ids)})
	err := f.failure("fetch")
	s, ok := f.servers[from]
	if !ok {
		s = &Server{Err: purgatory.ErrBroken}
	}
	server := *s
	f.mu.Unlock()
	if err != nil {
		return 0, err
	}
	if ctx.Err() != nil {
		return 0, fmt.Errorf("fetching: %w", context.Cause(ctx))
	}
	if server.Delay > 0 {
		q.comes.Store(&coming{since: time.Now(), server: server})
		timer := time.NewTimer(server.Delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return 0, fmt.Errorf("fetching: %w", context.Cause(ctx))
		}
	}
	if server.Err != nil {
		return server.Bytes, server.Err
	}
	if server.Most > 0 && len(ids) > server.Most {
		return server.Bytes, fmt.Errorf("%w: %d objects", purgatory.ErrLimit, len(ids))
	}
	return q.receive(server, ids)
}

// coming is a fetch that takes its time.
type coming struct {
	since  time.Time
	server Server
}

// Received implements [purgatory.Quarantine]: the bytes of a server that takes its time come evenly.
func (q *quarantine) Received() int64 {
	c := q.comes.Load()
	if c == nil {
		return 0
	}
	part := min(1, float64(time.Since(c.since))/float64(c.server.Delay))
	return int64(part * float64(c.server.Bytes))
}

// receive takes what a server has of the ids, and of what these need.
func (q *quarantine) receive(s Server, ids []nip34.ObjectID) (n int64, err error) {
	f := q.f
	f.mu.Lock()
	defer f.mu.Unlock()
	got := 0
	var take func(id nip34.ObjectID)
	take = func(id nip34.ObjectID) {
		if slices.Contains(s.Objects, id) {
			q.objects[id] = struct{}{}
			got++
		}
		for _, o := range f.needs[id] {
			take(o)
		}
	}
	for _, id := range ids {
		take(id)
	}
	switch {
	case got == 0 && s.Junk:
		return s.Bytes, fmt.Errorf("%w: nobody asked for that", purgatory.ErrNotServed)
	case got == 0:
		return 0, purgatory.ErrNotServed
	}
	if s.Bytes > 0 {
		return s.Bytes, nil
	}
	return int64(100 * got), nil
}

// Missing implements [purgatory.Quarantine].
func (q *quarantine) Missing(_ context.Context, ids []nip34.ObjectID) ([]nip34.ObjectID, error) {
	q.f.mu.Lock()
	defer q.f.mu.Unlock()
	if err := q.f.failure("missing"); err != nil {
		return nil, err
	}
	return q.f.missing(q.f.dirs[q.dir].objects, q.objects, ids), nil
}

// Promote implements [purgatory.Quarantine].
func (q *quarantine) Promote(context.Context) error {
	q.f.mu.Lock()
	defer q.f.mu.Unlock()
	if err := q.f.failure("promote"); err != nil {
		return err
	}
	maps.Copy(q.f.dirs[q.dir].objects, q.objects)
	q.f.changes++
	clear(q.objects)
	delete(q.f.open, q)
	return nil
}

// Discard implements [purgatory.Quarantine].
func (q *quarantine) Discard() error {
	q.f.mu.Lock()
	defer q.f.mu.Unlock()
	clear(q.objects)
	delete(q.f.open, q)
	return nil
}
