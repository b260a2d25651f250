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
	dirs    map[string]*repo
	made    int
	servers map[graspsync.CloneURL]*Server
	needs   map[nip34.ObjectID][]nip34.ObjectID
	left    map[graspsync.RepoRef]departed
	trees   map[nip34.ObjectID]bool
	sizes   map[nip34.ObjectID]int64
	calls   []Call
	fail    func(op string) error
	open    map[string]*quarantine // by folder
	staged  map[stagedFor][]purgatory.Upload
	folders map[string]map[nip34.ObjectID]struct{} // staged objects by folder
}

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

type departed struct {
	*repo
	until time.Time
}

type repo struct {
	ref     graspsync.RepoRef
	dir     string
	lock    chan struct{} // one slot
	objects map[nip34.ObjectID]struct{}
	refs    refplan.Refs
	locked  bool // by a killed process
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
		repos: make(map[graspsync.RepoRef]*repo), dirs: make(map[string]*repo),
		servers: make(map[graspsync.CloneURL]*Server), needs: make(map[nip34.ObjectID][]nip34.ObjectID),
		staged: make(map[stagedFor][]purgatory.Upload), folders: make(map[string]map[nip34.ObjectID]struct{}),
		left:  make(map[graspsync.RepoRef]departed),
		trees: make(map[nip34.ObjectID]bool), sizes: make(map[nip34.ObjectID]int64),
		open: make(map[string]*quarantine),
	}
}

// Tree makes an object a tree. Other objects are commits.
func (f *Fake) Tree(id nip34.ObjectID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.trees[id] = true
}

// Size sets the size of an object.
func (f *Fake) Size(id nip34.ObjectID, bytes int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sizes[id] = bytes
}

// Bytes returns the size set by Size, or 0.
func (f *Fake) Bytes(id nip34.ObjectID) int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.sizes[id]
}

// size returns 1 unless Size was called, because each object of git has a size.
func (f *Fake) size(id nip34.ObjectID) int64 {
	if bytes, set := f.sizes[id]; set {
		return bytes
	}
	return 1
}

func (f *Fake) kind(id nip34.ObjectID) refplan.Kind {
	if f.trees[id] {
		return refplan.Tree
	}
	return refplan.Commit
}

// FailWith sets a function that returns the error of each operation, or nil. Operations are
// "create", "lock", "owned", "depart", "remove", "quarantine", "fetch", "probe",
// "missing", "promote", "share", "take", "unstage", "weigh", "refs", "align", "tidy" (also for
// Repair) and "maintain". The function may block without delaying other operations.
func (f *Fake) FailWith(fail func(op string) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fail = fail
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
	f.mu.Lock()
	defer f.mu.Unlock()
	r := f.repos[ref]
	for _, id := range objects {
		r.objects[id] = struct{}{}
	}
	maps.Copy(r.refs.At, refs)
	maps.DeleteFunc(r.refs.At, func(_ nip34.RefName, id nip34.ObjectID) bool { return id.IsZero() })
}

// Put adds objects without refs to a repository, and creates the repository if it does not exist.
func (f *Fake) Put(ref graspsync.RepoRef, objects ...nip34.ObjectID) {
	_ = f.Create(context.Background(), ref, nip34.SHA1) // fails only by FailWith
	f.Push(ref, nil, objects...)
}

// Has reports whether a repository exists.
func (f *Fake) Has(ref graspsync.RepoRef) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.repos[ref] != nil
}

// RefsOf returns the refs of a repository, or nil.
func (f *Fake) RefsOf(ref graspsync.RepoRef) map[nip34.RefName]nip34.ObjectID {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.repos[ref] == nil {
		return nil
	}
	return maps.Clone(f.repos[ref].refs.At)
}

// Locked reports whether a repository contains locks of a killed process.
func (f *Fake) Locked(ref graspsync.RepoRef) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.repos[ref] != nil && f.repos[ref].locked
}

