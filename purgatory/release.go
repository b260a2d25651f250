package purgatory

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/internal/gitops"
	"github.com/graspsync/graspsync/purgatory/internal/refplan"
	"github.com/graspsync/graspsync/purgatory/internal/syncqueue"
	"github.com/graspsync/graspsync/purgatory/internal/workqueue"
)

// runJob releases a repository or, for a job without owner, surveys an identifier. It may be called for
// several jobs concurrently.
func (p *Purgatory) runJob(ctx context.Context, ref graspsync.RepoRef, why refplan.Reasons, failures int) (failed bool) {
	var err error
	if workqueue.IsSurvey(ref) {
		err = p.survey(ctx, ref.Identifier, why)
	} else {
		err = p.releaseAndFetch(ctx, ref, why, p.releaseTime(failures))
	}
	failed = err != nil && ctx.Err() == nil
	if failed && errors.Is(err, errLocked) {
		p.cfg.Logger.Debug(releaseFailed, keyRepo, graspsync.Printable(ref.String()), keyError, graspsync.Printable(err.Error()))
	} else if failed {
		p.report.fault(ref.String(), releaseFailed, err)
	}
	return failed
}

// survey queues a release of each repository with an identifier that the reasons concern, and ends
// the holds of deleted, replaced and expired events. It locks no repository.
func (p *Purgatory) survey(ctx context.Context, identifier string, why refplan.Reasons) error {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.fixed.Timeout)
	defer cancel()
	lacking := p.table.lackingUnder(identifier) // before the events are read, because a later event causes a survey
	g, err := p.readGroup(ctx, identifier, why)
	if err != nil {
		return err
	}
	if err = p.addHeld(ctx, g, p.pending.named(identifier, ofClass(refplan.State))); err != nil {
		return err
	}
	var errs []error
	for _, o := range g.Ending {
		if !g.EndsRepository(o) {
			errs = append(errs, p.pending.forget(ctx, o.Entry, o.Reason))
		}
	}
	errs = append(errs, p.reviewMaintainerAnnouncements(ctx, g))
	refs, cut := g.Affected(lacking, maxRepositories, rand.Shuffle) // such as those with the author of a new state as a member
	if cut {
		p.report.drop("repositories")
	}
	for _, ref := range refs {
		p.jobs.AddRelease(ref, why) // runJob releases
	}
	return errors.Join(errs...)
}

// reviewMaintainerAnnouncements stores those whose author a served repository lists now, and ends the
// holds of those whose author no announcement lists.
func (p *Purgatory) reviewMaintainerAnnouncements(ctx context.Context, g *refplan.Group) error {
	if len(g.MaintainerAnnouncements) == 0 {
		return nil
	}
	w, err := p.listings(ctx, g.Identifier)
	if err != nil {
		return err
	}
	var errs []error
	for _, h := range g.MaintainerAnnouncements {
		_, listed := w.held[h.Author]
		_, is := w.served[h.Author]
		switch {
		case is:
			errs = append(errs, p.releaseListed(ctx, h))
		case !listed && !h.Replaces: // else it stays held until it expires
			errs = append(errs, p.pending.forget(ctx, h, Unwanted))
		}
	}
	return errors.Join(errs...)
}

// releaseListed stores the announcement of a maintainer, unless it is deleted.
func (p *Purgatory) releaseListed(ctx context.Context, e refplan.Entry) error {
	deleted, err := p.deleted(ctx, e)
	switch {
	case err != nil:
		return err
	case deleted:
		return p.pending.forget(ctx, e, Deleted)
	}
	switch err := p.storeHeld(ctx, e); {
	case errors.Is(err, ErrRefused):
		return p.pending.forget(ctx, e, NotStored)
	case errors.Is(err, errNotHeld):
		return nil
	default:
		return err
	}
}

type releaseResult struct {
	need            refplan.Need
	completed       bool // objects were missing, and none is any more
	receivedObjects bool
}

