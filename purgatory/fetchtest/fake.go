// Package fetchtest contains fakes of the repositories and git servers of package purgatory, in
// memory. With them everything that waits for git data can be tested offline and in a synctest
// bubble.
package fetchtest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/purgatory/internal/gitops"
	"github.com/graspsync/graspsync/purgatory/internal/refplan"
)

// Fake is a set of repositories and git servers. It implements [purgatory.Repositories],
// [purgatory.GitFetcher] and the git operations of [purgatory.Open]. Objects are only ids. Needs sets the objects that an object needs. It is
// safe for concurrent use.
type Fake struct {
	mu sync.Mutex
	// guarded by mu
	repos   map[graspsync.RepoRef]*repo
	left    map[graspsync.RepoRef]*repo // retired
	dirs    map[string]*repo
	made    int
	servers map[graspsync.CloneURL]Server
	known   map[nip34.ObjectID]*object
	calls   []Call
	fail    func(op string) error
	folders map[string]objects // of open quarantines and of staged objects
	staged  map[stagedFor][]purgatory.Upload
}

// object is what tests have set about an object.
type object struct {
	needs []nip34.ObjectID
	size  int64
	tree  bool
}

type objects map[nip34.ObjectID]bool

// stagedFor is the event of staged objects, with its repository.
type stagedFor struct {
	ref graspsync.RepoRef
	id  graspsync.EventID
}

// ErrHalfDone is an error for FailWith. UpdateRefs then makes the first half of the changes and
// leaves locks, like git that is killed in a transaction. Until Cleanup removes the locks,
// UpdateRefs fails with ErrLocked.
var ErrHalfDone = errors.New("killed half-way")

// ErrLocked is wrapped by UpdateRefs while locks of a killed process exist.
var ErrLocked = errors.New("a ref is locked")

type repo struct {
	ref     graspsync.RepoRef
	dir     string
	lock    chan struct{} // one slot
	objects objects
	refs    refplan.Refs
	locked  bool      // by a killed process
	until   time.Time // end of its time after it was retired
	// unnamed contains the objects that the last Maintain found unreferenced, with the time since
	// then.
	unnamed map[nip34.ObjectID]time.Time
}

var (
	_ purgatory.Repositories = (*Fake)(nil)
	_ purgatory.GitFetcher   = (*Fake)(nil)
	_ gitops.Operations      = (*Fake)(nil)
)

// New returns a Fake without repositories and servers.
func New() *Fake {
	return &Fake{
		repos: make(map[graspsync.RepoRef]*repo), left: make(map[graspsync.RepoRef]*repo), dirs: make(map[string]*repo),
		servers: make(map[graspsync.CloneURL]Server), known: make(map[nip34.ObjectID]*object),
		folders: make(map[string]objects), staged: make(map[stagedFor][]purgatory.Upload),
	}
}

// lock locks the Fake until unlock is called.
func (f *Fake) lock() (unlock func()) {
	f.mu.Lock()
	return f.mu.Unlock
}

// object returns what is known of an object. The caller holds f.mu.
func (f *Fake) object(id nip34.ObjectID) *object {
	o := f.known[id]
	if o == nil {
		o = &object{size: 1} // each object of git has a size
		f.known[id] = o
	}
	return o
}

// Tree makes an object a tree. Other objects are commits.
func (f *Fake) Tree(id nip34.ObjectID) {
	defer f.lock()()
	f.object(id).tree = true
}

// Size sets the size of an object. It is 1 at first.
func (f *Fake) Size(id nip34.ObjectID, bytes int64) {
	defer f.lock()()
	f.object(id).size = bytes
}

// Bytes returns the size of an object.
func (f *Fake) Bytes(id nip34.ObjectID) int64 {
	defer f.lock()()
	return f.object(id).size
}

// Needs sets the objects that an object needs to be complete.
func (f *Fake) Needs(id nip34.ObjectID, others ...nip34.ObjectID) {
	defer f.lock()()
	f.object(id).needs = others
}

