package purgatory

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/internal/refplan"
	"github.com/graspsync/graspsync/purgatory/internal/workqueue"
)

// RemoveRepository deletes a repository immediately, for a takedown after the announcement is
// deleted, because otherwise the next release recreates it. The error wraps [ErrInUse] if a fetch
// is under way.
func (p *Purgatory) RemoveRepository(ctx context.Context, ref graspsync.RepoRef) error {
	done, err := p.releasing.Lock(ctx, ref)
	if err != nil {
		return err
	}
	defer done()
	leave, free := p.fetches.block(ref)
	if !free {
		return fmt.Errorf("removing a repository: %w", ErrInUse)
	}
	defer leave()
	if _, err := p.repos.Retire(ctx, ref, 0); err != nil {
		return fmt.Errorf("removing a repository: %w", err)
	}
	p.step("removed")
	p.table.gone(ref)
	return nil
}

// removeRepository retires a repository. The error wraps ErrInUse if a fetch is under way.
func (p *Purgatory) removeRepository(ctx context.Context, ref graspsync.RepoRef) error {
	leave, free := p.fetches.block(ref)
	if !free {
		return fmt.Errorf("removing a repository: %w", ErrInUse)
	}
	defer leave()
	waiting, cancel := context.WithTimeout(ctx, p.cfg.fixed.Timeout/lockShare)
	defer cancel()
	kept, err := p.repos.Retire(waiting, ref, p.cfg.Times.Departed)
	if err != nil {
		return fmt.Errorf("removing a repository: %w", err)
	}
	if kept {
		p.report.drop("departed")
		p.cfg.Logger.Info("repository retired", keyRepo, graspsync.Printable(ref.String()))
	}
	p.step("removed")
	return nil
}

// hasState reports whether a repository has branches or tags. Anyone can write pull requests, so
// their refs keep no announcement from expiring.
func (p *Purgatory) hasState(ctx context.Context, ref graspsync.RepoRef) (bool, error) {
	dir, unlock, err := p.refUpdater.Lock(ctx, ref, p.cfg.fixed.Timeout/lockShare)
	if errors.Is(err, ErrNoRepository) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer unlock()
	refs, err := p.git.Refs(ctx, dir)
	return refs.HasState(), err
}

func (p *Purgatory) dropRefs(ctx context.Context, ref graspsync.RepoRef, ids ...graspsync.EventID) error {
	if len(ids) == 0 {
		return nil
	}
	dir, unlock, err := p.refUpdater.Lock(ctx, ref, p.cfg.fixed.Timeout)
	if errors.Is(err, ErrNoRepository) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unlock()
	refs, err := p.git.Refs(ctx, dir)
	if err != nil {
		return err
	}
	var changes []refplan.RefChange
	for _, id := range ids {
		name := nip34.EventRef(id)
		if at, exists := refs.At[name]; exists {
			changes = append(changes, refplan.RefChange{Name: name, Old: at})
		}
	}
	if len(changes) == 0 {
		return nil
	}
	if err := p.refUpdater.MoveEach(ctx, ref, dir, changes, nip34.RefName{}); err != nil {
		return fmt.Errorf("removing refs: %w", err)
	}
	return nil
}

// endHold ends or extends a hold. The jobs of an event that stays held after a failure are queued
// again.
func (p *Purgatory) endHold(ctx context.Context, e refplan.Entry) {
	now := time.Now()
	if p.ownFailure(now, e) && p.pending.extend(ctx, e.ID, true) || p.owed(now, e) && p.pending.extend(ctx, e.ID, false) {
		p.pending.endedHold(e.ID)
		return
	}
	ending, err := p.expire(ctx, e.ID)
	failed := err != nil && ctx.Err() == nil
	if failed {
		p.pending.postpone(e.ID, time.Now())
	}
	p.pending.endedHold(e.ID)
	if _, held := p.pending.get(e.ID); !held || !ending {
		return
	}
	p.addJobs(e)
	if failed && p.report.lines.Allow(e.ID.String()+" expiry", now) {
		p.cfg.Logger.Warn("expiring an event failed", keyEvent, e.ID.String(), keyError, graspsync.Printable(err.Error()))
	}
}

// expire ends the hold of an event, first on the disk, if it is still overdue and neither a fetch nor a
// release for it is under way.
func (p *Purgatory) expire(ctx context.Context, id graspsync.EventID) (ending bool, err error) {
	defer p.report.recovered(&err, ofGit)
	ctx, cancel := context.WithTimeout(ctx, p.cfg.fixed.Timeout)
	defer cancel()
	e, ending := p.pending.overdue(id)
	switch {
	case !ending:
		return false, nil
	case e.Class == refplan.Announcement && !e.Soft:
		return true, p.expireSoftly(ctx, e)
	}
	lacking, err := p.relay.lacks(ctx, []graspsync.EventID{id})
	if err != nil {
		return true, err
	}
	if len(lacking) == 0 { // stored before a crash, or held for another repository
		return true, p.pending.forget(ctx, e, Released)
	}
	if err := p.dropPull(ctx, e); err != nil {
		return true, err
	}
	return true, p.pending.expire(ctx, e)
}

// expireSoftly removes the repository of an announcement, unless a push, fetch or release is under
// way or has brought branches or tags.
func (p *Purgatory) expireSoftly(ctx context.Context, e refplan.Entry) error {
	ref := e.Repos[0]
	done, free := p.releasing.TryLock(ref)
	if !free {
		return fmt.Errorf("removing a repository: a release is under way: %w", ErrInUse)
	}
	defer done()
	served, err := p.announcementStored(ctx, ref) // a crash may have prevented the end of the hold
	if err != nil {
		return err
	}
	has := served
	if !served {
		has, err = p.hasState(ctx, ref)
	}
	if err != nil {
		return err
	}
	if has {
		p.jobs.AddRelease(ref, refplan.Reasons{})
		return fmt.Errorf("removing a repository: it is served, or has branches or tags: %w", ErrInUse)
	}
	if err := p.removeRepository(ctx, ref); err != nil {
		return err
	}
	return p.pending.soften(ctx, e)
}

func (p *Purgatory) dropPull(ctx context.Context, e refplan.Entry) error {
	if e.Class != refplan.PullRequest {
		return nil
	}
	var errs []error
	for _, ref := range e.Repos {
		errs = append(errs, p.dropRefs(ctx, ref, e.ID))
	}
	return errors.Join(errs...)
}

// faultFor is the time for which a failure of our store, git or disk extends holds. It exceeds the
// wait for the next release. An event older than faultMost expires as usual.
const (
	faultFor  = 2 * workqueue.RetryMost
	faultMost = 7 * 24 * time.Hour
)

// ownFailure reports whether an event may be complete, and only our own store, git or disk fails.
func (p *Purgatory) ownFailure(now time.Time, entry refplan.Entry) bool {
	return now.Sub(entry.Seen) < faultMost && slices.ContainsFunc(entry.Repos, func(ref graspsync.RepoRef) bool {
		return p.jobs.Fails(graspsync.RepoRef{Identifier: ref.Identifier}) || p.table.get(ref).fault.After(now.Add(-faultFor-p.cfg.fixed.MaxBackoff))
	})
}

// owed reports whether a server of an event was not asked yet because of other requests.
func (p *Purgatory) owed(now time.Time, entry refplan.Entry) bool {
	refs := p.pending.needing(entry)
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.ContainsFunc(refs, func(ref graspsync.RepoRef) bool { return p.queue.Owes(now, ref, entry.Seen) })
}