// releaseAndFetch is release, and queues a fetch of the missing objects.
func (p *Purgatory) releaseAndFetch(ctx context.Context, ref graspsync.RepoRef, why refplan.Reasons, most time.Duration) error {
	done, err := p.release(ctx, ref, why, most)
	if err != nil && ctx.Err() == nil && !tookLong(err) {
		p.table.recordFault(ref)
	}
	if done.receivedObjects {
		p.jobs.AddSurvey(ref.Identifier, refplan.Reasons{Receivers: map[graspsync.RepoRef]bool{ref: true}})
	}
	if done.completed {
		p.servers.Complete(ref)
		p.stepQueue(ctx, time.Now(), syncqueue.NothingMissing{Repo: ref})
	}
	if len(done.need.IDs) > 0 {
		p.queueFetch(ctx, ref, done.need, why)
	}
	ring(p.wake)
	return err
}

// lockShare divides Timeout. The quotient is the time of the first attempt of a release, and of its
// wait for the lock of its repository. otherLockWait is the wait for the lock of another repository,
// whose release may wait for this one.
const (
	lockShare     = 60
	otherLockWait = 20 * time.Millisecond
)

// releaseTime returns the time limit of a release, which doubles with each failure.
func (p *Purgatory) releaseTime(failures int) time.Duration {
	return min(p.cfg.fixed.Timeout, p.cfg.fixed.Timeout/lockShare<<min(failures, 10))
}

// release moves the refs of a repository to the newest authorized state with complete objects,
// stores the events that need nothing any more, and returns the missing data. It may be repeated.
func (p *Purgatory) release(ctx context.Context, ref graspsync.RepoRef, why refplan.Reasons, most time.Duration) (result releaseResult, err error) {
	defer p.report.recovered(&err, ofGit)
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	done, err := p.releasing.Lock(ctx, ref)
	if err != nil {
		return result, err
	}
	defer done()
	p.table.beginRelease(ref)
	defer func() { p.table.endRelease(ref, err) }()
	for range 3 {
		if result, err = p.releaseOnce(ctx, ref, why); !errors.Is(err, errCreated) {
			return result, err
		}
	}
	return result, err
}

var errCreated = errors.New("the repository was created")

// releaseOnce returns errCreated if it had to create the repository.
func (p *Purgatory) releaseOnce(ctx context.Context, ref graspsync.RepoRef, why refplan.Reasons) (result releaseResult, err error) {
	dir, unlock, err := p.refUpdater.Lock(ctx, ref, p.cfg.fixed.Timeout/lockShare)
	absent := errors.Is(err, ErrNoRepository)
	if absent {
		unlock = func() {}
	} else if err != nil {
		return result, err
	}
	unlock = sync.OnceFunc(unlock)
	defer unlock()
	g, r, err := p.readRepository(ctx, ref, dir, why)
	switch {
	case err != nil:
		return result, err
	case r == nil:
		unlock()
		return releaseResult{completed: p.table.gone(ref)}, p.retireUnannounced(ctx, g, ref)
	case absent || !r.HasFormat(g):
		unlock()
		format, _ := g.FormatOf(r.Repository)
		if err := p.createFor(ctx, ref, format, absent); err != nil {
			return result, err
		}
		return result, errCreated
	}
	result, err = p.releaseLocked(ctx, g, r)
	unlock()
	err = errors.Join(err, p.endPulls(ctx, g))
	if why.Check && r.releaseErr == nil && p.departures.unconfirmed() == 0 {
		err = errors.Join(err, p.dropOrphans(ctx, r))
	}
	return result, err
}

// releaseLocked moves refs before it stores events.
func (p *Purgatory) releaseLocked(ctx context.Context, g *refplan.Group, r *repository) (releaseResult, error) {
	var errs []error
	if r.releaseErr = p.findAndMove(ctx, g, r); r.releaseErr == nil {
		p.moveOthers(ctx, g, r)
		errs = append(errs, p.releaseStates(ctx, g, r))
		r.releaseErr = p.movePulls(ctx, g, r)
	}
	if r.receivedObjects = r.receivedObjects || g.Why.Receivers[r.Ref] || slices.ContainsFunc(p.table.get(r.Ref).need.IDs, r.Has); r.receivedObjects {
		p.queueForTips(g, r)
	}
	var n refplan.Need
	if r.releaseErr == nil {
		errs = append(errs, p.releasePulls(ctx, g, r))
		if n = p.needOf(g, r); len(n.IDs) == 0 && r.partialErr == nil {
			r.releaseErr = p.git.Cleanup(ctx, r.dir)
		}
	}
	err := errors.Join(r.releaseErr, r.partialErr)
	if p.report.recordResult(ofGit, err); err != nil {
		errs = append(errs, fmt.Errorf("repository %s: %w", graspsync.Printable(r.Ref.String()), err))
	}
	if r.releaseErr != nil {
		return releaseResult{}, errors.Join(errs...)
	}
	return releaseResult{need: n, completed: p.table.setNeed(g, r, n), receivedObjects: r.receivedObjects}, errors.Join(errs...)
}