// Broken returns all refs with missing objects. There must be none.
func (f *Fake) Broken() (out []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
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
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.failure("create"); err != nil {
		return err
	}
	if r := f.repos[ref]; r != nil && (r.refs.Format == format || len(r.refs.At) > 0) {
		return nil
	}
	if d, left := f.left[ref]; left && f.repos[ref] == nil && time.Now().Before(d.until) {
		delete(f.left, ref)
		f.repos[ref], f.dirs[d.dir] = d.repo, d.repo
		if d.refs.Format == format || len(d.refs.At) > 0 {
			return nil
		}
	}
	f.made++ // each folder has another name
	r := &repo{
		ref: ref, dir: fmt.Sprintf("/fake/%d", f.made), lock: make(chan struct{}, 1),
		objects: make(map[nip34.ObjectID]struct{}),
		refs:    refplan.Refs{At: make(map[nip34.RefName]nip34.ObjectID), Format: format},
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
	if removed, err := f.remove(ref); err != nil || removed && keep > 0 {
		return false, err
	}
	_, unlock, err := f.Lock(ctx, ref)
	if err == nil {
		defer unlock()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case errors.Is(err, purgatory.ErrNoRepository):
	case err != nil:
		return false, err
	default:
		f.left[ref] = departed{f.repos[ref], time.Now().Add(keep)}
		delete(f.repos, ref)
		kept = true
	}
	if keep <= 0 {
		delete(f.left, ref)
	}
	return kept && keep > 0, nil
}

// remove removes a repository without refs that is not locked.
func (f *Fake) remove(ref graspsync.RepoRef) (removed bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	r := f.repos[ref]
	if r == nil {
		return false, nil
	}
	if len(r.refs.At) > 0 || len(r.lock) > 0 {
		return false, f.failure("depart")
	}
	if err := f.failure("remove"); err != nil {
		return false, err
	}
	delete(f.repos, ref)
	delete(f.dirs, r.dir)
	return true, nil
}

// Kept reports whether a retired repository is kept.
func (f *Fake) Kept(ref graspsync.RepoRef) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	d, kept := f.left[ref]
	return kept && time.Now().Before(d.until)
}

// complete reports whether a and b contain an object with all objects that it needs. The caller
// holds f.mu.
func (f *Fake) complete(a, b map[nip34.ObjectID]struct{}, id nip34.ObjectID) bool {
	_, inA := a[id]
	_, inB := b[id]
	return (inA || inB) && !slices.ContainsFunc(f.needs[id], func(o nip34.ObjectID) bool { return !f.complete(a, b, o) })
}

// reach returns ids and all objects that they need. The caller holds f.mu.
func (f *Fake) reach(ids []nip34.ObjectID) map[nip34.ObjectID]struct{} {
	all, todo := make(map[nip34.ObjectID]struct{}), slices.Clone(ids)
	for len(todo) > 0 {
		id := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if _, known := all[id]; !known {
			all[id] = struct{}{}
			todo = append(todo, f.needs[id]...)
		}
	}
	return all
}

func (f *Fake) missing(a, b map[nip34.ObjectID]struct{}, ids []nip34.ObjectID) (out []nip34.ObjectID) {
	for _, id := range ids {
		if !f.complete(a, b, id) {
			out = append(out, id)
		}
	}
	return out
}

// Missing implements [gitops.Operations].
func (f *Fake) Missing(_ context.Context, dir string, ids []nip34.ObjectID) ([]nip34.ObjectID, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.failure("missing"); err != nil {
		return nil, err
	}
	return f.missing(f.dirs[dir].objects, nil, ids), nil
}

// Stat implements [gitops.Operations].
func (f *Fake) Stat(_ context.Context, dir string, ids []nip34.ObjectID) (map[nip34.ObjectID]refplan.Kind, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.failure("probe"); err != nil {
		return nil, err
	}
	kinds := make(map[nip34.ObjectID]refplan.Kind)
	for _, id := range ids {
		if _, there := f.dirs[dir].objects[id]; there {
			kinds[id] = f.kind(id)
		}
	}
	return kinds, nil
}

// DiskUsage implements [gitops.Operations].
func (f *Fake) DiskUsage(_ context.Context, _ string, ids, but []nip34.ObjectID) (sum int64, _ error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.failure("weigh"); err != nil {
		return 0, err
	}
	others := f.reach(but)
	for id := range f.reach(ids) {
		if _, other := others[id]; !other {
			sum += f.size(id)
		}
	}
	return sum, nil
}

// Refs implements [gitops.Operations].
func (f *Fake) Refs(_ context.Context, dir string) (refplan.Refs, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.failure("refs"); err != nil {
		return refplan.Refs{}, err
	}
	refs := f.dirs[dir].refs
	refs.At = maps.Clone(refs.At)
	return refs, nil
}

// UpdateRefs implements [gitops.Operations].
func (f *Fake) UpdateRefs(_ context.Context, dir string, changes []refplan.RefChange, head nip34.RefName) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	err := f.failure("align")
	if err != nil && !errors.Is(err, ErrHalfDone) {
		return err
	}
	r := f.dirs[dir]
	if r.locked {
		return fmt.Errorf("%w in %s", ErrLocked, dir)
	}
	if unfit := f.unfit(r, changes); unfit != "" {
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
	for _, c := range changes {
		if c.New.IsZero() {
			delete(r.refs.At, c.Name)
		} else {
			r.refs.At[c.Name] = c.New
		}
	}
	if !head.IsZero() {
		r.refs.Head = head
	}
	return err
}

