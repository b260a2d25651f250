package purgatory

import (
	"context"
	"errors"
	"fmt"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/purgatory/internal/refplan"
)

// expire ends the waiting of an entry whose time is over, on the disk first. What is
// released, deleted or extended meanwhile is left alone.
func (p *Purgatory) expire(ctx context.Context, id graspsync.EventID) error {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.fixed.Timeout)
	defer cancel()
	e, due := p.pending.overdue(id)
	if !due {
		return nil // or it is being released: it is due again soon
	}
	defer p.pending.notEnding(id)
	if e.Class == refplan.Announcement && !e.Soft {
		return p.expireSoftly(ctx, e)
	}
	has, err := p.relay.has(ctx, id)
	if err != nil {
		return err
	}
	if has || p.pending.isServed(id) { // before a crash, or it waited on for another repository
		return p.pending.forget(ctx, e, Released)
	}
	if err := p.dropPull(ctx, e); err != nil {
		return err
	}
	return p.pending.expire(ctx, e)
}

// expireSoftly removes the repository of an announcement, unless a push or a fetch is
// using it, or has brought data to it that a state names. What pull requests have brought
// does not count: anybody may write these.
func (p *Purgatory) expireSoftly(ctx context.Context, e refplan.Entry) error {
	ref := e.Repos[0]
	served, err := p.reader.accepted(ctx, ref) // we were killed before it was struck off
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
		p.table.touch(ref) // it is released for that
		return fmt.Errorf("removing a repository: it is served, or has branches or tags: %w", ErrInUse)
	}
	if err := p.removeRepository(ctx, ref); err != nil {
		return err
	}
	return p.pending.soften(ctx, e)
}

// dropRefs removes the refs of a pull request that was never served.
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