// readRepository returns nil if the repository is not hosted.
func (p *Purgatory) readRepository(ctx context.Context, ref graspsync.RepoRef, dir string, why refplan.Reasons) (g *refplan.Group, r *repository, err error) {
	var refs refplan.Refs
	if dir != "" {
		if refs, err = p.git.Refs(ctx, dir); err != nil {
			return nil, nil, err
		}
	}
	if g, err = p.readEvents(ctx, ref, why, p.pending.of(ref)); err != nil {
		return nil, nil, err
	}
	if !g.IsOurs(ref) {
		return g, nil, nil
	}
	r = &repository{Repository: g.Repository(ref), dir: dir}
	r.Refs, r.Pushed = refs, p.table.get(ref).pushed
	return g, r, nil
}

// repository is a locked repository during a release.
type repository struct {
	*refplan.Repository

	dir             string
	receivedObjects bool
	releaseErr      error // failure of the release, which is repeated
	partialErr      error // failure of a part of the release, which is repeated
}

// createFor creates a repository, or recreates an empty one unless a fetch for it is under way.
func (p *Purgatory) createFor(ctx context.Context, ref graspsync.RepoRef, format nip34.ObjectFormat, absent bool) error {
	if !absent {
		leave, free := p.fetches.block(ref)
		if !free {
			return fmt.Errorf("creating repository: %w", ErrInUse)
		}
		defer leave()
	}
	if err := p.repos.Create(ctx, ref, format); err != nil {
		return fmt.Errorf("creating repository: %w", err)
	}
	if absent {
		p.step("created")
	}
	return nil
}

// retireUnannounced retires a repository that has lost its announcement, and then ends the hold of a
// deleted announcement. In the other order, a crash could leave a repository that no event names.
func (p *Purgatory) retireUnannounced(ctx context.Context, g *refplan.Group, ref graspsync.RepoRef) error {
	ending := slices.DeleteFunc(slices.Clone(g.Ending), func(o refplan.Ended) bool { return !g.EndsRepository(o) || o.Entry.Repos[0] != ref })
	if p.departures.keeps(ref) || len(ending) == 0 && !g.Why.Left[ref] {
		return nil
	}
	if err := p.removeRepository(ctx, ref); err != nil {
		return err
	}
	var errs []error
	for _, o := range ending {
		errs = append(errs, p.pending.forget(ctx, o.Entry, o.Reason))
	}
	return errors.Join(errs...)
}

// findAndMove finds missing objects, copies them from other repositories, and moves refs.
func (p *Purgatory) findAndMove(ctx context.Context, g *refplan.Group, r *repository) error {
	sets := g.StateObjects(r.Repository)
	err := p.findObjects(ctx, r, sets) // r.Found and r.Missing
	if err == nil {
		err = p.share(ctx, g, r, sets)
	}
	if err == nil {
		err = p.readAgain(ctx, g, r)
	}
	if err == nil {
		err = p.moveRefs(ctx, g, r)
	}
	return err
}

func (p *Purgatory) findObjects(ctx context.Context, r *repository, sets []refplan.Objects) error {
	named := refplan.IDsOf(sets)
	if len(named) == 0 {
		return nil
	}
	kinds, err := p.git.Stat(ctx, r.dir, named)
	if err != nil {
		return err
	}
	for _, id := range named {
		delete(r.Found, id)
		delete(r.Missing, id)
		delete(r.Kinds, id)
	}
	maps.Copy(r.Kinds, kinds)
	for _, set := range sets {
		if err := p.findSet(ctx, r, set); err != nil {
			return err
		}
	}
	return nil
}