// unfit returns a ref that git would refuse: a branch that is no commit, or a name below the name
// of another ref.
func (f *Fake) unfit(r *repo, changes []refplan.RefChange) string {
	after := maps.Clone(r.refs.At)
	for _, c := range changes {
		if c.New.IsZero() {
			delete(after, c.Name)
		} else {
			after[c.Name] = c.New
		}
	}
	for _, c := range changes {
		if c.New.IsZero() {
			continue
		}
		if strings.HasPrefix(c.Name.String(), "refs/heads/") && f.kind(c.New) != refplan.Commit {
			return c.Name.String()
		}
		for other := range after {
			if strings.HasPrefix(other.String(), c.Name.String()+"/") || strings.HasPrefix(c.Name.String(), other.String()+"/") {
				return c.Name.String()
			}
		}
	}
	return ""
}

// CopyObjects implements [gitops.Operations].
func (f *Fake) CopyObjects(_ context.Context, from, to string, ids []nip34.ObjectID) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.failure("share"); err != nil {
		return err
	}
	a := f.dirs[from]
	ids = slices.DeleteFunc(slices.Clone(ids), func(id nip34.ObjectID) bool { return !f.complete(a.objects, nil, id) })
	maps.Copy(f.dirs[to].objects, f.reach(ids))
	return nil
}

// Stage stages objects for an event, like a push before the event. tip is the pushed tip.
func (f *Fake) Stage(ref graspsync.RepoRef, id graspsync.EventID, tip nip34.ObjectID, objects ...nip34.ObjectID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.made++
	dir := fmt.Sprintf("/staged/%d", f.made)
	f.folders[dir] = make(map[nip34.ObjectID]struct{})
	for _, o := range objects {
		f.folders[dir][o] = struct{}{}
	}
	k := stagedFor{ref, id}
	f.staged[k] = append(f.staged[k], purgatory.Upload{Tip: tip, Dir: dir, Discard: func() { f.unstage(k, dir) }})
}

// Staged implements [purgatory.Repositories]. Discard does nothing if FailWith returns an error for
// "unstage".
func (f *Fake) Staged(ref graspsync.RepoRef, id graspsync.EventID) []purgatory.Upload {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.staged[stagedFor{ref, id}])
}

func (f *Fake) unstage(event stagedFor, dir string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.failure("unstage") != nil {
		return
	}
	delete(f.folders, dir)
	f.staged[event] = slices.DeleteFunc(f.staged[event], func(u purgatory.Upload) bool { return u.Dir == dir })
}

// Reserve implements [purgatory.Repositories]. Everything fits.
func (f *Fake) Reserve(context.Context, graspsync.RepoRef, bool, int64, func(graspsync.PubKey) int64) error {
	return nil
}

// ImportPacks implements [gitops.Operations].
func (f *Fake) ImportPacks(_ context.Context, dir, from string, ids []nip34.ObjectID) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.failure("take"); err != nil {
		return err
	}
	r, came := f.dirs[dir], f.folders[from]
	if came == nil {
		return fmt.Errorf("taking objects: %s: %w", from, fs.ErrNotExist)
	}
	if missing := f.missing(r.objects, came, ids); len(missing) > 0 {
		return fmt.Errorf("%w: %v", purgatory.ErrNotServed, missing)
	}
	maps.Copy(r.objects, f.reach(ids))
	return nil
}

// Cleanup implements [gitops.Operations].
func (f *Fake) Cleanup(_ context.Context, dir string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.failure("tidy"); err != nil {
		return err
	}
	f.dirs[dir].locked = false
	return nil
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
	keep = append(keep, chosen...)
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.failure("maintain"); err != nil {
		return done, err
	}
	r := f.dirs[dir]
	all := f.reach(slices.Concat(keep, slices.Collect(maps.Values(r.refs.At))))
	now, old := time.Now(), r.unnamed
	r.unnamed = make(map[nip34.ObjectID]time.Time)
	for id := range r.objects {
		since, known := old[id]
		_, named := all[id]
		switch {
		case named:
		case how.Now, known && now.Sub(since) >= how.Grace:
			delete(r.objects, id)
			done.Freed++
		case known:
			r.unnamed[id] = since
		default:
			r.unnamed[id] = now
		}
		if _, left := r.unnamed[id]; left {
			done.Unnamed += f.size(id)
		}
	}
	done.Pruned = true
	return done, nil
}

// Objects returns the sorted ids of the objects in a repository.
func (f *Fake) Objects(ref graspsync.RepoRef) (out []nip34.ObjectID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if r := f.repos[ref]; r != nil {
		out = slices.SortedFunc(maps.Keys(r.objects), func(a, b nip34.ObjectID) int { return strings.Compare(a.String(), b.String()) })
	}
	return out
}

// Complete reports whether a repository contains an object with all objects that it needs.
func (f *Fake) Complete(ref graspsync.RepoRef, id nip34.ObjectID) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	r := f.repos[ref]
	return r != nil && f.complete(r.objects, nil, id)
}
