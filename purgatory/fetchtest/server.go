package fetchtest

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/purgatory/internal/gitops"
)

// Server is the git server at one clone URL.
type Server struct {
	Objects []nip34.ObjectID // served objects
	Err     error            // error of each fetch
	Delay   time.Duration    // duration of a fetch
	Bytes   int64            // size of the answer; 0: 100 per object
	Most    int              // maximum number of objects per request, or ErrLimit; 0: no limit
}

// Call is a fetch.
type Call struct {
	At   time.Time
	URL  graspsync.CloneURL
	Want []nip34.ObjectID
}

// Serve sets the server at a clone URL.
func (f *Fake) Serve(u graspsync.CloneURL, s Server) {
	defer f.lock()()
	f.servers[u] = s
}

// Calls returns the fetches so far.
func (f *Fake) Calls() []Call {
	defer f.lock()()
	return slices.Clone(f.calls)
}

// Quarantine implements [gitops.Operations].
func (f *Fake) Quarantine(_ context.Context, dir string) (gitops.Quarantine, error) {
	q := &quarantine{f: f, dir: dir}
	err := f.do("quarantine", func() error {
		f.made++
		q.folder = fmt.Sprintf("%s/quarantine-%d", dir, f.made)
		f.folders[q.folder] = make(objects)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return q, nil
}

// Quarantines returns the number of quarantines that were neither promoted nor discarded.
func (f *Fake) Quarantines() (n int) {
	defer f.lock()()
	for folder := range f.folders {
		if strings.Contains(folder, "/quarantine-") {
			n++
		}
	}
	return n
}

type quarantine struct {
	f           *Fake
	dir, folder string
}

// Folder implements [gitops.Quarantine].
func (q *quarantine) Folder() string { return q.folder }

// Fetch implements [purgatory.GitFetcher]. Bytes arrive evenly over the delay of the server.
func (f *Fake) Fetch(ctx context.Context, r purgatory.FetchRequest) error {
	f.mu.Lock()
	f.calls = append(f.calls, Call{At: time.Now(), URL: r.From, Want: slices.Clone(r.Want)})
	err := f.failure("fetch")
	server, ok := f.servers[r.From]
	if !ok {
		server.Err = purgatory.ErrServerUnusable
	}
	f.mu.Unlock()
	if err != nil {
		return err
	}
	if ctx.Err() != nil {
		return fmt.Errorf("fetching: %w", context.Cause(ctx))
	}
	found, bytes, err := f.answer(server, r.Want)
	if derr := send(ctx, server.Delay, bytes, r.Received); derr != nil {
		return derr
	}
	defer f.lock()()
	if folder := f.folders[r.Quarantine]; err == nil && folder != nil {
		folder.add(found)
	}
	return err
}

// parts is the number of equal parts of an answer that takes time.
const parts = 100

func send(ctx context.Context, delay time.Duration, bytes int64, received *atomic.Int64) error {
	if delay <= 0 {
		received.Add(bytes)
		return nil
	}
	began := time.Now()
	for n := range int64(parts) {
		select {
		case <-time.After(time.Until(began.Add(delay * time.Duration(n+1) / parts))):
			received.Add(bytes*(n+1)/parts - bytes*n/parts)
		case <-ctx.Done():
			return fmt.Errorf("fetching: %w", context.Cause(ctx))
		}
	}
	return nil
}

// answer returns the objects and the size of a server's answer, and its error.
func (f *Fake) answer(s Server, ids []nip34.ObjectID) (found []nip34.ObjectID, bytes int64, err error) {
	if s.Err != nil {
		return nil, s.Bytes, s.Err
	}
	if s.Most > 0 && len(ids) > s.Most {
		return nil, s.Bytes, fmt.Errorf("%w: %d objects", purgatory.ErrLimit, len(ids))
	}
	defer f.lock()()
	for id := range f.reach(ids) {
		if slices.Contains(s.Objects, id) {
			found = append(found, id)
		}
	}
	if len(found) == 0 {
		return nil, 0, purgatory.ErrNotServed
	}
	return found, cmp.Or(s.Bytes, int64(100*len(found))), nil
}

// Missing implements [gitops.Quarantine].
func (q *quarantine) Missing(_ context.Context, ids []nip34.ObjectID) (missing []nip34.ObjectID, err error) {
	err = q.f.do("missing", func() error {
		missing = q.f.missing(q.f.dirs[q.dir].objects, q.f.folders[q.folder], ids)
		return nil
	})
	return missing, err
}

// Promote implements [gitops.Quarantine].
func (q *quarantine) Promote(context.Context) error {
	return q.f.do("promote", func() error {
		maps.Copy(q.f.dirs[q.dir].objects, q.f.folders[q.folder])
		delete(q.f.folders, q.folder)
		return nil
	})
}

// Discard implements [gitops.Quarantine].
func (q *quarantine) Discard() error {
	defer q.f.lock()()
	delete(q.f.folders, q.folder)
	return nil
}