// findSet walks the objects of one state or pull request. If that takes too long, they count as
// unknown.
func (p *Purgatory) findSet(ctx context.Context, r *repository, set refplan.Objects) error {
	if set.State != nil && r.IsUnfit(set.State) {
		return nil
	}
	if absent := r.NotOnDisk(set.IDs); len(absent) > 0 {
		for _, id := range absent {
			r.Missing[id] = struct{}{}
		}
		return nil
	}
	walk, cancel := halfTime(ctx)
	defer cancel()
	missing, err := p.git.Missing(walk, r.dir, set.IDs)
	if err != nil {
		if set.State != nil && (ctx.Err() != nil || !tookLong(err)) {
			return err
		}
		r.partialErr = errors.Join(r.partialErr, fmt.Errorf("walking a history: %w", err))
		return nil
	}
	lacks := setOf(missing)
	for _, id := range set.IDs {
		if _, lacking := lacks[id]; lacking {
			r.Missing[id] = struct{}{}
		} else {
			r.Found[id] = struct{}{}
		}
	}
	return nil
}

// readAgain rereads members, stored events and states, because walks may have taken minutes.
// Newer events have a release of their own.
func (p *Purgatory) readAgain(ctx context.Context, g *refplan.Group, r *repository) error {
	if len(r.Found) == 0 && len(r.Missing) == 0 {
		return nil
	}
	known := slices.Clone(g.HeldStates)
	pulls := r.Refused != nil // nil before movePulls
	for _, h := range g.HeldPulls {
		if pulls {
			known = append(known, h)
		}
	}
	now, err := p.readEvents(ctx, r.Ref, g.Why, p.pending.stillHeld(known))
	if err != nil {
		return err
	}
	if g.HeldStates = now.HeldStates; pulls {
		g.HeldPulls = now.HeldPulls
	}
	g.StoredAnnouncements, g.HeldAnnouncements, g.Family, g.StoredStates = now.StoredAnnouncements, now.HeldAnnouncements, now.Family, now.StoredStates
	fresh := g.Repository(r.Ref)
	r.Members, r.Active = fresh.Members, fresh.Active
	return nil
}

// dropDeleted removes events that are deleted from the group.
func (p *Purgatory) dropDeleted(ctx context.Context, g *refplan.Group, r *repository) error {
	var errs []error
	deleted := func(e refplan.Entry) bool {
		is, err := p.deleted(ctx, e)
		if errs = append(errs, err); is { // the next release ends its hold
			why := refplan.Reasons{Deleters: map[graspsync.PubKey]bool{e.Author: true}}
			p.jobs.AddSurvey(r.Ref.Identifier, why)
			p.jobs.AddRelease(r.Ref, why)
		}
		return is
	}
	if e, held := g.HeldAnnouncements[r.Ref]; held && deleted(e) {
		delete(g.HeldAnnouncements, r.Ref)
	}
	g.HeldStates = slices.DeleteFunc(g.HeldStates, func(h refplan.Entry) bool {
		return r.IsMember(h.Author) && r.IsComplete(h.State) && deleted(h)
	})
	if r.Refused == nil {
		return errors.Join(errs...)
	}
	g.HeldPulls = slices.DeleteFunc(g.HeldPulls, func(h refplan.Entry) bool {
		if !slices.Contains(h.Repos, r.Ref) || p.pending.isServed(h.ID) {
			return false
		}
		_, refused := r.Refused[h.ID]
		has := r.Refs.At[nip34.EventRef(h.ID)] == h.Pull.Tip
		return (has || !refused && r.Has(h.Pull.Tip)) && deleted(h)
	})
	return errors.Join(errs...)
}