// FailWith sets a function that returns the error of each operation, or nil. Operations are
// "create", "lock", "owned", "depart", "remove", "quarantine", "fetch", "probe",
// "missing", "promote", "share", "take", "unstage", "weigh", "refs", "align", "tidy" (also for
// Repair) and "maintain". The function may block without delaying other operations.
func (f *Fake) FailWith(fail func(op string) error) {
	defer f.lock()()
	f.fail = fail
}

// do runs an operation with f.mu, unless it fails by FailWith.
func (f *Fake) do(op string, run func() error) error {
	defer f.lock()()
	if err := f.failure(op); err != nil {
		return err
	}
	return run()
}

// failure returns the error of an operation. The caller holds f.mu, which failure unlocks during
// the call.
func (f *Fake) failure(op string) error {
	fail := f.fail
	if fail == nil {
		return nil
	}
	f.mu.Unlock()
	defer f.mu.Lock()
	return fail(op)
}

// Push adds objects to a repository and sets refs, like a push. A zero id deletes the ref.
func (f *Fake) Push(ref graspsync.RepoRef, refs map[nip34.RefName]nip34.ObjectID, objects ...nip34.ObjectID) {
	defer f.lock()()
	r := f.repos[ref]
	r.objects.add(objects)
	maps.Copy(r.refs.At, refs)
	maps.DeleteFunc(r.refs.At, func(_ nip34.RefName, id nip34.ObjectID) bool { return id.IsZero() })
}

func (o objects) add(ids []nip34.ObjectID) {
	for _, id := range ids {
		o[id] = true
	}
}

// Put adds objects without refs to a repository, and creates the repository if it does not exist.
func (f *Fake) Put(ref graspsync.RepoRef, objects ...nip34.ObjectID) {
	_ = f.Create(context.Background(), ref, nip34.SHA1) // fails only by FailWith
	f.Push(ref, nil, objects...)
}

// Has reports whether a repository exists.
func (f *Fake) Has(ref graspsync.RepoRef) bool {
	defer f.lock()()
	return f.repos[ref] != nil
}

// RefsOf returns the refs of a repository, or nil.
func (f *Fake) RefsOf(ref graspsync.RepoRef) map[nip34.RefName]nip34.ObjectID {
	defer f.lock()()
	if r := f.repos[ref]; r != nil {
		return maps.Clone(r.refs.At)
	}
	return nil
}

// Locked reports whether a repository contains locks of a killed process.
func (f *Fake) Locked(ref graspsync.RepoRef) bool {
	defer f.lock()()
	return f.repos[ref] != nil && f.repos[ref].locked
}

// Broken returns all refs with missing objects. There must be none.
func (f *Fake) Broken() (out []string) {
	defer f.lock()()
	for _, r := range f.repos {
		for name, id := range r.refs.At {
			if !f.complete(r.objects, nil, id) {
				out = append(out, fmt.Sprintf("%s %s", r.ref, name))
			}
		}
	}
	return out
}

// Create implements [purgatory.Repositories].
func (f *Fake) Create(_ context.Context, ref graspsync.RepoRef, format nip34.ObjectFormat) error {
	defer f.lock()()
	if err := f.failure("create"); err != nil {
		return err
	}
	if r := f.repos[ref]; r != nil && (r.refs.Format == format || len(r.refs.At) > 0) {
		return nil
	}
	if d := f.left[ref]; d != nil && f.repos[ref] == nil && time.Now().Before(d.until) {
		delete(f.left, ref)
		f.repos[ref] = d
		if d.refs.Format == format || len(d.refs.At) > 0 {
			return nil
		}
	}
	f.made++ // each folder has another name
	r := &repo{
		ref: ref, dir: fmt.Sprintf("/fake/%d", f.made), lock: make(chan struct{}, 1), objects: make(objects),
		refs: refplan.Refs{At: make(map[nip34.RefName]nip34.ObjectID), Format: format},
	}
	f.repos[ref], f.dirs[r.dir] = r, r
	return nil
}

