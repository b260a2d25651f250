package purgatory

import (
	"context"
	"errors"
	"fmt"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/purgatory/internal/refplan"
)

// expire ends the hold of an overdue event, first on the disk. It does nothing if the event was
// released, deleted or extended since.
func (p *Purgatory) expire(ctx context.Context, id graspsync.EventID) error {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.fixed.Timeout)
	defer cancel()
	e, due := p.pending.overdue(id)
	if !due {
		return nil // or a release uses it, and it is due again soon
	}
	defer p.pending.notEnding(id)
	if e.Class == refplan.Announcement && !e.Soft {
		return p.expireSoftly(ctx, e)
	}
	has, err := p.relay.has(ctx, id)
	if err != nil {
		return err
	}
	if has || p.pending.isServed(id) { // stored before a crash, or held for another repository
		return p.pending.forget(ctx, e, Released)
	}
	if err := p.dropPull(ctx, e); err != nil {
		return err
	}
	return p.pending.expire(ctx, e)
}

// expireSoftly removes the repository of an announcement, unless a push or fetch is under way or
// has brought branches or tags. Pull requests do not count, because anyone can write them.
func (p *Purgatory) expireSoftly(ctx context.Context, e refplan.Entry) error {
	ref := e.Repos[0]
	served, err := p.reader.accepted(ctx, ref) // a crash may have prevented the end of the hold
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
		p.table.touch(ref) // asks for a release
		return fmt.Errorf("removing a repository: it is served, or has branches or tags: %w", ErrInUse)
	}
	if err := p.removeRepository(ctx, ref); err != nil {
		return err
	}
	return p.pending.soften(ctx, e)
}

// dropPull removes the refs of a pull request that was never served.
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