// moveRefs moves the refs to those of the newest state, stored or held, that is complete and not
// deleted. It starts again if the repository becomes active, because a state without refs may decide
// then.
func (p *Purgatory) moveRefs(ctx context.Context, g *refplan.Group, r *repository) error {
	if err := p.dropDeleted(ctx, g, r); err != nil {
		return err
	}
	if _, held := g.HeldAnnouncements[r.Ref]; !r.Active && !held {
		r.DecidingState = nil // of an earlier call: since then the announcement went, and the next release retires it
		return nil
	}
	for {
		before := r.Active
		r.DecidingState = g.DecidingState(r.Repository)
		if changes, head := g.Changes(r.Repository); len(changes) > 0 || !head.IsZero() {
			var err error
			if r.Refs, err = p.refUpdater.MoveAll(ctx, r.Ref, r.dir, r.Refs, changes, head); err != nil {
				return err
			}
		}
		if head := g.UnbornHead(r.Repository); !head.IsZero() {
			if err := p.refUpdater.MoveEach(ctx, r.Ref, r.dir, nil, head); err != nil {
				return fmt.Errorf("setting the unborn branch: %w", err)
			}
			r.Refs = r.Refs.Apply(nil, head)
		}
		// Data of its own makes an announcement ready for release.
		if r.Active = r.Active || r.Refs.HasState(); r.Active == before {
			return nil
		}
	}
}

// othersShare is the maximum time that a release spends on other repositories, because strangers can
// list its maintainers.
const othersShare = time.Second

// moveOthers moves the refs of other repositories that a state decides about, before the state is
// served. Their own releases do the rest.
func (p *Purgatory) moveOthers(ctx context.Context, g *refplan.Group, r *repository) {
	if !slices.ContainsFunc(g.HeldStates, r.CanStore) {
		return
	}
	short, cancel := context.WithTimeout(ctx, othersShare)
	defer cancel()
	for _, ref := range g.Sources(r.Repository, maxSources, shuffled) {
		o := g.Repository(ref)
		if short.Err() != nil || !slices.ContainsFunc(g.HeldStates, func(h refplan.Entry) bool { return r.CanStore(h) && o.IsMember(h.Author) }) {
			continue
		}
		if err := p.moveOther(ctx, short, ref, r); err != nil {
			p.cfg.Logger.Debug("ref update postponed", keyRepo, graspsync.Printable(ref.String()), keyError, graspsync.Printable(err.Error()))
		}
	}
}

// moveOther aligns another repository, with objects of r. short limits the time of its walks.
func (p *Purgatory) moveOther(ctx, short context.Context, ref graspsync.RepoRef, r *repository) error {
	return p.withOther(ctx, ref, func(g *refplan.Group, o *repository) error {
		sets := g.StateObjects(o.Repository)
		if err := p.findObjects(short, o, sets); err != nil {
			return err
		}
		if ids := slices.DeleteFunc(o.MissingOf(sets), r.IsIncomplete); len(ids) > 0 {
			if err := p.git.CopyObjects(short, r.dir, o.dir, ids); err != nil {
				return err
			}
			p.step("shared")
			if err := p.findObjects(short, o, sets); err != nil {
				return err
			}
		}
		return p.moveRefs(ctx, g, o)
	})
}

// withOther calls do with another repository, if it is hosted. The wait for the lock is random, so
// that two releases that wait for each other do not give up together each time.
func (p *Purgatory) withOther(ctx context.Context, ref graspsync.RepoRef, do func(g *refplan.Group, o *repository) error) error {
	dir, unlock, err := p.refUpdater.Lock(ctx, ref, 3*otherLockWait+rand.N(4*otherLockWait))
	if errors.Is(err, ErrNoRepository) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unlock()
	g, o, err := p.readRepository(ctx, ref, dir, refplan.Reasons{})
	if err != nil || o == nil || !o.HasFormat(g) {
		return err
	}
	return do(g, o)
}

func shuffled(refs []graspsync.RepoRef) {
	rand.Shuffle(len(refs), func(i, j int) { refs[i], refs[j] = refs[j], refs[i] })
}

// maxSources is the maximum number of other repositories that a release uses, because keys that
// list a maintainer are free.
const maxSources = 16

func (p *Purgatory) share(ctx context.Context, g *refplan.Group, r *repository, sets []refplan.Objects) error {
	ids := r.MissingOf(sets)
	if len(ids) == 0 {
		return nil
	}
	shared := false
	for _, o := range g.Sources(r.Repository, maxSources, shuffled) {
		got, err := p.shareFrom(ctx, g, o, r, ids)
		if err != nil {
			// Another owner's repository, or its lock, must not block this one.
			r.partialErr = errors.Join(r.partialErr, fmt.Errorf("sharing objects: %w", err))
			continue
		}
		shared = shared || got
	}
	if !shared {
		return nil
	}
	return p.findObjects(ctx, r, sets)
}