// Lock implements [purgatory.Repositories].
func (f *Fake) Lock(ctx context.Context, ref graspsync.RepoRef) (string, func(), error) {
	f.mu.Lock()
	err := f.failure("lock")
	r := f.repos[ref]
	f.mu.Unlock()
	if err != nil {
		return "", nil, err
	}
	if r == nil {
		return "", nil, purgatory.ErrNoRepository
	}
	select {
	case r.lock <- struct{}{}:
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.repos[ref] != r { // removed or created again
			<-r.lock
			return "", nil, purgatory.ErrNoRepository
		}
		return r.dir, func() { <-r.lock }, nil
	case <-ctx.Done():
		return "", nil, fmt.Errorf("waiting for a lock: %w", context.Cause(ctx))
	}
}

// Owned implements [purgatory.Repositories].
func (f *Fake) Owned(_ context.Context, owner graspsync.PubKey) iter.Seq2[graspsync.RepoRef, error] {
	return func(yield func(graspsync.RepoRef, error) bool) {
		f.mu.Lock()
		err := f.failure("owned")
		refs := slices.SortedFunc(maps.Keys(f.repos), graspsync.RepoRef.Compare)
		f.mu.Unlock()
		if err != nil {
			yield(graspsync.RepoRef{}, err)
			return
		}
		for _, ref := range refs {
			if (owner == graspsync.PubKey{} || owner == ref.Owner) && !yield(ref, nil) {
				return
			}
		}
	}
}

// Retire implements [purgatory.Repositories].
func (f *Fake) Retire(ctx context.Context, ref graspsync.RepoRef, keep time.Duration) (kept bool, err error) {
	_, unlock, err := f.Lock(ctx, ref)
	if err == nil {
		defer unlock()
	} else if !errors.Is(err, purgatory.ErrNoRepository) {
		return false, err
	}
	defer f.lock()()
	if r := f.repos[ref]; r != nil {
		op := "remove"
		if len(r.refs.At) > 0 {
			kept, op = keep > 0, "depart"
		}
		if err := f.failure(op); err != nil {
			return false, err
		}
		if delete(f.repos, ref); kept {
			r.until = time.Now().Add(keep)
			f.left[ref] = r
		}
	}
	if keep <= 0 {
		delete(f.left, ref)
	}
	return kept, nil
}

// Kept reports whether a retired repository is kept.
func (f *Fake) Kept(ref graspsync.RepoRef) bool {
	defer f.lock()()
	d := f.left[ref]
	return d != nil && time.Now().Before(d.until)
}

// complete reports whether a and b contain an object with all objects that it needs. The caller
// holds f.mu.
func (f *Fake) complete(a, b objects, id nip34.ObjectID) bool {
	return (a[id] || b[id]) && len(f.missing(a, b, f.object(id).needs)) == 0
}

func (f *Fake) missing(a, b objects, ids []nip34.ObjectID) (out []nip34.ObjectID) {
	for _, id := range ids {
		if !f.complete(a, b, id) {
			out = append(out, id)
		}
	}
	return out
}

// reach returns ids and all objects that they need. The caller holds f.mu.
func (f *Fake) reach(ids []nip34.ObjectID) objects {
	all := make(objects)
	for todo := slices.Clone(ids); len(todo) > 0; todo = todo[1:] {
		if !all[todo[0]] {
			all[todo[0]] = true
			todo = append(todo, f.object(todo[0]).needs...)
		}
	}
	return all
}

// Missing implements [gitops.Operations].
func (f *Fake) Missing(_ context.Context, dir string, ids []nip34.ObjectID) (missing []nip34.ObjectID, err error) {
	err = f.do("missing", func() error {
		missing = f.missing(f.dirs[dir].objects, nil, ids)
		return nil
	})
	return missing, err
}

