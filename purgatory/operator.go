package purgatory

import (
	"context"
	"errors"
	"fmt"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/purgatory/internal/refplan"
)

// Refetch has a repository looked at, and what it lacks hunted for at once: it does not count how
// often that was tried, nor that a server is broken. It returns before anything is fetched; how often
// a server is asked in a minute is bounded all the same. The error wraps [ErrNoRepository] if nobody
// announces the repository.
func (p *Purgatory) Refetch(ctx context.Context, ref graspsync.RepoRef) error {
	about, _, err := p.Announced(ctx, ref)
	switch {
	case err != nil:
		return fmt.Errorf("fetching %s again: %w", graspsync.Printable(ref.String()), err)
	case about == nil:
		return fmt.Errorf("fetching %s again: %w", graspsync.Printable(ref.String()), ErrNoRepository)
	}
	p.table.forgetWalks(ref)
	p.table.touch(ref)
	p.inbox.tell(renewed{ref, about.Clones})
	return nil
}

// Forgive forgets that events have waited for git data of a repository in vain. An announcement of it that has
// expired softly waits again. The others are taken from other relays again, which have to be asked: it returns their
// ids, and a SyncManager does so when its Reconsider is told of [graspsync.OnAsked] for them. Of what waited in vain longer
// ago than is recorded (GivenUpUnknown of [DataState]) the repository is not known. The error is the first of the store; the
// others were forgotten all the same.
func (p *Purgatory) Forgive(ctx context.Context, ref graspsync.RepoRef) (ids []graspsync.EventID, err error) {
	var errs []error
	for _, id := range p.gaveUp(ref) {
		if err := p.pending.again(ctx, id); err != nil {
			errs = append(errs, fmt.Errorf("forgetting that event %s waited in vain: %w", id, err))
			continue
		}
		ids = append(ids, id)
	}
	p.revive(ctx, ref)
	return ids, errors.Join(errs...)
}

// RemovePull removes the ref of a pull request, or update of one, from a repository, served or not; it
// is for who must take that down, after its event is gone. What it brought goes with the next
// maintenance, or with Maintain. One that is not there is no error.
func (p *Purgatory) RemovePull(ctx context.Context, ref graspsync.RepoRef, id graspsync.EventID) error {
	return p.dropRefs(ctx, ref, id)
}

// Dismiss ends the waiting of all events that an operator does not want any more, and has what was
// brought for them go. It may come again, if whoever decides about it accepts it then. It returns
// how many there were. An error is the first; the others were tried all the same, and the call may
// be repeated.
func (p *Purgatory) Dismiss(ctx context.Context, unwanted func(graspsync.Event) bool) (n int, err error) {
	var errs []error
	for _, e := range p.pending.all() {
		if e.Event == nil || !unwanted(e.Signed()) {
			continue
		}
		if err := p.dismiss(ctx, e); err != nil {
			errs = append(errs, fmt.Errorf("event %s: %w", e.ID, err))
			continue
		}
		n++
	}
	return n, errors.Join(errs...)
}

func (p *Purgatory) dismiss(ctx context.Context, e refplan.Entry) error {
	if err := p.dropPull(ctx, e); err != nil {
		return err
	}
	if err := p.pending.forget(ctx, e, Displaced); err != nil {
		return err
	}
	var why refplan.Reasons
	if e.Class == refplan.Announcement {
		p.table.touch(e.Repos[0])
		why.Left = map[graspsync.RepoRef]bool{e.Repos[0]: true}
	}
	for _, identifier := range identifiersOf(e) {
		p.inbox.tell(news{identifier: identifier, why: why})
	}
	return nil
}