var errLocked = errors.New("another repository is locked")

// shareFrom copies the ids that another repository has and for which there is room.
func (p *Purgatory) shareFrom(ctx context.Context, g *refplan.Group, from graspsync.RepoRef, r *repository, ids []nip34.ObjectID) (got bool, err error) {
	lacks := setOf(p.table.get(from).need.IDs)
	ids = slices.DeleteFunc(slices.Clone(ids), func(id nip34.ObjectID) bool {
		_, lacking := lacks[id] // when it gets the object, this repository is released again
		return lacking
	})
	if len(ids) == 0 {
		return false, nil
	}
	dir, unlock, err := p.refUpdater.Lock(ctx, from, otherLockWait)
	if errors.Is(err, ErrNoRepository) {
		return false, nil
	}
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return false, fmt.Errorf("%w: %w", errLocked, err)
	}
	if err != nil {
		return false, err
	}
	defer unlock()
	if ids, err = p.has(ctx, dir, ids); err != nil || len(ids) == 0 {
		return false, err
	}
	ids, bytes, err := p.withRoom(ctx, g, r, dir, ids)
	if len(ids) == 0 || err != nil {
		return false, err
	}
	if err = p.git.CopyObjects(ctx, dir, r.dir, ids); err != nil {
		return false, err
	}
	p.step("shared")
	p.addPullBytes(r.Ref, bytes)
	return true, nil
}

// has returns the ids that are in a repository, complete or not.
func (p *Purgatory) has(ctx context.Context, dir string, ids []nip34.ObjectID) ([]nip34.ObjectID, error) {
	kinds, err := p.git.Stat(ctx, dir, ids)
	return slices.DeleteFunc(slices.Clone(ids), func(id nip34.ObjectID) bool { return kinds[id] == 0 }), err
}

// releaseStates stores the announcement and then the complete states, the oldest first. A failure
// blocks only the events that depend on it.
func (p *Purgatory) releaseStates(ctx context.Context, g *refplan.Group, r *repository) error {
	var errs []error
	if e, held := g.HeldAnnouncements[r.Ref]; held && r.Active {
		err := p.storeHeld(ctx, e)
		if errors.Is(err, ErrRefused) {
			delete(g.HeldAnnouncements, r.Ref) // the relay decides about its states
			p.jobs.AddRelease(r.Ref, refplan.Reasons{})
			defer func() { r.Active = g.StoredAnnouncements[r.Ref] != nil }()
			err = p.pending.forget(ctx, e, NotStored)
		} else if errors.Is(err, errNotHeld) {
			r.Active, err = g.StoredAnnouncements[r.Ref] != nil, nil
			p.jobs.AddRelease(r.Ref, refplan.Reasons{})
		} else if err != nil {
			r.Active = false
		}
		errs = append(errs, err)
	}
	var refused []refplan.Entry
	g.HeldStates = slices.DeleteFunc(g.HeldStates, func(h refplan.Entry) bool {
		if !r.CanStore(h) {
			return false
		}
		err := p.storeHeld(ctx, h)
		if errors.Is(err, errNotHeld) { // another release has stored it, or has taken back its refs
			var lacking []graspsync.EventID
			if lacking, err = p.relay.lacks(ctx, []graspsync.EventID{h.ID}); len(lacking) > 0 {
				err = ErrRefused
			}
		}
		if errors.Is(err, ErrRefused) {
			refused = append(refused, h)
			return true
		}
		if err == nil {
			g.StoredStates = append(g.StoredStates, h.State)
			p.queueOthers(g, r, h)
		}
		errs = append(errs, err)
		return err == nil
	})
	if len(refused) > 0 {
		errs = append(errs, p.takeBack(ctx, g, r, refused))
	}
	return errors.Join(errs...)
}

var errNotHeld = errors.New("does not wait any more")

// storeHeld stores an event that is still held, once or again, and ends its hold.
func (p *Purgatory) storeHeld(ctx context.Context, e refplan.Entry) error {
	unlock, err := p.storing.Lock(ctx, e.ID)
	if err != nil {
		return err
	}
	defer unlock()
	if _, held := p.pending.get(e.ID); !held {
		return errNotHeld
	}
	if err := p.store(ctx, e); err != nil {
		return err
	}
	return p.pending.forget(ctx, e, Released)
}