// Stat implements [gitops.Operations].
func (f *Fake) Stat(_ context.Context, dir string, ids []nip34.ObjectID) (kinds map[nip34.ObjectID]refplan.Kind, err error) {
	kinds = make(map[nip34.ObjectID]refplan.Kind)
	err = f.do("probe", func() error {
		for _, id := range ids {
			if !f.dirs[dir].objects[id] {
				continue
			}
			if kinds[id] = refplan.Commit; f.object(id).tree {
				kinds[id] = refplan.Tree
			}
		}
		return nil
	})
	return kinds, err
}

// DiskUsage implements [gitops.Operations].
func (f *Fake) DiskUsage(_ context.Context, _ string, ids, but []nip34.ObjectID) (sum int64, err error) {
	err = f.do("weigh", func() error {
		others := f.reach(but)
		for id := range f.reach(ids) {
			if !others[id] {
				sum += f.object(id).size
			}
		}
		return nil
	})
	return sum, err
}

// Refs implements [gitops.Operations].
func (f *Fake) Refs(_ context.Context, dir string) (refs refplan.Refs, err error) {
	err = f.do("refs", func() error {
		refs = f.dirs[dir].refs
		refs.At = maps.Clone(refs.At)
		return nil
	})
	return refs, err
}

// UpdateRefs implements [gitops.Operations].
func (f *Fake) UpdateRefs(_ context.Context, dir string, changes []refplan.RefChange, head nip34.RefName) error {
	defer f.lock()()
	err := f.failure("align")
	if err != nil && !errors.Is(err, ErrHalfDone) {
		return err
	}
	r := f.dirs[dir]
	if r.locked {
		return fmt.Errorf("%w in %s", ErrLocked, dir)
	}
	if unfit := f.unfit(updated(r.refs.At, changes), changes); unfit != "" {
		return fmt.Errorf("%w: %s", gitops.ErrInvalidRefs, unfit)
	}
	for _, c := range changes {
		if r.refs.At[c.Name] != c.Old {
			return fmt.Errorf("%w: %s", gitops.ErrChanged, c.Name)
		}
	}
	if err != nil {
		changes, head, r.locked = changes[:len(changes)/2], nip34.RefName{}, true
	}
	r.refs.At = updated(r.refs.At, changes)
	if !head.IsZero() {
		r.refs.Head = head
	}
	return err
}

// updated returns refs after changes.
func updated(refs map[nip34.RefName]nip34.ObjectID, changes []refplan.RefChange) map[nip34.RefName]nip34.ObjectID {
	after := maps.Clone(refs)
	for _, c := range changes {
		if after[c.Name] = c.New; c.New.IsZero() {
			delete(after, c.Name)
		}
	}
	return after
}

// unfit returns a changed ref that git would refuse: a branch that is no commit, or a name below
// the name of another ref.
func (f *Fake) unfit(after map[nip34.RefName]nip34.ObjectID, changes []refplan.RefChange) string {
	for _, c := range changes {
		name := c.Name.String()
		if c.New.IsZero() {
			continue
		}
		if strings.HasPrefix(name, "refs/heads/") && f.object(c.New).tree {
			return name
		}
		for other := range after {
			if strings.HasPrefix(other.String(), name+"/") || strings.HasPrefix(name, other.String()+"/") {
				return name
			}
		}
	}
	return ""
}

// CopyObjects implements [gitops.Operations].
func (f *Fake) CopyObjects(_ context.Context, from, to string, ids []nip34.ObjectID) error {
	return f.do("share", func() error {
		for _, id := range ids {
			if f.complete(f.dirs[from].objects, nil, id) {
				maps.Copy(f.dirs[to].objects, f.reach([]nip34.ObjectID{id}))
			}
		}
		return nil
	})
}

// Stage stages objects for an event, like a push before the event. tip is the pushed tip.
func (f *Fake) Stage(ref graspsync.RepoRef, id graspsync.EventID, tip nip34.ObjectID, ids ...nip34.ObjectID) {
	defer f.lock()()
	f.made++
	dir := fmt.Sprintf("/staged/%d", f.made)
	f.folders[dir] = make(objects)
	f.folders[dir].add(ids)
	k := stagedFor{ref, id}
	f.staged[k] = append(f.staged[k], purgatory.Upload{Tip: tip, Dir: dir, Discard: func() { f.unstage(k, dir) }})
}

// Staged implements [purgatory.Repositories]. Discard does nothing if FailWith returns an error for
// "unstage".
func (f *Fake) Staged(ref graspsync.RepoRef, id graspsync.EventID) []purgatory.Upload {
	defer f.lock()()
	return slices.Clone(f.staged[stagedFor{ref, id}])
}

func (f *Fake) unstage(event stagedFor, dir string) {
	_ = f.do("unstage", func() error {
		delete(f.folders, dir)
		f.staged[event] = slices.DeleteFunc(f.staged[event], func(u purgatory.Upload) bool { return u.Dir == dir })
		return nil
	})
}

// Reserve implements [purgatory.Repositories]. Everything fits.
func (f *Fake) Reserve(context.Context, graspsync.RepoRef, bool, int64) error { return nil }

// ImportPacks implements [gitops.Operations].
func (f *Fake) ImportPacks(_ context.Context, dir, from string, ids []nip34.ObjectID) error {
	return f.do("take", func() error {
		r, came := f.dirs[dir], f.folders[from]
		if came == nil {
			return fmt.Errorf("taking objects: %s: %w", from, fs.ErrNotExist)
		}
		if missing := f.missing(r.objects, came, ids); len(missing) > 0 {
			return fmt.Errorf("%w: %v", purgatory.ErrNotServed, missing)
		}
		maps.Copy(r.objects, f.reach(ids))
		return nil
	})
}

// Cleanup implements [gitops.Operations].
func (f *Fake) Cleanup(_ context.Context, dir string) error {
	return f.do("tidy", func() error {
		f.dirs[dir].locked = false
		return nil
	})
}

// Repair implements [gitops.Operations].
func (f *Fake) Repair(ctx context.Context, dir string) error { return f.Cleanup(ctx, dir) }

// Maintain implements [gitops.Operations]. It removes objects that it has found unreferenced for
// the grace period.
func (f *Fake) Maintain(ctx context.Context, how gitops.Maintenance) (done gitops.Maintained, err error) {
	dir, unlock, err := how.Lock(ctx)
	if err != nil {
		return done, err
	}
	unlock()
	var chosen []nip34.ObjectID
	if how.Choose != nil {
		if chosen, err = how.Choose(ctx, dir); err != nil {
			return done, err
		}
	}
	if dir, unlock, err = how.Lock(ctx); err != nil {
		return done, err
	}
	defer unlock()
	keep, err := how.Keep(ctx)
	if err != nil {
		return done, err
	}
	err = f.do("maintain", func() error {
		f.collect(f.dirs[dir], append(keep, chosen...), how, &done)
		return nil
	})
	return done, err
}

// collect removes unreferenced objects, and remembers those that are within their grace. The caller
// holds f.mu.
func (f *Fake) collect(r *repo, keep []nip34.ObjectID, how gitops.Maintenance, done *gitops.Maintained) {
	named := f.reach(slices.AppendSeq(keep, maps.Values(r.refs.At)))
	now, old := time.Now(), r.unnamed
	r.unnamed = make(map[nip34.ObjectID]time.Time)
	for id := range r.objects {
		if named[id] {
			continue
		}
		since, known := old[id]
		if !known {
			since = now
		}
		if how.Now || known && now.Sub(since) >= how.Grace {
			delete(r.objects, id)
			done.Freed++
			continue
		}
		r.unnamed[id] = since
		done.Unnamed += f.object(id).size
	}
	done.Pruned = true
}

// Objects returns the sorted ids of the objects in a repository.
func (f *Fake) Objects(ref graspsync.RepoRef) (out []nip34.ObjectID) {
	defer f.lock()()
	if r := f.repos[ref]; r != nil {
		out = slices.SortedFunc(maps.Keys(r.objects), func(a, b nip34.ObjectID) int { return strings.Compare(a.String(), b.String()) })
	}
	return out
}