func (p *Purgatory) store(ctx context.Context, e refplan.Entry) error {
	if err := p.relay.Save(ctx, e.Signed()); err != nil {
		return fmt.Errorf("storing a released event: %w", err)
	}
	p.step("stored")
	return nil
}

// takeBack moves the refs of refused states back to stored states, also in other repositories, and
// ends their holds.
func (p *Purgatory) takeBack(ctx context.Context, g *refplan.Group, r *repository, refused []refplan.Entry) error {
	errs := []error{p.takeBackRefs(ctx, g, r, refused)}
	for _, ref := range g.Sources(r.Repository, maxSources, shuffled) {
		if slices.ContainsFunc(refused, func(h refplan.Entry) bool { return g.Repository(ref).IsMember(h.Author) }) {
			errs = append(errs, p.withOther(ctx, ref, func(g *refplan.Group, o *repository) error { return p.takeBackRefs(ctx, g, o, refused) }))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("taking back refs of a state that was refused: %w", err)
	}
	for _, h := range refused {
		p.queueOthers(g, r, h)
		errs = append(errs, p.pending.forget(ctx, h, NotStored))
	}
	return errors.Join(errs...)
}

// takeBackRefs is takeBack in one repository. If no stored state decides, it deletes the refs that
// still have the value of a refused state.
func (p *Purgatory) takeBackRefs(ctx context.Context, g *refplan.Group, r *repository, refused []refplan.Entry) error {
	g.HeldStates = slices.DeleteFunc(g.HeldStates, func(h refplan.Entry) bool {
		return slices.ContainsFunc(refused, func(o refplan.Entry) bool { return o.ID == h.ID })
	})
	var err error
	if g.StoredStates, err = p.relay.states(ctx, g.Identifier); err != nil {
		return fmt.Errorf("reading states: %w", err)
	}
	if err := p.findObjects(ctx, r, g.StateObjects(r.Repository)); err != nil {
		return err
	}
	r.Active = r.Active || r.Refs.HasState() // else a deletion of the announcement stops moveRefs
	if err := p.moveRefs(ctx, g, r); err != nil || r.DecidingState != nil {
		return err
	}
	var changes []refplan.RefChange
	newest := g.NewestStored(r.Repository)
	for name, at := range r.Refs.At {
		says := func(h refplan.Entry) bool { return r.IsMember(h.Author) && h.State.Refs[name] == at }
		if slices.ContainsFunc(refused, says) && (newest == nil || newest.Refs[name] != at) && !g.PushedAhead(r.Repository, name) {
			changes = append(changes, refplan.RefChange{Name: name, Old: at})
		}
	}
	if len(changes) == 0 {
		return nil
	}
	r.Refs, err = p.refUpdater.MoveAll(ctx, r.Ref, r.dir, r.Refs, changes, nip34.RefName{})
	return err
}

func (p *Purgatory) queueOthers(g *refplan.Group, r *repository, h refplan.Entry) {
	for ref := range g.Ours() {
		if ref != r.Ref && g.Repository(ref).IsMember(h.Author) {
			p.jobs.AddRelease(ref, refplan.Reasons{})
		}
	}
}

func (p *Purgatory) needOf(g *refplan.Group, r *repository) refplan.Need {
	n := g.Need(r.Repository, refplan.Clones{Most: p.cfg.fixed.MaxClones, IsOurs: p.cfg.Identity.IsClone, Now: time.Now()})
	if len(n.IDs) > 0 { // without those of the last release
		p.report.dropSome("clones_turns", n.OmittedURLs-p.table.get(r.Ref).need.OmittedURLs)
	}
	return n
}

// halfTime returns a context with half of the time left, so that one walk does not use up all.
func halfTime(ctx context.Context) (context.Context, context.CancelFunc) {
	end, limited := ctx.Deadline()
	if !limited {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, time.Until(end)/2)
}

// tookLong reports whether git was slow or busy, and has not failed.
func tookLong(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, gitops.ErrBusy)
}

func setOf[K comparable](ids []K) map[K]struct{} {
	out := make(map[K]struct{}, len(ids))
	for _, id := range ids {
		out[id] = struct{}{}
	}
	return out
}
